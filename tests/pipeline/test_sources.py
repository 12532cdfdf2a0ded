"""The whole cycle, on threads and on a real Spark session, against a Prometheus stand-in that misbehaves."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

from fake_prometheus import FakePrometheus, Faults, add_broker
from pipeline_clusters import AT, FIRST, TWO_BROKERS, Observing, asks_broker_b, on_both, snapshot, topology
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_pipeline.sources.spark import SparkLoadSources
from trimtab_strategies.model import CPU, RATE_IN


@pytest.mark.spark
def test_spark_leaves_signals_alone(sources: SparkLoadSources) -> None:
    sources.warm_up().result(timeout=120)
    inherited = (signal.default_int_handler, signal.SIG_IGN)  # a shell's background jobs ignore SIGINT
    assert signal.getsignal(signal.SIGINT) in inherited


@pytest.mark.spark
def test_spark_leaves_the_environment_alone_that_other_threads_read_in_c(sources: SparkLoadSources) -> None:
    sources.warm_up().result(timeout=120)
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    changed = ("SPARK_BUFFER_SIZE", "SPARK_AUTH_SOCKET_TIMEOUT")  # by PySpark, in the thread that starts it
    assert [getenv(name.encode()) for name in changed if os.environ[name]] == [None, None]


@on_both
def test_samples_become_a_snapshot_in_the_topologys_rows(fake: FakePrometheus, observing: Observing) -> None:
    add_broker(fake, "b", cpu=3.0)
    observation = observing(fake.url).observe(TWO_BROKERS, AT).result(timeout=120)
    load = observation.load
    assert load.now == AT
    assert load.brokers.usage[:, CPU].tolist() == [1.0, 3.0]
    assert load.brokers.limit[:, CPU].tolist() == [4.0, 4.0]
    assert load.brokers.trusted.all()
    assert load.bundles.short.tolist() == [[10.0, 20.0, 10_000.0, 20_000.0]] * 2
    assert load.bundles.newest.tolist() == load.bundles.short.tolist()
    assert load.bundles.sessions.tolist() == [9.0, 9.0]
    assert not load.quality.partial
    assert not load.quality.dropped
    assert set(observation.seconds) == {"prometheus", "compute", "write", "align"}


@on_both
def test_every_query_is_asked_as_of_the_evaluation_time(fake: FakePrometheus, observing: Observing) -> None:
    snapshot(observing(fake.url), AT + 0.5)
    assert {query["time"] for query in fake.queries} == {f"{AT + 0.5:.3f}"}


@on_both
def test_a_shard_that_fails_costs_its_brokers_their_trust_and_nothing_else(
    fake: FakePrometheus, observing: Observing
) -> None:
    source = observing(fake.url)
    snapshot(source)
    fake.faults = Faults(where=asks_broker_b, status=503)
    load = snapshot(source, AT + 30)
    assert load.brokers.trusted.tolist() == [True, False]
    assert load.brokers.age.tolist() == [0.0, 30.0]
    assert load.bundles.short[:, RATE_IN].tolist() == [10.0, 10.0]
    ((where, why),) = load.quality.failed
    assert where == "broker b"
    assert "503" in why
    fake.faults = Faults()
    assert snapshot(source, AT + 60).brokers.trusted.all()


@on_both
def test_when_nothing_answers_the_future_names_the_server_and_the_cause(
    fake: FakePrometheus, observing: Observing
) -> None:
    fake.faults = Faults(status=503)
    with pytest.raises(SourceUnavailableError, match=f"{fake.url}.*503"):
        snapshot(observing(fake.url))


@on_both
def test_a_server_that_is_down_is_named_and_back_is_back(fake: FakePrometheus, observing: Observing) -> None:
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9 refused the connection"):
        snapshot(observing("http://127.0.0.1:9"))
    assert snapshot(observing(fake.url)).brokers.trusted.all()


@on_both
def test_a_cycle_past_its_deadline_is_cancelled_and_the_next_one_works(
    fake: FakePrometheus, sources: PolicySources
) -> None:
    impatient = sources.open("tests/impatient", PrometheusSettings(fake.url, "pulsar", timeout=20), deadline=1.0)
    fake.faults = Faults(delay=4)
    begin = time.monotonic()
    with pytest.raises(SourceUnavailableError, match="deadline of 1 s"):
        snapshot(impatient)
    assert time.monotonic() - begin < 3
    fake.faults = Faults()
    patient = sources.open("tests/impatient", PrometheusSettings(fake.url, "pulsar"))
    assert snapshot(patient).brokers.trusted.all()


@on_both
def test_a_cancelled_look_does_not_keep_the_next_one_waiting(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, timeout=30)
    fake.faults = Faults(delay=3)
    abandoned = source.observe(TWO_BROKERS, AT)
    time.sleep(0.5)
    assert abandoned.cancel()
    fake.faults = Faults()
    assert snapshot(source, AT + 60).brokers.trusted.all()
    with pytest.raises(CancelledError):
        abandoned.result()


@on_both
def test_the_pulsar_preset_reads_what_brokers_say_of_themselves(fake: FakePrometheus, observing: Observing) -> None:
    for pod in "ab":
        for name in ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out"):
            fake.put(f"pulsar_lb_{name}_usage", 42, namespace="pulsar", pod=pod)
    load = snapshot(observing(fake.url, resources="pulsar")).brokers
    assert load.usage.tolist() == [[42.0] * 5] * 2
    assert load.trusted.all()


@on_both
def test_without_brokers_nothing_is_asked(fake: FakePrometheus, observing: Observing) -> None:
    load = observing(fake.url).observe(topology({}, {FIRST: ""}), AT).result(timeout=60).load
    assert len(load.brokers) == 0
    assert np.isnan(load.bundles.short).all()
    assert fake.queries == []


@on_both
def test_one_broker_without_bundles_is_observed(fake: FakePrometheus, observing: Observing) -> None:
    fake.drop(pod="b")
    for metric in [name for name in fake.series if name.startswith("pulsar_bundle")]:
        del fake.series[metric]
    load = observing(fake.url).observe(topology({"a": "a"}, {}), AT).result(timeout=120).load
    assert load.brokers.trusted.tolist() == [True]
    assert load.bundles.short.shape == (0, 4)
