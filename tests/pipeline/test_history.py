"""Files of a history: complete or absent, trusted or set aside, and readable by anybody."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab_pipeline.history.files import read_state
from trimtab_pipeline.history.store import History

SCHEMA = pa.schema([("bundle", pa.string()), ("seen", pa.float64())])
AT = 1_750_000_000.0
HOUR = 3600.0


def rows(seen: float = 1.0) -> pa.Table:
    return pa.table({"seen": [seen], "extra": [0], "bundle": ["x"]})


def seen(path: Path) -> list[float]:
    column: list[float] = pq.read_table(path)["seen"].to_pylist()
    return column


def history(folder: Path) -> History:
    return History(folder, SCHEMA, "test/1")


def test_without_files_the_state_has_columns_and_no_rows(tmp_path: Path) -> None:
    assert seen(history(tmp_path).state(AT, HOUR)) == []


def test_the_newest_file_is_the_state_also_after_a_restart(tmp_path: Path) -> None:
    first = history(tmp_path)
    for minute in range(3):
        first.write(rows(minute), AT + 60 * minute)
    assert seen(first.state(AT + 180, HOUR)) == [2.0]
    assert seen(history(tmp_path).state(AT + 180, HOUR)) == [2.0]


def test_a_file_is_named_by_its_evaluation_time(tmp_path: Path) -> None:
    assert history(tmp_path).write(rows(), AT + 0.25).name == "20250615T150640.250000Z.parquet"


def test_any_parquet_tool_reads_a_file_and_the_whole_folder(tmp_path: Path) -> None:
    files = history(tmp_path)
    first = files.write(rows(1), AT)
    files.write(rows(2), AT + 60)
    alone = pd.read_parquet(first)
    assert alone.columns.tolist() == ["at", "bundle", "seen"]
    assert alone["at"].tolist() == [pd.Timestamp(AT, unit="s", tz="UTC")]
    assert pd.read_parquet(tmp_path)["seen"].sort_values().tolist() == [1.0, 2.0]
    assert pq.read_table(tmp_path)["bundle"].to_pylist() == ["x", "x"]


def test_what_is_set_aside_or_half_written_keeps_no_parquet_tool_from_reading_the_rest(tmp_path: Path) -> None:
    files = history(tmp_path)
    files.write(rows(1), AT)
    files.write(rows(2), AT + 60).write_bytes(b"damaged")
    assert seen(history(tmp_path).state(AT + 120, HOUR)) == [1.0]
    (tmp_path / "_20250615T150640.250000Z.parquet.tmp").write_bytes(b"half")
    assert pd.read_parquet(tmp_path)["seen"].tolist() == pq.read_table(tmp_path)["seen"].to_pylist() == [1.0]


def test_a_cycle_never_sees_its_own_file_nor_later_ones(tmp_path: Path) -> None:
    files = history(tmp_path)
    files.write(rows(1), AT + 0.1)
    files.write(rows(2), AT + 60.123)
    assert seen(files.state(AT + 60.123, HOUR)) == [1.0]


def test_a_state_beyond_the_horizon_is_no_state(tmp_path: Path) -> None:
    files = history(tmp_path)
    files.write(rows(), AT)
    assert seen(files.state(AT + HOUR + 1, HOUR)) == []


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("cut", "it can't be read"),
        ("empty", "it can't be read"),
        ("page", "it can't be read"),
        ("columns", "its columns are not those of test/1"),
        ("foreign", "it is of version (none), this program reads test/1"),
        ("version", "it is of version test/2, this program reads test/1"),
    ],
)
def test_a_file_that_cant_be_used_is_set_aside_and_the_one_before_it_counts(
    tmp_path: Path, kind: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = history(tmp_path)
    files.write(rows(1), AT)
    newest = files.write(rows(2), AT + 60)
    whole = newest.read_bytes()
    if kind in {"columns", "foreign"}:
        mark = {} if kind == "foreign" else {"trimtab.schema": "test/1"}
        pq.write_table(pa.table({"other": [1]}).replace_schema_metadata(mark), newest)
    elif kind == "version":
        pq.write_table(pq.read_table(newest).replace_schema_metadata({"trimtab.schema": "test/2"}), newest)
    elif kind == "page":
        newest.write_bytes(whole[:4] + b"\xff" * 60 + whole[64:])
    else:
        newest.write_bytes(whole[: len(whole) // 2] if kind == "cut" else b"")
    with caplog.at_level(logging.WARNING):
        assert seen(history(tmp_path).state(AT + 120, HOUR)) == [1.0]
    assert [p.name for p in tmp_path.glob("*.bad")] == [f"_{newest.stem}.bad"]
    assert f"{newest} is set aside as _{newest.stem}.bad: {told}" in caplog.text


@pytest.mark.parametrize("name", ["notes.parquet", "20250615T15.parquet", "2025615T15Z.parquet"])
def test_a_foreign_name_is_set_aside(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("mine")
    assert seen(history(tmp_path).state(AT, HOUR)) == []
    assert (tmp_path / f"_{Path(name).stem}.bad").read_text() == "mine"


def test_what_a_crash_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / "_20250615T150640.250000Z.parquet.tmp").write_bytes(b"half")
    history(tmp_path).state(AT, HOUR)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_file_that_turned_out_unreadable_is_checked_again_once_it_is_doubted(tmp_path: Path) -> None:
    files = history(tmp_path)
    files.write(rows(1), AT)
    newest = files.write(rows(2), AT + 60)
    newest.write_bytes(b"damaged under our hands")
    files.doubt()
    assert seen(files.state(AT + 120, HOUR)) == [1.0]


def test_a_folder_that_cant_be_made_is_reported_when_it_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    files = history(tmp_path / "file" / "bundles")
    assert len(read_state(files.state(AT, HOUR))) == 0
    with pytest.raises(OSError, match="Not a directory"):
        files.write(rows(1), AT)


def test_a_disk_that_is_full_leaves_no_half_behind_and_the_state_as_it_was(tmp_path: Path) -> None:
    files = history(tmp_path)
    files.write(rows(1), AT)
    before = sorted(tmp_path.iterdir())
    (tmp_path / "_20250615T150740.000000Z.parquet.tmp").symlink_to("/dev/full")  # what is written to it finds no room
    with pytest.raises(OSError, match="No space left on device") as refused:
        files.write(rows(2), AT + 60)
    assert refused.value.errno == errno.ENOSPC
    assert sorted(tmp_path.iterdir()) == before
    assert seen(files.state(AT + 60, HOUR)) == [1.0]


def test_a_name_that_cant_be_given_leaves_no_half_behind(tmp_path: Path) -> None:
    files = history(tmp_path)
    files.write(rows(1), AT)
    (tmp_path / "20250615T150740.000000Z.parquet" / "in the way").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        files.write(rows(2), AT + 60)
    assert not list(tmp_path.glob("*.tmp"))
    assert seen(files.state(AT + 60, HOUR)) == [1.0]
