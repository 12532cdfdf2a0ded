"""The state of a policy: complete or absent, trusted or set aside, and readable by any Parquet tool."""

from __future__ import annotations

import errno
import logging
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE
from trimtab_pipeline.history.files import listed, read_state
from trimtab_pipeline.history.location import Location
from trimtab_pipeline.history.state import NO_STATE, LastState, StateStore, usable

AT = 1_750_000_000.0
HOUR = 3600.0
FIRST, SECOND = "20250615T150640.000000Z", "20250615T150740.000000Z"


def brokers(count: float = 1.0) -> pa.Table:
    return pa.Table.from_pylist([{"pod": "a", "cpu": count}], BROKER_STATE)


def bundles(seen: float = 1.0) -> pa.Table:
    return pa.Table.from_pylist([{"bundle": "x", "seen": seen}], BUNDLE_STATE)


def store(folder: Path) -> StateStore:
    return StateStore(Location.of(folder), "prod/one")


def kept(folder: Path, *seen: float) -> StateStore:
    """A store with a cycle a minute; each saw what is given."""
    made = store(folder)
    for minute, value in enumerate(seen):
        made.write(brokers(value), bundles(value), AT + 60 * minute)
    return made


def seen(state: LastState) -> list[float]:
    column: list[float] = read_state(state.bundles)["seen"].to_pylist()
    assert column == state.brokers["cpu"].to_pylist(), "both tables are of the same cycle"
    return column


def test_without_files_the_state_has_columns_and_no_rows(tmp_path: Path) -> None:
    assert store(tmp_path).last(AT, HOUR) == NO_STATE
    assert read_state(NO_STATE.bundles, ["bundle", "seen"]).num_rows == 0


def test_the_newest_cycle_is_the_state_also_after_a_restart(tmp_path: Path) -> None:
    first = kept(tmp_path, 0, 1, 2)
    assert seen(first.last(AT + 180, HOUR)) == [2.0]
    assert seen(store(tmp_path).last(AT + 180, HOUR)) == [2.0]


def test_the_folder_holds_two_cycles(tmp_path: Path) -> None:
    kept(tmp_path, 0, 1, 2, 3)
    assert [len(list(tmp_path.glob(f"{table}/*.parquet"))) for table in ("brokers", "bundles")] == [2, 2]


def test_any_parquet_tool_reads_the_states_of_several_policies_at_once(tmp_path: Path) -> None:
    kept(tmp_path / "prod/one", 1)
    StateStore(Location.of(tmp_path / "prod/two"), "prod/two").write(brokers(2), bundles(2), AT)
    paths = sorted(tmp_path.glob("prod/*/bundles/*.parquet"))
    both = pd.concat([pd.read_parquet(path) for path in paths])
    assert both[["policy", "bundle", "seen"]].to_numpy().tolist() == [["prod/one", "x", 1.0], ["prod/two", "x", 2.0]]
    assert both["at"].tolist() == [pd.Timestamp(AT, unit="s", tz="UTC")] * 2


def test_spark_is_given_the_path_of_the_file(tmp_path: Path) -> None:
    state = kept(tmp_path, 1).last(AT + 60, HOUR)
    assert state.bundles == str(tmp_path / "bundles" / f"{FIRST}.parquet")


def test_a_cycle_never_sees_its_own_state_nor_later_ones(tmp_path: Path) -> None:
    made = kept(tmp_path, 1, 2)
    assert seen(made.last(AT + 60, HOUR)) == [1.0]


def test_a_state_beyond_the_horizon_is_no_state(tmp_path: Path) -> None:
    assert kept(tmp_path, 1).last(AT + HOUR + 1, HOUR) == NO_STATE


@pytest.mark.parametrize("table", ["brokers", "bundles"])
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("cut", "it can't be read"),
        ("empty", "it can't be read"),
        ("page", "it can't be read"),
        ("columns", "its columns are not those of {}/1"),
        ("foreign", "it is of version (none), this program reads {}/1"),
        ("version", "it is of version {}/2, this program reads {}/1"),
    ],
)
def test_a_file_that_cant_be_used_is_set_aside_and_the_cycle_before_it_counts(
    tmp_path: Path, table: str, kind: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept(tmp_path, 1, 2)
    newest = tmp_path / table / f"{SECOND}.parquet"
    whole = newest.read_bytes()
    if kind in {"columns", "foreign"}:
        mark = {} if kind == "foreign" else {"trimtab.schema": f"{table}/1"}
        pq.write_table(pa.table({"other": [1]}).replace_schema_metadata(mark), newest)
    elif kind == "version":
        pq.write_table(pq.read_table(newest).replace_schema_metadata({"trimtab.schema": f"{table}/2"}), newest)
    elif kind == "page":
        newest.write_bytes(whole[:4] + b"\xff" * 60 + whole[64:])
    else:
        newest.write_bytes(whole[: len(whole) // 2] if kind == "cut" else b"")
    with caplog.at_level(logging.WARNING):
        assert seen(store(tmp_path).last(AT + 120, HOUR)) == [1.0]
    assert [p.name for p in tmp_path.glob("*/*.bad")] == [f"_{newest.stem}.bad"]
    assert f"{newest} is set aside as _{newest.stem}.bad: {told.format(table, table)}" in caplog.text


@pytest.mark.parametrize(
    "trouble",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError("When reading information for key: AWS Error SLOW_DOWN during HeadObject operation"),
        MemoryError("malloc of size 64 failed"),
    ],
    ids=["errno", "bucket", "memory"],
)
def test_a_file_that_cant_be_read_just_now_is_not_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    kept(tmp_path, 1, 2)
    made, (file, *_) = store(tmp_path), listed(Location.of(tmp_path / "bundles"))
    reading = ForeignFileError("it can't be read")
    reading.__cause__ = trouble

    def failing(*_: Any, **__: Any) -> pa.Table:
        raise reading

    with pytest.raises(type(trouble)):
        usable(file, failing)
    monkeypatch.setattr("trimtab_pipeline.history.files.pq.ParquetFile", partial(_raise, trouble))
    with suppress(MemoryError):
        made.last(AT + 120, HOUR)
    monkeypatch.undo()

    assert list(tmp_path.glob("*/*.bad")) == []
    assert seen(made.last(AT + 120, HOUR)) == [2.0]


def _raise(error: Exception, *_: Any, **__: Any) -> None:
    raise error


def test_while_the_folder_cant_be_listed_the_last_state_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, restarted = kept(tmp_path, 1, 2), store(tmp_path)
    assert seen(restarted.last(AT + 120, HOUR)) == [2.0]
    monkeypatch.setattr("trimtab_pipeline.history.state.listed", partial(_raise, OSError(errno.ESTALE, "Stale")))

    assert [seen(one.last(AT + 120, HOUR)) for one in (made, restarted)] == [[2.0], [2.0]]
    assert store(tmp_path).last(AT + 120, HOUR) == NO_STATE
    assert "can't be read, so averages begin anew: [Errno 116] Stale" in caplog.text


def test_a_trusted_cycle_removes_what_a_clock_that_was_ahead_wrote(tmp_path: Path) -> None:
    made = kept(tmp_path, 1)
    made.write(brokers(9), bundles(9), AT + 2 * HOUR, trusted=False)
    made.write(brokers(2), bundles(2), AT + 60)

    assert seen(made.last(AT + 2 * HOUR + 60, 24 * HOUR)) == [2.0]


def test_a_cycle_that_lacks_a_table_is_no_state(tmp_path: Path) -> None:
    kept(tmp_path, 1, 2)
    (tmp_path / "brokers" / f"{SECOND}.parquet").unlink()
    assert seen(store(tmp_path).last(AT + 120, HOUR)) == [1.0]


@pytest.mark.parametrize("name", ["notes.parquet", "20250615T15.parquet", "2025615T15Z.parquet"])
def test_a_foreign_name_is_set_aside(name: str, tmp_path: Path) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / name).write_text("mine")
    assert store(tmp_path).last(AT, HOUR) == NO_STATE
    assert (tmp_path / "bundles" / f"_{Path(name).stem}.bad").read_text() == "mine"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    kept(tmp_path, 1)
    odd = tmp_path / "bundles" / f"{SECOND}.parquet"
    if kind == "link":
        odd.symlink_to(tmp_path / "nowhere")
    elif kind == "pipe":
        os.mkfifo(odd)
    else:
        odd.mkdir()
    assert seen(store(tmp_path).last(AT + 120, HOUR)) == [1.0]


def test_what_a_crash_left_half_written_is_removed(tmp_path: Path) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / f"_{FIRST}.parquet.tmp").write_bytes(b"half")
    store(tmp_path).last(AT, HOUR)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_file_that_turned_out_unreadable_is_checked_again_once_it_is_doubted(tmp_path: Path) -> None:
    made = kept(tmp_path, 1, 2)
    (tmp_path / "bundles" / f"{SECOND}.parquet").write_bytes(b"damaged under our hands")
    made.doubt()
    assert seen(made.last(AT + 120, HOUR)) == [1.0]


def test_a_folder_that_cant_be_made_is_reported_and_the_state_held_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    made = store(tmp_path / "file" / "one")
    assert made.last(AT, HOUR) == NO_STATE
    with pytest.raises(OSError, match="Not a directory"):
        made.write(brokers(1), bundles(1), AT)
    assert seen(made.last(AT + 60, HOUR)) == [1.0]


@pytest.mark.parametrize("table", ["brokers", "bundles"])
def test_a_full_disk_leaves_no_half_behind_and_the_state_in_memory_until_it_can_be_written(
    tmp_path: Path, table: str
) -> None:
    made = kept(tmp_path, 1)
    (tmp_path / table / f"_{SECOND}.parquet.tmp").symlink_to("/dev/full")  # what is written to it finds no room
    with pytest.raises(OSError, match="No space left on device"):
        made.write(brokers(2), bundles(2), AT + 60)
    assert not list(tmp_path.rglob("*.tmp"))
    assert isinstance(made.last(AT + 120, HOUR).bundles, pa.Table)
    assert seen(made.last(AT + 120, HOUR)) == [2.0]
    assert seen(store(tmp_path).last(AT + 120, HOUR)) == [1.0], "another program sees what is on the disk"
    made.write(brokers(3), bundles(3), AT + 120)
    assert isinstance(made.last(AT + 180, HOUR).bundles, str)


def test_cycles_that_trust_no_broker_remove_no_state_that_did(tmp_path: Path) -> None:
    made = kept(tmp_path, 1, 2)
    for minute in range(10, 15):
        made.write(brokers(minute), bundles(minute), AT + 60 * minute, trusted=False)
    assert seen(made.last(AT + 120, HOUR)) == [2.0]
    assert len(list(tmp_path.glob("bundles/*.parquet"))) == 4
    made.write(brokers(3), bundles(3), AT + HOUR)
    assert len(list(tmp_path.glob("bundles/*.parquet"))) == 2


def test_a_path_and_a_uri_name_the_same_folder(tmp_path: Path) -> None:
    assert Location.of(f"file://{tmp_path}") == Location.of(tmp_path)
    with pytest.raises(ValueError, match="give a folder, or an s3a:// URI"):
        Location.of("ftp://somewhere/else")
