"""Matchers and URL parameters that users add to every query."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from guarded_server import Asked, GuardedServer, vector
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.prometheus.broker_presets import RESOURCE_PRESETS
from trimtab_pipeline.prometheus.client import PrometheusClient, PrometheusError
from trimtab_pipeline.prometheus.discovery import topology_from_metrics
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.prometheus.shard_reader import read_shard

EAST = (("cluster", "east"), ("site", 'a"b\\'))
TENANT = "pulsar-tenant-7"
PARAMETERS = (("namespace", TENANT), ("extra_filters[]", '{team="a"}'))


def texts(settings: PrometheusSettings) -> Iterator[str]:
    """Every query of a shard."""
    shard = ShardRequest.of(settings, ["a", "b"])
    yield from (raw.promql for raw in shard.raw)
    for queries in (shard.values, shard.value_queries(together=True), shard.bundles, shard.topics):
        yield from queries.values()
    yield shard.ahead


@pytest.mark.parametrize("resources", RESOURCE_PRESETS)
def test_every_selector_of_every_query_has_the_matchers(resources: str) -> None:
    settings = PrometheusSettings("http://x", "pulsar", resources=resources, matchers=EAST)
    for promql in texts(settings):
        selectors = re.findall(r'\{((?:"(?:[^"\\]|\\.)*"|[^{}"])*)\}', promql)
        assert selectors
        for selector in selectors:
            assert r',cluster="east",site="a\"b\\"' in selector, promql
    plain = replace(settings, matchers=())
    assert [text.replace(r',cluster="east",site="a\"b\\"', "") for text in texts(settings)] == list(texts(plain))


def test_a_users_own_query_gets_the_matchers_with_its_selectors() -> None:
    own = (("cpu", "max by (pod) (rate(my_total{$container}[$window]))"),)
    shard = ShardRequest.of(PrometheusSettings("http://x", "ns", queries=own, matchers=EAST[:1]), ["a"])
    assert 'my_total{namespace="ns",pod=~"a",cluster="east",container="broker"}' in shard.own["cpu"]


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_parameters_are_in_the_url_where_a_proxy_looks_for_the_tenant(method: str) -> None:
    def tenancy(asked: Asked) -> tuple[int, str]:
        """A proxy like the one before OpenShift's Thanos: it reads the namespace from the URL only."""
        return (200, vector(a=1)) if asked.in_url.get("namespace") == TENANT else (403, "Forbidden")

    with GuardedServer(tenancy) as server:
        settings = PrometheusSettings(server.url, "pulsar", parameters=PARAMETERS, method=method)
        with ReadRequest.of(settings, 1.0, []).server(settings.credentials) as client:
            assert len(client.query("up", 1.0)) == 1
        assert topology_from_metrics(settings, time.time()).pods == ("a",)
    assert {asked.method for asked in server.asked} == {method}
    for asked in server.asked:
        assert asked.in_url["extra_filters[]"] == '{team="a"}'
        assert asked.parameters["query"]


def test_a_shard_is_asked_with_parameters_and_matchers() -> None:
    with GuardedServer() as server:
        settings = PrometheusSettings(server.url, "pulsar", parameters=PARAMETERS, matchers=EAST)
        request = ReadRequest.of(settings, time.time(), [ShardRequest.of(settings, ["a"])])
        list(read_shard("brokers", request, 0, Secrets()))
    assert server.asked
    for asked in server.asked:
        assert asked.in_url == dict(PARAMETERS)
        assert 'cluster="east"' in asked.parameters["query"]


def test_a_discovery_that_finds_nothing_names_the_matchers() -> None:
    settings = PrometheusSettings("http://x", "pulsar", matchers=EAST[:1])
    with GuardedServer() as server, pytest.raises(SourceUnavailableError, match='namespace="pulsar",cluster="east"'):
        topology_from_metrics(replace(settings, url=server.url), time.time())


# -- no text shows the values of parameters --

TELLING: Mapping[str, Any] = {
    "a page": lambda asked: (404, f"<html>/api/v1/query?namespace={asked.in_url['namespace']} not found</html>"),
    "Prometheus' error": lambda asked: (422, json.dumps({"error": f"no access to {asked.in_url['namespace']}"})),
    "a redirect": lambda asked: (302, f"https://login.example.com/?back=/q%3Fnamespace={asked.in_url['namespace']}"),
    "a short value in a URL": lambda asked: (400, f"bad request: /api/v1/query?x={asked.in_url['x']}&y=1 (sic)"),
    "no JSON": lambda asked: (200, f"hello {asked.in_url['namespace']}"),
}


@pytest.mark.parametrize("kind", TELLING)
def test_no_text_shows_the_value_of_a_parameter(kind: str) -> None:
    parameters = (("namespace", TENANT), ("x", "q7"))
    with (
        GuardedServer(TELLING[kind]) as server,
        PrometheusClient(server.url, 5, parameters=parameters) as client,
        pytest.raises(PrometheusError) as caught,
    ):
        client.query("up", 1.0)
    assert TENANT not in str(caught.value)
    assert "q7" not in str(caught.value)


def test_a_server_that_cant_be_reached_is_told_without_the_parameters() -> None:
    with (
        PrometheusClient("http://127.0.0.1:1", 1, parameters=PARAMETERS) as client,
        pytest.raises(PrometheusError) as caught,
    ):
        client.query("up", 1.0)
    assert TENANT not in str(caught.value)
    assert "?" not in str(caught.value)


def test_settings_and_requests_are_shown_without_the_parameters() -> None:
    settings = PrometheusSettings("http://x", "pulsar", parameters=PARAMETERS)
    request = ReadRequest.of(settings, 1.0, [])
    assert TENANT not in f"{settings} {request} {request.server(settings.credentials)}"


@pytest.mark.parametrize(
    ("field", "pair", "told"),
    [
        ("matchers", ("a-b", "x"), "matcher 'a-b' is not a label name"),
        ("matchers", ('x="y",z', "x"), "is not a label name"),
        ("matchers", ("pod", "x"), "matcher 'pod' is set by Trimtab: name another label"),
        ("matchers", ("__name__", "x"), "is set by Trimtab"),
        ("matchers", ("cluster", "x" * 257), "matcher 'cluster' has a value of 257 characters: use 256 at most"),
        ("parameters", ("a b", "s3cret"), "parameter 'a b' is not a parameter's name"),
        ("parameters", ("query", "s3cret"), "parameter 'query' is set by Trimtab: leave it out"),
        ("parameters", ("partial_response", "s3cret"), "use partialResponse"),
        ("parameters", ("x", "s3cret" * 200), "parameter 'x' has a value of 1200 characters: use 1024 at most"),
    ],
)
def test_what_cant_be_added_is_refused_without_the_value(field: str, pair: tuple[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as caught:
        PrometheusSettings("http://x", "pulsar", **{field: (pair,)})
    assert "s3cret" not in str(caught.value)
