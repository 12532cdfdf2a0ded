"""No name changes a query: a real Prometheus reads the same query with other strings in it, and they are the names."""

from __future__ import annotations

import ast
import json
import re
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.prometheus.broker_presets import RESOURCE_PRESETS
from trimtab_pipeline.prometheus.queries import BUNDLES, TOPICS, of_newest, render, topics_in
from trimtab_pipeline.prometheus.read_request import ShardRequest
from trimtab_testbed.servers.prometheus import PrometheusServer

pytestmark = pytest.mark.prometheus

Parse = Callable[[str], str]

_LITERAL = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHER = re.compile(rf"(\w+)(=~|!~|!=|=)({_LITERAL.pattern})")

_BITS = st.sampled_from(
    [
        *"\"'`\\{}[]()|*+?^$.,=~!#\n\r\t\x00\x7f",
        '"} or vector(1) or x{a="',
        "|.+",
        "$container",
        '"$topics"',
        "$$",
        "$(w)",
    ],
)
NAMES = st.one_of(
    st.lists(st.one_of(_BITS, st.text(max_size=3)), min_size=1, max_size=5).map("".join),
    st.text(min_size=1, max_size=12),
).filter(lambda name: name.isascii() or name.encode("utf-8", "ignore").decode() == name)
PLAIN = "plain"


@pytest.fixture(scope="module")
def parse(prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parse]:
    """What Prometheus understood of a query, written down by itself."""
    with PrometheusServer(prometheus_binary, tmp_path_factory.mktemp("prometheus")) as server:

        def ask(promql: str) -> str:
            body = urllib.parse.urlencode({"query": promql}).encode()
            with urllib.request.urlopen(f"{server.url}/api/v1/format_query", body, timeout=10) as answer:
                return str(json.load(answer)["data"])

        yield ask


def queries(namespace: str, container: str, pods: list[str], spaces: list[str]) -> dict[str, str]:
    """Every query there is: presets, topics of some namespaces, and those that count replicas once."""
    settings = PrometheusSettings(
        "http://x", namespace, container=container, network_device=f"eth{container}", matchers=(("site", spaces[0]),)
    )
    instant = {"bundles": BUNDLES.queries, "topics": TOPICS.queries}
    presets = {name: replace(settings, resources=name) for name in RESOURCE_PRESETS}
    shards = {name: ShardRequest.of(chosen, pods) for name, chosen in presets.items()}
    found = {
        f"{kind}.{column}": topics_in(promql, spaces)
        for kind, templates in instant.items()
        for column, promql in render(templates, settings, pods).items()
    }
    found |= {f"{name}.{k}": raw.promql for name, shard in shards.items() for k, raw in enumerate(shard.raw)}
    found |= {f"{name}.values": shard.value_queries(together=True)[""] for name, shard in shards.items()}
    found |= {f"{name}.ahead": shard.ahead for name, shard in shards.items()}
    found["kubernetes.apart"] = shards["kubernetes"].apart
    newest = {f"{name} once": of_newest(found[name]) for name in ("bundles.rate_in", "topics.rate_in")}
    return {**found, **newest}


def structure(understood: str) -> str:
    """It without its strings, and without the line breaks that depend on their length."""
    return "".join(_LITERAL.sub('""', understood).split())


@pytest.fixture(scope="module")
def usual(parse: Parse) -> dict[str, str]:
    """The structure of the queries about harmless names."""
    return {name: structure(parse(text)) for name, text in queries(PLAIN, PLAIN, [PLAIN], [PLAIN]).items()}


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(namespace=NAMES, container=NAMES, pods=st.lists(NAMES, min_size=1, max_size=3), space=NAMES)
def test_no_name_changes_what_a_query_asks(
    namespace: str, container: str, pods: list[str], space: str, parse: Parse, usual: Mapping[str, str]
) -> None:
    for name, text in queries(namespace, container, pods, [space]).items():
        understood = parse(text)
        assert structure(understood) == usual[name], text
        for label, operator, literal in _MATCHER.findall(understood):
            assert_literal((label, operator), ast.literal_eval(literal), namespace, container, pods, space)


def assert_literal(
    kind: tuple[str, str], value: str, namespace: str, container: str, pods: list[str], space: str
) -> None:
    """What a matcher compares with is the names themselves."""
    if kind == ("namespace", "="):
        assert value == namespace
    elif kind == ("container", "="):
        assert value == (container or "broker")
    elif kind == ("device", "="):
        assert value == f"eth{container}"
    elif kind == ("container", "!="):
        assert value == "POD"
    elif kind == ("site", "="):
        assert value == space
    elif kind == ("pod", "=~"):
        assert all(re.fullmatch(value, pod) for pod in pods)
        assert not re.fullmatch(value, "".join(pods) + "x")
    elif kind == ("namespace", "=~"):
        assert re.fullmatch(value, namespace)
    elif kind == ("topic", "=~"):
        assert re.fullmatch(value, f"persistent://{space}/t")
        assert not re.fullmatch(value, f"persistent://x{space}/t", re.DOTALL)
    else:
        assert kind[0] in {"__name__", "interface", "resource", "node", "device"}, kind


@pytest.mark.parametrize("label", ["a b", 'x="y",z', "", "1a", "a-b", "a\n"])
def test_a_label_that_is_none_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="is not a label name"):
        PrometheusSettings("http://x", "pulsar", namespace_label=label)
