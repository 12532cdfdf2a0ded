"""Sources without Spark: the figures of a cycle on Spark, and how they fail and end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fake_prometheus import FakePrometheus, Faults, add_bundle
from pipeline_clusters import AT, FIRST, TWO_BROKERS, snapshot
from trimtab_pipeline.api import (
    DecisionEntry,
    KeepsDecisions,
    KeepsFacts,
    PrometheusSettings,
    SourceUnavailableError,
)
from trimtab_pipeline.factory import direct_sources
from trimtab_pipeline.sources.direct import DirectLoadSources
from trimtab_pipeline.sources.spark import SparkLoadSources
from trimtab_strategies.model import RATE_IN


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


def test_a_server_that_does_not_answer_is_reported(fake: FakePrometheus, direct: DirectLoadSources) -> None:
    fake.faults = Faults(delay=30)
    source = direct.open("tests/slow", PrometheusSettings(fake.url, "pulsar", timeout=0.5))
    with pytest.raises(SourceUnavailableError, match="nothing could be measured"):
        snapshot(source)


def test_a_state_damaged_between_two_cycles_costs_one_cycle_not_all(
    fake: FakePrometheus, direct: DirectLoadSources
) -> None:
    source = direct.open("tests/damaged", PrometheusSettings(fake.url, "pulsar"))
    snapshot(source)
    snapshot(source, AT + 60)
    newest = max(Path(direct.history_dir, "state/tests/damaged/bundles").glob("*.parquet"))
    newest.write_bytes(newest.read_bytes()[:-30])
    with pytest.raises(SourceUnavailableError):
        snapshot(source, AT + 120)
    assert snapshot(source, AT + 180).bundles.short[0, RATE_IN] == 10.0
    assert newest.with_name(f"_{newest.stem}.bad").exists()


def test_the_history_also_has_decisions_and_policies(tmp_path: Path) -> None:
    made = direct_sources(tmp_path)
    assert isinstance(made, KeepsDecisions)
    assert isinstance(made, KeepsFacts)
    made.keep_decisions("tests/direct", AT, [DecisionEntry(AT, "Balanced", 0, "{}")])
    made.keep_policy("tests/direct", AT, {"mode": "DryRun"}, {})
    made.close()
    for kind in ("decisions", "policies"):
        assert list(tmp_path.glob(f"history/{kind}/policy=tests.direct/**/*.parquet")), kind


def test_a_policys_name_leads_nowhere_else(tmp_path: Path) -> None:
    made = direct_sources(tmp_path / "history")
    with pytest.raises(ValueError, match="outside"):
        made.open("../elsewhere", PrometheusSettings("http://127.0.0.1:9", "pulsar"))
    made.close()
