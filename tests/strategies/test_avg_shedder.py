"""AvgShedder: which brokers are paired, when a pair acts, what moves, and what it remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies.guard import MoveLimits, measured
from trimtab_strategies.model import THROUGHPUT_IN, THROUGHPUT_OUT, ClusterLoad, Memory, Reason
from trimtab_strategies.planner.decide import Pair, decide
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.avg import AvgShedder, AvgShedderParams, AvgShedderPlacement, AvgShedderPlacementParams

BOTH = pytest.mark.parametrize("compatibility", ["Java", "Corrected"])
EVEN = {"hit_count_high": 1, "max_unload_percent": 50}
"""Acts in its first cycle, and evens a pair out."""


def shed(drawn: ClusterLoad, memory: Mapping[str, Any] | None = None, **params: Any) -> Shedding:
    return AvgShedder(AvgShedderParams(**params)).shed(drawn, measured(drawn), memory or {})


def moves(drawn: ClusterLoad, shedding: Shedding) -> dict[str, tuple[str, list[int]]]:
    """By source, the destination and the rows that leave."""
    names = drawn.brokers.names
    return {names[u.broker]: (names[u.destination], u.bundles.tolist()) for u in shedding.unloads}


def counters(shedding: Shedding) -> tuple[dict[str, float], dict[str, float]]:
    return shedding.memory["brokers"]["hitHigh"], shedding.memory["brokers"]["hitLow"]


def after(rounds: int, drawn: ClusterLoad, **params: Any) -> Shedding:
    shedding = shed(drawn, **params)
    for _ in range(rounds - 1):
        shedding = shed(drawn, shedding.memory, **params)
    return shedding


def test_brokers_close_together_move_nothing_and_say_so() -> None:
    shedding = shed(cluster(a=0.5, b=0.4, c=0.45))

    assert not shedding.unloads
    assert [(held.reason, held.detail) for held in shedding.held_back] == [
        (Reason.BALANCED, "a is 10.0 points above b; 15 points are needed (avgShedder.lowThreshold)")
    ]


def test_the_busiest_gives_to_the_idlest_and_the_next_to_the_next() -> None:
    drawn = cluster(a=0.1, b=0.2, c=0.5, d=0.9, e=1.0, bundles=10)

    shedding = shed(drawn, hit_count_low=1, max_unload_percent=50)

    # e has 10 parts of 0.1 and gives half of 0.9; d gives half of 0.7 in parts of 0.09; c meets itself
    assert moves(drawn, shedding) == {"e": ("a", [40, 41, 42, 43]), "d": ("b", [30, 31, 32])}
    assert {unload.reason for unload in shedding.unloads} == {Reason.OVERLOADED}


def test_pairs_wait_for_two_cycles_when_far_apart_and_for_eight_when_apart() -> None:
    far, apart = cluster(a=0.9, b=0.4, bundles=20), cluster(a=0.7, b=0.4, bundles=20)

    assert [bool(after(rounds, far).unloads) for rounds in (1, 2, 3, 4)] == [False, True, False, True]
    assert [bool(after(rounds, apart).unloads) for rounds in (1, 2, 7, 8, 9)] == [False] * 3 + [True, False]


def test_a_waiting_pair_says_how_far_for_how_long_and_how_many_cycles_are_needed() -> None:
    (held,) = after(1, cluster(a=0.9, b=0.4)).held_back

    assert (held.subject, held.reason) == ("a", Reason.HIT_COUNT)
    low = "15 or more in 1 of 8 cycles in a row (avgShedder.hitCountLow)"
    assert held.detail == f"50.0 points above b: {low}, 40 or more in 1 of 2 (hitCountHigh)"


def test_a_pair_that_is_not_far_apart_is_reported_with_the_longer_count_alone() -> None:
    (held,) = after(3, cluster(a=0.7, b=0.4), hit_count_low=5).held_back

    assert held.detail == "30.0 points above b: 15 or more in 3 of 5 cycles in a row (avgShedder.hitCountLow)"


def test_coming_close_clears_the_counters() -> None:
    first = shed(cluster(a=0.9, b=0.4))
    close = shed(cluster(a=0.5, b=0.4), first.memory)
    again = shed(cluster(a=0.9, b=0.4), close.memory)

    assert counters(close) == ({}, {})
    assert counters(again) == ({"a": 1, "b": 1}, {"a": 1, "b": 1})


def test_a_pair_that_is_no_longer_far_apart_counts_on_as_apart() -> None:
    first = shed(cluster(a=0.9, b=0.4))

    second = shed(cluster(a=0.6, b=0.4), first.memory)

    assert counters(second) == ({"a": 0, "b": 0}, {"a": 2, "b": 2})


@BOTH
def test_bytes_count_when_too_few_messages_would_move(compatibility: str) -> None:
    drawn = cluster(a=0.9, b=0.1, bundles=10)
    silent = with_rates(drawn, 0.0)

    assert moves(silent, shed(silent, compatibility=compatibility, **EVEN)) == {"a": ("b", [0, 1, 2, 3])}


def with_rates(drawn: ClusterLoad, factor: float) -> ClusterLoad:
    """The cluster with other message rates and the same bytes."""
    columns = np.array([factor, factor, 1, 1])
    brokers = replace(drawn.brokers, traffic=drawn.brokers.traffic * columns)
    return replace(drawn, brokers=brokers, bundles=replace(drawn.bundles, short=drawn.bundles.short * columns))


def test_too_little_traffic_is_left_alone_and_costs_java_its_counters() -> None:
    params = {**EVEN, "min_rate": 10**9, "min_throughput": 10**12}
    java, corrected = (shed(cluster(a=0.9, b=0.1), compatibility=word, **params) for word in ("Java", "Corrected"))

    assert java.held_back[0].reason is corrected.held_back[0].reason is Reason.BELOW_MINIMUM
    assert counters(java) == ({}, {})
    assert counters(corrected) == ({"a": 1, "b": 1}, {"a": 1, "b": 1})
    rate, throughput = java.held_back[0].detail.split("; or ")
    assert rate.startswith("avgShedder.minRate is 1000000000 msg/s; this broker has ")
    assert throughput.startswith("avgShedder.minThroughput is 1000000000000 bytes/s; this broker has ")
    named = {"min_rate": int(rate.split("; ")[-1].split(" ")[0])}
    assert shed(cluster(a=0.9, b=0.1), **{**params, **named}).unloads
    named = {"min_throughput": throughput.split("; ")[-1].split(" ")[0]}
    assert shed(cluster(a=0.9, b=0.1), **{**params, **named}).unloads


def test_bundles_that_do_not_fit_and_silent_ones_stay() -> None:
    # a's parts of 0.9: 0.75 does not fit into half of 0.8, 0.15 does, the silent one has nothing to move
    drawn = cluster(a=0.9, b=0.1, bundles={"a": [5, 1, 0], "b": [1]})

    assert moves(drawn, shed(drawn, **EVEN)) == {"a": ("b", [1])}


def test_an_only_bundle_leaves_in_java_alone() -> None:
    drawn = cluster(a=0.9, b=0.1, bundles={"a": [1], "b": [1]})
    drawn = with_rates(drawn, 1)
    small = with_bundles(drawn, short={0: drawn.bundles.short[0] / 10})  # its average is behind the broker's report

    java, corrected = (shed(small, compatibility=word, **EVEN) for word in ("Java", "Corrected"))

    assert moves(small, java) == {"a": ("b", [0])}
    assert corrected.held_back[0].reason is Reason.SOLE_BUNDLE


def test_the_busier_broker_s_own_count_decides_when_corrected() -> None:
    """b has long been idle, c is busy for the first time, and a, the busy one until now, has gone."""
    first = {"brokers": {"hitHigh": {"b": 1}, "hitLow": {"b": 1}}}
    drawn = cluster(b=0.1, c=0.9, bundles=10)

    java, corrected = (shed(drawn, first, compatibility=word) for word in ("Java", "Corrected"))

    assert moves(drawn, java).keys() == {"c"}
    assert moves(drawn, corrected) == {}
    assert corrected.held_back[0].reason is Reason.HIT_COUNT


@pytest.mark.parametrize(("compatibility", "idlest"), [("Java", "broker-2:8080"), ("Corrected", "broker-0:8080")])
def test_equal_scores_come_in_the_order_of_java_s_map_or_by_name(compatibility: str, idlest: str) -> None:
    # the map shows 2, 1, 3, 0
    drawn = cluster(**{"broker-0:8080": 0.1, "broker-1:8080": 0.9, "broker-2:8080": 0.1, "broker-3:8080": 0.8})

    found = moves(drawn, shed(drawn, compatibility=compatibility, **EVEN))

    assert found["broker-1:8080"][0] == idlest


def test_broker_of_which_nothing_is_known_takes_no_part() -> None:
    drawn = cluster(a=0.9, b=0.1, c=0.0)
    usage = drawn.brokers.usage.copy()
    usage[2] = np.nan

    shedding = shed(replace(drawn, brokers=replace(drawn.brokers, usage=usage)), **EVEN)

    assert {source: to for source, (to, _) in moves(drawn, shedding).items()} == {"a": "b"}


def test_the_balancer_moves_inside_the_pair() -> None:
    drawn = cluster(a=0.1, b=0.2, c=0.8, d=0.9, bundles=10)
    placement = AvgShedderPlacement(AvgShedderPlacementParams())
    pair = Pair(AvgShedder(AvgShedderParams(**EVEN)), placement)

    plan = decide(drawn, pair, MoveLimits(), Memory(), np.random.default_rng(0)).plan

    assert {(move.source, move.destination) for move in plan.moves} == {("d", "a"), ("c", "b")}


class TestPlacement:
    """Where a bundle goes: the other half of the original."""

    @BOTH
    def test_the_planned_broker_is_chosen_while_it_is_a_candidate(self, compatibility: str) -> None:
        drawn = cluster(a=0.9, b=0.1, c=0.5)
        memory = shed(drawn, compatibility=compatibility, **EVEN).memory
        placement = AvgShedderPlacement(AvgShedderPlacementParams(compatibility=compatibility))

        assert placement.planned(drawn, 0, memory) == "b"
        assert placement.best(drawn, 0, np.array([0, 1, 2]), memory).brokers.tolist() == [1]
        assert placement.best(drawn, 0, np.array([0, 2]), memory).brokers.tolist() == [0, 2]
        assert placement.best(drawn, 5, np.array([0, 2]), memory).brokers.tolist() == [0, 2]

    @BOTH
    def test_a_pick_is_the_plan_from_then_on(self, compatibility: str) -> None:
        drawn, everyone = cluster(a=0.5, b=0.4, c=0.5), np.arange(3)
        placement = AvgShedderPlacement(AvgShedderPlacementParams(compatibility=compatibility))

        memory = placement.chosen(drawn, 0, 2, placement.best(drawn, 0, everyone, {}).memory)

        assert placement.best(drawn, 0, everyone, memory).brokers.tolist() == [2]

    def test_java_loses_its_plan_with_the_next_report(self) -> None:
        drawn = cluster(a=0.9, b=0.1)
        later = with_bundles(drawn, short={0: drawn.bundles.short[0] * 2})
        placement = AvgShedderPlacement(AvgShedderPlacementParams())
        memory = shed(drawn, **EVEN).memory

        assert placement.planned(drawn, 0, memory) == "b"
        assert placement.planned(later, 0, memory) is None

    def test_java_shares_a_plan_among_bundles_with_equal_statistics(self) -> None:
        drawn = cluster(a=0.9, b=0.1)
        memory = shed(drawn, **EVEN).memory
        java, corrected = (
            AvgShedderPlacement(AvgShedderPlacementParams(compatibility=word)) for word in ("Java", "Corrected")
        )

        assert java.planned(drawn, 3, memory) == "b"  # bundle 3 was not shed, but is like those that were
        assert corrected.planned(drawn, 3, shed(drawn, compatibility="Corrected", **EVEN).memory) is None

    def test_a_plan_comes_back_with_the_statistics_it_was_made_of(self) -> None:
        drawn = cluster(a=0.9, b=0.1, bundles={"a": [4, 3, 2, 1], "b": [1]})
        changed = with_bundles(drawn, short={1: drawn.bundles.short[1] * 2})
        placement = AvgShedderPlacement(AvgShedderPlacementParams())
        memory = placement.chosen(drawn, 1, 1, {})

        assert [placement.planned(world, 1, memory) for world in (drawn, changed, drawn)] == ["b", None, "b"]

    def test_a_plan_of_another_snapshot_does_not_count_when_corrected(self) -> None:
        drawn = cluster(a=0.9, b=0.1)
        placement = AvgShedderPlacement(AvgShedderPlacementParams(compatibility="Corrected"))
        memory = placement.chosen(drawn, 0, 1, {})

        assert placement.planned(replace(drawn, now=drawn.now + 60), 0, memory) is None

    def test_fresh_bundles_share_no_plan(self) -> None:
        drawn = cluster(a=0.5, b=0.4, unowned=2)
        placement = AvgShedderPlacement(AvgShedderPlacementParams())

        assert placement.chosen(drawn, 8, 1, {}) == {}

    @BOTH
    def test_a_plan_has_an_end(self, compatibility: str) -> None:
        drawn = cluster(a=0.5, b=0.4, bundles=600)
        short = np.arange(4800.0).reshape(1200, 4)
        drawn = replace(drawn, bundles=replace(drawn.bundles, short=short))
        placement = AvgShedderPlacement(AvgShedderPlacementParams(compatibility=compatibility))

        memory: Mapping[str, Any] = {}
        for bundle in range(1200):
            memory = placement.chosen(drawn, bundle, 1, memory)

        plan = memory["plan" if compatibility == "Corrected" else "planByStatistics"]
        assert len(plan) == 1000
        assert [placement.planned(drawn, bundle, memory) for bundle in (0, 199, 200, 1199)] == [None, None, "b", "b"]


def test_traffic_columns_are_what_the_drawing_says() -> None:
    """The sums above rest on it: a broker's bytes are its CPU ratio times `FULL`."""
    traffic = cluster(a=0.9, b=0.1).brokers.traffic

    total = traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT]
    assert total[0] == pytest.approx(9 * total[1])
