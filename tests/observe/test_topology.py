"""Resources become rows: who has a bundle, when it last moved, and what is in the air."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from records import broker, bundle, moving_bundle
from trimtab_operator.observe.topology import ClusterRecords, last_unload, topology
from trimtab_operator.state.pending_moves import PendingMove
from trimtab_strategies.model import CPU, MEMORY, BrokerTraits


def picture(*bundles, pending_moves=(), clock=0.0):  # noqa: ANN001, ANN002, ANN201  builders speak for themselves
    return ClusterRecords(
        [broker("x"), broker("y", capacity={"cpu": 4.0})], bundles, {"t-n": "t/n"}, pending_moves, clock
    )


def test_a_move_in_flight_counts_as_done() -> None:
    rows, _ = topology(picture(bundle("a", "x"), moving_bundle("b", "x", "y", lower="0x10000000")), window=60)

    assert rows.owner.tolist() == [0, 1]
    assert rows.in_flight.tolist() == [False, True]


def test_bundles_carry_pulsars_spelling_and_unknown_namespaces_are_left_out() -> None:
    rows, records = topology(picture(bundle("a"), bundle("c", topic_namespace="gone")), window=60)

    assert rows.bundles == ("t/n/0x00000000_0xffffffff",)
    assert [record.name for record in records] == ["a"]


def test_of_bundles_with_one_range_the_one_in_place_counts() -> None:
    """A person may create such a Bundle: it must not end the decisions about all others."""
    twins = [bundle("a-newcomer", ""), bundle("b", "x"), bundle("c", "y", lower="0x10000000")]

    rows, records = topology(picture(*twins), window=60)

    assert rows.bundles == ("t/n/0x00000000_0xffffffff", "t/n/0x10000000_0xffffffff")
    assert [record.name for record in records] == ["b", "c"]
    assert rows.owner.tolist() == [0, 1]


def test_a_bundle_that_is_being_split_is_in_flight() -> None:
    rows, _ = topology(picture(bundle("a", split="halve"), bundle("b", lower="0x10000000")), window=60)

    assert rows.in_flight.tolist() == [True, False]


def test_an_owner_that_is_not_a_broker_counts_as_none() -> None:
    rows, _ = topology(picture(bundle("a", "z")), window=60)

    assert rows.owner.tolist() == [-1]


def test_a_landed_move_is_partly_measured_at_its_source() -> None:
    pending = PendingMove("a", "y", "x", generation=1, since=0, landed=30)

    rows, _ = topology(picture(bundle("a", "x"), pending_moves=[pending], clock=45), window=60)

    assert rows.moving_from.tolist() == [1]
    assert rows.moving_share.tolist() == [pytest.approx(0.75)]


def test_the_start_of_a_container_is_known_where_its_pod_is() -> None:
    records = replace(picture(), traits={"y": BrokerTraits(started=5.0)})

    rows, _ = topology(records, window=60)

    assert np.array_equal(rows.started, [np.nan, 5.0], equal_nan=True)


def test_declared_capacities_override_and_the_others_stay_open() -> None:
    rows, _ = topology(picture(), window=60)

    assert rows.declared_limit[1, CPU] == 4.0
    assert np.isnan(rows.declared_limit[1, MEMORY])
    assert np.isnan(rows.declared_limit[0]).all()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"reason": "Overloaded", "assigned_at": 100.0}, 100.0),
        ({"reason": "Unowned", "assigned_at": 100.0}, math.nan),
        ({"reason": "BrokerLost", "assigned_at": 100.0}, math.nan),
        ({"reason": "Drained", "assigned_at": 100.0}, math.nan),
        ({"reason": "Splitting", "assigned_at": 100.0}, math.nan),
        ({"reason": "Bandwidth", "assigned_at": 100.0}, 100.0),
        ({"assigned_owner": "y", "assigned_at": 100.0, "since": 300.0}, 300.0),
        ({"reason": "Admin", "assigned_at": 9000.0, "since": 300.0}, 300.0),
        ({"assigned_owner": "", "since": 300.0, "generation": 1}, math.nan),
        ({"reason": "Adopted", "assigned_at": 100.0}, 100.0),
        ({"reason": "Found", "assigned_at": 100.0}, math.nan),
    ],
    ids=[
        "balancing",
        "first owner",
        "owner lost",
        "drained",
        "cut out",
        "cut out and moved",
        "moved by a person",
        "noted long after a person moved it",
        "created with an owner",
        "moved by a person",
        "found with an owner",
    ],
)
def test_what_starts_a_cool_down(changes: dict[str, object], expected: float) -> None:
    assert last_unload(bundle(owner="x", **changes)) == pytest.approx(expected, nan_ok=True)
