"""What a cycle leaves behind: whole or not at all, tidied beside the cycles, and trouble is told once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline_worlds import topology
from trimtab_pipeline.align import Measured
from trimtab_pipeline.cycle import BROKER_STATE, BUNDLE_STATE
from trimtab_pipeline.housekeeping import Housekeeping
from trimtab_pipeline.keeping import TABLES, Background, Keeping
from trimtab_pipeline.picture import broker_table, load_of, quality_table
from trimtab_pipeline.source import Retention
from trimtab_strategies.model import Brokers, ClusterLoad, DataQuality

HOUR = 3600.0
AT = 486_111 * HOUR
WORLD = topology({"a": "pod-a"}, {})
MEASURED = Measured(BROKER_STATE.empty_table(), BUNDLE_STATE.empty_table())


def load(at: float) -> ClusterLoad:
    numbers, flags = np.ones((1, 5)), np.ones(1, bool)
    brokers = Brokers(("a",), numbers, numbers, np.ones((1, 4)), np.zeros(1), flags, flags, flags)
    tables = broker_table(brokers, WORLD.pods), quality_table(DataQuality({"NaN": 2}))
    return load_of(at, BUNDLE_STATE.empty_table(), *tables)


@pytest.fixture
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.close()


class AtOnce(Background):
    """Tidies before it returns."""

    def tidy(self, housekeeping: Housekeeping, at: float) -> Future[None]:
        tidied = super().tidy(housekeeping, at)
        if not tidied.cancelled():
            tidied.exception()
        return tidied


@pytest.fixture
def at_once() -> Iterator[Background]:
    made = AtOnce()
    yield made
    made.close()


def test_a_cycle_is_a_file_of_each_table(tmp_path: Path, background: Background) -> None:
    Keeping(tmp_path, Retention(), background).keep(MEASURED, load(AT), WORLD)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*"))
    assert found == [f"{table}/20250615T150000.000000Z.parquet" for table in sorted(TABLES)]
    quality = pq.read_table(tmp_path / "quality")
    assert quality.drop_columns("at").to_pylist() == [{"kind": "dropped", "what": "NaN", "count": 2}]


def test_a_cycle_in_which_nobody_is_believed_removes_nothing(tmp_path: Path, at_once: Background) -> None:
    keeping = Keeping(tmp_path, Retention(seconds=HOUR, merge_after=0), at_once)
    keeping.keep(MEASURED, load(AT), WORLD)
    before = set(tmp_path.rglob("*.parquet"))
    jumped = load(AT + 1000 * HOUR)
    nobody = replace(jumped, brokers=replace(jumped.brokers, trusted=np.zeros(1, bool)))
    keeping.keep(MEASURED, nobody, WORLD)
    assert before <= set(tmp_path.rglob("*.parquet"))
    keeping.keep(MEASURED, jumped, WORLD)
    assert not before & set(tmp_path.rglob("*.parquet"))


def test_hours_are_merged_beside_the_cycles(tmp_path: Path, at_once: Background) -> None:
    keeping = Keeping(tmp_path, Retention(), at_once)
    for minute in range(0, 150, 10):
        keeping.keep(MEASURED, load(AT + 60 * minute), WORLD)
    for table in TABLES:
        assert len(list((tmp_path / table).iterdir())) == 10
        assert (tmp_path / table / "20250615T15Z.parquet").exists()


def test_a_table_that_cant_be_written_leaves_the_state_of_the_cycle_before(
    tmp_path: Path, at_once: Background, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    keeping = Keeping(tmp_path, Retention(), at_once)
    keeping.keep(MEASURED, load(AT), WORLD)
    for minute in (1, 2):
        (tmp_path / "brokers" / f"_20250615T150{minute}00.000000Z.parquet.tmp").symlink_to("/dev/full")
        keeping.keep(MEASURED, load(AT + 60 * minute), WORLD)
    assert keeping.bundles.state(AT + 180, HOUR).name == "20250615T150000.000000Z.parquet"
    assert keeping.brokers.state(AT + 180, HOUR).name == "20250615T150000.000000Z.parquet"
    assert caplog.text.count("can't be written, averages go on from its last file") == 1
    assert "No space left on device" in caplog.text
    keeping.keep(MEASURED, load(AT + 180), WORLD)
    assert keeping.bundles.state(AT + 240, HOUR).name == "20250615T150300.000000Z.parquet"
    assert caplog.text.count(f"the history below {tmp_path} is written again") == 1


def test_a_history_that_cant_be_tidied_is_told_once_and_every_cycle_kept(
    tmp_path: Path, at_once: Background, caplog: pytest.LogCaptureFixture
) -> None:
    keeping = Keeping(tmp_path, Retention(merge_after=0), at_once)
    keeping.keep(MEASURED, load(AT), WORLD)
    (tmp_path / "bundles" / "_20250615T15Z.parquet.tmp").mkdir()
    for minute in (70, 71):
        keeping.keep(MEASURED, load(AT + 60 * minute), WORLD)
    assert caplog.text.count("can't be tidied up and grows") == 1
    assert len(keeping.bundles.cycles()) == 3


def test_closing_twice_is_fine_and_nothing_is_tidied_afterwards(tmp_path: Path) -> None:
    background = Background()
    background.close()
    background.close()
    Keeping(tmp_path, Retention(), background).keep(MEASURED, load(AT), WORLD)
    assert len(list(tmp_path.glob("*/*.parquet"))) == 4
