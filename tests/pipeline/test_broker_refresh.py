"""Brokers alone, read between two cycles: without bundles, without Spark's queue, without a file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fake_prometheus import FakePrometheus, Faults, add_broker
from pipeline_clusters import AT, TWO_BROKERS, Observing, asks_broker_b, on_both, snapshot, topology
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_strategies.model import CPU


@on_both
def test_brokers_alone_are_read_without_asking_for_bundles_and_leave_nothing(
    fake: FakePrometheus, observing: Observing, state_folder: Path
) -> None:
    source = observing(fake.url)
    snapshot(source)
    fake.queries.clear()
    fake.drop(pod="b")
    add_broker(fake, "a", cpu=3.9)
    seen = source.observe_brokers(topology({"broker-a": "a", "broker-b": "b"}, {}), AT + 10).result(timeout=60).load
    assert seen.brokers.usage[0, CPU] == 3.9
    assert seen.brokers.trusted.tolist() == [True, False]
    assert seen.quality.doubts["broker-b"].text == "not measured any more; newest sample 10 s old"
    assert not [query for query in fake.queries if "bundle" in query["query"]]
    assert len(list(state_folder.glob("brokers/*.parquet"))) == 1


def test_brokers_alone_of_a_server_that_is_down_fail_with_its_name(observing: Observing) -> None:
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9 refused the connection"):
        observing("http://127.0.0.1:9").observe_brokers(TWO_BROKERS, AT).result(timeout=60)


def test_brokers_alone_are_seen_as_a_cycle_sees_them(fake: FakePrometheus, observing: Observing) -> None:
    add_broker(fake, "b", cpu=3.0, time=AT - 500)
    fake.clock = AT - 100
    fake.series["container_cpu_usage_seconds_total"][0].resets = 1
    source = observing(fake.url)
    whole = source.observe(TWO_BROKERS, AT).result(timeout=120)
    glance = source.observe_brokers(TWO_BROKERS, AT + 0.001).result(timeout=60)
    for column in ("usage", "limit", "traffic", "trusted"):
        np.testing.assert_array_equal(getattr(glance.load.brokers, column), getattr(whole.load.brokers, column))
    assert glance.load.quality.doubts == whole.load.quality.doubts
    assert glance.load.quality.doubts.keys() == {"broker-b"}
    assert glance.load.quality.dropped == {"OutDated": 1}
    told = [[re.sub(r"\d+ s", "some s", note) for note in seen.load.quality.notes] for seen in (glance, whole)]
    assert told[0] == told[1]
    assert len(glance.load.quality.notes) == 2


def test_a_part_that_does_not_answer_costs_a_look_at_the_brokers_only_that_part(
    fake: FakePrometheus, observing: Observing
) -> None:
    fake.faults = Faults(where=asks_broker_b, status=503)
    seen = observing(fake.url).observe_brokers(TWO_BROKERS, AT).result(timeout=60).load
    assert seen.brokers.trusted.tolist() == [True, False]
    assert seen.quality.doubts["broker-b"].text == "the query for its group of brokers got no answer"


@on_both
def test_a_look_at_the_brokers_waits_for_no_cycle(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, timeout=20.0)
    fake.faults = Faults(where=lambda promql: "pulsar_bundle" in promql, delay=2.0)
    cycle = source.observe(TWO_BROKERS, AT)
    assert source.observe_brokers(TWO_BROKERS, AT).result(timeout=60).load.brokers.trusted.all()
    assert not cycle.done()
    cycle.cancel()


@on_both
def test_a_look_at_the_brokers_has_a_deadline(fake: FakePrometheus, sources: PolicySources) -> None:
    source = sources.open("tests/glance-deadline", PrometheusSettings(fake.url, "pulsar"), deadline=0.3)
    fake.faults = Faults(delay=1.0)
    with pytest.raises(SourceUnavailableError, match=r"longer than its deadline of 0\.3 s"):
        source.observe_brokers(TWO_BROKERS, AT).result(timeout=60)
