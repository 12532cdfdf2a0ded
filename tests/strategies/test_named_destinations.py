"""Destinations that the shedder names, and swaps: taken as they are, left to the placement, or dropped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planned_moves import FOUR_BROKERS, FixedPlacement, FixedShedder, held, moves, pair_asking_for, plan
from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies.model import CPU, Reason
from trimtab_strategies.planner.decide import Pair
from trimtab_strategies.protocols import Unload


def test_named_destination_that_should_give_itself_is_not_taken() -> None:
    proposed = ((0, 0, 1), (1, 10, 2))  # a's first bundle to b, b's first to c
    unloads = tuple(Unload(broker, np.array([row]), Reason.OVERLOADED, to) for broker, row, to in proposed)

    made = plan(cluster(a=0.9, b=0.6, c=0.3, d=0.1, bundles=10), Pair(FixedShedder(unloads), FixedPlacement((3,))))

    assert moves(made) == [("a/0x00000000_0x19999999", "a", "d"), ("b/0x00000000_0x19999999", "b", "c")]


def test_destination_that_the_shedder_names_is_taken() -> None:
    made = plan(FOUR_BROKERS, pair_asking_for(0, [0], 1))

    assert moves(made) == [("a/0x00000000_0x80000000", "a", "b")]
    assert made.target_weights == {"a": 1.0}


def test_named_destination_that_would_be_worse_off_leaves_it_to_the_placement() -> None:
    drawn = replace(
        FOUR_BROKERS, brokers=replace(FOUR_BROKERS.brokers, usage=FOUR_BROKERS.brokers.usage * [[1], [2.5], [1], [1]])
    )

    assert moves(plan(drawn, pair_asking_for(0, [0], 1))) == [("a/0x00000000_0x80000000", "a", "d")]


def test_named_destination_that_takes_no_bundles_leaves_it_to_the_placement() -> None:
    brokers = replace(FOUR_BROKERS.brokers, schedulable=np.array([True, False, True, True]))

    assert moves(plan(replace(FOUR_BROKERS, brokers=brokers), pair_asking_for(0, [0], 1))) == [
        ("a/0x00000000_0x80000000", "a", "d")
    ]


def test_named_destination_is_the_right_one_when_a_broker_before_it_is_left_out() -> None:
    drawn = cluster(x=0.0, a=0.9, b=0.3, c=0.2, lost="x", bundles=2)

    made = plan(drawn, pair_asking_for(0, [2], 1))  # rows of the brokers that take part: a, b, c

    assert moves(made) == [("a/0x00000000_0x80000000", "a", "b")]


def test_swap_is_made_where_a_move_would_not_fit() -> None:
    # a's bundle of 67 points would take b above a; against b's of 30 both end below 90
    made = plan(FOUR_BROKERS, pair_asking_for(0, [1], 1, returned=[2]))

    assert moves(made) == [("a/0x80000000_0xffffffff", "a", "b"), ("b/0x00000000_0xffffffff", "b", "a")]
    assert made.after[:2, CPU] == pytest.approx([90 - 67.5 + 30, 67.5])


def test_swap_that_makes_an_end_worse_off_is_not_made() -> None:
    drawn = cluster(a=0.9, b=0.8, c=0.2, d=0.1, bundles={"a": [1, 8], "b": [1], "c": [1], "d": [1]})

    made = plan(drawn, pair_asking_for(0, [0], 1, returned=[2]))  # ten points against eighty

    assert made.empty
    assert held(made) == {Reason.NO_CANDIDATE: "a"}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"max_moves_per_cycle": 1}, Reason.CYCLE_CAP), ({"max_moves_per_broker": 0}, Reason.BROKER_CAP)],
)
def test_swap_is_never_made_by_half(limits: dict[str, int], reason: Reason) -> None:
    made = plan(FOUR_BROKERS, pair_asking_for(0, [1], 1, returned=[2]), **limits)

    assert made.empty
    assert held(made) == {reason: "a"}


def test_swap_with_a_pinned_bundle_is_dropped_as_a_whole() -> None:
    assert plan(with_bundles(FOUR_BROKERS, pinned={2: True}), pair_asking_for(0, [1], 1, returned=[2])).empty


def test_swap_with_a_broker_that_takes_no_bundles_is_not_made() -> None:
    brokers = replace(FOUR_BROKERS.brokers, schedulable=np.array([False, True, True, True]))

    assert (
        held(plan(replace(FOUR_BROKERS, brokers=brokers), pair_asking_for(0, [1], 1, returned=[2]))).get(
            Reason.UNSCHEDULABLE
        )
        == "a"
    )
