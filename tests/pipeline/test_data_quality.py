"""Old, missing, double and impossible samples in a cycle: what is trusted, dropped and noted."""

from __future__ import annotations

import re
import time

import numpy as np

from fake_prometheus import FakePrometheus, Faults, add_broker, add_bundle
from pipeline_clusters import AT, FIRST, TWO_BROKERS, Observing, asks_broker_b, on_both, snapshot
from trimtab_strategies.model import RATE_IN


def test_a_broker_whose_metrics_stop_ages_until_it_is_not_trusted(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url, max_age=120.0)
    snapshot(source)
    for metric in list(fake.series):
        if metric.startswith("pulsar_"):
            fake.series[metric] = [row for row in fake.series[metric] if row.labels["pod"] != "b"]
    assert snapshot(source, AT + 60).brokers.age.tolist() == [0.0, 60.0]
    assert snapshot(source, AT + 120).bundles.short[1, RATE_IN] == 10.0
    stale = snapshot(source, AT + 180)
    assert stale.brokers.trusted.tolist() == [True, False]
    assert np.isnan(stale.bundles.short[1]).all()


def test_samples_that_stand_still_are_noticed(fake: FakePrometheus, observing: Observing) -> None:
    add_broker(fake, "b", time=AT - 250)
    load = snapshot(observing(fake.url, max_age=120.0))
    assert load.brokers.age.tolist() == [0.0, 250.0]
    assert load.brokers.trusted.tolist() == [True, False]


def test_a_bundle_of_which_nothing_good_comes_any_more_becomes_unknown(
    fake: FakePrometheus, observing: Observing
) -> None:
    source = observing(fake.url, max_age=90.0)
    snapshot(source)
    add_bundle(fake, FIRST, "a", "NaN")
    load = snapshot(source, AT + 60)
    assert load.bundles.short[:, RATE_IN].tolist() == [10.0, 10.0]
    assert np.isnan(load.bundles.newest[0]).all()
    assert load.bundles.newest[1, RATE_IN] == 10.0
    gone = snapshot(source, AT + 120)
    assert np.isnan(gone.bundles.short[0]).all()
    assert gone.quality.dropped == {"NaN": 4, "OutDated": 1}


def test_a_check_that_the_server_does_not_know_costs_a_note_and_no_load(
    fake: FakePrometheus, observing: Observing
) -> None:
    fake.faults = Faults(where=lambda promql: " offset -" in promql, status=400, text="unexpected offset")
    load = snapshot(observing(fake.url), time.time())
    assert load.brokers.trusted.all()
    assert not load.quality.partial
    assert [note.partition(": ")[0] for note in load.quality.notes] == ["the check for samples from the future failed"]


def test_a_cycle_that_had_to_wait_takes_nothing_for_the_future_that_was_scraped_meanwhile(
    fake: FakePrometheus, observing: Observing
) -> None:
    fake.faults = Faults(where=lambda promql: promql.startswith("{__name__=~"), delay=3)
    source, now = observing(fake.url), round(time.time(), 3)
    looks = [source.observe(TWO_BROKERS, now + second) for second in (0, 1)]
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
    load = snapshot(observing(fake.url))
    assert load.brokers.trusted.all()
    assert load.quality.dropped == {"Duplicate": 1}
    twice, clock = load.quality.notes
    assert twice.startswith("broker-b: the same series exists more than once")
    assert clock.startswith("the source's clock is 9")


def test_nan_is_counted_and_never_becomes_load(fake: FakePrometheus, observing: Observing) -> None:
    source = observing(fake.url)
    snapshot(source)
    add_bundle(fake, FIRST, "a", "NaN")
    fake.put("container_cpu_usage_seconds_total", "+Inf", namespace="pulsar", pod="b", container="broker")
    load = snapshot(source, AT + 60)
    assert load.quality.dropped == {"NaN": 4, "Infinite": 1}
    assert load.bundles.short[0].tolist() == [10.0, 20.0, 10_000.0, 20_000.0]
    assert load.brokers.trusted.tolist() == [True, False]


@on_both
def test_warnings_of_the_server_make_the_snapshot_partial(fake: FakePrometheus, observing: Observing) -> None:
    fake.faults = Faults(where=asks_broker_b, warnings=("store 3 did not answer",))
    quality = snapshot(observing(fake.url)).quality
    assert quality.partial
    assert quality.warnings == ("store 3 did not answer",)
