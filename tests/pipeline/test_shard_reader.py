"""What a task reads of a shard, without Spark."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fake_prometheus import FakePrometheus, Faults
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES
from trimtab_pipeline.prometheus.broker_presets import BEYOND, Series
from trimtab_pipeline.prometheus.client import PrometheusStatusError, PrometheusUnreachableError
from trimtab_pipeline.prometheus.queries import BUNDLES, RawRead
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest, TableName
from trimtab_pipeline.prometheus.sample_batches import pivot
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_read import wrong_labels
from trimtab_pipeline.prometheus.shard_reader import read_brokers, read_bundles, read_shard

AT = 1_750_000_000.0
SHARD = ShardRequest(("p",), bundles={"rate_in": "IN", "topics": "TOPICS"}, summing=False)
SEVEN = replace(SHARD, bundles={name: name for name in BUNDLES.columns})
Points = Iterable[tuple[float, float]]
Rows = list[dict[str, Any]]


def request(shard: ShardRequest, **settings: Any) -> ReadRequest:
    return ReadRequest("http://x", 100.0, 5.0, (shard,), policy="ns/p", **settings)


def samples(values: Mapping[str, float], warnings: tuple[str, ...] = ()) -> Samples:
    """Series by bundle, all on one pod."""
    pods = pa.array(["p"] * len(values), pa.string())
    names = pa.array(list(values), pa.string())
    return Samples({"bundle": names, "pod": pods}, pa.array(list(values.values()), pa.float64()), warnings)


def taken(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> tuple[Rows, dict[str, Any]]:
    """The rows, and the report that ends them."""
    table = pa.Table.from_batches(batches)
    assert table.schema.equals(schema)
    *rows, last = table.to_pylist()
    assert all(row["report"] is None and (row["policy"], row["shard"]) == ("ns/p", 0) for row in rows)
    assert {name for name, value in last.items() if value is not None} == {"policy", "shard", "report"}
    return rows, json.loads(last["report"])


def bundles(**answers: Samples) -> tuple[Rows, dict[str, Any]]:
    """Bundle rows, and the report; no series where no answer is given."""
    read = read_bundles(request(SHARD), 0, lambda promql, _: answers.get(promql, samples({})))
    return taken(read, BUNDLE_SAMPLES)


# -- bundles --


def test_answers_become_one_row_per_bundle() -> None:
    rows, report = bundles(IN=samples({"x": 1, "y": 2}), TOPICS=samples({"x": 10, "y": 20}))
    assert [(r["bundle"], r["pod"], r["rate_in"], r["topics"], r["topic"]) for r in rows] == [
        ("x", "p", 1.0, 10.0, None),
        ("y", "p", 2.0, 20.0, None),
    ]
    assert (report["ok"], report["table"], report["shard"], report["bundles"]) == (True, "bundles", 0, 2)


def test_series_in_another_order_or_missing_still_meet_their_row() -> None:
    rows, _ = bundles(IN=samples({"x": 1, "y": 2}), TOPICS=samples({"z": 30, "y": 20}))
    assert {r["bundle"]: (r["rate_in"], r["topics"]) for r in rows} == {"x": (1, None), "y": (2, 20), "z": (None, 30)}


def test_what_no_rate_can_be_is_dropped_and_counted() -> None:
    bad = {"a": float("nan"), "b": float("inf"), "c": -1.0, "d": 0.0, "e": float("-inf")}
    rows, report = bundles(IN=samples(bad))
    assert [r["rate_in"] for r in rows] == [None, None, None, 0.0, None]
    assert report["dropped"] == {"NaN": 1, "Infinite": 2, "Negative": 1}


def test_warnings_are_reported_once() -> None:
    _, report = bundles(IN=samples({}, ("partial",)), TOPICS=samples({}, ("partial", "late")))
    assert report["warnings"] == ["late", "partial"]


def test_a_shard_that_fails_ends_with_a_report_instead_of_an_error() -> None:
    def fetch(promql: str, _: float) -> Samples:
        if promql == "TOPICS":
            raise PrometheusStatusError("http://x answered 503: out of order")
        return samples({"x": 1.0})

    rows, report = taken(read_bundles(request(SHARD), 0, fetch), BUNDLE_SAMPLES)
    assert rows == []
    assert (report["ok"], report["shard"], report["error"]) == (False, 0, "http://x answered 503: out of order")


def test_keys_in_the_same_order_are_taken_as_they_are() -> None:
    first = samples({"x": 1.0})
    keys, values = pivot([first, samples({"x": 2.0})], ("bundle", "pod"))
    assert keys[0] is first.labels["bundle"]
    assert [v.to_pylist() for v in values] == [[1.0], [2.0]]


# -- brokers --

CPU = Series("cpu_total", "", "counter", part="cpu")
NETWORK = Series("received_total", "", "counter", part="interface")
MEMORY = Series("memory", "")
PERCENT = Series("percent", "", above=0.001)
RAW = RawRead(
    "RAW",
    {
        "cpu_total": ("cpu", CPU),
        "received_total": ("network_in", NETWORK),
        "memory": ("memory", MEMORY),
        "percent": ("direct_memory", PERCENT),
    },
)


def ranges(*series: tuple[str, Mapping[str, str], Points]) -> Samples:
    """Raw samples of pod p: metric, further labels, points."""
    names = {"__name__", "pod", *(name for _, labels, _ in series for name in labels)}
    metrics = [{"__name__": metric, "pod": "p", **labels} for metric, labels, _ in series]
    columns = {name: pa.array([metric.get(name, "") for metric in metrics], pa.string()) for name in names}
    points = tuple(np.array(list(one), float) for _, _, one in series)
    return Samples(columns, pa.array([one[-1, 1] for one in points], pa.float64()), points=points)


def brokers(*series: tuple[str, Mapping[str, str], Points], window: float = 60.0) -> tuple[Rows, dict[str, Any]]:
    """Rows of brokers with these raw samples, and the report."""
    asked = request(ShardRequest(("p",), (RAW,)), window=window)
    return taken(read_brokers(asked, 0, lambda *_: ranges(*series)), BROKER_SAMPLES)


def test_raw_samples_are_a_row_each_as_they_are() -> None:
    rows, report = brokers(("cpu_total", {}, [(70, 1), (85, math.inf)]), ("memory", {}, [(90, 5)]))
    found = [(row["pod"], row["signal"], row["kind"], row["part"], row["time"], row["value"]) for row in rows]
    assert found == [
        ("p", "cpu", "counter", "", 70.0, 1.0),
        ("p", "cpu", "counter", "", 85.0, math.inf),
        ("p", "memory", "gauge", "", 90.0, 5.0),
    ]
    assert (report["ok"], report["table"]) == (True, "brokers")


def test_interfaces_and_cores_are_parts_and_their_copies_have_a_number() -> None:
    points = [(90.0, 1.0)]
    rows, _ = brokers(
        ("received_total", {"interface": "eth0"}, points),
        ("received_total", {"interface": "eth1"}, points),
        ("received_total", {"interface": "eth1", "replica": "b"}, points),
        ("cpu_total", {"cpu": "cpu00"}, points),
        ("cpu_total", {"cpu": "cpu01"}, points),
        ("memory", {"cpu": "none of its parts"}, points),
    )
    assert [(row["signal"], row["part"], row["series"]) for row in rows] == [
        ("network_in", "eth0", "0"),
        ("network_in", "eth1", "0"),
        ("network_in", "eth1", "1"),
        ("cpu", "cpu00", "0"),
        ("cpu", "cpu01", "0"),
        ("memory", "", "0"),
    ]


def test_all_cores_together_are_no_part() -> None:
    rows, _ = brokers(("cpu_total", {"cpu": "total"}, [(90, 1)]))
    assert rows[0]["part"] == ""


def test_a_value_that_does_not_count_has_a_time_and_no_value() -> None:
    rows, report = brokers(("percent", {}, [(60, 5.0), (90, 0.0005)]))
    assert [row["time"] for row in rows] == [60, 90]
    assert rows[0]["value"] == 5.0
    assert math.isnan(rows[1]["value"])
    assert report["dropped"] == {}


@pytest.mark.parametrize(
    ("metric", "values", "dropped"),
    [
        ("memory", [math.nan, 1, 2], {}),
        ("memory", [1, 2, math.nan], {"NaN": 1}),
        ("memory", [math.nan] * 3, {"NaN": 1}),
        ("memory", [1, 2, -1], {"Negative": 1}),
        ("percent", [1, 2, math.nan], {"NaN": 1}),
        ("cpu_total", [1, math.nan, 3], {"NaN": 1}),
        ("cpu_total", [1, 2, math.inf], {"Infinite": 1}),
        ("cpu_total", [math.nan, *range(6)], {}),
    ],
)
def test_a_signal_without_a_possible_value_counts_once(
    metric: str, values: list[float], dropped: dict[str, int]
) -> None:
    points = [(100 - 15 * k, value) for k, value in enumerate(reversed(values))][::-1]
    older = [(time - 40, math.nan) for time, _ in points]
    _, report = brokers((metric, {}, points), (metric, {"replica": "dead"}, older))
    assert report["dropped"] == dropped


def test_samples_that_a_server_still_has_of_a_broker_it_no_longer_shows_are_no_traffic(fake: FakePrometheus) -> None:
    settings = PrometheusSettings(fake.url, "pulsar")
    asked = ReadRequest.of(settings, AT, [ShardRequest.of(settings, ["a", "b"])], policy="ns/p")
    fake.faults = Faults(where=lambda promql: promql.startswith("label_replace"), text=_without(fake, asked, "b"))
    rows, _ = taken(read_shard("brokers", asked, 0, Secrets()), BROKER_SAMPLES)
    assert {row["pod"] for row in rows if row["signal"] == "cpu"} == {"a", "b"}
    assert {row["pod"] for row in rows if row["signal"] == "rate_in"} == {"a"}


def _without(fake: FakePrometheus, asked: ReadRequest, pod: str) -> str:
    """The answer about all single values without those of `pod`."""
    (promql,) = asked.shards[0].value_queries(together=True).values()
    answer = json.loads(fake.answer(promql, AT))
    answer["data"]["result"] = [one for one in answer["data"]["result"] if one["metric"]["pod"] != pod]
    return json.dumps(answer)


def test_limits_that_contradict_each_other_are_reported_with_the_label_that_tells_them_apart(
    fake: FakePrometheus,
) -> None:
    series = [
        {"metric": {"pod": "b", "resource": "cpu", "cluster": cluster}, "value": [AT, limit]}
        for cluster, limit in {"east": "2", "west": "4"}.items()
    ]
    body = {"status": "success", "data": {"resultType": "vector", "result": series}}
    fake.faults = Faults(where=lambda promql: "> min by (pod, resource)" in promql, text=json.dumps(body))
    (told,) = of_shard(fake, "brokers")[1]["apart"].items()
    assert told[0] == "b"
    assert "claim to be its limit of cpu" in told[1]
    assert "they differ in the label cluster (east, west)" in told[1]


def test_pods_with_several_series_of_their_own_metrics_are_reported(fake: FakePrometheus) -> None:
    assert of_shard(fake, "brokers")[1]["repeated"] == []
    fake.put("pulsar_broker_rate_out", 1, AT - 200, namespace="pulsar", pod="b", instance="before the restart")
    assert of_shard(fake, "brokers")[1]["repeated"] == ["b"]


def test_a_limit_that_is_no_number_is_noted(fake: FakePrometheus) -> None:
    labels = {"namespace": "pulsar", "container": "broker", "resource": "cpu"}
    fake.put("kube_pod_container_resource_limits", "NaN", **labels, pod="b")
    rows, report = of_shard(fake, "brokers")
    assert [row["pod"] for row in rows if row["signal"] == "cpu_limit"] == ["a"]
    assert report["dropped"] == {"NaN": 1}
    assert report["notes"] == ["b: the limit of cpu is NaN and counts as unknown; see what its query returns"]


# -- round trips --


def of_shard(fake: FakePrometheus, table: TableName, **settings: Any) -> tuple[Rows, dict[str, Any]]:
    """The rows of brokers a and b, and the report."""
    chosen = PrometheusSettings(fake.url, "pulsar", **settings)
    asked = ReadRequest.of(chosen, AT, [ShardRequest.of(chosen, ["a", "b"])], policy="ns/p", now=AT)
    schema = BROKER_SAMPLES if table == "brokers" else BUNDLE_SAMPLES
    return taken(read_shard(table, asked, 0, Secrets()), schema)


@pytest.mark.parametrize(("resources", "most"), [("kubernetes", 6), ("pulsar", 3)])
def test_brokers_take_few_round_trips(fake: FakePrometheus, resources: str, most: int) -> None:
    rows, report = of_shard(fake, "brokers", resources=resources)
    assert rows
    assert report["ok"]
    assert len(fake.queries) == most


def test_bundles_take_one_round_trip_per_column(fake: FakePrometheus) -> None:
    rows, _ = of_shard(fake, "bundles")
    assert len(rows) == 2
    assert len(fake.queries) == 7


def test_a_server_that_is_asked_by_url_gets_short_queries() -> None:
    settings = PrometheusSettings("http://x", "pulsar", method="GET")
    shard = ShardRequest.of(settings, ["a"])
    assert shard.value_queries(together=False) == shard.values
    assert all("label_replace(max" not in promql for promql in shard.values.values())


def test_three_queries_run_at_a_time() -> None:
    running, most, lock, three = 0, 0, threading.Lock(), threading.Event()

    def fetch(_: str, __: float) -> Samples:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if running >= 3:
            three.set()
        three.wait(4)
        time.sleep(0.02)
        with lock:
            running -= 1
        return samples({"x": 1.0})

    _, report = taken(read_bundles(request(SEVEN), 0, fetch), BUNDLE_SAMPLES)
    assert report["ok"]
    assert most == 3


def test_queries_after_a_failed_one_are_not_sent() -> None:
    asked: list[str] = []

    def fetch(promql: str, _: float) -> Samples:
        asked.append(promql)
        raise PrometheusUnreachableError("http://x refused the connection")

    _, report = taken(read_bundles(request(SEVEN), 0, fetch), BUNDLE_SAMPLES)
    assert report["error"] == "http://x refused the connection"
    assert len(asked) <= 4


def test_a_shard_has_a_budget_for_all_its_queries() -> None:
    within: list[float] = []

    def fetch(_: str, seconds: float) -> Samples:
        within.append(seconds)
        time.sleep(min(0.2, seconds))
        if seconds < 0.2:
            raise PrometheusUnreachableError(f"http://x did not answer within {seconds:g} s")
        return samples({"x": 1.0})

    begin = time.monotonic()
    rows, report = taken(read_bundles(request(SEVEN, budget=0.5), 0, fetch), BUNDLE_SAMPLES)
    assert time.monotonic() - begin < 2
    assert rows == []
    assert not report["ok"]
    assert report["error"].startswith(
        "http://x did not answer all queries of a shard within 0.5 s, the budget for them"
    )
    assert max(within) <= 0.5


def test_without_time_left_nothing_is_asked() -> None:
    asked: list[str] = []

    def fetch(promql: str, _: float) -> Samples:
        asked.append(promql)
        return samples({})

    _, report = taken(read_bundles(request(SEVEN, budget=0.0), 0, fetch), BUNDLE_SAMPLES)
    assert report["error"] == "http://x was not asked: the time of the whole measurement was over"
    assert asked == []


def test_series_without_a_label_are_named() -> None:
    pods = pa.array(["p", ""], pa.string())
    found = wrong_labels(Samples({"pod": pods}, pa.array([1.0, 2.0])), ("pod",))
    assert found == 'yields series without the label pod; leave them out by pod!=""'


def test_a_check_that_waited_for_a_free_core_looks_less_far_ahead() -> None:
    """Samples that were scraped while the task waited are not from the future."""
    shard = ShardRequest(("p",), ahead=f"count_over_time(x[600s] offset -{BEYOND}s)")
    asked: list[str] = []

    def fetch(promql: str, _: float) -> Samples:
        asked.append(promql)
        return Samples({"pod": pa.array([], pa.string())}, pa.array([], pa.float64()))

    for waited in (0.0, 90.0):
        taken(read_brokers(request(shard, late=0.5, made=time.time() - waited), 0, fetch), BROKER_SAMPLES)
    assert asked == [f"count_over_time(x[{length}s] offset -{BEYOND}s)" for length in (600, 509)]


def test_a_query_that_is_too_slow_by_itself_is_told_as_such(fake: FakePrometheus) -> None:
    fake.faults = Faults(delay=1.0)
    _, report = of_shard(fake, "bundles", timeout=0.3)
    assert (
        report["error"]
        == f"{fake.url} did not answer within 0.3 s; raise the source's timeout, or look at the server's load"
    )


def test_the_budget_is_two_timeouts_and_ends_with_the_deadline() -> None:
    settings = PrometheusSettings("http://x", "pulsar", timeout=10)
    assert ReadRequest.of(settings, AT, []).budget == 20
    assert ReadRequest.of(settings, AT, [], left=7.5).budget == 7.5


@pytest.mark.parametrize(("later", "checked"), [(0.0, True), (629.0, True), (631.0, False), (1e6, False)])
def test_samples_of_the_future_are_not_looked_for_long_after(later: float, checked: bool) -> None:  # noqa: FBT001
    settings = PrometheusSettings("http://x", "pulsar")
    (shard,) = ReadRequest.of(settings, AT, [ShardRequest.of(settings, ["a"])], now=AT + later).shards
    assert bool(shard.ahead) is checked


def test_a_result_that_is_no_longer_needed_is_not_asked_for(fake: FakePrometheus) -> None:
    settings = PrometheusSettings(fake.url, "pulsar")
    asked = ReadRequest.of(settings, AT, [ShardRequest.of(settings, ["a"])], policy="ns/p")
    _, report = taken(read_shard("brokers", asked, 0, Secrets(), unwanted=lambda: True), BROKER_SAMPLES)
    assert report["error"] == f"{fake.url} took too long: the result is no longer needed"
    assert not fake.queries
