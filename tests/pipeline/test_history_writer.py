"""What a cycle leaves behind: whole or not at all, tidied beside the cycles, and trouble is told once."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline_clusters import topology
from trimtab_pipeline.api import Retention
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE
from trimtab_pipeline.history.files import read_state
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.snapshot_tables import broker_table, load_of, quality_table
from trimtab_pipeline.history.writer import TABLES, HistoryTidier, HistoryWriter
from trimtab_pipeline.transform.snapshot import Measurement
from trimtab_strategies.model import Brokers, ClusterLoad, DataQuality

HOUR = 3600.0
AT = 486_111 * HOUR
WORLD = topology({"a": "pod-a"}, {})
MEASURED = Measurement(BROKER_STATE.empty_table(), BUNDLE_STATE.empty_table())


def load(at: float) -> ClusterLoad:
    numbers, flags = np.ones((1, 5)), np.ones(1, bool)
    brokers = Brokers(("a",), numbers, numbers, np.ones((1, 4)), np.zeros(1), flags, flags, flags)
    tables = broker_table(brokers, WORLD.pods), quality_table(DataQuality({"NaN": 2}))
    return load_of(at, BUNDLE_STATE.empty_table(), *tables)


@pytest.fixture
def background() -> Iterator[HistoryTidier]:
    made = HistoryTidier()
    yield made
    made.close()


class AtOnce(HistoryTidier):
    """Tidies before it returns."""

    def tidy(self, housekeeping: Housekeeping, at: float) -> Future[None]:
        tidied = super().tidy(housekeeping, at)
        if not tidied.cancelled():
            tidied.exception()
        return tidied


@pytest.fixture
def at_once() -> Iterator[HistoryTidier]:
    made = AtOnce()
    yield made
    made.close()


def test_a_cycle_is_a_file_of_each_table(tmp_path: Path, background: HistoryTidier) -> None:
    HistoryWriter(tmp_path, Retention(), background).keep(MEASURED, load(AT), WORLD)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*"))
    assert found == [f"{table}/20250615T150000.000000Z.parquet" for table in sorted(TABLES)]
    quality = pq.read_table(tmp_path / "quality")
    assert quality.drop_columns("at").to_pylist() == [{"kind": "dropped", "what": "NaN", "count": 2}]


def test_a_cycle_in_which_no_broker_is_trusted_removes_nothing(tmp_path: Path, at_once: HistoryTidier) -> None:
    keeping = HistoryWriter(tmp_path, Retention(seconds=HOUR, merge_after=0), at_once)
    keeping.keep(MEASURED, load(AT), WORLD)
    before = set(tmp_path.rglob("*.parquet"))
    jumped = load(AT + 1000 * HOUR)
    nobody = replace(jumped, brokers=replace(jumped.brokers, trusted=np.zeros(1, bool)))
    keeping.keep(MEASURED, nobody, WORLD)
    assert before <= set(tmp_path.rglob("*.parquet"))
    keeping.keep(MEASURED, jumped, WORLD)
    assert not before & set(tmp_path.rglob("*.parquet"))


def test_hours_are_merged_beside_the_cycles(tmp_path: Path, at_once: HistoryTidier) -> None:
    keeping = HistoryWriter(tmp_path, Retention(), at_once)
    for minute in range(0, 150, 10):
        keeping.keep(MEASURED, load(AT + 60 * minute), WORLD)
    for table in TABLES:
        assert len(list((tmp_path / table).iterdir())) == 10
        assert (tmp_path / table / "20250615T15Z.parquet").exists()


def test_a_table_that_cant_be_written_keeps_the_next_state_in_memory(
    tmp_path: Path, at_once: HistoryTidier, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    keeping = HistoryWriter(tmp_path, Retention(), at_once)
    assert keeping.keep(MEASURED, load(AT), WORLD) == ""
    for minute in (1, 2):
        (tmp_path / "brokers" / f"_20250615T150{minute}00.000000Z.parquet.tmp").symlink_to("/dev/full")
        seen = replace(MEASURED, bundles=bundles(AT + 60 * minute))
        assert "No space left on device" in keeping.keep(seen, load(AT + 60 * minute), WORLD)
    assert read_state(keeping.bundles.state(AT + 180, HOUR))["seen"].to_pylist() == [AT + 120]
    assert keeping.bundles.state(AT + 120, HOUR) == tmp_path / "bundles" / "20250615T150000.000000Z.parquet"
    assert not isinstance(keeping.brokers.state(AT + 180, HOUR), Path)
    assert caplog.text.count("can't be written, averages continue in memory") == 1
    assert keeping.keep(MEASURED, load(AT + 180), WORLD) == ""
    assert keeping.bundles.state(AT + 240, HOUR) == tmp_path / "bundles" / "20250615T150300.000000Z.parquet"
    assert caplog.text.count(f"the history below {tmp_path} is written again") == 1


def bundles(at: float) -> pa.Table:
    return pa.Table.from_pylist([{"bundle": "t/n/1", "seen": at}], BUNDLE_STATE)


def test_what_is_too_old_is_removed_though_nothing_can_be_written(tmp_path: Path, at_once: HistoryTidier) -> None:
    keeping = HistoryWriter(tmp_path, Retention(seconds=HOUR), at_once)
    for minute in (0, 1):
        keeping.keep(MEASURED, load(AT + 60 * minute), WORLD)
    later = AT + 5 * HOUR
    (tmp_path / "quality" / "_20250615T200000.000000Z.parquet.tmp").symlink_to("/dev/full")
    (tmp_path / "bundles" / "_20250615T15Z.parquet.tmp").mkdir()  # nor can the hour be merged
    assert "No space left on device" in keeping.keep(MEASURED, load(later), WORLD)
    assert [path.name for path in tmp_path.glob("bundles/*.parquet")] == ["20250615T150100.000000Z.parquet"]


def test_a_folder_that_was_removed_is_created_again(tmp_path: Path, at_once: HistoryTidier) -> None:
    keeping = HistoryWriter(tmp_path / "ns" / "p", Retention(), at_once)
    keeping.bundles.state(AT, HOUR)
    keeping.keep(MEASURED, load(AT), WORLD)
    shutil.rmtree(tmp_path / "ns")
    assert len(read_state(keeping.bundles.state(AT + 60, HOUR))) == 0
    shutil.rmtree(tmp_path / "ns")
    assert keeping.keep(MEASURED, load(AT + 60), WORLD) == ""
    assert len(list(tmp_path.glob("ns/p/*/20250615T150100.000000Z.parquet"))) == len(TABLES)


def test_a_folder_that_cant_be_made_costs_files_and_no_averages(tmp_path: Path, at_once: HistoryTidier) -> None:
    (tmp_path / "ns").write_text("a file where the folder belongs")
    keeping = HistoryWriter(tmp_path / "ns" / "p", Retention(), at_once)
    assert len(read_state(keeping.bundles.state(AT, HOUR))) == 0
    assert "Not a directory" in keeping.keep(replace(MEASURED, bundles=bundles(AT)), load(AT), WORLD)
    assert read_state(keeping.bundles.state(AT + 60, HOUR))["bundle"].to_pylist() == ["t/n/1"]


def test_a_history_that_cant_be_tidied_is_reported_once_and_every_cycle_kept(
    tmp_path: Path, at_once: HistoryTidier, caplog: pytest.LogCaptureFixture
) -> None:
    keeping = HistoryWriter(tmp_path, Retention(merge_after=0), at_once)
    keeping.keep(MEASURED, load(AT), WORLD)
    (tmp_path / "bundles" / "_20250615T15Z.parquet.tmp").mkdir()
    for minute in (70, 71):
        keeping.keep(MEASURED, load(AT + 60 * minute), WORLD)
    assert caplog.text.count("can't be tidied up and grows") == 1
    assert len(keeping.bundles.cycles()) == 3


def test_closing_twice_is_fine_and_nothing_is_tidied_afterwards(tmp_path: Path) -> None:
    background = HistoryTidier()
    background.close()
    background.close()
    HistoryWriter(tmp_path, Retention(), background).keep(MEASURED, load(AT), WORLD)
    assert len(list(tmp_path.glob("*/*.parquet"))) == 4
