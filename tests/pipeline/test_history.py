"""Files of a history: complete or absent, trusted or set aside."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab_pipeline.history import History, Retention

SCHEMA = pa.schema([("bundle", pa.string()), ("seen", pa.float64())])
AT = 1_750_000_000.0
HOUR = 3600.0


def rows(seen: float = 1.0) -> pa.Table:
    return pa.table({"seen": [seen], "extra": [0], "bundle": ["x"]})


def seen(path: Path) -> list[float]:
    column: list[float] = pq.read_table(path)["seen"].to_pylist()
    return column


def history(folder: Path, **retention: float) -> History:
    return History(folder, SCHEMA, "test/1", Retention(**retention))


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


def test_a_cycle_never_sees_its_own_file_nor_later_ones(tmp_path: Path) -> None:
    files = history(tmp_path)
    files.write(rows(1), AT + 0.1)
    files.write(rows(2), AT + 60.123)
    assert seen(files.state(AT + 60.123, HOUR)) == [1.0]


def test_a_state_beyond_the_horizon_is_no_state(tmp_path: Path) -> None:
    files = history(tmp_path)
    files.write(rows(), AT)
    assert seen(files.state(AT + HOUR + 1, HOUR)) == []


@pytest.mark.parametrize("kind", ["cut", "empty", "columns", "version"])
def test_a_file_that_cant_be_used_is_set_aside_and_the_one_before_it_counts(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    files = history(tmp_path)
    files.write(rows(1), AT)
    newest = files.write(rows(2), AT + 60)
    whole = newest.read_bytes()
    if kind == "columns":
        pq.write_table(pa.table({"other": [1]}), newest)
    elif kind == "version":
        pq.write_table(pq.read_table(newest).replace_schema_metadata({"trimtab.schema": "test/2"}), newest)
    else:
        newest.write_bytes(whole[: len(whole) // 2] if kind == "cut" else b"")
    with caplog.at_level(logging.WARNING):
        assert seen(history(tmp_path).state(AT + 120, HOUR)) == [1.0]
    assert [p.name for p in tmp_path.glob("*.bad")] == [newest.with_suffix(".bad").name]
    assert "set aside" in caplog.text


def test_a_foreign_name_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "notes.parquet").write_text("mine")
    assert seen(history(tmp_path).state(AT, HOUR)) == []
    assert (tmp_path / "notes.bad").read_text() == "mine"


def test_only_the_newest_files_stay(tmp_path: Path) -> None:
    files = history(tmp_path, files=3)
    for minute in range(6):
        files.write(rows(minute), AT + 60 * minute)
    assert [seen(path) for path in files.files()] == [[3.0], [4.0], [5.0]]


def test_files_past_their_age_go_but_never_the_newest(tmp_path: Path) -> None:
    files = history(tmp_path, seconds=90)
    for minute in (0, 1, 2, 60):
        files.write(rows(minute), AT + 60 * minute)
    assert [seen(path) for path in files.files()] == [[60.0]]


def test_what_a_crash_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / "20250615T150640.250000Z.parquet.tmp").write_bytes(b"half")
    history(tmp_path).state(AT, HOUR)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_clock_that_was_ahead_does_not_cost_the_files_of_today(tmp_path: Path) -> None:
    files = history(tmp_path, files=2)
    for minute in (600, 601, 602, 0, 1, 2):
        files.write(rows(minute), AT + 60 * minute)
    assert seen(files.state(AT + 180, HOUR)) == [2.0]
    assert [seen(path) for path in files.files()] == [[1.0], [2.0], [601.0], [602.0]]


def test_a_file_that_turned_out_unreadable_is_checked_again_once_it_is_doubted(tmp_path: Path) -> None:
    files = history(tmp_path)
    files.write(rows(1), AT)
    newest = files.write(rows(2), AT + 60)
    newest.write_bytes(b"damaged under our hands")
    files.doubt()
    assert seen(files.state(AT + 120, HOUR)) == [1.0]


def test_a_folder_that_cant_be_made_is_told_when_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    files = history(tmp_path / "file" / "bundles")
    with pytest.raises(OSError, match="Not a directory"):
        files.state(AT, HOUR)


def test_a_file_that_could_not_be_written_leaves_no_half_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: pa.Table, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    files = history(tmp_path)
    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="No space"):
        files.write(rows(), AT)
    assert list(tmp_path.iterdir()) == []
