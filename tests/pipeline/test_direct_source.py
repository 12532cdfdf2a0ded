"""Sources without Spark: the figures of a cycle on Spark, and how they fail and end."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_prometheus import FakePrometheus, Faults, add_bundle
from pipeline_clusters import AT, FIRST, TWO_BROKERS, snapshot
from small_cluster import until
from trimtab_pipeline.api import (
    DecisionEntry,
    KeepsDecisions,
    KeepsFacts,
    PrometheusSettings,
    SourceUnavailableError,
)
from trimtab_pipeline.factory import direct_sources
from trimtab_pipeline.sources import direct as direct_module
from trimtab_pipeline.sources.direct import DirectLoadSources
from trimtab_pipeline.sources.pipeline import measure
from trimtab_pipeline.sources.spark import SparkLoadSources


@pytest.fixture
def direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectLoadSources]:
    """Sources that must do without Java."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    made = DirectLoadSources(tmp_path / "history", deadline=20)
    yield made
    made.close()


@pytest.mark.spark
def test_without_spark_the_same_is_measured_as_on_spark(
    fake: FakePrometheus, sources: SparkLoadSources, direct: DirectLoadSources
) -> None:
    settings = PrometheusSettings(fake.url, "pulsar")
    there, here = sources.open("tests/on-spark", settings), direct.open("tests/direct", settings)
    for minute, rate in enumerate((10.0, 110.0, 50.0)):
        add_bundle(fake, FIRST, "a", rate)
        one, other = snapshot(there, AT + 60 * minute), snapshot(here, AT + 60 * minute)
        assert one.bundles.newest[:, 0].tolist() == [rate, 10.0]
        for of in ("bundles", "brokers"):
            for name in (
                ("short", "long", "newest", "topics", "sessions") if of == "bundles" else ("usage", "limit", "trusted")
            ):
                np.testing.assert_array_equal(getattr(getattr(one, of), name), getattr(getattr(other, of), name))
        assert one.quality == other.quality


def test_a_look_needs_no_java_and_remembers(fake: FakePrometheus, direct: DirectLoadSources) -> None:
    source = direct.open("tests/direct", PrometheusSettings(fake.url, "pulsar"))
    direct.warm_up().result(timeout=0)
    first = snapshot(source).bundles.short[0, 0]
    add_bundle(fake, FIRST, "a", first + 100)
    assert first < snapshot(source, AT + 60).bundles.short[0, 0] < first + 100
    assert source.observe_brokers(replace(TWO_BROKERS), AT + 60).result(timeout=20).load.brokers.trusted.all()


def test_a_connection_to_the_history_that_breaks_is_not_blamed_on_spark(
    fake: FakePrometheus, direct: DirectLoadSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ConnectionResetError("the bucket closed the connection")

    monkeypatch.setattr(direct_module, "measure", broken)
    with pytest.raises(SourceUnavailableError, match=r"^the history can't be used: the bucket closed the connection"):
        snapshot(direct.open("tests/broken", PrometheusSettings(fake.url, "pulsar")))


def test_the_history_also_has_decisions_and_policies(tmp_path: Path) -> None:
    made = direct_sources(tmp_path)
    assert isinstance(made, KeepsDecisions)
    assert isinstance(made, KeepsFacts)
    made.keep_decisions("tests/direct", AT, [DecisionEntry(AT, "Balanced", 0, "{}")])
    made.keep_policy("tests/direct", AT, {"mode": "DryRun"}, {})
    made.close()
    for kind in ("decisions", "policies"):
        assert list(tmp_path.glob(f"history/{kind}/policy=tests.direct/**/*.parquet")), kind


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> DelayedMeasure:
    """Measurements that take some time after the last query."""
    delayed = DelayedMeasure()
    monkeypatch.setattr(direct_module, "measure", delayed)
    return delayed


class DelayedMeasure:
    """`measure`, which takes `seconds` longer. most: the largest number that ran at the same time."""

    def __init__(self) -> None:
        self.seconds, self.running, self.most = 0.0, 0, 0

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        measured = measure(*arguments, **named)
        time.sleep(self.seconds)
        self.running -= 1
        return measured


def test_a_cycle_that_ends_after_its_deadline_writes_nothing(
    fake: FakePrometheus, direct: DirectLoadSources, delayed: DelayedMeasure
) -> None:
    """Its state would be newer than that of the next cycle, and replace it."""
    settings = PrometheusSettings(fake.url, "pulsar")
    late, source = direct.open("tests/late", settings, deadline=0.5), direct.open("tests/late", settings)
    delayed.seconds = 1.0
    with pytest.raises(SourceUnavailableError, match=r"deadline of 0\.5 s"):
        snapshot(late, AT + 60)
    until("the late measurement has ended", lambda: not measuring())
    assert not list(Path(direct.history_dir).rglob("*.parquet"))
    delayed.seconds = 0.0
    snapshot(source)
    assert [file.stem for file in Path(direct.history_dir, "state/tests/late/bundles").glob("*")] == [
        "20250615T150640.000000Z"
    ]


def test_cycles_of_one_policy_wait_for_each_other_and_others_do_not(
    fake: FakePrometheus, direct: DirectLoadSources, delayed: DelayedMeasure
) -> None:
    settings = PrometheusSettings(fake.url, "pulsar")
    delayed.seconds = 0.3
    for names, most in ((("one", "one"), 1), (("one", "two", "three"), 2)):
        delayed.most = 0
        sources = [direct.open(f"tests/{name}", settings) for name in names]
        found = [source.observe(TWO_BROKERS, AT + 60 * k) for k, source in enumerate(sources)]
        assert all(one.result(timeout=20).load.brokers.trusted.all() for one in found)
        assert delayed.most == most


def test_closing_waits_for_what_runs(fake: FakePrometheus, direct: DirectLoadSources, delayed: DelayedMeasure) -> None:
    delayed.seconds = 0.5
    found = direct.open("tests/closed", PrometheusSettings(fake.url, "pulsar")).observe(TWO_BROKERS, AT)
    direct.close()
    assert isinstance(found.exception(timeout=0), SourceUnavailableError)
    assert not measuring()


def measuring() -> list[threading.Thread]:
    """The threads of measurements that run."""
    return [thread for thread in threading.enumerate() if thread.name == "measurement"]


@pytest.mark.parametrize("answers", [True, False], ids=["measured", "failed"])
def test_a_measurement_is_freed_without_a_garbage_collection(
    fake: FakePrometheus, direct: DirectLoadSources, *, answers: bool
) -> None:
    """The operator collects garbage seldom, and a measurement at scale takes megabytes."""
    fake.faults = Faults() if answers else Faults(status=500)
    source = direct.open("tests/freed", PrometheusSettings(fake.url, "pulsar", timeout=1.0))
    gc.disable()
    try:
        outcome = source.observe(TWO_BROKERS, AT)
        assert (outcome.exception(timeout=20) is None) is answers
        kept = weakref.ref(outcome)
        del outcome
        until("the thread has ended", lambda: kept() is None, within=5)
    finally:
        gc.enable()


def test_a_policys_name_leads_nowhere_else(tmp_path: Path) -> None:
    made = direct_sources(tmp_path / "history")
    with pytest.raises(ValueError, match="outside"):
        made.open("../elsewhere", PrometheusSettings("http://127.0.0.1:9", "pulsar"))
    made.close()
