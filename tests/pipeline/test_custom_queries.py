"""Queries that a person wrote: used instead of the preset's, and told when they can't be."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fake_prometheus import FakePrometheus
from guarded_server import Asked, GuardedServer
from page_server import PageServer
from pipeline_clusters import topology
from trimtab_pipeline.api import LoadSource, PrometheusSettings, SourceMisconfiguredError
from trimtab_pipeline.columns import BROKER_SAMPLES
from trimtab_pipeline.prometheus.client import PrometheusStatusError
from trimtab_pipeline.prometheus.queries import BUNDLE, SIGNALS, UnknownSignalError, tables
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.prometheus.sample_batches import RawSeries, batch, raw_rows
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_reader import read_brokers, read_shard
from trimtab_pipeline.transform.rates import broker_signals
from trimtab_pipeline.transform.relations import Cycle
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

PAGE = """\
my_cpu{namespace="ns",pod="a",core="0"} 1
my_cpu{namespace="ns",pod="a",core="1"} 2
my_cpu{namespace="ns",pod="z",core="0"} 99
my_total{namespace="ns",pod="a"} 7
my_bundle_rate{namespace="ns",pod="a",bundle="t/n/0x00000000_0xffffffff"} 5
"""


@pytest.fixture(scope="module")
def server(prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a real Prometheus that scrapes `PAGE`."""
    folder = tmp_path_factory.mktemp("prometheus")
    with PageServer(lambda: PAGE) as page, PrometheusServer(prometheus_binary, folder, scrape_interval=0.3) as running:
        running.set_targets([Target(page.address)])
        deadline = time.monotonic() + 30
        while len(page.served) < 3:
            assert time.monotonic() < deadline, "the page is not scraped"
            time.sleep(0.1)
        yield running.url


Figures = dict[str, dict[str, float]]
"""Single values by pod (or bundle) and signal."""


def asked(url: str, **queries: str) -> ReadRequest:
    """A read of a shard that holds pod a."""
    settings = PrometheusSettings(url, "ns", queries=tuple(queries.items()))
    return ReadRequest.of(settings, time.time(), [ShardRequest.of(settings, ["a"])])


def read(url: str, **queries: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of brokers, rows of bundles, and the reports."""
    request = asked(url, **queries)
    tables = [
        pa.Table.from_batches(read_shard(name, request, 0, Secrets())).to_pylist() for name in ("brokers", "bundles")
    ]
    return tables[0][:-1], tables[1][:-1], [json.loads(rows[-1]["report"]) for rows in tables]


def figures(rows: list[dict[str, Any]]) -> Figures:
    """Single values of pods."""
    found: Figures = defaultdict(dict)
    for row in rows:
        if row["kind"] == "value":
            found[row["pod"]][row["signal"]] = row["value"]
    return found


@pytest.mark.prometheus
def test_a_query_of_ones_own_fills_its_column_and_the_words_stand_for_the_brokers(server: str) -> None:
    brokers, _, reports = read(
        server,
        cpu="sum by (pod) (my_cpu{$broker})",
        cpu_limit='label_replace(max by (pod) (my_total{$pod}), "pod", "$1", "pod", "(.*)")',
        rate_in="max by (pod) (max_over_time(my_total{$broker}[$window]))",
    )
    assert all(report["ok"] for report in reports), reports
    assert figures(brokers) == {"a": {"cpu": 3.0, "cpu_limit": 7.0, "rate_in": 7.0}}


@pytest.mark.prometheus
def test_a_query_that_names_no_pods_tells_nothing_of_those_in_other_shards(server: str) -> None:
    brokers, _, _ = read(server, cpu="sum by (pod) (my_cpu)")
    assert figures(brokers) == {"a": {"cpu": 3.0}}


@pytest.mark.prometheus
def test_a_query_of_bundles_carries_bundle_and_pod(server: str) -> None:
    _, bundles, reports = read(server, bundle_rate_in="max by (bundle, pod) (my_bundle_rate{$broker})")
    assert all(report["ok"] for report in reports), reports
    assert [(row["bundle"], row["rate_in"]) for row in bundles] == [("t/n/0x00000000_0xffffffff", 5.0)]


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("signal", "promql", "words"),
    [
        ("cpu", "sum by (pod (my_cpu)", ["source.prometheus.queries.cpu is refused", "400", "parse error"]),
        (
            "cpu_limit",
            "my_cpu * on (pod) group_right () my_cpu",
            ["source.prometheus.queries.cpuLimit is refused", "422", "duplicate"],
        ),
        ("memory", "42", ["queries.memory yields no instant vector"]),
        (
            "cpu",
            "max by (pod, core) (my_cpu)",
            [
                "queries.cpu yields series with other labels: expected pod, found core, pod",
                "max by (pod) (...)",
            ],
        ),
        ("throttled", "max(my_cpu)", ["queries.throttled", "expected pod, found none"]),
        ("cpu", "my_cpu", ["found __name__, core, instance, job, namespace, pod"]),
        (
            "bundle_rate_in",
            "max by (pod) (my_bundle_rate)",
            ["queries.bundleRateIn", "expected bundle, pod, found pod"],
        ),
    ],
)
def test_a_query_that_cant_be_used_is_named_with_what_is_expected_and_found(
    signal: str, promql: str, words: list[str], server: str
) -> None:
    _, _, reports = read(server, **{signal: promql})
    (report,) = (report for report in reports if not report["ok"])
    assert report["misconfigured"]
    assert all(word in report["error"] for word in words), report["error"]


@pytest.mark.prometheus
def test_a_query_without_an_answer_leaves_its_column_unknown(server: str) -> None:
    brokers, _, reports = read(server, cpu="no_such_metric", cpu_limit="max by (pod) (my_total{$broker})")
    assert all(report["ok"] for report in reports), reports
    assert figures(brokers) == {"a": {"cpu_limit": 7.0}}


def test_a_query_of_something_that_is_not_measured_is_refused_with_what_is() -> None:
    with pytest.raises(UnknownSignalError, match=r"'heat' is not a signal; use some of bundle_consumers, .*, cpu, "):
        tables(PrometheusSettings("http://x", "ns", queries=(("heat", "x"),)))


def test_every_signal_fills_a_column() -> None:
    settings = PrometheusSettings("http://x", "ns", queries=tuple((name, f"q_{name}") for name in SIGNALS))
    brokers, bundles = tables(settings)
    assert sorted(SIGNALS) == sorted([*brokers.own, *(BUNDLE + name for name in bundles.own)])
    assert not set(brokers.own) & {*brokers.values, *brokers.series}


OWN = PrometheusSettings(
    "http://x",
    "ns",
    queries=(
        ("cpu", "sum by (pod) (rate(my_cpu_seconds_total{$broker} [$window]))"),
        ("cpu_limit", "max by (pod) (my_limit{$broker})"),
        ("memory", "max by (pod) (my_memory{$broker})"),
    ),
)


def test_the_counter_that_a_query_takes_the_rate_of_is_read() -> None:
    shard = ShardRequest.of(OWN, ["a"])
    assert shard.rated == {"cpu": 'my_cpu_seconds_total{namespace="ns",pod=~"a"}[300s]'}
    read = {signal for raw in shard.raw for signal, _ in raw.series.values()}
    assert not {"cpu", "memory"} & read
    assert {"network_in", "network_out"} <= read


@pytest.mark.parametrize(
    ("newest", "cover"),
    [(10.0, 60.0), (16.0, 60.0), (25.0, 42.5), (50.0, 0.0)],
)
def test_a_rate_of_ones_own_covers_what_prometheus_stretches_it_to(newest: float, cover: float) -> None:
    points = np.array([[1000 - newest - 15 * k, 1.0] for k in reversed(range(20))])
    rows = batch(BROKER_SAMPLES, raw_rows([RawSeries("cpu", "rated", "a", "", points)]))
    signals = broker_signals(pa.Table.from_batches([rows]), Cycle.of("", OWN, 1000.0))
    assert signals["cover"].to_pylist() == [cover]


@pytest.mark.prometheus
def test_the_samples_behind_a_rate_of_ones_own_are_read(server: str) -> None:
    brokers, _, reports = read(server, cpu="max by (pod) (rate(my_total{$broker}[$window]))")
    assert all(report["ok"] for report in reports), reports
    assert figures(brokers) == {"a": {"cpu": 0.0}}
    rated = [row for row in brokers if row["kind"] == "rated"]
    assert {(row["pod"], row["signal"], row["value"]) for row in rated} == {("a", "cpu", 7.0)}
    times = [row["time"] for row in rated]
    assert len(times) > 2
    assert times == sorted(times)
    assert time.time() - times[-1] < 45


def test_the_samples_behind_a_rate_that_are_refused_cost_a_note(fake: FakePrometheus) -> None:
    request = asked(fake.url, cpu="max by (pod) (rate(my_total{$broker}[$window]))")

    def fetch(promql: str, _: float) -> Samples:
        if promql.startswith("my_total"):
            raise PrometheusStatusError("it answered 422: no ranges", status=422)
        return Samples({}, pa.array([], pa.float64()))

    *_, last = read_brokers(request, 0, fetch)
    report = json.loads(last["report"][0].as_py())
    assert report["ok"]
    assert report["notes"] == ["the check of the samples of cpu failed: it answered 422: no ranges"]


@pytest.mark.spark
def test_a_wrong_query_fails_the_read_as_a_misconfiguration(
    fake: FakePrometheus, observing: Callable[..., LoadSource]
) -> None:
    def answer(asked: Asked) -> tuple[int, str]:
        if asked.parameters["query"] == "oops(":
            return 400, '{"status":"error","errorType":"bad_data","error":"parse error: unexpected end of input"}'
        return 200, fake.answer(asked.parameters["query"], float(asked.parameters["time"]))

    world = topology({"a": "a", "b": "b"}, {})
    with GuardedServer(answer) as server:
        source = observing(server.url, queries=(("cpu", "oops("),))
        with pytest.raises(
            SourceMisconfiguredError, match=r"queries\.cpu is refused: .*400: parse error: unexpected end of input"
        ):
            source.observe(world, 1_750_000_000.0).result(timeout=120)
