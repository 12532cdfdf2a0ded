"""ThresholdShedder: who sheds, how much, and what it says when it does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import cluster
from trimtab_strategies.guard import measured
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.threshold import ThresholdShedder, ThresholdShedderParams
from trimtab_strategies.usage import MEBIBYTE


def shed(drawn: ClusterLoad, memory: dict[str, Any] | None = None, **params: Any) -> Shedding:
    """One round; without smoothing unless asked for."""
    shedder = ThresholdShedder(ThresholdShedderParams(**{"history_percent": 0, **params}))
    return shedder.shed(drawn, measured(drawn), memory or {})


def unloads(drawn: ClusterLoad, **params: Any) -> dict[str, list[int]]:
    return {drawn.brokers.names[u.broker]: u.bundles.tolist() for u in shed(drawn, **params).unloads}


def test_equal_load_moves_nothing_and_says_so() -> None:
    shedding = shed(cluster(a=0.5, b=0.5, c=0.5))

    assert not shedding.unloads
    assert shedding.held_back[0].reason is Reason.BALANCED
    assert "50.0 %" in shedding.held_back[0].detail


def test_an_idle_cluster_is_balanced() -> None:
    assert [held.reason for held in shed(cluster(a=0.0, b=0.0)).held_back] == [Reason.BALANCED]


def test_excess_and_five_points_leave_busiest_first() -> None:
    # a 80 %, average 50: excess over 60 is 20 points, with the margin 25 of 100, that is 0.2 of a's own 0.8 in load
    drawn = cluster(a=0.8, b=0.2, bundles={"a": [1, 4, 2, 3], "b": [1]})

    assert unloads(drawn) == {"a": [1]}  # 4 of 10 parts are 0.32 >= 0.2
    assert unloads(drawn, threshold=1) == {"a": [1]}  # wanted 0.8 * 0.34 = 0.272
    assert unloads(cluster(a=0.8, b=0.2, bundles={"a": [1] * 10, "b": [1]})) == {"a": [0, 1, 2]}  # 0.24 >= 0.2


def test_reaching_the_threshold_is_enough() -> None:
    # 75 and 25 %: average 50, and exactly 25 points above it
    assert unloads(cluster(a=0.75, b=0.25), threshold=25) == {"a": [0]}
    assert unloads(cluster(a=0.75, b=0.25), threshold=25.1) == {}


def test_history_delays_a_burst() -> None:
    calm, burst = cluster(a=0.5, b=0.5), cluster(a=1.0, b=0.5)
    memory = shed(calm, history_percent=90).memory

    shedding = shed(burst, memory, history_percent=90)

    assert not shedding.unloads  # smoothed: 0.9 * 50 + 0.1 * 100 = 55 against 50
    assert shedding.memory["brokers"]["ema"] == pytest.approx({"a": 0.55, "b": 0.5})


def test_single_bundle_is_not_shed_but_named() -> None:
    shedding = shed(cluster(a=0.9, b=0.1, bundles={"a": [1], "b": [1]}))

    assert not shedding.unloads
    (held,) = shedding.held_back
    assert (held.subject, held.reason) == ("a", Reason.SOLE_BUNDLE)
    assert "public/a/0x00000000_0xffffffff" in held.detail


def test_broker_whose_bundles_may_not_leave_says_so() -> None:
    drawn = cluster(a=0.9, b=0.1)

    shedding = ThresholdShedder(ThresholdShedderParams()).shed(drawn, np.zeros(len(drawn.bundles), dtype=bool), {})

    assert shedding.held_back == (HeldBack("a", Reason.NO_BUNDLES, "none of its 4 bundles may leave it now"),)


def test_too_little_traffic_is_left_alone() -> None:
    shedding = shed(cluster(a=0.9, b=0.1), min_throughput="1000Mi")

    (held,) = shedding.held_back
    assert (held.subject, held.reason) == ("a", Reason.BELOW_MINIMUM)
    assert held.detail.startswith("thresholdShedder.minThroughput is 1000Mi bytes/s; this broker has ")
    assert shed(cluster(a=0.9, b=0.1), min_throughput=would_act(held.detail)).unloads


@pytest.mark.parametrize("size", [1e-6, 0.0734, 0.7, 12.345, 999.99])
def test_the_minimum_that_is_named_would_act_however_small_the_cluster_is(size: float) -> None:
    load = cluster(a=0.9, b=0.1)
    traffic = load.brokers.traffic * (size * MEBIBYTE / load.brokers.traffic.sum(axis=1)[0])
    small = replace(load, brokers=replace(load.brokers, traffic=traffic))

    (held,) = shed(small, min_throughput="1000000Mi").held_back

    assert shed(small, min_throughput=would_act(held.detail)).unloads


def test_where_nothing_can_move_no_minimum_is_named() -> None:
    load = cluster(a=0.9, b=0.1)
    silent = replace(load, brokers=replace(load.brokers, traffic=load.brokers.traffic * 0))

    (held,) = shed(silent, min_throughput="10Mi").held_back

    assert held.detail == (
        "thresholdShedder.minThroughput is 10Mi bytes/s; this broker has no known traffic to move: no minimum would act"
    )


def would_act(detail: str) -> str:
    """The minimum that a text says would act."""
    return detail.rsplit("; ", maxsplit=1)[-1].split(" ", maxsplit=1)[0]


def test_lower_boundary_takes_from_the_busiest_for_one_far_below() -> None:
    # 60 60 60 60 20: average 52, no broker is 10 above it, and e is 32 below
    drawn = cluster(a=0.6, b=0.6, c=0.6, d=0.6, e=0.2)

    assert not shed(drawn).unloads
    (unload,) = shed(drawn, lower_boundary=True).unloads
    assert (drawn.brokers.names[unload.broker], unload.reason) == ("a", Reason.UNDERLOADED)
    assert unload.bundles.tolist() == [0]


def test_lower_boundary_rests_when_no_broker_is_far_below() -> None:
    shedding = shed(cluster(a=0.55, b=0.5, c=0.45), lower_boundary=True)

    assert [held.reason for held in shedding.held_back] == [Reason.BALANCED]


def test_broker_of_which_nothing_is_known_takes_no_part() -> None:
    drawn = cluster(a=0.9, b=0.5, c=0.1)
    usage = drawn.brokers.usage.copy()
    usage[2] = np.nan

    shedding = shed(replace(drawn, brokers=replace(drawn.brokers, usage=usage)))

    assert [drawn.brokers.names[unload.broker] for unload in shedding.unloads] == ["a"]
    assert shedding.memory["brokers"]["ema"].keys() == {"a", "b"}


def test_weights_choose_the_resource_that_counts() -> None:
    drawn = cluster(a=0.9, b=0.1)  # the network is at a sixth of the CPU's percent

    assert unloads(drawn, cpu_weight=0) == {}
    assert unloads(drawn, cpu_weight=0, network_out_weight=6) != {}


def test_lower_boundary_advances_the_average_once_when_corrected() -> None:
    calm, jump = cluster(a=0.5, b=0.5, c=0.5), cluster(a=0.6, b=0.5, c=0.5)
    memory = dict(shed(calm, history_percent=90).memory)

    smoothed = {
        word: shed(jump, memory, history_percent=90, lower_boundary=True, compatibility=word).memory["brokers"]["ema"][
            "a"
        ]
        for word in ("Java", "Corrected")
    }

    assert smoothed == pytest.approx({"Java": 0.519, "Corrected": 0.51})


def test_corrected_takes_the_share_of_what_bundles_carry() -> None:
    # wanted is 0.25 of a's throughput; the broker reports a tenth of what its bundles carried on average
    drawn = cluster(a=0.8, b=0.2, bundles={"a": [1] * 10, "b": [1]})
    calmed = replace(drawn, brokers=replace(drawn.brokers, traffic=drawn.brokers.traffic / 10))

    assert unloads(calmed) == {"a": [0]}
    assert unloads(calmed, compatibility="Corrected") == {"a": [0, 1, 2]}
