"""From tables to the picture: rows of the topology, and whom to believe."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from measured_brokers import Row, judged_brokers, load_of, observed, usual
from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE
from trimtab_pipeline.transform.reports import ShardReports
from trimtab_pipeline.transform.snapshot import broker_state, one_row_each, snapshot
from trimtab_strategies.model import CPU, DIRECT_MEMORY, MEMORY, NETWORK_IN, RATE_IN, ClusterLoad

NOW = 1_750_000_000.0
SETTINGS = PrometheusSettings("http://x", "pulsar", max_age=60, nic_speed=1000)
HEALTHY = {
    "cpu": 1.0,
    "cpu_limit": 4.0,
    "memory": 2.0,
    "memory_limit": 8.0,
    "network_in": 100.0,
    "network_out": 200.0,
    "rate_in": 5.0,
    "resource_time": NOW - 10,
    "traffic_time": NOW - 20,
}


def brokers(**pods: Row) -> dict[str, Row]:
    """A healthy row for each pod, changed as told."""
    return {pod: {**HEALTHY, **change} for pod, change in pods.items()}


def bundles(*rows: tuple[str, str, float, float]) -> pa.Table:
    """(bundle, pod, short and long average of its messages in, seen)."""
    names = ("bundle", "pod", "short_rate_in", "seen")
    more = {"topics": 3.0, "sessions": 9.0}
    return pa.Table.from_pylist(
        [dict(zip(names, r, strict=True)) | {"long_rate_in": r[2], "rate_in": r[2]} | more for r in rows], BUNDLE_STATE
    )


def picture(measured_brokers: dict[str, Row], measured_bundles: pa.Table | None = None) -> ClusterLoad:
    world = topology({"a": "a", "b": "b"}, {"t/n/1": "a", "t/n/2": "b"})
    return observed(measured_brokers, world, SETTINGS, NOW, measured_bundles)


def test_a_healthy_broker_is_trusted_with_its_usage_and_limits() -> None:
    load = picture(brokers(b={}, a={"cpu": 3.0})).brokers
    assert load.trusted.tolist() == [True, True]
    assert load.usage[:, CPU].tolist() == [3.0, 1.0]
    assert load.limit[0].tolist() == [4.0, 8.0, 0.0, 1000.0, 1000.0]
    assert load.traffic[:, RATE_IN].tolist() == [5.0, 5.0]


def test_age_is_that_of_the_older_of_its_two_sources() -> None:
    assert picture(brokers(a={}, b={"resource_time": NOW - 50})).brokers.age.tolist() == [20.0, 50.0]


@pytest.mark.parametrize("source", ["resource_time", "traffic_time"])
def test_a_broker_whose_newest_sample_is_too_old_is_not_trusted(source: str) -> None:
    assert picture(brokers(a={source: NOW - 61}, b={source: NOW - 60})).brokers.trusted.tolist() == [False, True]


def test_a_broker_never_seen_is_infinitely_old_and_missing() -> None:
    load = picture(brokers(a={}))
    assert load.brokers.age.tolist() == [20.0, np.inf]
    assert load.brokers.trusted.tolist() == [True, False]
    assert np.isnan(load.brokers.usage[1, CPU])
    assert load.quality.missing_brokers == 1


@pytest.mark.parametrize("resource", ["cpu", "memory", "network_in"])
def test_a_broker_with_an_unknown_resource_that_others_know_is_not_trusted(resource: str) -> None:
    load = picture(brokers(a={resource: None}, b={})).brokers
    assert load.trusted.tolist() == [False, True]


def test_a_resource_that_no_one_measures_counts_as_none() -> None:
    load = picture(brokers(a={"network_in": None}, b={"network_in": None})).brokers
    assert load.trusted.all()
    assert load.usage[:, [NETWORK_IN, DIRECT_MEMORY]].tolist() == [[0, 0], [0, 0]]
    assert load.limit[:, [NETWORK_IN, DIRECT_MEMORY]].tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_without_cpu_or_memory_no_broker_is_trusted(resource: str) -> None:
    assert not picture(brokers(a={resource: None}, b={resource: None})).brokers.trusted.any()


def test_brokers_that_name_the_same_pod_are_not_trusted_and_counted() -> None:
    world = topology({"a": "a", "alias": "a", "b": "b"}, {})
    load = observed(brokers(a={}, b={}), world, SETTINGS, NOW)
    assert load.brokers.trusted.tolist() == [False, False, True]
    assert load.quality.dropped == {"Duplicate": 2}


def test_several_brokers_of_a_failed_shard_are_reported_as_a_span() -> None:
    assert ShardReports((usual(ok=False, error="503"),), (("a", "b"),)).failed == (("2 brokers, a to b", "503"),)


def test_a_broker_without_a_limit_is_not_trusted_and_counted() -> None:
    load = picture(brokers(a={"cpu_limit": None}, b={"memory_limit": 0.0}))
    assert not load.brokers.trusted.any()
    assert load.quality.dropped == {"NoLimit": 2}


def test_a_declared_limit_overrides_the_reported_one() -> None:
    world = topology({"a": "a"}, {}, declared_cpu=2.0)
    load = observed(brokers(a={"cpu_limit": None}), world, SETTINGS, NOW).brokers
    assert load.limit[0, [CPU, MEMORY]].tolist() == [2.0, 8.0]
    assert load.trusted.all()


def test_usage_above_its_limit_is_kept_and_counted_and_beyond_ten_times_not_trusted() -> None:
    load = picture(brokers(a={"cpu": 4.4}, b={"cpu": 40.4}))
    assert load.brokers.usage[:, CPU].tolist() == [4.4, 40.4]
    assert load.brokers.trusted.tolist() == [True, False]
    assert load.quality.dropped == {"AboveLimit": 2}


def test_the_pulsar_preset_is_in_percent_whatever_is_declared() -> None:
    settings = PrometheusSettings("http://x", "pulsar", resources="pulsar")
    world = topology({"a": "a"}, {}, declared_cpu=2.0)
    load = observed(brokers(a={"cpu": 42.0, "direct_memory": 7.0, "cpu_limit": None}), world, settings, NOW).brokers
    assert load.limit[0].tolist() == [100.0] * 5
    assert load.usage[0, [CPU, DIRECT_MEMORY]].tolist() == [42.0, 7.0]
    assert load.trusted.all()


def test_brokers_of_a_failed_shard_are_not_trusted_though_remembered() -> None:
    reports = usual(ok=False, error="503"), usual(shard=1, dropped={"NaN": 2}, warnings=["partial"])
    world = topology({"a": "a", "b": "b"}, {})
    load = observed(brokers(a={}, b={}), world, SETTINGS, NOW, reports=reports)
    assert load.brokers.trusted.tolist() == [False, True]
    assert load.quality.failed == (("broker a", "503"),)
    assert (load.quality.warnings, load.quality.dropped) == (("partial",), {"NaN": 2})
    assert load.quality.missing_brokers == 0


def test_bundles_come_in_the_rows_of_the_topology() -> None:
    load = picture(brokers(a={}, b={}), bundles(("t/n/2", "b", 20.0, NOW), ("t/n/1", "a", 10.0, NOW)))
    assert load.bundles.short[:, RATE_IN].tolist() == [10.0, 20.0]
    assert load.bundles.topics.tolist() == [3.0, 3.0]
    assert load.quality.missing_bundles == 0


def test_a_bundle_never_measured_is_nan_and_one_not_measured_now_keeps_its_averages() -> None:
    load = picture(brokers(a={}, b={}), bundles(("t/n/1", "a", 10.0, NOW - 60)))
    assert load.bundles.long[0, RATE_IN] == 10.0
    assert np.isnan(load.bundles.long[1]).all()
    assert load.quality.missing_bundles == 2


def test_the_newest_sample_is_known_only_of_bundles_that_were_measured_now() -> None:
    """The averages of a bundle survive a cycle without a sample; its newest sample does not."""
    rows = pa.table(bundles(("t/n/1", "a", 10.0, NOW), ("t/n/2", "b", 20.0, NOW - 60)))
    measured = rows.set_column(rows.column_names.index("rate_in"), "rate_in", pa.array([7.0, None], pa.float64()))
    load = picture(brokers(a={}, b={}), measured)
    assert load.bundles.newest[:, RATE_IN].tolist() == pytest.approx([7.0, np.nan], nan_ok=True)
    assert load.bundles.short[:, RATE_IN].tolist() == [10.0, 20.0]


@pytest.mark.parametrize(("rate", "time"), [(np.inf, NOW), (np.nan, NOW), (7.0, NOW - 61)], ids=["inf", "NaN", "old"])
def test_a_sample_that_is_no_number_or_too_old_is_not_the_newest(rate: float, time: float) -> None:
    rows = bundles(("t/n/1", "a", rate, NOW))
    measured = rows.set_column(rows.column_names.index("time"), "time", pa.array([time]))
    assert np.isnan(picture(brokers(a={}, b={}), measured).bundles.newest).all()


def test_bundles_that_no_resource_knows_are_counted_and_left_out() -> None:
    load = picture(brokers(a={}, b={}), bundles(("t/n/1", "a", 1.0, NOW), ("x/y/1", "a", 1.0, NOW)))
    assert load.quality.dropped == {"Unknown": 1}


def test_of_two_pods_that_report_a_bundle_its_owner_counts_else_the_busier() -> None:
    world = topology({"a": "a", "b": "b"}, {"t/n/1": "a", "t/n/2": ""})
    rows = bundles(
        ("t/n/1", "b", 90.0, NOW), ("t/n/1", "a", 1.0, NOW), ("t/n/2", "a", 5.0, NOW), ("t/n/2", "b", 7.0, NOW)
    )
    one_each, duplicates = one_row_each(load_of(rows), world)
    assert one_each["pod"].to_pylist() == ["a", "b"]
    assert duplicates == 2
    load = snapshot(judged_brokers({}, world, SETTINGS, NOW), one_each, world, SETTINGS, NOW, duplicates=duplicates)
    assert load.quality.dropped == {"Duplicate": 2}


def test_topics_outside_all_bundles_are_counted_and_are_no_bundle() -> None:
    outside = [{"bundle": None, "pod": None, "topics": 3.0}, {"bundle": None, "pod": None, "topics": 4.0}]
    table = pa.concat_tables([bundles(("t/n/1", "a", 1.0, NOW)), pa.Table.from_pylist(outside, BUNDLE_STATE)])
    world = topology({"a": "a", "b": "b"}, {"t/n/1": "a"})
    assert one_row_each(load_of(table), world) == (load_of(table), 0)
    load = observed(brokers(a={}, b={}), world, SETTINGS, NOW, table)
    assert load.quality.dropped == {"Unknown": 7}
    assert load.quality.missing_bundles == 0


def test_times_of_newest_samples_are_remembered_until_the_horizon() -> None:
    ancient = {"resource_time": NOW - 20_000, "traffic_time": NOW - 20_000}
    rows = brokers(a={"traffic_time": NOW - 100}, gone={}, ancient=ancient)
    last = pa.Table.from_pylist([{"pod": pod, **row} for pod, row in rows.items()], BROKER_STATE)
    world = topology({name: name for name in ("a", "gone", "ancient")}, {})
    measured = brokers(a={"traffic_time": None, "resource_time": NOW})
    now = broker_state(judged_brokers(measured, world, SETTINGS, NOW, last=last))
    assert now["pod"].to_pylist() == ["a", "gone"]
    assert now["traffic_time"].to_pylist() == [NOW - 100, NOW - 20]
    assert now["resource_time"].to_pylist() == [NOW, NOW - 10]
    assert now["cpu"].to_pylist() == [1.0, None]


def test_sixty_thousand_bundles_are_aligned_in_milliseconds() -> None:
    names = [f"t/n{i // 64}/{i % 64}" for i in range(60_000)]
    columns = {"bundle": names[::-1], "pod": ["a"] * len(names), "seen": [NOW] * len(names), "time": [NOW] * len(names)}
    table = pa.table({f.name: columns.get(f.name, [1.0] * len(names)) for f in BUNDLE_STATE}, schema=BUNDLE_STATE)
    world = topology({"a": "a"}, dict.fromkeys(names, "a"))
    begin = time.process_time()
    load = observed(brokers(a={}), world, SETTINGS, NOW, table)
    seconds = time.process_time() - begin
    assert not np.isnan(load.bundles.short).any()
    assert seconds < 0.5  # of processor time; some 20 ms
