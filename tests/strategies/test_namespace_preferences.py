"""What a namespace prefers: brokers of its zone, and as many of its bundles on each broker."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from planned_moves import PAIR, held, moves, pair_asking_for, plan
from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies import registry
from trimtab_strategies.filters import BrokerSelection
from trimtab_strategies.filters.params import Manager, SelectionParams
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import BrokerTraits, ClusterLoad, Isolation, Memory, NamespacePolicy, Reason
from trimtab_strategies.planner.assign import assign
from trimtab_strategies.planner.decide import Pair, decide
from trimtab_strategies.planner.drain import Drains

BOTH = [pytest.param(manager, id=manager) for manager in Manager]
ZONES = {"a": "east", "b": "east", "c": "west"}


def in_zones(drawn: ClusterLoad, policy: NamespacePolicy, **zones: str) -> ClusterLoad:
    """`drawn` with brokers in `ZONES` or the `zones` given; the policy holds for all of its namespaces."""
    traits = {name: BrokerTraits(failure_domain=zone) for name, zone in (zones or ZONES).items()}
    return replace(drawn, traits=traits, policies=dict.fromkeys(drawn.namespaces, policy))


def candidates(drawn: ClusterLoad, bundle: int = 0, manager: Manager = Manager.EXTENSIBLE) -> dict[str, Reason | None]:
    rows = np.arange(len(drawn.brokers))
    params = SelectionParams(distribute_evenly=False)
    verdict = BrokerSelection(manager, params).on(drawn).candidates(bundle, rows)
    return dict(zip(drawn.brokers.names, verdict.reasons(), strict=True))


@pytest.mark.parametrize("manager", BOTH)
def test_brokers_of_the_zone_come_first(manager: Manager) -> None:
    drawn = in_zones(cluster(bundles={"a": [1], "b": [1], "c": [1]}, a=0.5, b=0.5, c=0.1), NamespacePolicy(zone="east"))

    assert candidates(drawn, 1, manager)["c"] is Reason.ZONE
    assert Reason.ZONE not in {candidates(drawn, 1, manager)[name] for name in "ab"}


@pytest.mark.parametrize("manager", BOTH)
def test_another_zone_is_taken_while_the_own_one_is_crowded(manager: Manager) -> None:
    drawn = in_zones(cluster(bundles=1, a=0.9, b=0.86, c=0.1), NamespacePolicy(zone="east"))

    assert Reason.ZONE not in candidates(drawn, manager=manager).values()


def test_a_zone_without_brokers_rules_nothing_out() -> None:
    drawn = in_zones(cluster(a=0.9, b=0.1, c=0.1), NamespacePolicy(zone="north"))

    assert set(candidates(drawn).values()) == {None}


def test_isolation_is_a_rule_and_the_zone_only_a_preference() -> None:
    drawn = in_zones(cluster(a=0.9, b=0.1, c=0.1), NamespacePolicy(isolation=Isolation(("c",)), zone="east"))

    assert candidates(drawn) == {"a": Reason.ISOLATION, "b": Reason.ISOLATION, "c": None}


def test_a_plan_stays_in_the_zone_even_if_the_shedder_names_another_broker() -> None:
    drawn = cluster(a=0.9, b=0.3, c=0.2, d=0.1, bundles={"a": [1, 3], "b": [1], "c": [1], "d": [1]})
    zoned = in_zones(drawn, NamespacePolicy(zone="east"), a="east", b="west", c="west", d="east")

    assert moves(plan(zoned, pair_asking_for(0, [0], 1))) == [("a/0x00000000_0x80000000", "a", "d")]


def test_a_bundle_of_a_broker_with_the_only_room_in_its_zone_says_why_it_stays() -> None:
    drawn = in_zones(cluster(a=0.8, b=0.1, c=0.1, bundles=10), NamespacePolicy(zone="east"), a="east", b="w", c="w")

    made = plan(drawn)

    assert made.empty
    assert held(made)[Reason.ZONE] == "a"


def test_a_drain_leaves_the_zone_rather_than_wait() -> None:
    drawn = cluster(bundles={"a": [1], "b": [1], "c": [1]}, a=0.4, b=0.8, c=0.1)
    zoned = in_zones(drawn, NamespacePolicy(zone="east"))
    drains = Drains(drained=frozenset({"a"}))

    made = decide(zoned, PAIR, MoveLimits(), Memory(), np.random.default_rng(0), drains=drains).plan

    assert [(move.source, move.destination) for move in made.moves] == [("a", "c")]


def test_a_bundle_without_an_owner_gets_one_in_the_zone() -> None:
    drawn = in_zones(cluster(a=0.3, b=0.3, c=0.1, unowned=4), NamespacePolicy(zone="east"))
    rows = np.flatnonzero(drawn.bundles.owner < 0)

    made = assign(drawn, rows, PAIR.placement, MoveLimits(), Memory(), np.random.default_rng(0), Reason.UNOWNED).plan

    assert {move.destination for move in made.moves} == {"a", "b"}


def test_bundles_without_an_owner_leave_a_zone_that_they_would_overload() -> None:
    sizes = {"a": [1.0] * 8, "b": [1.0] * 8, "c": [1.0]}
    drawn = in_zones(cluster(bundles=sizes, a=0.7, b=0.7, c=0.1), NamespacePolicy(zone="east"))
    lost = with_bundles(drawn, owner=dict.fromkeys(range(8), -1))
    alone = replace(lost, brokers=replace(lost.brokers, ready=np.array([False, True, True])))

    made = assign(
        alone, np.arange(8), PAIR.placement, MoveLimits(), Memory(), np.random.default_rng(0), Reason.BROKER_LOST
    ).plan

    counts = Counter(move.destination for move in made.moves)
    assert counts["b"] >= 1
    assert counts["c"] >= 5


def owned_by(*owners: int) -> ClusterLoad:
    """Three brokers; the bundles of ``public/a`` have these owners (rows). Its load was never measured."""
    drawn = cluster(bundles={"a": [1] * len(owners)}, a=0.5, b=0.1, c=0.1)
    placed = with_bundles(drawn, owner=dict(enumerate(owners)))
    return replace(placed, policies={"public/a": NamespacePolicy(spread=True)})


@pytest.mark.parametrize("manager", BOTH)
@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ((0, 0, 1), "c"),  # the other bundle of a, and that of b
        ((0, 1, 2), "a"),  # a move would leave two on one broker
        ((0, 0, 1, 2), "abc"),  # a has two, so one may leave; the others have one each
        ((0, 0, 0), "bc"),
    ],
)
def test_only_brokers_with_the_fewest_other_bundles_get_one(
    owners: tuple[int, ...], expected: str, manager: Manager
) -> None:
    found = candidates(owned_by(*owners), manager=manager)

    assert [name for name, why in found.items() if why is None] == list(expected)
    assert set(found.values()) <= {None, Reason.UNEVEN}


@given(st.integers(1, 30), st.integers(2, 7), st.integers(0, 99))
def test_bundles_without_an_owner_are_spread_evenly(bundles: int, brokers: int, seed: int) -> None:
    names = [f"b{row}" for row in range(brokers)]
    drawn = cluster(bundles=0, unowned=bundles, **dict.fromkeys(names, 0.2))
    spread = replace(drawn, policies={"public/new": NamespacePolicy(spread=True)})
    rng = np.random.default_rng(seed)

    made = assign(spread, np.arange(bundles), PAIR.placement, MoveLimits(), Memory(), rng, Reason.UNOWNED).plan

    counts = [sum(move.destination == name for move in made.moves) for name in names]
    assert sum(counts) == bundles
    assert max(counts) - min(counts) <= 1


@given(st.lists(st.integers(0, 2), min_size=2, max_size=8), st.integers(0, 99))
def test_a_plan_never_makes_a_spread_namespace_less_even(owners: list[int], seed: int) -> None:
    drawn = owned_by(*owners)
    busy = replace(drawn, brokers=replace(drawn.brokers, usage=np.roll(drawn.brokers.usage, seed, axis=0)))
    before = np.bincount(owners, minlength=3)

    made = decide(busy, PAIR, MoveLimits(), Memory(), np.random.default_rng(seed)).plan

    after = before.copy()
    for move in made.moves:
        after["abc".index(move.source)] -= 1
        after["abc".index(move.destination)] += 1
    assert after.max() - after.min() <= max(1, before.max() - before.min())


def test_trim_looks_for_destinations_of_each_owner_s_bundles() -> None:
    pair = Pair(registry.pair("Trim", {}, "Trim", {}).shedder, PAIR.placement)
    drawn = owned_by(0, 0, 1)
    selection = BrokerSelection().on(drawn)

    assert pair.shedder is not None
    assert len(set(selection.kinds()[:3].tolist())) == 2  # those of a, and that of b
