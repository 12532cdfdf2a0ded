"""Counters whose values come late, repeat, wrap or stand still: the rate is right, or it is not believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from pod_series import AT, PODS, counter, world
from raw_samples import Kept, believed
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.transform.uneven import Uneven
from trimtab_strategies.model import CPU, NETWORK_IN, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray

CORES, POINTS = 2.0, 0.03
CPU_SECONDS, RECEIVED = "container_cpu_usage_seconds_total", "container_network_receive_bytes_total"
Rng = np.random.Generator


def load_of(points: Mapping[str, FloatArray], nic: float = 1.25e9) -> ClusterLoad:
    """What is believed of two brokers if the first has these samples of some metrics."""
    kept = world()
    for line in kept.lines:
        if line.labels["pod"] == PODS[0] and line.metric in points:
            line.points = points[line.metric]
    return seen(kept, nic)


def seen(kept: Kept, nic: float = 1.25e9) -> ClusterLoad:
    return believed(kept, PrometheusSettings("http://x", "ns", nic_speed=nic), PODS, AT)


def usage(points: FloatArray) -> tuple[Any, bool]:
    """Ratio of the CPU limit that the first broker uses, and whether that is believed."""
    load = load_of({CPU_SECONDS: points})
    return float(load.brokers.usage[0, CPU] / CORES), bool(load.brokers.trusted[0])


def dips(interval: float, ratio: float) -> FloatArray:
    """Every eighth sample is 5 core-seconds behind."""
    points = counter(CORES * ratio, 1e4, interval=interval)
    points[4::8, 1] -= 5.0
    return points


def late(rng: Rng, points: FloatArray, rate: float, *, repeats: bool) -> FloatArray:
    """Some samples have the value of the sample before, or one of up to 25 s before."""
    some = rng.random(len(points)) < rng.choice([0.05, 0.2, 0.4])
    some[0] = False
    found = points.copy()
    if repeats:
        for row in np.flatnonzero(some):
            found[row, 1] = found[row - 1, 1]
    else:
        found[some, 1] -= rate * rng.uniform(0, rng.choice([10, 25]), some.sum())
    return found


def uneven(points: FloatArray) -> bool:
    """Whether the samples show that values come late: not each is above all before."""
    return bool((points[1:, 1] <= np.maximum.accumulate(points[:, 1])[:-1]).any())


# -- late and repeated values --


@pytest.mark.parametrize("ratio", [0.15, 0.3, 0.75])
@pytest.mark.parametrize("interval", [5, 10, 15])
def test_a_counter_that_falls_a_little_is_not_reset(interval: float, ratio: float) -> None:
    found, trusted = usage(dips(interval, ratio))
    assert not trusted or found == pytest.approx(ratio, abs=POINTS)


def test_the_figures_of_merged_replicas_are_right_and_believed() -> None:
    for shift in range(8):
        points = counter(0.3, 1e4, interval=5)
        points[shift::8, 1] -= 5.0
        assert usage(points) == (pytest.approx(0.15, abs=POINTS), True)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    ratio=st.sampled_from([0.05, 0.15, 0.3, 0.6, 0.95]),
    interval=st.sampled_from([5, 10, 15, 30]),
    repeats=st.booleans(),
)
def test_late_and_repeated_values_give_the_true_rate_or_none(
    seed: int, ratio: float, interval: int, *, repeats: bool
) -> None:
    rng = np.random.default_rng(seed)
    points = late(
        rng, counter(CORES * ratio, float(rng.choice([2e3, 1e6])), interval=interval), CORES * ratio, repeats=repeats
    )
    if not uneven(points):
        return  # nothing tells a late value from a load that changes
    found, trusted = usage(points)
    assert not trusted or found == pytest.approx(ratio, abs=POINTS)


@settings(max_examples=300, deadline=None)
@given(
    every=st.integers(15, 60),
    phase=st.integers(0, 59),
    interval=st.sampled_from([5, 10, 15, 30]),
    ratio=st.sampled_from([0.1, 0.5, 0.95]),
)
def test_a_counter_that_is_renewed_less_often_than_it_is_scraped(
    every: int, phase: int, interval: int, ratio: float
) -> None:
    points = counter(CORES * ratio, 1e5, interval=interval)
    renewed = np.floor((points[:, 0] - phase) / every) * every + phase
    points[:, 1] += CORES * ratio * (renewed - points[:, 0])
    if not uneven(points):
        return
    found, trusted = usage(points)
    assert not trusted or found == pytest.approx(ratio, abs=POINTS)


def test_an_even_counter_is_measured_as_before() -> None:
    for interval in (5, 15, 30):
        assert usage(counter(1.2, interval=interval)) == (pytest.approx(0.6), True)


@pytest.mark.parametrize("begin", [20.0, 1e6])
def test_a_reset_is_still_one(begin: float) -> None:
    """The counter of a new process begins at nothing, three samples ago, among values that come late."""
    points = counter(1.2, begin, interval=15)
    points[-3:, 1] = [6.0, 24.0, 42.0]
    points[5, 1] -= 20 if begin > 100 else 0
    load = load_of({CPU_SECONDS: points})
    found = float(load.brokers.usage[0, CPU] / CORES)
    assert not load.brokers.trusted[0] or found == pytest.approx(0.6, abs=POINTS)
    assert any("reset" in note for note in load.quality.notes) or not load.brokers.trusted[0]


def test_a_missed_scrape_at_half_the_window_costs_no_trust() -> None:
    points = counter(1.2, interval=30.004)
    found, trusted = usage(np.delete(points, -2, axis=0))
    assert (found, trusted) == (pytest.approx(0.6), True)


# -- counters that stand still --


@pytest.mark.parametrize("since", [40, 70, 150, 300])
def test_a_broker_that_serves_traffic_and_uses_no_cpu_is_not_believed(since: float) -> None:
    points = counter(1.9, interval=15)
    points[:, 1] = np.interp(np.minimum(points[:, 0], AT - since), *points.T)
    load = load_of({CPU_SECONDS: points})
    assert not load.brokers.trusted[0]
    assert "serves traffic, but its counter of CPU stood still" in load.quality.doubts[PODS[0]].text
    assert load.brokers.trusted[1]


def test_an_idle_broker_that_uses_no_cpu_is_believed() -> None:
    kept = world()
    for line in kept.lines:
        if line.metric.startswith("pulsar_broker") and line.labels["pod"] == PODS[0]:
            line.points = line.points * [1, 0]
        if line.metric == CPU_SECONDS and line.labels["pod"] == PODS[0]:
            line.points = counter(0.0, 5e3)
    load = seen(kept)
    assert load.brokers.trusted.all(), load.quality
    assert load.brokers.usage[0, CPU] == 0.0


# -- counters that wrap --


def test_a_counter_that_wraps_is_not_reset() -> None:
    points = counter(5e7, 2.0**32 + 3e8)
    load = load_of({RECEIVED: points % [np.inf, 2.0**32]}, nic=1.25e8)
    assert load.brokers.trusted[0], load.quality
    assert not load.quality.notes
    assert load.brokers.usage[0, NETWORK_IN] == pytest.approx(5e7)


@pytest.mark.parametrize("rate", [1.1e9, 2.1e9, 3.3e9])
def test_a_counter_that_wraps_between_samples_is_not_believed(rate: float) -> None:
    load = load_of({RECEIVED: counter(rate, 1e13) % [np.inf, 2.0**32]})
    assert not load.brokers.trusted[0] or load.brokers.usage[0, NETWORK_IN] == pytest.approx(rate, rel=0.03)


def test_a_slope_lies_on_the_samples_that_came_in_time() -> None:
    time, value = dips(5, 0.25).T
    one = Uneven.of(time, value, 60.0)
    np.testing.assert_allclose([one.gained / one.cover, one.unsure, one.still], [0.5, 0.0, 0.0], atol=1e-9)


def test_the_time_of_a_renewal_bounds_the_rate() -> None:
    """Renewed every 30 s, scraped every 15 s: the ends of a long look are unsure by a scrape, as its length is not."""
    time, value = counter(1.0, 1e5, interval=15).T
    one = Uneven.of(time, 1e5 + np.floor((value - 1e5) / 30) * 30, 60.0)
    assert one.gained / one.cover == pytest.approx(1.0, abs=0.01)
    assert 0 < one.unsure < 15 / 240
