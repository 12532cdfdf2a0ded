"""Virtual owners: they follow names, splits and lost brokers, and nothing that really moves changes them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings, strategies as st

from trim_world import World
from trimtab_strategies.counterfactual.ownership import OwnerChange, RealOwners, VirtualOwners
from trimtab_strategies.hash_ring import bundle_names, default_boundaries
from trimtab_strategies.model import BrokerTraits, ClusterLoad, Move, Reason

BROKERS, BUNDLES = 4, 12

owners = st.lists(st.integers(-1, BROKERS - 1), min_size=BUNDLES, max_size=BUNDLES)
"""The row of each bundle's owner; -1 none."""

drawn_moves = st.tuples(st.integers(0, BUNDLES - 1), st.integers(0, BROKERS - 1))
"""Rows of a bundle and of its destination."""


def world(*rows: int, now: float = 0.0) -> ClusterLoad:
    """A cluster in which bundle k is on broker `rows[k]`."""
    made = World.of(*([1.0] * BUNDLES, *([] for _ in range(BROKERS - 1))))
    made.owner = np.array(rows, dtype=np.int64)
    made.now = now
    return made.cluster()


def move(load: ClusterLoad, bundle: int, source: int, destination: int) -> Move:
    """A move of a bundle, by rows."""
    names, brokers = load.bundles.names, load.brokers.names
    return Move(names[bundle], brokers[source] if source >= 0 else "", brokers[destination], Reason.OVERLOADED)


@given(first=owners, later=st.lists(owners, max_size=4), moves=st.lists(drawn_moves, max_size=8))
@settings(deadline=None)
def test_only_virtual_moves_change_virtual_owners(
    first: list[int], later: list[list[int]], moves: list[tuple[int, int]]
) -> None:
    load, virtual, expected = world(*first), VirtualOwners(), list(first)
    assert virtual.rows(load).tolist() == first
    for bundle, to in moves:
        virtual.take([move(load, bundle, expected[bundle], to)], load)
        expected[bundle] = to

    for real in later:
        assert virtual.rows(world(*real)).tolist() == expected


@given(real=owners, wanted=owners, pins=st.sets(st.integers(0, BUNDLES - 1)))
@settings(deadline=None)
def test_pinned_bundles_have_their_real_owners(real: list[int], wanted: list[int], pins: set[int]) -> None:
    load, virtual = world(*real), VirtualOwners()
    virtual.rows(load)
    virtual.take([move(load, row, real[row], to) for row, to in enumerate(wanted) if to >= 0], load)
    pinned = np.isin(np.arange(BUNDLES), list(pins))
    load = replace(load, bundles=replace(load.bundles, pinned=pinned))
    rows = virtual.rows(load)

    there = pinned & (load.bundles.owner >= 0)
    assert rows[there].tolist() == load.bundles.owner[there].tolist()


def test_names_decide_and_not_rows() -> None:
    load, virtual = world(*[0] * BUNDLES), VirtualOwners()
    virtual.rows(load)
    virtual.take([move(load, 2, 0, 3)], load)
    turned = replace(
        load,
        bundles=replace(load.bundles, names=tuple(reversed(load.bundles.names))),
        brokers=replace(load.brokers, names=tuple(reversed(load.brokers.names))),
    )

    rows = virtual.rows(turned)

    assert rows[BUNDLES - 1 - 2] == 0
    assert (np.delete(rows, BUNDLES - 1 - 2) == BROKERS - 1).all()


def test_what_a_split_makes_of_a_bundle_begins_with_its_virtual_owner() -> None:
    load, virtual = world(*[0] * BUNDLES), VirtualOwners()
    virtual.rows(load)
    virtual.take([move(load, 0, 0, 2)], load)
    halves = tuple(bundle_names("public/default", default_boundaries(2 * BUNDLES)))
    divided = World.of([1.0] * len(halves), *([] for _ in range(BROKERS - 1)), bundles=halves).cluster()

    rows = virtual.rows(divided)

    assert rows.tolist() == [2, 2, *[0] * (2 * BUNDLES - 2)]


def test_bundles_of_a_broker_that_is_not_ready_have_no_owner_until_they_get_one() -> None:
    load, virtual = world(*[0] * 6, *[1] * 6), VirtualOwners()
    virtual.rows(load)
    lost = replace(load, brokers=replace(load.brokers, ready=np.array([True, False, True, True])))
    assert virtual.rows(lost).tolist() == [0] * 6 + [-1] * 6

    virtual.take([move(load, row, -1, 2) for row in range(6, 12)], load)

    assert virtual.rows(load).tolist() == [0] * 6 + [2] * 6
    assert np.isnan(virtual.moved).all(), "an owner for a bundle that has none starts no cool-down"


def test_real_changes_are_moves_unless_the_source_is_lost() -> None:
    real = RealOwners()
    assert real.changes(world(0, 1, 1, -1, *[0] * 8)) == []
    then = world(1, 2, 1, 2, *[0] * 8)

    changes = real.changes(replace(then, brokers=replace(then.brokers, ready=np.array([True, False, True, True]))))

    assert changes == [OwnerChange(then.bundles.names[0], "broker-0", "broker-1")]


def test_owners_that_stay_are_the_same_array() -> None:
    """By it strategies recognise that what they added up for these owners still holds."""
    load, virtual = world(*[0, 1] * 6), VirtualOwners()
    first = virtual.rows(load)
    virtual.take([], load)
    assert virtual.rows(load) is first

    virtual.take([move(load, 0, 0, 2)], load)
    assert virtual.rows(load)[0] == 2
    assert first[0] == 0
    lost = replace(load, brokers=replace(load.brokers, ready=np.arange(BROKERS) != 1))
    assert virtual.rows(lost).tolist() == [2, -1, *[0, -1] * 5]


def test_new_owners_of_a_broker_that_was_away_are_no_real_changes_even_if_it_is_back() -> None:
    before, after = [0] * BUNDLES, [1, *[0] * (BUNDLES - 1)]
    name = world(*before).brokers.names[0]

    def changes(second: ClusterLoad, *, ready: bool = True) -> int:
        real, first = RealOwners(), world(*before, now=100.0)
        up = first.brokers.ready.copy()
        up[0] = ready
        real.changes(replace(first, brokers=replace(first.brokers, ready=up)))
        return len(real.changes(second))

    there = world(*after, now=160.0)
    assert changes(there) == 1
    assert changes(replace(there, traits={name: BrokerTraits(started=50.0)})) == 1
    assert changes(replace(there, traits={name: BrokerTraits(started=130.0)})) == 0
    assert changes(there, ready=False) == 0
