"""Queries about many brokers: what servers and proxies refuse for its size, and how the brokers are measured still."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pytest

from fake_prometheus import FakePrometheus, add_broker, add_bundle
from guarded_server import Asked, GuardedServer
from pipeline_clusters import AT, topology
from trimtab_pipeline.api import PrometheusSettings, SourceMisconfiguredError, SourceUnavailableError, Topology
from trimtab_pipeline.prometheus.client import PrometheusClient, PrometheusStatusError, QueryTooLargeError
from trimtab_pipeline.prometheus.queries import sent_bytes
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_reader import read_brokers, read_shard, read_topics
from trimtab_pipeline.sources.direct import DirectLoadSources

Answer = Callable[[Asked], tuple[int, str]]
LONG = "analytics-pulsar-prod-broker-"
DEPLOYED = "7d9c5b6f48-"


def named(kind: str, count: int) -> list[str]:
    """Names of pods: of a StatefulSet, of a Deployment, or with nothing in common."""
    if kind == "apart":
        return [f"{n:05d}x{'y' * (20 + n % 30)}" for n in range(count)]
    return [
        f"{LONG}{DEPLOYED if kind == 'deployed' else ''}{n if kind == 'ordinal' else f'{n:05x}'}" for n in range(count)
    ]


@pytest.fixture
def sources(tmp_path: Path) -> Iterator[DirectLoadSources]:
    made = DirectLoadSources(tmp_path / "history", deadline=60)
    yield made
    made.close()


def fleet(pods: Sequence[str]) -> tuple[FakePrometheus, Topology]:
    """A server that knows these brokers, each with half of its CPU in use and with a bundle, and their topology."""
    fake, size = FakePrometheus(), 0x1_0000_0000 // len(pods)
    bundles = {}
    for n, pod in enumerate(pods):
        last = 0xFFFFFFFF if n == len(pods) - 1 else (n + 1) * size
        bundle = f"t/n/0x{n * size:08x}_0x{last:08x}"
        add_broker(fake, pod, cpu=2.0)
        add_bundle(fake, bundle, pod, rate=1.0 + n)
        bundles[bundle] = pod
    return fake, topology({pod: pod for pod in pods}, bundles)


def limited(fake: FakePrometheus, refusal: Callable[[Asked], tuple[int, str] | None]) -> Answer:
    """Answers of `fake`, but for what `refusal` refuses."""

    def answer(asked: Asked) -> tuple[int, str]:
        given = asked.parameters
        return refusal(asked) or (200, fake.answer(given["query"], float(given["time"])))

    return answer


def error(text: str) -> str:
    return json.dumps({"status": "error", "errorType": "422", "error": text})


def victoria_metrics(asked: Asked) -> tuple[int, str] | None:
    """It accepts queries of 16 KiB."""
    size = len(asked.parameters["query"].encode())
    text = f"too long query; got {size} bytes; mustn't exceed `-search.maxQueryLen=16384` bytes"
    return (422, error(text)) if size > 16384 else None


def nginx(asked: Asked) -> tuple[int, str] | None:
    """It accepts request lines of 8 KiB."""
    line = f"GET /api/v1/query?{urlencode(asked.parameters)} HTTP/1.1"
    page = "<html><head><title>414 Request-URI Too Large</title></head></html>"
    return (414, page) if len(line) > 8192 else None


def about_at_most(most: int, status: int, body: str) -> Callable[[Asked], tuple[int, str] | None]:
    """A server that would read too much for more than `most` brokers. Names are a{number}."""

    def refuse(asked: Asked) -> tuple[int, str] | None:
        selector = asked.parameters["query"].partition('pod=~"')[2].partition('"')[0]
        return (status, body) if selector.count("|") >= most else None

    return refuse


def refused(server: GuardedServer, refusal: Callable[[Asked], tuple[int, str] | None]) -> int:
    return sum(refusal(asked) is not None for asked in server.asked)


# -- lengths that are known beforehand --


@pytest.mark.parametrize("kind", ["ordinal", "deployed", "apart"])
@pytest.mark.parametrize(("method", "server_limit"), [("POST", victoria_metrics), ("GET", nginx)])
def test_a_fleet_of_any_names_is_measured_without_a_refusal(
    sources: DirectLoadSources, kind: str, method: str, server_limit: Callable[[Asked], tuple[int, str] | None]
) -> None:
    pods = named(kind, 130)
    fake, world = fleet(pods)
    with GuardedServer(limited(fake, server_limit)) as server:
        settings = PrometheusSettings(server.url, "pulsar", method=method)
        load = sources.open("tests/many", settings).observe(world, AT).result(timeout=60).load
        assert refused(server, server_limit) == 0
    assert load.brokers.trusted.all(), load.quality
    np.testing.assert_allclose(load.brokers.usage[:, 0], 2.0)
    assert load.bundles.newest[:, 0].tolist() == [1.0 + n for n in range(len(pods))]


@pytest.mark.parametrize(("kind", "most"), [("ordinal", 2), ("deployed", 2), ("apart", 10)])
def test_few_queries_are_enough_for_many_brokers(kind: str, most: int) -> None:
    pods = named(kind, 200)
    settings = PrometheusSettings("http://x", "pulsar")
    asked, request = list[str](), ReadRequest.of(settings, AT, [ShardRequest.of(settings, pods)], now=AT)

    def fetch(promql: str, _: float) -> Samples:
        asked.append(promql)
        return Samples({}, pa.array([], pa.float64()))

    list(read_brokers(request, 0, fetch))
    together = [text for text in asked if text.startswith("label_replace")]
    assert len(together) <= most
    assert max(map(sent_bytes, asked), default=0) <= request.longest < 16384


def test_the_query_of_single_values_names_each_pod_only_where_a_selector_begins() -> None:
    (text,) = (
        ShardRequest.of(PrometheusSettings("http://x", "pulsar"), named("ordinal", 60))
        .value_queries(together=True)
        .values()
    )
    assert text.count("|59)") <= 10
    assert len(text) < 6000


def test_topics_of_many_namespaces_are_read_in_parts() -> None:
    spaces = [f"tenant-{n}/a-namespace-with-a-long-name" for n in range(900)]
    bundles = [f"{space}/0x00000000_0xffffffff" for space in spaces]
    settings = PrometheusSettings("http://x", "pulsar")
    shard = ShardRequest.of(settings, named("apart", 60))
    request, asked = ReadRequest.of(settings, AT, [shard], bundles=bundles), list[str]()

    def fetch(promql: str, _: float) -> Samples:
        asked.append(promql)
        return Samples({}, pa.array([], pa.float64()))

    list(read_topics(request, 0, fetch))
    assert max(map(sent_bytes, asked)) <= request.longest
    for space in spaces:
        assert sum(f"{space}|" in text or f"{space})" in text for text in asked) >= 4


# -- refusals --

TOO_LARGE = {
    "VictoriaMetrics": (422, error("too long query; got 5000 bytes; mustn't exceed `-search.maxQueryLen=4096` bytes")),
    "VictoriaMetrics: series": (
        422,
        error(
            "the number of matching timeseries exceeds 300000; either narrow down the search or increase "
            "-search.max* command-line flag values: -search.maxUniqueTimeseries"
        ),
    ),
    "Prometheus": (422, error("query processing would load too many samples into memory in query execution")),
    "Thanos": (
        422,
        error("expanding series: rpc error: code = ResourceExhausted desc = exceeded series limit: 50 of 50"),
    ),
    "Mimir: length": (
        422,
        error(
            "the raw query size in bytes exceeds the limit (query size: 5000, limit: 4096) "
            "(err-mimir-max-query-expression-size-bytes)"
        ),
    ),
    "Mimir: series": (
        422,
        error("the query exceeded the maximum number of series (limit: 9 series) (err-mimir-max-series-per-query)"),
    ),
    "nginx: URL": (414, "<html><head><title>414 Request-URI Too Large</title></head></html>"),
    "nginx: body": (413, "<html><head><title>413 Request Entity Too Large</title></head></html>"),
    "nginx: header": (400, "<html><head><title>400 Request Header Or Cookie Too Large</title></head></html>"),
    "Envoy": (431, "Request Header Fields Too Large"),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_refusal_of_size_is_told_apart(name: str) -> None:
    with (
        GuardedServer(lambda _: TOO_LARGE[name]) as server,
        PrometheusClient(server.url, 5) as client,
        pytest.raises(QueryTooLargeError, match=str(TOO_LARGE[name][0])),
    ):
        client.query("up", 1.0)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (422, "query timed out in expression evaluation"),
        (400, "parse error: unexpected end of input"),
        (422, "found duplicate series for the match group"),
        (500, "the limit of concurrent requests is reached"),
        (422, "couldn't start executing the request in 10 seconds, since -search.maxConcurrentRequests=4 are executed"),
    ],
)
def test_other_refusals_are_not_taken_for_one_of_size(status: int, text: str) -> None:
    with (
        GuardedServer(lambda _: (status, error(text))) as server,
        PrometheusClient(server.url, 5) as client,
        pytest.raises(PrometheusStatusError) as caught,
    ):
        client.query("up", 1.0)
    assert not isinstance(caught.value, QueryTooLargeError)


@pytest.mark.parametrize("name", ["VictoriaMetrics", "Prometheus", "nginx: body"])
@pytest.mark.parametrize("most", [1, 4])
def test_a_refused_query_is_asked_again_in_parts_and_the_next_cycle_asks_in_parts_at_once(
    sources: DirectLoadSources, name: str, most: int
) -> None:
    fake, world = fleet([f"a{n}" for n in range(12)])
    refusal = about_at_most(most, *TOO_LARGE[name])
    with GuardedServer(limited(fake, refusal)) as server:
        source = sources.open("tests/refused", PrometheusSettings(server.url, "pulsar"))
        load = source.observe(world, AT).result(timeout=60).load
        assert load.brokers.trusted.all(), load.quality
        assert np.isfinite(load.bundles.newest[:, 0]).all()
        first = refused(server, refusal)
        assert 0 < first <= 50
        server.asked.clear()
        assert source.observe_brokers(world, AT + 30).result(timeout=60).load.brokers.trusted.all()
        assert source.observe(world, AT + 60).result(timeout=60).load.brokers.trusted.all()
        assert refused(server, refusal) == 0


def test_what_is_remembered_for_brokers_does_not_cut_the_queries_of_bundles(sources: DirectLoadSources) -> None:
    fake, world = fleet([f"a{n}" for n in range(12)])
    few = about_at_most(2, *TOO_LARGE["Prometheus"])

    def refusal(asked: Asked) -> tuple[int, str] | None:
        return few(asked) if "pulsar_bundle" not in asked.parameters["query"] else None

    with GuardedServer(limited(fake, refusal)) as server:
        source = sources.open("tests/brokers", PrometheusSettings(server.url, "pulsar"))
        source.observe(world, AT).result(timeout=60)
        server.asked.clear()
        source.observe(world, AT + 60).result(timeout=60)
        assert sum("pulsar_bundle" in asked.parameters["query"] for asked in server.asked) == 14  # two shards


def test_a_query_about_one_broker_that_is_refused_names_the_limit_to_raise(sources: DirectLoadSources) -> None:
    fake, world = fleet(["a0", "a1", "a2"])
    with GuardedServer(limited(fake, about_at_most(0, *TOO_LARGE["VictoriaMetrics"]))) as server:
        source = sources.open("tests/never", PrometheusSettings(server.url, "pulsar"))
        with pytest.raises(SourceUnavailableError, match=r"maxQueryLen=4096.*can't be split: raise that limit"):
            source.observe(world, AT).result(timeout=60)
        assert len(server.asked) < 40


def test_a_users_query_that_is_too_long_is_named(sources: DirectLoadSources) -> None:
    fake, world = fleet(["a0", "a1"])
    own = (("cpu", "max by (pod) (" + " or ".join(f"m{n}" for n in range(700)) + ")"),)
    with GuardedServer(
        limited(fake, lambda asked: TOO_LARGE["VictoriaMetrics"] if "m699" in str(asked) else None)
    ) as server:
        source = sources.open("tests/own", PrometheusSettings(server.url, "pulsar", queries=own))
        with pytest.raises(SourceMisconfiguredError, match=r"queries\.cpu is refused: .*too long query.*shorten"):
            source.observe(world, AT).result(timeout=60)


def test_a_refusal_of_a_task_reaches_its_report() -> None:
    fake, _ = fleet([f"a{n}" for n in range(8)])
    with GuardedServer(limited(fake, about_at_most(3, *TOO_LARGE["Mimir: series"]))) as server:
        settings = PrometheusSettings(server.url, "pulsar")
        request = ReadRequest.of(settings, AT, [ShardRequest.of(settings, [f"a{n}" for n in range(8)])], now=AT)
        *_, last = read_shard("brokers", request, 0, Secrets())
    report = json.loads(last["report"][0].as_py())
    assert (report["ok"], report["most"]) == (True, 2)
