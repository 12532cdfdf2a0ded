"""Whom to believe, why not, and what is counted: each kind of bad data by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from measured_brokers import Row, observed, usual as report
from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings, Trust
from trimtab_pipeline.columns import BUNDLE_STATE
from trimtab_strategies.model import RATE_IN, ClusterLoad, Reason

NOW = 1_750_000_000.0
SETTINGS = PrometheusSettings("http://x", "pulsar", max_age=60, nic_speed=1000)
WORLD = topology({"a": "a", "b": "b"}, {"t/n/1": "a", "t/n/2": "b"})
USAGE = {"cpu": 1.0, "cpu_limit": 4.0, "memory": 2.0, "memory_limit": 8.0, "network_in": 100.0, "network_out": 200.0}
TIMES = {"resource_time": NOW - 10, "traffic_time": NOW - 20}
CHECKED = {"samples": 4.0, "resets": 0.0, "copies": 1.0, "ahead": None}
GONE = dict.fromkeys(USAGE)


def seen(b: Row, *, trust: Trust | None = None, reports: tuple[Mapping[str, object], ...] = ()) -> ClusterLoad:
    """A picture of a healthy broker a, and of broker b that is healthy but for what is told."""
    rows = {"a": {**USAGE, **TIMES, **CHECKED}, "b": {**USAGE, **TIMES, **CHECKED, **b}}
    settings = SETTINGS if trust is None else PrometheusSettings("http://x", "pulsar", max_age=60, trust=trust)
    chosen = dict.fromkeys(b.get("chosen", ()), ("b",))
    world = replace(WORLD, started=(math.nan, b.get("started") or math.nan), chosen=chosen)
    return observed(rows, world, settings, NOW, reports=reports)


@pytest.mark.parametrize(
    ("change", "reason", "text", "dropped"),
    [
        pytest.param(
            {"samples": 1.0},
            Reason.UNTRUSTED,
            "1 sample of CPU in 60 s, a rate needs 2 (trust.minSamples)",
            {"Gap": 1},
            id="gap",
        ),
        pytest.param(
            {"samples": None, "cpu": None},
            Reason.UNTRUSTED,
            "0 samples of CPU in 60 s, a rate needs 2 (trust.minSamples)",
            {"Gap": 1},
            id="nothing in the window",
        ),
        pytest.param(
            {"started": NOW - 5},
            Reason.UNTRUSTED,
            "a container of its pod started 5 s ago, and a rate covers 60 s",
            {"Restarted": 1},
            id="restarted",
        ),
        pytest.param(
            {"resets": 4.0},
            Reason.UNTRUSTED,
            "4 counter resets in 60 s, more than trust.maxResets",
            {"Reset": 1},
            id="resets",
        ),
        pytest.param(
            {"ahead": 2.0},
            Reason.UNTRUSTED,
            "has samples more than 30 s in the future (trust.maxClockSkew); set the clocks",
            {"ClockSkew": 1},
            id="future",
        ),
        pytest.param(
            GONE | {"resource_time": NOW - 35},
            Reason.OUT_DATED_DATA,
            "not measured any more; newest sample 35 s old",
            {"Disappeared": 1},
            id="disappeared",
        ),
        pytest.param(GONE | dict.fromkeys(TIMES), Reason.NO_LOAD_DATA, "never measured", {}, id="never measured"),
        pytest.param(
            {"resource_time": NOW - 61},
            Reason.OUT_DATED_DATA,
            "newest sample 61 s old, older than 60 s (source.prometheus.maxAge)",
            {"OutDated": 1},
            id="old",
        ),
        pytest.param(
            {"cpu": 44.0},
            Reason.UNTRUSTED,
            "its cpu is 1100% of the limit, more than 10 times (trust.aboveLimit)",
            {"AboveLimit": 1},
            id="above limit",
        ),
        pytest.param(
            {"cpu": 4.8},
            Reason.UNTRUSTED,
            "its cpu is 120% of a limit that it can't exceed: another limit is in force, or it is that of another pod; "
            "set spec.capacity of the Broker if you know the limit",
            {"AboveLimit": 1},
            id="above an enforced limit",
        ),
        pytest.param(
            {"cpu": 1.5, "throttled": 0.7},
            Reason.UNTRUSTED,
            "its CPU is throttled in 70% of the periods at 38% of the limit: a lower limit is in force; is a resize "
            "pending?",
            {},
            id="throttled",
        ),
        pytest.param(
            {"memory_limit": None}, Reason.UNTRUSTED, "its limit of memory is unknown", {"NoLimit": 1}, id="no limit"
        ),
        pytest.param({"memory": None}, Reason.UNTRUSTED, "its memory is unknown", {}, id="unknown"),
    ],
)
def test_a_broker_that_is_not_trusted_says_why_and_is_counted(
    change: Row, reason: Reason, text: str, dropped: Mapping[str, int]
) -> None:
    load = seen(change)
    assert load.brokers.trusted.tolist() == [True, False]
    assert list(load.quality.doubts) == ["b"]
    assert (load.quality.doubts["b"].reason, load.quality.doubts["b"].text) == (reason, text)
    assert load.quality.dropped == dropped


def test_a_broker_whose_shard_failed_says_so() -> None:
    load = seen(GONE, reports=(report(), report(shard=1, ok=False, error="503")))
    doubt = load.quality.doubts["b"]
    assert (doubt.reason, doubt.text) == (Reason.PARTIAL_DATA, "the query for its group of brokers got no answer")
    assert load.quality.dropped == {}


def test_a_few_resets_are_noted_and_trusted() -> None:
    load = seen({"resets": 3.0})
    assert load.brokers.trusted.all()
    assert load.quality.notes == ("b: counters were reset within the window of the rates, which take account of it",)
    assert not load.quality.partial


def test_series_that_are_there_twice_are_counted_once_noted_and_trusted() -> None:
    load = seen({"copies": 3.0})
    assert load.brokers.trusted.all()
    assert load.quality.dropped == {"Duplicate": 2}
    assert load.quality.notes[0].startswith("b: the same series exists more than once")
    assert not load.quality.partial


def test_more_samples_than_anybody_has_are_reported_to_be_out_of_reach() -> None:
    notes = seen({"samples": 3.0}, trust=Trust(min_samples=5)).quality.notes
    assert len(notes) == 1
    assert notes[0].startswith(
        "no broker has more than 4 samples of CPU in 60 s; if that lasts, they are scraped every 15"
    )
    assert "trust.minSamples 5 can't be met" in notes[0]


def test_one_broker_with_too_few_samples_says_nothing_of_the_interval() -> None:
    assert seen({"samples": 1.0}).quality.notes == ()


@pytest.mark.parametrize(
    ("change", "trust"),
    [
        ({"cpu": 44.0, "chosen": ["cpu"]}, Trust(above_limit=11)),
        ({"resets": 9.0}, Trust(max_resets=9)),
    ],
)
def test_bounds_are_the_policys(change: Row, trust: Trust) -> None:
    assert seen(change, trust=trust).brokers.trusted.all()


def test_more_samples_may_be_asked_for() -> None:
    assert not seen({}, trust=Trust(min_samples=5)).brokers.trusted.any()


def test_counts_of_less_than_one_sample_are_no_scrape_interval() -> None:
    rows = {pod: {**USAGE, **TIMES, **CHECKED, "samples": 0.001} for pod in "ab"}

    quality = observed(rows, WORLD, SETTINGS, NOW).quality

    assert {doubt.reason for doubt in quality.doubts.values()} == {Reason.UNTRUSTED}
    assert quality.notes[0].startswith("no broker has a whole sample of CPU in 60 s (the most is 0.001)")


@pytest.mark.parametrize(
    "bound", [{"above_limit": 0.5}, {"max_resets": -1}, {"max_clock_skew": 301}, {"min_samples": 1}]
)
def test_a_bound_that_cannot_be_is_refused(bound: dict[str, float]) -> None:
    (name,) = bound
    with pytest.raises(ValueError, match=f"trust {name} .* must be"):
        Trust(**bound)  # type: ignore[arg-type]


@pytest.mark.parametrize(("clock", "told"), [(95.0, "95 s ahead of"), (-95.0, "95 s behind")])
def test_a_servers_clock_that_is_wrong_is_noted(clock: float, told: str) -> None:
    load = seen({}, reports=(report(clock=0.0), report(shard=1, clock=clock)))
    assert load.quality.notes == (f"the source's clock is {told} ours: set the clocks",)
    assert not seen({}, reports=(report(clock=20.0), report(shard=1, clock=None))).quality.notes


def bundle(name: str, time: float | None, rate: float = 10.0) -> dict[str, object]:
    averages = {f"{term}_{column}": rate for term in ("short", "long") for column in BUNDLE_TRAFFIC}
    return {"bundle": name, "pod": "a", "seen": NOW, "time": time, **averages}


BUNDLE_TRAFFIC = ("rate_in", "rate_out", "throughput_in", "throughput_out")


def test_a_bundle_whose_newest_sample_is_too_old_is_unknown() -> None:
    rows = [bundle("t/n/1", NOW - 60), bundle("t/n/2", NOW - 61)]
    brokers = {pod: {**USAGE, **TIMES, **CHECKED} for pod in "ab"}
    load = observed(brokers, WORLD, SETTINGS, NOW, pa.Table.from_pylist(rows, BUNDLE_STATE))
    assert load.bundles.short[0, RATE_IN] == load.bundles.long[0, RATE_IN] == 10.0
    assert np.isnan(load.bundles.short[1]).all()
    assert np.isnan(load.bundles.long[1]).all()
    assert load.quality.dropped == {"OutDated": 1}
