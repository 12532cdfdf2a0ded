"""UniformLoadShedder: when the busiest broker has too much more than the idlest, and what leaves it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import cluster
from trimtab_strategies.guard import measured
from trimtab_strategies.model import RATE_IN, THROUGHPUT_IN, ClusterLoad, Reason
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.uniform import UniformLoadShedder, UniformLoadShedderParams

MIB = 1048576


def world(column: int, **bundles: list[float]) -> ClusterLoad:
    """Brokers with bundles of these values in one column of their traffic; a broker reports the sum of its own."""
    drawn = cluster(bundles=bundles, **dict.fromkeys(bundles, 0.5))
    short = np.zeros((len(drawn.bundles), 4))
    short[:, column] = [value for own in bundles.values() for value in own]
    traffic = np.zeros((len(bundles), 4))
    traffic[:, column] = [sum(own) for own in bundles.values()]
    brokers = replace(drawn.brokers, traffic=traffic)
    return replace(drawn, brokers=brokers, bundles=replace(drawn.bundles, short=short, long=short))


def shed(drawn: ClusterLoad, **params: Any) -> Shedding:
    return UniformLoadShedder(UniformLoadShedderParams(**params)).shed(drawn, measured(drawn), {})


def taken(drawn: ClusterLoad, **params: Any) -> dict[str, list[int]]:
    """By broker the rows that leave, counted from the broker's own first one."""
    unloads = shed(drawn, **params).unloads
    return {drawn.brokers.names[u.broker]: (u.bundles - drawn.bundles.owned_by(u.broker)[0]).tolist() for u in unloads}


def test_equal_traffic_moves_nothing_and_says_so() -> None:
    (held,) = shed(world(RATE_IN, a=[5000, 5000], b=[5000, 5000])).held_back

    assert held.reason is Reason.BALANCED
    assert held.detail.startswith("1e+04 msg/s at most and 1e+04 at least")


def test_bundles_leave_that_fit_into_a_share_of_the_lead() -> None:
    # (10000 - 200) * 0.2 = 1960: 5000 and 3000 are too big, 1500 leaves 460, 400 leaves 60, 100 does not fit
    assert taken(world(RATE_IN, a=[5000, 3000, 1500, 400, 100], b=[200])) == {"a": [2, 3]}


def test_throughput_counts_when_rates_are_alike() -> None:
    # (100 - 10) MiB/s * 0.2 = 18
    drawn = world(THROUGHPUT_IN, a=[12.0 * MIB, 7.0 * MIB, 81.0 * MIB], b=[10.0 * MIB, 0])

    assert taken(drawn) == {"a": [0]}
    assert taken(drawn, throughput_factor=10) == {}
    assert taken(drawn, throughput_factor=0) == {}


def test_a_lead_that_is_just_allowed_moves_nothing() -> None:
    drawn = world(RATE_IN, a=[7500, 7500], b=[10000])

    assert taken(drawn, max_unload_percent=100) == {}
    assert taken(drawn, rate_difference=49, max_unload_percent=100, min_rate=0) == {}  # 7500 do not fit into 5000
    assert taken(drawn, rate_difference=49, max_unload_percent=100, min_rate=0).keys() <= {"a"}


def test_an_idle_broker_counts_as_one_message() -> None:
    (held,) = shed(world(RATE_IN, a=[0.7, 0.7], b=[0])).held_back

    assert held.reason is Reason.BALANCED  # (1.4 - 1) * 100 / 1 = 40 %


def test_differences_that_are_small_enough_are_shown_with_those_that_are_needed() -> None:
    drawn = world(RATE_IN, a=[700, 700], b=[1000])
    messages, factor = "50 % more messages (uniformLoadShedder.rateDifference)", "uniformLoadShedder.throughputFactor"

    both, bytes_alone, none = (
        shed(drawn, **params).held_back[0].detail
        for params in ({}, {"rate_difference": 0}, {"rate_difference": 0, "throughput_factor": 0})
    )
    assert both.endswith(f"; more than {messages} or 4 times the bytes ({factor}) would act")
    assert bytes_alone.endswith(f"; more than 4 times the bytes ({factor}) would act")
    assert none.endswith("; both rules are off")


def test_too_little_to_move_is_named() -> None:
    (held,) = shed(world(RATE_IN, a=[2000, 2000], b=[1000])).held_back

    assert (held.subject, held.reason) == ("a", Reason.BELOW_MINIMUM)
    assert held.detail == (
        "uniformLoadShedder.minRate is 1000 msg/s; this broker has 600 msg/s to move; 600 msg/s or less would act"
    )
    assert taken(world(RATE_IN, a=[500, 3500], b=[1000]), min_rate=600) == {"a": [0]}


def test_at_most_so_many_bundles_leave() -> None:
    drawn = world(RATE_IN, a=[900, 500, 400, 8200], b=[10])

    assert taken(drawn) == {"a": [0, 1, 2]}
    assert taken(drawn, max_bundles=2) == {"a": [0, 1]}
    assert taken(drawn, max_bundles=0) == {}


def test_single_bundle_is_not_shed_but_named() -> None:
    (held,) = shed(world(RATE_IN, a=[90000], b=[10, 10])).held_back

    assert (held.subject, held.reason) == ("a", Reason.SOLE_BUNDLE)


def test_bundles_without_traffic_leave_only_in_java() -> None:
    drawn = world(RATE_IN, a=[1500, 0, 8500], b=[10])

    assert taken(drawn) == {"a": [0, 1]}
    assert taken(drawn, compatibility="Corrected") == {"a": [0]}


def test_the_idlest_broker_counts_as_it_is_only_when_corrected() -> None:
    # in Java b counts as 2147483647, and the share ends there as well: only the 2.1e9 fits
    drawn = world(THROUGHPUT_IN, a=[2.2e9, 2.1e9, 35.7e9], b=[3e9])

    assert taken(drawn) == {"a": [1]}
    assert taken(drawn, compatibility="Corrected") == {"a": [0, 1]}


def test_bytes_are_tried_after_messages_only_when_corrected() -> None:
    # a has the most messages in a single bundle, b the most bytes
    drawn = world(RATE_IN, a=[20000], b=[10, 10])
    short, traffic = drawn.bundles.short.copy(), drawn.brokers.traffic.copy()
    short[1:, THROUGHPUT_IN], traffic[:, THROUGHPUT_IN] = [20.0 * MIB, 60.0 * MIB], [10.0 * MIB, 110.0 * MIB]
    drawn = replace(drawn, brokers=replace(drawn.brokers, traffic=traffic), bundles=replace(drawn.bundles, short=short))

    assert taken(drawn) == {}
    assert taken(drawn, compatibility="Corrected") == {"b": [0]}


@pytest.mark.parametrize("compatibility", ["Java", "Corrected"])
def test_broker_without_traffic_data_takes_no_part(compatibility: str) -> None:
    drawn = world(RATE_IN, a=[900, 500, 9000], b=[10], c=[5])
    traffic = drawn.brokers.traffic.copy()
    traffic[2] = np.nan

    unknown = replace(drawn, brokers=replace(drawn.brokers, traffic=traffic))

    assert taken(unknown, compatibility=compatibility) == {"a": [0, 1]}


def test_equally_busy_brokers_take_turns_by_name_when_corrected() -> None:
    drawn = world(RATE_IN, b=[900, 500, 9000], a=[900, 500, 9000], c=[10])

    assert taken(drawn, compatibility="Corrected").keys() == {"a"}
