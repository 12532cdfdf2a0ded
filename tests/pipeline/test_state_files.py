"""The history folder of cycles: damaged, full, in the way, removed."""

from __future__ import annotations

import errno
import logging
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from fake_prometheus import FakePrometheus, add_bundle
from pipeline_clusters import AT, FIRST, TWO_BROKERS, Observing, cut_short, on_both, snapshot
from trimtab_pipeline.api import LoadSource, PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_strategies.model import RATE_IN


def damaged(source: LoadSource, state_folder: Path) -> Path:
    """Run two cycles, and damage the state of the second. Returns where the next cycle sets it aside."""
    snapshot(source)
    snapshot(source, AT + 60)
    return cut_short(state_folder)


def test_a_damaged_state_is_set_aside_and_the_cycle_goes_on(
    fake: FakePrometheus, observing: Observing, state_folder: Path
) -> None:
    aside = damaged(observing(fake.url), state_folder)
    assert snapshot(observing(fake.url), AT + 120).bundles.short[0, RATE_IN] == 10.0
    assert aside.exists()


def test_policies_keep_their_histories_apart(sources: PolicySources) -> None:
    with pytest.raises(ValueError, match="outside"):
        sources.open("../elsewhere", PrometheusSettings("http://x", "pulsar"))


@pytest.mark.parametrize("name", ["", ".", "ns/.."])
def test_a_policy_without_a_name_has_no_history(sources: PolicySources, name: str) -> None:
    with pytest.raises(ValueError, match="outside"):
        sources.open(name, PrometheusSettings("http://x", "pulsar"))


def test_a_full_disk_costs_the_history_not_the_cycle_and_is_reported_once(
    fake: FakePrometheus, observing: Observing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    source = observing(fake.url)
    snapshot(source)
    add_bundle(fake, FIRST, "a", 110.0)
    with monkeypatch.context() as disk:
        disk.setattr(pq, "ParquetWriter", full)
        first, second = snapshot(source, AT + 60), snapshot(source, AT + 120)
    assert first.brokers.trusted.all()
    assert first.bundles.long[0, RATE_IN] == 60.0
    assert second.bundles.long[0, RATE_IN] == pytest.approx(230 / 3), "every sample counts, also what is not written"
    assert caplog.text.count("the history can't be written") == 1
    caplog.set_level(logging.INFO)
    third = snapshot(source, AT + 180)
    assert third.bundles.long[0, RATE_IN] == pytest.approx(85.0)
    assert "written again" in caplog.text


def test_a_history_that_cant_be_used_is_reported_and_used_again_once_it_can(
    fake: FakePrometheus, observing: Observing, state_folder: Path
) -> None:
    state_folder.parent.mkdir(exist_ok=True, parents=True)
    state_folder.write_text("in the way")
    source = observing(fake.url)
    told = source.observe(TWO_BROKERS, AT).result(timeout=120)
    assert told.load.brokers.trusted.all()
    assert told.unwritten is not None
    assert "Not a directory" in told.unwritten
    state_folder.unlink()
    assert source.observe(TWO_BROKERS, AT + 60).result(timeout=120).unwritten == ""


def test_a_history_that_was_removed_is_written_again(
    fake: FakePrometheus, observing: Observing, sources: PolicySources
) -> None:
    source = observing(fake.url)
    snapshot(source)
    shutil.rmtree(sources.history_dir)
    assert snapshot(source, AT + 60).brokers.trusted.all()
    assert source.observe(TWO_BROKERS, AT + 120).result(timeout=120).unwritten == ""
    assert len(list(Path(sources.history_dir).glob("state/tests/*/bundles/*.parquet"))) == 2


@on_both
def test_a_state_damaged_between_two_cycles_costs_one_cycle_not_all(
    fake: FakePrometheus, observing: Observing, state_folder: Path
) -> None:
    source = observing(fake.url)
    aside = damaged(source, state_folder)
    with pytest.raises(SourceUnavailableError):
        snapshot(source, AT + 120)
    assert snapshot(source, AT + 180).bundles.short[0, RATE_IN] == 10.0
    assert aside.exists()


@pytest.mark.spark
def test_warming_up_leaves_nothing_behind(sources: PolicySources) -> None:
    sources.warm_up().result(timeout=120)
    assert not list(Path(sources.history_dir).glob("*dry*"))
