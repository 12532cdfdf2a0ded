"""OverloadShedder: who is above the limit, how much leaves, and what it says when nothing does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from strategy_testing.clusters import cluster
from trimtab_strategies.guard import measured
from trimtab_strategies.model import ClusterLoad, Reason
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.overload import OverloadShedder, OverloadShedderParams


def shed(drawn: ClusterLoad, **params: Any) -> Shedding:
    return OverloadShedder(OverloadShedderParams(**params)).shed(drawn, measured(drawn), {})


def unloads(drawn: ClusterLoad, **params: Any) -> dict[str, list[int]]:
    return {drawn.brokers.names[u.broker]: u.bundles.tolist() for u in shed(drawn, **params).unloads}


def with_reported_traffic(drawn: ClusterLoad, factor: float) -> ClusterLoad:
    """The cluster whose brokers report `factor` times what their bundles carry."""
    return replace(drawn, brokers=replace(drawn.brokers, traffic=drawn.brokers.traffic * factor))


def test_brokers_below_the_limit_keep_everything() -> None:
    shedding = shed(cluster(a=0.84, b=0.05))

    assert not shedding.unloads
    (held,) = shedding.held_back
    assert (held.subject, held.reason) == ("", Reason.BALANCED)
    assert held.detail == "highest is a at 84.0 %, limit 85 % (overloadShedder.overloadThreshold)"


def test_reaching_the_limit_is_enough() -> None:
    assert unloads(cluster(a=0.85, b=0.1)) == {"a": [0]}


def test_excess_and_five_points_leave_busiest_first() -> None:
    # a 95 %: 10 points above the limit and the margin of 5 are 0.15 of its throughput, that is 1.5 of ten parts
    assert unloads(cluster(a=0.95, b=0.1, bundles={"a": [1, 1, 7, 1], "b": [1]})) == {"a": [2]}
    assert unloads(cluster(a=0.95, b=0.1, bundles={"a": [1] * 10, "b": [1]})) == {"a": [0, 1]}


def test_every_broker_is_judged_by_itself() -> None:
    assert unloads(cluster(a=0.9, b=0.95, c=0.1)).keys() == {"a", "b"}
    assert unloads(cluster(a=0.9, b=0.9)).keys() == {"a", "b"}


def test_corrected_sheds_nothing_when_all_are_overloaded() -> None:
    shedding = shed(cluster(a=0.9, b=0.95), compatibility="Corrected")

    assert not shedding.unloads
    assert shedding.held_back[0].reason is Reason.NO_CANDIDATE
    assert unloads(cluster(a=0.9, b=0.95, c=0.1), compatibility="Corrected").keys() == {"a", "b"}


def test_corrected_takes_the_share_of_what_bundles_carry() -> None:
    # the broker reports a tenth of what its bundles carried on average: the burst is over
    calmed = with_reported_traffic(cluster(a=0.95, b=0.1, bundles={"a": [1] * 10, "b": [1]}), 0.1)

    assert unloads(calmed) == {"a": [0]}
    assert unloads(calmed, compatibility="Corrected") == {"a": [0, 1]}


def test_single_bundle_is_not_shed_but_named() -> None:
    (held,) = shed(cluster(a=0.9, b=0.1, bundles={"a": [1], "b": [1]})).held_back

    assert (held.subject, held.reason) == ("a", Reason.SOLE_BUNDLE)
    assert "public/a/0x00000000_0xffffffff" in held.detail


def test_broker_whose_bundles_may_not_leave_says_so() -> None:
    drawn = cluster(a=0.9, b=0.1)

    shedding = OverloadShedder(OverloadShedderParams()).shed(drawn, np.zeros(len(drawn.bundles), dtype=bool), {})

    assert [(held.subject, held.reason) for held in shedding.held_back] == [("a", Reason.NO_BUNDLES)]


def test_weights_choose_the_resource_that_counts() -> None:
    drawn = cluster(a=0.9, b=0.1)  # the network is at a sixth of the CPU's percent

    assert unloads(drawn, cpu_weight=0) == {}
    assert unloads(drawn, cpu_weight=0, network_out_weight=6) == {"a": [0]}


def test_broker_of_which_nothing_is_known_takes_no_part() -> None:
    drawn = cluster(a=0.9, b=0.9)
    usage = drawn.brokers.usage.copy()
    usage[1] = np.nan

    assert unloads(replace(drawn, brokers=replace(drawn.brokers, usage=usage))).keys() == {"a"}
