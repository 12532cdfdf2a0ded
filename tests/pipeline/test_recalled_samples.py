"""The samples of the last cycles come back from the history, as the strategies got them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kept_histories import AT, FOREVER, LOAD, NoHousekeeping, dataset, inside, keep, measured, merge, resources
from trimtab_pipeline.api import LoadSources, RecallsSamples
from trimtab_pipeline.factory import direct_sources
from trimtab_pipeline.history.dataset import BROKERS, DEMAND, HistoryTable
from trimtab_pipeline.history.recalled_samples import recalled_samples
from trimtab_pipeline.history.snapshot_tables import Bounds
from trimtab_pipeline.history.writer import HistoryWriter
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.shedding.trim.samples import CycleSamples, SampleRing

POLICY = "prod/one"
ROUNDED = 5e-4


def load_of(minute: float, factor: float = 1.0) -> ClusterLoad:
    """The load that is kept, times `factor`, at `minute`, with its newest samples."""
    bundles = replace(LOAD.bundles, short=LOAD.bundles.short * factor, newest=LOAD.bundles.short * factor)
    return replace(LOAD, bundles=bundles, now=AT + 60 * minute)


def recalled(root: Path, begin: float = 0, end: float = 1e6) -> list[CycleSamples]:
    return list(recalled_samples(root, POLICY, AT + 60 * begin, AT + 60 * end))


@pytest.mark.parametrize("merged", [False, True])
def test_a_ring_of_the_history_is_the_ring_that_saw_the_cycles(tmp_path: Path, *, merged: bool) -> None:
    minutes = range(54, 66)  # across the end of an hour
    for minute in minutes:
        keep(tmp_path, POLICY, [minute], load_of(minute, factor=minute))
    if merged:
        merge(tmp_path, POLICY, 180)
    lived, now = SampleRing(), load_of(66, factor=9)
    for minute in minutes:
        lived.add(load_of(minute, factor=minute))
    rebuilt = SampleRing.of(recalled(tmp_path))
    expected, found = lived.add(now).recent, rebuilt.add(now).recent
    assert expected is not None
    assert found is not None
    np.testing.assert_array_equal(found.time, expected.time)
    np.testing.assert_allclose(found.bundles, expected.bundles, rtol=ROUNDED)
    np.testing.assert_array_equal(found.cpu, expected.cpu)
    np.testing.assert_array_equal(found.traffic, expected.traffic)
    assert np.isfinite(found.cpu).any()


def test_a_window_begins_with_its_first_cycle_and_ends_before_its_last(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, range(6))
    assert [samples.time for samples in recalled(tmp_path, 2, 4)] == [AT + 120, AT + 180]


def test_brokers_of_refreshes_are_no_samples(tmp_path: Path) -> None:
    writer = HistoryWriter(tmp_path, POLICY, FOREVER, NoHousekeeping())
    hotter = replace(LOAD, brokers=replace(LOAD.brokers, usage=LOAD.brokers.usage * 2), now=AT + 55)
    writer.keep_refresh(hotter, resources(LOAD))
    writer.keep(*measured(LOAD, AT + 60), load_of(1), resources(LOAD), inside=inside(LOAD))
    [found] = recalled(tmp_path)
    assert found.brokers == LOAD.brokers.names
    assert found.cpu.tolist() == [0.8, 0.2]


def test_a_broker_that_was_not_trusted_has_no_sample(tmp_path: Path) -> None:
    brokers = replace(LOAD.brokers, trusted=np.array([True, False]))
    keep(tmp_path, POLICY, [0], replace(LOAD, brokers=brokers))
    [found] = recalled(tmp_path)
    assert np.isnan(found.cpu).tolist() == [False, True]


def test_samples_that_were_too_old_are_unknown(tmp_path: Path) -> None:
    writer, at = HistoryWriter(tmp_path, POLICY, FOREVER, NoHousekeeping()), AT + 60
    brokers, bundles = measured(LOAD, at)
    column = brokers.column_names.index("traffic_time")
    late = brokers.set_column(column, "traffic_time", [[at - 119, at - 121]])
    writer.keep(late, bundles, load_of(1), resources(LOAD), bounds=Bounds(max_age=120.0))
    [found] = recalled(tmp_path)
    assert np.isnan(found.load).all(axis=1).tolist() == [False, False, False, True]


@pytest.mark.parametrize("table", [DEMAND, BROKERS])
def test_cycles_that_cant_be_read_are_left_out_and_told_once(
    tmp_path: Path, table: HistoryTable, caplog: pytest.LogCaptureFixture
) -> None:
    keep(tmp_path, POLICY, range(5))
    for minute in (1, 3):
        Path(dataset(tmp_path, POLICY).cycle_file(table, AT + 60 * minute).path).write_bytes(b"PAR1 no more")
    with caplog.at_level(logging.INFO):
        assert [samples.time for samples in recalled(tmp_path)] == [AT, AT + 120, AT + 240]
    [line] = caplog.messages
    assert line.startswith("policy prod/one: recent samples are left out, they can't be read: ")
    assert line.endswith(", and 1 more")


def test_damage_outside_the_window_is_not_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(tmp_path, POLICY, range(5))
    Path(dataset(tmp_path, POLICY).cycle_file(DEMAND, AT).path).write_bytes(b"")
    assert len(recalled(tmp_path, 1)) == 4
    assert not caplog.messages


def test_without_a_history_there_are_no_samples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(tmp_path, "prod/other", [0])
    assert recalled(tmp_path) == recalled(tmp_path / "nowhere") == []
    assert not caplog.messages


def test_sources_recall_what_their_histories_hold(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0])
    sources: LoadSources = direct_sources(tmp_path)
    assert isinstance(sources, RecallsSamples)
    assert [samples.time for samples in sources.recall_samples(POLICY, AT, AT + 1)] == [AT]
    sources.close()
