"""Whole cycles over a cluster that has metrics of topics, and of bundles only later."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fake_prometheus import FakePrometheus, add_bundle
from pipeline_clusters import AT, FIRST, IDLE, SECOND, WITH_IDLE, on_both, topology
from trimtab_pipeline.api import LoadSource
from trimtab_strategies.hash_ring import topic_hash
from trimtab_strategies.model import RATE_IN, RATE_OUT

NAMES = [f"persistent://t/n/{k}" for k in range(8)]
LOWS = [name for name in NAMES if topic_hash(name) < 0x80000000]


def add_topic(server: FakePrometheus, topic: str, pod: str, rate: float) -> None:
    """A topic with a producer and two consumers: `rate` msg/s in, twice that out, 100 bytes each."""
    where = {"namespace": "/".join(topic.split("/")[2:4]), "pod": pod, "topic": topic}
    loads = {"rate_in": rate, "rate_out": 2 * rate, "throughput_in": 100 * rate, "throughput_out": 200 * rate}
    for name, value in {**loads, "producers_count": 1, "consumers_count": 2}.items():
        server.put(f"pulsar_{name}", value, **where)


@pytest.fixture
def extensible(fake: FakePrometheus) -> FakePrometheus:
    """Brokers a and b that export no metrics of bundles; each topic where its bundle is."""
    for bundle in (FIRST, SECOND):
        fake.drop(bundle=bundle)
    for k, name in enumerate(NAMES):
        add_topic(fake, name, "a" if name in LOWS else "b", 1.0 + k)
    add_topic(fake, "persistent://other/n/x", "a", 1000.0)
    return fake


def total(names: list[str]) -> float:
    return sum(1.0 + NAMES.index(name) for name in names)


@on_both
def test_topics_are_summed_averaged_and_an_idle_bundle_carries_nothing(
    extensible: FakePrometheus, observing: Callable[..., LoadSource]
) -> None:
    source = observing(extensible.url, short_tau=100.0, hot_bundles=1)
    load = source.observe(WITH_IDLE, AT).result(timeout=120).load
    sums = [total(LOWS), total([name for name in NAMES if name not in LOWS]), 0.0]
    assert load.bundles.short[:, RATE_IN].tolist() == sums
    assert load.bundles.short[:, RATE_OUT].tolist() == [2 * value for value in sums]
    assert load.bundles.topics.tolist() == [len(LOWS), len(NAMES) - len(LOWS), 0]
    assert load.bundles.sessions.tolist() == [3.0 * len(LOWS), 3.0 * (len(NAMES) - len(LOWS)), 0.0]
    assert load.quality.dropped == {"Unknown": 1}
    assert not load.quality.missing_bundles

    hot = sums.index(max(sums))
    inside = {name: row for row, name in enumerate(load.topics.names)}
    assert set(inside) == {name for name in NAMES if (name in LOWS) == (hot == 0)}
    for name, row in inside.items():
        assert load.topics.bundle[row] == hot
        assert load.topics.place[row] == topic_hash(name)
        assert load.topics.traffic[row, RATE_IN] == 1.0 + NAMES.index(name)

    for name in LOWS:
        extensible.drop(topic=name)
    later = source.observe(WITH_IDLE, AT + 50).result(timeout=120).load
    assert later.bundles.short[0, RATE_IN] == pytest.approx(sums[0] / 2)


def test_a_bundle_that_moves_counts_where_its_topics_are(
    extensible: FakePrometheus, observing: Callable[..., LoadSource]
) -> None:
    moved = topology({"broker-a": "a", "broker-b": "b"}, {FIRST: "broker-b", SECOND: "broker-b", IDLE: "broker-b"})
    load = observing(extensible.url).observe(moved, AT).result(timeout=120).load
    assert load.bundles.short[0, RATE_IN] == total(LOWS)


def test_bundles_speak_for_themselves_as_soon_as_they_can(
    extensible: FakePrometheus, observing: Callable[..., LoadSource]
) -> None:
    source = observing(extensible.url)
    source.observe(WITH_IDLE, AT).result(timeout=120)
    for bundle, pod in {FIRST: "a", SECOND: "b"}.items():
        add_bundle(extensible, bundle, pod, 500.0)
    fresh = source.observe(topology({"broker-a": "a", "broker-b": "b"}, {FIRST: "broker-a"}), AT + 1e6)
    assert fresh.result(timeout=120).load.bundles.short[0, RATE_IN] == 500.0
    extensible.queries.clear()
    source.observe(WITH_IDLE, AT + 1e6 + 60).result(timeout=120)
    assert not [query for query in extensible.queries if "pulsar_rate_in" in query["query"]]


def test_with_bundle_metrics_alone_topics_are_never_asked_for(
    extensible: FakePrometheus, observing: Callable[..., LoadSource]
) -> None:
    load = observing(extensible.url, bundle_metrics="bundle").observe(WITH_IDLE, AT).result(timeout=120).load
    assert load.quality.missing_bundles == 3
    assert not [query for query in extensible.queries if "pulsar_rate_in" in query["query"]]


def test_without_metrics_of_topics_and_bundles_nothing_is_known_and_bundles_are_not_asked_for_in_vain(
    fake: FakePrometheus, observing: Callable[..., LoadSource]
) -> None:
    load = observing(fake.url, bundle_metrics="topic").observe(WITH_IDLE, AT).result(timeout=120).load
    assert np.isnan(load.bundles.short).all()
    assert load.quality.missing_bundles == 3
    assert not [query for query in fake.queries if "pulsar_bundle" in query["query"]]
