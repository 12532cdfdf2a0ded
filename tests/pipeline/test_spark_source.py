"""The whole cycle on a real Spark session, against a Prometheus stand-in that misbehaves."""

from __future__ import annotations

import errno
import logging
import math
import re
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from fake_prometheus import FakePrometheus, Faults, add_broker, add_bundle
from pipeline_clusters import topology
from trimtab_pipeline.api import LoadSource, PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.sources.spark import SparkLoadSources
from trimtab_strategies.model import CPU, RATE_IN, ClusterLoad
from trimtab_strategies.usage import LONG_WINDOW, SHORT_WINDOW, UNSEEN, with_sample

pytestmark = pytest.mark.spark

FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
WORLD = topology({"broker-a": "a", "broker-b": "b"}, {FIRST: "broker-a", SECOND: "broker-b"})
AT = 1_750_000_000.0
Observing = Callable[..., LoadSource]


def look(source: LoadSource, at: float = AT) -> ClusterLoad:
    return source.observe(WORLD, at).result(timeout=120).load


def b_only(promql: str) -> bool:
    """Queries of the shard of pod b."""
    return 'pod=~"b"' in promql


def test_spark_leaves_signals_alone(sources: SparkLoadSources) -> None:
    sources.warm_up().result(timeout=120)
    inherited = (signal.default_int_handler, signal.SIG_IGN)  # a shell's background jobs ignore SIGINT
    assert signal.getsignal(signal.SIGINT) in inherited


def test_samples_become_a_snapshot_in_the_topologys_rows(fake: FakePrometheus, observing: Observing) -> None:
    add_broker(fake, "b", cpu=3.0)
    observation = observing(fake.url).observe(WORLD, AT).result(timeout=120)
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
    assert set(observation.seconds) == {"prometheus", "spark", "write", "align"}


def test_brokers_alone_are_read_without_asking_for_bundles_and_leave_nothing(
    fake: FakePrometheus, observing: Observing, sources: SparkLoadSources
) -> None:
    source = observing(fake.url)
    look(source)
    fake.queries.clear()
    fake.drop(pod="b")
    add_broker(fake, "a", cpu=3.9)
    seen = source.observe_brokers(topology({"broker-a": "a", "broker-b": "b"}, {}), AT + 10).result(timeout=60).load
    assert seen.brokers.usage[0, CPU] == 3.9
    assert seen.brokers.trusted.tolist() == [True, False]
    assert seen.quality.doubts["broker-b"].text == "not measured any more; newest sample 10 s old"
    assert not [query for query in fake.queries if "bundle" in query["query"]]
    folder = "tests/test_brokers_alone_are_read_without_asking_for_bundles_and_leave_nothing"
    assert len(list(Path(sources.history_dir, "state", folder).glob("brokers/*.parquet"))) == 1


def test_brokers_alone_of_a_server_that_is_down_fail_with_its_name(observing: Observing) -> None:
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9 refused the connection"):
        observing("http://127.0.0.1:9").observe_brokers(WORLD, AT).result(timeout=60)


def test_every_query_is_asked_as_of_the_evaluation_time(fake: FakePrometheus, observing: Observing) -> None:
    look(observing(fake.url), AT + 0.5)
    assert {query["time"] for query in fake.queries} == {f"{AT + 0.5:.3f}"}


def test_averages_follow_time_not_the_number_of_cycles(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, short_tau=100.0, long_tau=1000.0)
    look(source)
    add_bundle(fake, FIRST, "a", 110.0)
    once = look(source, AT + 50).bundles
    assert once.short[0, RATE_IN] == once.long[0, RATE_IN] == 60.0, "the first two count alike"
    later = look(source, AT + 150).bundles
    assert later.short[0, RATE_IN] == pytest.approx(110 - 50 * math.exp(-1))
    assert later.long[0, RATE_IN] == pytest.approx((10 + 110 + 110) / 3)


def test_averages_of_samples_are_those_of_pulsar(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, averages="samples")
    short, long, counts = UNSEEN, UNSEEN, (1, 1)
    for cycle in range(12):
        add_bundle(fake, FIRST, "a", rate := 10.0 + 7 * cycle**2)
        measured = np.array([rate, 2 * rate, 1000 * rate, 2000 * rate])
        short, few = with_sample(short, counts[0], measured, SHORT_WINDOW)
        long, many = with_sample(long, counts[1], measured, LONG_WINDOW)
        counts = few, many
        seen = look(source, AT + cycle).bundles
        np.testing.assert_allclose(seen.short[0], short, rtol=1e-12)
        np.testing.assert_allclose(seen.long[0], long, rtol=1e-12)
    assert counts == (10, 13)
    fake.drop(bundle=FIRST)
    np.testing.assert_allclose(look(source, AT + 13).bundles.long[0], long, rtol=1e-12)


def test_the_same_cycle_again_gives_the_same_averages(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url)
    look(source)
    add_bundle(fake, FIRST, "a", 110.0)
    assert look(source, AT + 60.0004).bundles.short.tolist() == look(source, AT + 60.0004).bundles.short.tolist()


def test_a_restart_goes_on_from_the_newest_file(fake: FakePrometheus, observing: Observing) -> None:
    look(observing(fake.url))
    add_bundle(fake, FIRST, "a", 110.0)
    restarted = look(observing(fake.url), AT + 60).bundles
    assert restarted.long[0, RATE_IN] == 60.0


def test_a_state_that_is_too_old_is_not_continued(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, long_tau=100.0)
    look(source)
    add_bundle(fake, FIRST, "a", 110.0)
    assert look(source, AT + 301).bundles.long[0, RATE_IN] == 110.0


def test_a_damaged_state_is_set_aside_and_the_cycle_goes_on(
    fake: FakePrometheus, sources: SparkLoadSources, observing: Observing
) -> None:
    source = observing(fake.url)
    look(source)
    look(source, AT + 60)
    newest = max(
        Path(sources.history_dir, "state/tests/test_a_damaged_state_is_set_aside_and_the_cycle_goes_on").rglob(
            "bundles/*.parquet"
        )
    )
    newest.write_bytes(newest.read_bytes()[:-30])
    assert look(observing(fake.url), AT + 120).bundles.short[0, RATE_IN] == 10.0
    assert newest.with_name(f"_{newest.stem}.bad").exists()


def test_a_shard_that_fails_costs_its_brokers_their_trust_and_nothing_else(
    fake: FakePrometheus, observing: Observing
) -> None:
    source = observing(fake.url)
    look(source)
    fake.faults = Faults(where=b_only, status=503)
    load = look(source, AT + 30)
    assert load.brokers.trusted.tolist() == [True, False]
    assert load.brokers.age.tolist() == [0.0, 30.0]
    assert load.bundles.short[:, RATE_IN].tolist() == [10.0, 10.0]
    ((where, why),) = load.quality.failed
    assert where == "broker b"
    assert "503" in why
    fake.faults = Faults()
    assert look(source, AT + 60).brokers.trusted.all()


def test_when_nothing_answers_the_future_names_the_server_and_the_cause(
    fake: FakePrometheus, observing: Observing
) -> None:
    fake.faults = Faults(status=503)
    with pytest.raises(SourceUnavailableError, match=f"{fake.url}.*503"):
        look(observing(fake.url))


def test_a_server_that_is_down_is_named_and_back_is_back(fake: FakePrometheus, observing: Observing) -> None:
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9 refused the connection"):
        look(observing("http://127.0.0.1:9"))
    assert look(observing(fake.url)).brokers.trusted.all()


def test_a_broker_whose_metrics_stop_ages_until_it_is_not_trusted(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, max_age=120.0)
    look(source)
    for metric in list(fake.series):
        if metric.startswith("pulsar_"):
            fake.series[metric] = [row for row in fake.series[metric] if row.labels["pod"] != "b"]
    assert look(source, AT + 60).brokers.age.tolist() == [0.0, 60.0]
    assert look(source, AT + 120).bundles.short[1, RATE_IN] == 10.0
    stale = look(source, AT + 180)
    assert stale.brokers.trusted.tolist() == [True, False]
    assert np.isnan(stale.bundles.short[1]).all()


def test_samples_that_stand_still_are_noticed(fake: FakePrometheus, observing: Observing) -> None:
    add_broker(fake, "b", time=AT - 250)
    load = look(observing(fake.url, max_age=120.0))
    assert load.brokers.age.tolist() == [0.0, 250.0]
    assert load.brokers.trusted.tolist() == [True, False]


def test_a_sample_that_is_shown_again_feeds_no_average(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, short_tau=100.0)
    add_broker(fake, "a", time=AT)
    look(source)
    add_bundle(fake, FIRST, "a", 110.0)
    assert look(source, AT + 60).bundles.short[0, RATE_IN] == 10.0
    add_broker(fake, "a", time=AT + 100)
    assert look(source, AT + 120).bundles.short[0, RATE_IN] == pytest.approx(110 - 100 * math.exp(-1))


def test_a_bundle_of_which_nothing_good_comes_any_more_becomes_unknown(
    fake: FakePrometheus, observing: Observing
) -> None:
    source = observing(fake.url, max_age=90.0)
    look(source)
    add_bundle(fake, FIRST, "a", "NaN")
    load = look(source, AT + 60)
    assert load.bundles.short[:, RATE_IN].tolist() == [10.0, 10.0]
    assert np.isnan(load.bundles.newest[0]).all()
    assert load.bundles.newest[1, RATE_IN] == 10.0
    gone = look(source, AT + 120)
    assert np.isnan(gone.bundles.short[0]).all()
    assert gone.quality.dropped == {"NaN": 4, "OutDated": 1}


def test_a_check_that_the_server_does_not_know_costs_a_note_and_no_load(
    fake: FakePrometheus, observing: Observing
) -> None:
    fake.faults = Faults(where=lambda promql: " offset -" in promql, status=400, text="unexpected offset")
    load = look(observing(fake.url), time.time())
    assert load.brokers.trusted.all()
    assert not load.quality.partial
    assert [note.partition(": ")[0] for note in load.quality.notes] == ["ahead of brokers can't be checked"]


def test_a_cycle_that_had_to_wait_takes_nothing_for_the_future_that_was_scraped_meanwhile(
    fake: FakePrometheus, observing: Observing
) -> None:
    fake.faults = Faults(where=lambda promql: promql.startswith("{__name__=~"), delay=3)
    source, now = observing(fake.url), round(time.time(), 3)
    looks = [source.observe(WORLD, now + second) for second in (0, 1)]
    assert all(look.result(timeout=60).load.brokers.trusted.all() for look in looks)
    asked = [(query["time"], query["query"]) for query in fake.queries if "] offset -" in query["query"]]
    ahead = {at: int(re.findall(r"\[(\d+)s\] offset", promql)[0]) for at, promql in asked}
    first, second = (ahead[f"{now + second:.3f}"] for second in (0, 1))
    assert first <= 570 - 3  # the answers before it took three seconds
    assert second <= first - 3  # and the other cycle had to wait for that


def test_a_clock_and_a_series_that_is_there_twice_are_noted(fake: FakePrometheus, observing: Observing) -> None:
    fake.clock = time.time() + 95
    where = {"namespace": "pulsar", "pod": "b", "container": "broker"}
    fake.put("container_cpu_usage_seconds_total", 1.0, **where, replica="2")
    load = look(observing(fake.url))
    assert load.brokers.trusted.all()
    assert load.quality.dropped == {"Duplicate": 1}
    twice, clock = load.quality.notes
    assert twice.startswith("broker-b: the same series is there more than once")
    assert clock.startswith("the source's clock is 9")


def test_nan_is_counted_and_never_becomes_load(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url)
    look(source)
    add_bundle(fake, FIRST, "a", "NaN")
    fake.put("container_cpu_usage_seconds_total", "+Inf", namespace="pulsar", pod="b", container="broker")
    load = look(source, AT + 60)
    assert load.quality.dropped == {"NaN": 4, "Infinite": 1}
    assert load.bundles.short[0].tolist() == [10.0, 20.0, 10_000.0, 20_000.0]
    assert load.brokers.trusted.tolist() == [True, False]


def test_warnings_of_the_server_make_the_snapshot_partial(fake: FakePrometheus, observing: Observing) -> None:
    fake.faults = Faults(where=b_only, warnings=("store 3 did not answer",))
    quality = look(observing(fake.url)).quality
    assert quality.partial
    assert quality.warnings == ("store 3 did not answer",)


def test_a_cycle_past_its_deadline_is_cancelled_and_the_next_one_works(
    fake: FakePrometheus, sources: SparkLoadSources
) -> None:
    impatient = sources.open("tests/impatient", PrometheusSettings(fake.url, "pulsar", timeout=20), deadline=1.0)
    fake.faults = Faults(delay=4)
    begin = time.monotonic()
    with pytest.raises(SourceUnavailableError, match="deadline of 1 s"):
        look(impatient)
    assert time.monotonic() - begin < 3
    fake.faults = Faults()
    patient = sources.open("tests/impatient", PrometheusSettings(fake.url, "pulsar"))
    assert look(patient).brokers.trusted.all()


def test_a_cancelled_look_does_not_keep_the_next_one_waiting(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, timeout=30)
    fake.faults = Faults(delay=3)
    abandoned = source.observe(WORLD, AT)
    time.sleep(0.5)
    assert abandoned.cancel()
    fake.faults = Faults()
    assert look(source, AT + 60).brokers.trusted.all()
    with pytest.raises(CancelledError):
        abandoned.result()


def test_the_pulsar_preset_reads_what_brokers_say_of_themselves(fake: FakePrometheus, observing: Observing) -> None:
    for pod in "ab":
        for name in ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out"):
            fake.put(f"pulsar_lb_{name}_usage", 42, namespace="pulsar", pod=pod)
    load = look(observing(fake.url, resources="pulsar")).brokers
    assert load.usage.tolist() == [[42.0] * 5] * 2
    assert load.trusted.all()


def test_without_brokers_nothing_is_asked(fake: FakePrometheus, observing: Observing) -> None:
    load = observing(fake.url).observe(topology({}, {FIRST: ""}), AT).result(timeout=60).load
    assert len(load.brokers) == 0
    assert np.isnan(load.bundles.short).all()
    assert fake.queries == []


def test_policies_keep_their_histories_apart(sources: SparkLoadSources) -> None:
    with pytest.raises(ValueError, match="outside"):
        sources.open("../elsewhere", PrometheusSettings("http://x", "pulsar"))


@pytest.mark.parametrize("name", ["", ".", "ns/.."])
def test_a_policy_without_a_name_has_no_history(sources: SparkLoadSources, name: str) -> None:
    with pytest.raises(ValueError, match="outside"):
        sources.open(name, PrometheusSettings("http://x", "pulsar"))


def test_a_full_disk_costs_the_history_not_the_cycle_and_is_reported_once(
    fake: FakePrometheus, observing: Observing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = observing(fake.url)
    look(source)
    add_bundle(fake, FIRST, "a", 110.0)
    with monkeypatch.context() as disk:
        disk.setattr(pq, "ParquetWriter", full)
        first, second = look(source, AT + 60), look(source, AT + 120)
    assert first.brokers.trusted.all()
    assert first.bundles.long[0, RATE_IN] == 60.0
    assert second.bundles.long[0, RATE_IN] == pytest.approx(230 / 3), "every sample counts, also what is not written"
    assert caplog.text.count("the history can't be written") == 1
    caplog.set_level(logging.INFO)
    third = look(source, AT + 180)
    assert third.bundles.long[0, RATE_IN] == pytest.approx(85.0)
    assert "written again" in caplog.text


def test_a_history_that_cant_be_used_is_reported_and_used_again_once_it_can(
    fake: FakePrometheus, observing: Observing, sources: SparkLoadSources
) -> None:
    name = "test_a_history_that_cant_be_used_is_reported_and_used_again_once_it_can"
    way = Path(sources.history_dir, "state", "tests", name)
    way.parent.mkdir(exist_ok=True, parents=True)
    way.write_text("in the way")
    source = observing(fake.url)
    told = source.observe(WORLD, AT).result(timeout=120)
    assert told.load.brokers.trusted.all()
    assert told.unwritten is not None
    assert "Not a directory" in told.unwritten
    way.unlink()
    assert source.observe(WORLD, AT + 60).result(timeout=120).unwritten == ""


def test_a_history_that_was_removed_is_written_again(
    fake: FakePrometheus, observing: Observing, sources: SparkLoadSources
) -> None:
    source = observing(fake.url)
    look(source)
    shutil.rmtree(sources.history_dir)
    assert look(source, AT + 60).brokers.trusted.all()
    assert source.observe(WORLD, AT + 120).result(timeout=120).unwritten == ""
    assert len(list(Path(sources.history_dir).glob("state/tests/*/bundles/*.parquet"))) == 2


def test_a_state_damaged_between_two_cycles_costs_one_cycle_not_all(
    fake: FakePrometheus, observing: Observing, sources: SparkLoadSources
) -> None:
    source = observing(fake.url)
    look(source)
    look(source, AT + 60)
    folder = Path(sources.history_dir, "state/tests/test_a_state_damaged_between_two_cycles_costs_one_cycle_not_all")
    newest = max(folder.glob("bundles/*.parquet"))
    newest.write_bytes(newest.read_bytes()[:-30])
    with pytest.raises(SourceUnavailableError):
        look(source, AT + 120)
    assert look(source, AT + 180).bundles.short[0, RATE_IN] == 10.0
    assert newest.with_name(f"_{newest.stem}.bad").exists()


def test_a_bundle_that_moves_keeps_its_average_and_counts_once(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url)
    look(source)
    add_bundle(fake, FIRST, "b", 10.0)
    both = look(source, AT + 60)
    assert both.quality.dropped == {"Duplicate": 1}
    assert both.bundles.short[0, RATE_IN] == pytest.approx(10.0)
    fake.drop(bundle=FIRST)
    nowhere = look(source, AT + 120)
    assert nowhere.bundles.short[0, RATE_IN] == pytest.approx(10.0)
    assert nowhere.quality.missing_bundles == 1
    add_bundle(fake, FIRST, "b", 10.0)
    moved = look(source, AT + 180)
    assert moved.bundles.short[0, RATE_IN] == pytest.approx(10.0)
    assert not moved.quality.dropped


def test_one_broker_without_bundles_is_observed(fake: FakePrometheus, observing: Observing) -> None:
    fake.drop(pod="b")
    for metric in [name for name in fake.series if name.startswith("pulsar_bundle")]:
        del fake.series[metric]
    load = observing(fake.url).observe(topology({"a": "a"}, {}), AT).result(timeout=120).load
    assert load.brokers.trusted.tolist() == [True]
    assert load.bundles.short.shape == (0, 4)


def test_warming_up_leaves_nothing_behind(sources: SparkLoadSources) -> None:
    sources.warm_up().result(timeout=120)
    assert not list(Path(sources.history_dir).glob("*dry*"))


def test_brokers_alone_are_seen_as_a_cycle_sees_them(fake: FakePrometheus, observing: Observing) -> None:
    add_broker(fake, "b", cpu=3.0, time=AT - 500)
    fake.clock = AT - 100
    fake.series["container_cpu_usage_seconds_total"][0].resets = 1
    source = observing(fake.url)
    whole = source.observe(WORLD, AT).result(timeout=120)
    glance = source.observe_brokers(WORLD, AT + 0.001).result(timeout=60)
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
    fake.faults = Faults(where=b_only, status=503)
    seen = observing(fake.url).observe_brokers(WORLD, AT).result(timeout=60).load
    assert seen.brokers.trusted.tolist() == [True, False]
    assert seen.quality.doubts["broker-b"].text == "its part of the source did not answer"


def test_a_look_at_the_brokers_waits_for_no_cycle(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, timeout=20.0)
    fake.faults = Faults(where=lambda promql: "pulsar_bundle" in promql, delay=2.0)
    cycle = source.observe(WORLD, AT)
    assert source.observe_brokers(WORLD, AT).result(timeout=60).load.brokers.trusted.all()
    assert not cycle.done()
    cycle.cancel()


def test_a_look_at_the_brokers_has_a_deadline(fake: FakePrometheus, sources: SparkLoadSources) -> None:
    source = sources.open("tests/glance-deadline", PrometheusSettings(fake.url, "pulsar"), deadline=0.3)
    fake.faults = Faults(delay=1.0)
    with pytest.raises(SourceUnavailableError, match=r"longer than its deadline of 0\.3 s"):
        source.observe_brokers(WORLD, AT).result(timeout=60)
