"""The same cycle on a real Spark Connect server in a process of its own, which dies and comes back."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from fake_prometheus import FakePrometheus, Faults, add_bundle
from pipeline_clusters import AT, FIRST, TWO_BROKERS, snapshot
from spark_servers import ConnectServer
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.factory import spark_sources
from trimtab_pipeline.sources.direct import DirectLoadSources
from trimtab_pipeline.sources.spark import SparkLoadSources
from trimtab_pipeline.spark import session
from trimtab_pipeline.spark.connect import ConnectedSpark
from trimtab_pipeline.spark.settings import SparkSettings
from trimtab_strategies.model import RATE_IN


def test_without_the_client_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(SourceUnavailableError, match=r"sc://spark:15002 needs grpc.*: pip install 'WHEEL\[connect\]'"):
        spark_sources(tmp_path, master="sc://spark:15002")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server with three cores that tests may kill, if they start it again."""
    with ConnectServer(tmp_path_factory.mktemp("connect"), cores=3) as running:
        yield running


@pytest.fixture
def connected(server: ConnectServer, tmp_path: Path) -> Iterator[SparkLoadSources]:
    """Sources on the server."""
    made = SparkLoadSources(tmp_path / "history", master=server.url, deadline=60)
    yield made
    made.close()


@pytest.mark.spark
@pytest.mark.connect
def test_another_version_of_spark_on_the_server_is_reported_with_both(
    server: ConnectServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = pyspark.__version__
    monkeypatch.setattr(pyspark, "__version__", "4.2.0")
    made = SparkLoadSources(tmp_path / "history", master=server.url, deadline=60)
    with pytest.raises(SourceUnavailableError):
        snapshot(made.open("tests/version", PrometheusSettings("http://127.0.0.1:9", "pulsar")))
    made.close()
    assert f"is Spark {version}, and this program's PySpark is 4.2.0" in caplog.text
    assert "install the same version on both sides" in caplog.text


@pytest.mark.spark
@pytest.mark.connect
def test_a_connect_server_measures_what_the_embedded_session_measures(
    fake: FakePrometheus, connected: SparkLoadSources, sources: SparkLoadSources
) -> None:
    settings = PrometheusSettings(fake.url, "pulsar")
    there, here = connected.open("tests/there", settings), sources.open("tests/here", settings)
    for minute, rate in enumerate((10.0, 110.0, 50.0)):
        add_bundle(fake, FIRST, "a", rate)
        one, other = snapshot(there, AT + 60 * minute), snapshot(here, AT + 60 * minute)
        np.testing.assert_array_equal(one.bundles.short, other.bundles.short)
        np.testing.assert_array_equal(one.bundles.long, other.bundles.long)
        np.testing.assert_array_equal(one.brokers.usage, other.brokers.usage)
        np.testing.assert_array_equal(one.brokers.trusted, other.brokers.trusted)


@pytest.mark.spark
@pytest.mark.connect
def test_past_minutes_are_measured_on_the_server_beside_a_cycle(
    fake: FakePrometheus, connected: SparkLoadSources, tmp_path: Path
) -> None:
    settings, direct = PrometheusSettings(fake.url, "pulsar"), DirectLoadSources(tmp_path / "direct")
    there = connected.open("tests/there", settings, deadline=200)
    here = direct.open("tests/here", settings)
    cycle, minutes = there.observe(TWO_BROKERS, AT), [AT - 60 * ago for ago in (1, 2, 3)]
    found = [there.observe_past(TWO_BROKERS, at) for at in minutes]
    assert len(cycle.result(200).load.brokers) == 2
    for at, measured in zip(minutes, found, strict=True):
        one, other = measured.result(200), here.observe_past(TWO_BROKERS, at).result(60)
        assert one is not None
        assert other is not None
        assert (one.time, one.bundles, one.brokers) == (at, TWO_BROKERS.bundles, TWO_BROKERS.brokers)
        for name in ("load", "cpu", "traffic"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert np.isfinite(one.load).all()
    direct.close()


@pytest.mark.spark
@pytest.mark.connect
def test_a_server_is_asked_how_many_tasks_it_runs_at_once(connected: SparkLoadSources) -> None:
    engine = connected._engine
    connected.warm_up().result()
    partitions = engine.run(lambda spark: spark.conf.get("spark.sql.shuffle.partitions"), deadline=60).result()
    assert (engine.parallelism, partitions, engine.reads_files) == (3, "3", False)


@pytest.mark.spark
@pytest.mark.connect
def test_an_error_in_a_task_is_reported_by_its_own_line_wherever_it_ran(
    connected: SparkLoadSources, sources: SparkLoadSources
) -> None:
    def job(spark: SparkSession) -> None:
        def broken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            raise LookupError(f"no {len(list(batches))} of these")

        spark.range(0, 1, 1, 1).mapInArrow(broken, "id bigint").toArrow()

    for one in (connected, sources):
        with pytest.raises(SourceUnavailableError) as told:
            one._engine.run(job, deadline=60).result()
        assert str(told.value) == "Spark could not run the cycle: LookupError: no 1 of these (in a task)"


@pytest.mark.spark
@pytest.mark.connect
def test_a_cycle_past_its_deadline_is_cancelled_on_the_server_and_the_next_one_works(
    connected: SparkLoadSources, fake: FakePrometheus
) -> None:
    snapshot(connected.open("tests/slow", PrometheusSettings(fake.url, "pulsar")))
    impatient = connected.open("tests/slow", PrometheusSettings(fake.url, "pulsar", timeout=60), deadline=2.0)
    fake.faults = Faults(delay=50)
    with pytest.raises(SourceUnavailableError, match="deadline of 2 s"):
        snapshot(impatient, AT + 60)
    fake.faults = Faults()
    begin = time.monotonic()
    assert len(snapshot(connected.open("tests/slow", PrometheusSettings(fake.url, "pulsar")), AT + 120).brokers) == 2
    assert time.monotonic() - begin < 30


@pytest.mark.spark
@pytest.mark.connect
def test_a_restarted_server_is_noticed_reported_and_costs_no_cycle(
    server: ConnectServer, connected: SparkLoadSources, fake: FakePrometheus, caplog: pytest.LogCaptureFixture
) -> None:
    source = connected.open("tests/restarted", PrometheusSettings(fake.url, "pulsar", short_tau=100.0))
    snapshot(source)
    server.kill()
    server.start()
    add_bundle(fake, FIRST, "a", 110.0)
    after = snapshot(source, AT + 50).bundles
    assert after.short[0, RATE_IN] == 60.0, "the mean of 10, from before, and 110"
    assert f"the Spark Connect server {server.url} lost the session (" in caplog.text  # a slow one: while it was away
    assert "); making another one" in caplog.text


@pytest.mark.spark
@pytest.mark.connect
def test_a_server_killed_in_the_middle_of_a_cycle_costs_that_cycle_is_reported_while_away_and_used_again_once_back(
    server: ConnectServer, connected: SparkLoadSources, fake: FakePrometheus, caplog: pytest.LogCaptureFixture
) -> None:
    source = connected.open("tests/killed", PrometheusSettings(fake.url, "pulsar", timeout=60))
    snapshot(source)
    fake.faults = Faults(delay=50)
    cut_short = source.observe(TWO_BROKERS, AT + 60)
    time.sleep(1)
    begin = time.monotonic()
    server.kill()
    with pytest.raises(SourceUnavailableError, match="Spark could not run the cycle"):
        cut_short.result(timeout=60)
    assert time.monotonic() - begin < 30
    fake.faults = Faults()
    for minute in (2, 3):
        begin = time.monotonic()
        with pytest.raises(SourceUnavailableError, match=r"Spark could not run the cycle: .*Connection refused"):
            snapshot(source, AT + 60 * minute)
        assert time.monotonic() - begin < 15
    server.start()
    caplog.set_level(logging.WARNING)
    assert len(snapshot(source, AT + 240).brokers) == 2
    assert "Spark did not start" in caplog.text


@pytest.mark.spark
@pytest.mark.connect
def test_a_server_that_hangs_costs_cycles_leaves_no_thread_and_is_used_again_once_it_answers(
    server: ConnectServer,
    connected: SparkLoadSources,
    fake: FakePrometheus,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = connected.open("tests/hangs", PrometheusSettings(fake.url, "pulsar"))
    impatient = connected.open("tests/impatient", PrometheusSettings(fake.url, "pulsar"), deadline=2.0)
    waiting = connected.open("tests/waiting", PrometheusSettings(fake.url, "pulsar"), deadline=15.0)
    snapshot(source)
    before = threads()
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(session, "_ANSWERS_WITHIN", 5.0)
            for minute in (1, 2, 3):
                with pytest.raises(SourceUnavailableError, match="deadline of 2 s"):
                    snapshot(impatient, AT + 60 * minute)
            # It waits for an answer, or already for the start of the next session.
            with pytest.raises(SourceUnavailableError, match=r"Spark could not run the cycle|deadline of 15 s"):
                snapshot(waiting, AT + 240)
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert len(snapshot(source, AT + 300).brokers) == 2
    said = f"Spark did not answer for 5 s; closing the connection to the Spark Connect server {server.url}"
    assert caplog.messages.count(said) == 1
    assert threads() <= before


@pytest.mark.spark
@pytest.mark.connect
def test_giving_up_ends_the_calls_that_wait_for_a_server_that_hangs(server: ConnectServer) -> None:
    spark, pool = ConnectedSpark(SparkSettings(server.url)), ThreadPoolExecutor(1)
    opened = spark.start(lambda: False)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        waiting = pool.submit(spark.lost, opened)
        assert not wait([waiting], timeout=1).done
        spark.give_up("it hangs")
        assert "lost the session" in waiting.result(timeout=20)
    finally:
        os.kill(server.pid, signal.SIGCONT)
        pool.shutdown()


def threads() -> int:
    """Number of threads that use a session."""
    return sum(thread.name.startswith("spark") for thread in threading.enumerate())
