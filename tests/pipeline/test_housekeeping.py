"""The files of an hour become one, and old files go; readers see no difference, and no crash costs a cycle."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kept_histories import AT, FOREVER, HOUR, dataset
from trimtab_pipeline.api import Retention
from trimtab_pipeline.history import row_groups
from trimtab_pipeline.history.dataset import DEMAND, FACTS, FINDINGS, TOPICS, HistoryTable, PolicyDataset
from trimtab_pipeline.history.files import cycle_times, put, read_all, read_cycle, stamped
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.location import Location

POLICY = "prod/one"
TABLES = [DEMAND, FINDINGS]
"""A table with a row group per cycle, and one whose hours are one row group."""


def rows(table: HistoryTable, value: int, count: int = 1) -> pa.Table:
    """Rows that tell `value`."""
    names = {DEMAND.name: ("topics", "bundle"), TOPICS.name: ("place", "topic")}
    column, other = names.get(table.name, ("count", "what"))
    whole = {column: [value] * count, other: [f"b{k}" for k in range(count)]}
    return pa.table({name: whole.get(name, pa.nulls(count)) for name in table.columns.names}).cast(table.columns)


def write(history: PolicyDataset, table: HistoryTable, minute: float, value: int | None = None, count: int = 2) -> Path:
    at = AT + 60 * minute
    given = rows(table, int(minute) if value is None else value, count)
    place = history.cycle_file(table, at)
    put(place, table, [stamped(given, at, table.schema)])
    return Path(place.path)


def filled(root: Path, minutes: range, table: HistoryTable = DEMAND) -> PolicyDataset:
    """A cycle at each of `minutes`, which its rows tell; every seventh has none."""
    history = dataset(root, POLICY)
    for minute in minutes:
        write(history, table, minute, count=0 if minute % 7 == 0 else 2)
    return history


def cycles(history: PolicyDataset, table: HistoryTable = DEMAND) -> dict[float, list[int]]:
    """What is told, by minute; fails on a cycle that is there twice."""
    found: dict[float, list[int]] = {}
    for file in history.files(table):
        if table.by_cycle:
            for time in cycle_times(file, table):
                assert time not in found
                found[(time - AT) / 60] = read_cycle(file, time, table)["topics"].to_pylist()
        else:
            told = read_all(file, table)
            for at, count in zip(told["at"].to_pylist(), told["count"].to_pylist(), strict=True):
                found.setdefault((at.timestamp() - AT) / 60, []).append(count)
    assert all(len(told) <= 2 for told in found.values())
    return found


def names(history: PolicyDataset, table: HistoryTable = DEMAND) -> list[str]:
    return [file.place.name for file in history.files(table)]


def bytes_below(root: Path) -> int:
    return sum(path.stat().st_size for path in root.rglob("*.parquet"))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_an_hour_is_merged_an_hour_after_its_end_and_readers_see_no_difference(
    tmp_path: Path, table: HistoryTable
) -> None:
    history = filled(tmp_path, range(0, 130, 10), table)
    before, whole = cycles(history, table), pq.read_table(tmp_path / "history" / table.name).sort_by("at")
    Housekeeping(history, FOREVER).tidy(AT + 119.9 * 60)
    assert len(names(history, table)) == 13
    Housekeeping(history, FOREVER).tidy(AT + 120 * 60)
    assert len(names(history, table)) == 8
    assert names(history, table)[0] == "20250615T15Z.parquet"
    assert cycles(history, table) == before
    assert pq.read_table(tmp_path / "history" / table.name).sort_by("at").equals(whole)
    hour = next(tmp_path.rglob("20250615T15Z.parquet"))
    assert pd.read_parquet(hour)["topics" if table is DEMAND else "count"].tolist() == [
        10,
        10,
        20,
        20,
        30,
        30,
        40,
        40,
        50,
        50,
    ]
    assert pq.ParquetFile(hour).num_row_groups == (6 if table.by_cycle else 1)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tidying_again_changes_nothing(tmp_path: Path, table: HistoryTable) -> None:
    tidy = Housekeeping(filled(tmp_path, range(0, 300, 20), table), FOREVER).tidy
    tidy(AT + 300 * 60)
    contents = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    tidy(AT + 300 * 60)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")} == contents


def test_what_is_past_its_age_goes_with_its_folders(tmp_path: Path) -> None:
    history = filled(tmp_path, range(0, 600, 30))
    next(tmp_path.rglob("20250615T150000*")).with_name("_odd.bad").write_bytes(b"damaged long ago")
    Housekeeping(history, Retention(seconds=4 * HOUR, merge_after=0)).tidy(AT + 570 * 60)
    assert (min(cycles(history)), max(cycles(history))) == (5 * 60, 570)
    assert sorted(path.name for path in tmp_path.rglob("hour=*")) == [
        *(f"hour={hour:02}" for hour in range(1)),
        *(f"hour={hour}" for hour in range(20, 24)),
    ]


def test_folders_go_with_what_was_too_much(tmp_path: Path) -> None:
    history = filled(tmp_path, range(0, 600, 30))
    next(tmp_path.rglob("20250615T150000*")).with_name("_odd.bad").write_bytes(b"damaged long ago")

    Housekeeping(history, Retention(bytes=1, merge_after=0)).tidy(AT + 570 * 60)

    assert {path.name for path in tmp_path.rglob("hour=*")} <= {"hour=0", "hour=00"}
    assert list(tmp_path.rglob("*.bad")) == []


def test_old_cycles_go_even_when_an_hour_cant_be_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = filled(tmp_path, range(0, 600, 30))

    def merge(*_: object) -> int:
        raise ValueError("offset overflow")

    monkeypatch.setattr("trimtab_pipeline.history.housekeeping._merge", merge)
    with pytest.raises(ValueError, match="offset overflow"):
        Housekeeping(history, Retention(seconds=4 * HOUR, merge_after=0)).tidy(AT + 570 * 60)

    assert min(cycles(history)) == 5 * 60


def test_what_is_too_much_goes_hour_by_hour_over_all_tables(tmp_path: Path) -> None:
    for table in TABLES:
        history = filled(tmp_path, range(0, 600, 30), table)
    size = bytes_below(tmp_path)
    Housekeeping(history, Retention(bytes=size // 2)).tidy(AT + 570 * 60)
    assert 0 < bytes_below(tmp_path) <= size // 2
    firsts = [min(cycles(history, table)) // 60 for table in TABLES]
    assert max(firsts) - min(firsts) <= 1


def test_facts_of_an_hour_go_after_the_rest_of_it_and_those_of_this_hour_stay(tmp_path: Path) -> None:
    history = filled(tmp_path, range(0, 120, 10))
    for minute in (0, 60):
        place = history.cycle_file(FACTS, AT + 60 * minute)
        fact = pa.table({"kind": ["bundle"], "name": ["x"], "value": ["{}"]})
        put(place, FACTS, [stamped(fact, AT + 60 * minute, FACTS.schema)])
    first = sum(file.bytes for file in history.files(DEMAND) if file.hour == AT)
    Housekeeping(history, Retention(bytes=bytes_below(tmp_path) - first)).tidy(AT + 110 * 60)
    assert (min(cycles(history)), len(names(history, FACTS))) == (60, 2)
    Housekeeping(history, Retention(bytes=1)).tidy(AT + 110 * 60)
    assert names(history, FACTS) == ["20250615T160000.000000Z.parquet"]


def test_a_clock_that_was_ahead_does_not_cost_the_files_of_today(tmp_path: Path) -> None:
    history = filled(tmp_path, range(1, 4))
    for minute in (600, 601, 602):
        write(history, DEMAND, minute)
    keep = sum(file.bytes for file in history.files(DEMAND)[:3])
    Housekeeping(history, FOREVER).tidy(AT + 180)
    assert len(cycles(history)) == 6
    Housekeeping(history, Retention(bytes=keep)).tidy(AT + 180)
    assert list(cycles(history)) == [1, 2, 3]


def test_cycles_that_come_later_join_their_hour_and_replace_what_it_held_of_them(tmp_path: Path) -> None:
    history = filled(tmp_path, range(10, 60, 20))
    tidy = Housekeeping(history, Retention(merge_after=0)).tidy
    write(history, DEMAND, 120, 100)
    tidy(AT + 2 * HOUR)
    write(history, DEMAND, 20, count=1)  # the clock went back
    write(history, DEMAND, 30, 99)
    write(history, DEMAND, 180, 101)
    tidy(AT + 3 * HOUR)
    assert names(history)[0] == "20250615T15Z.parquet"
    assert cycles(history) == {10: [10, 10], 20: [20], 30: [99, 99], 50: [50, 50], 120: [100, 100], 180: [101, 101]}


def test_files_of_two_writers_at_one_time_both_count(tmp_path: Path) -> None:
    history = dataset(tmp_path, POLICY)
    for who in ("", "operator"):
        fact = pa.table({"kind": ["bundle"], "name": [who], "value": ["{}"]})
        put(history.cycle_file(FACTS, AT, who), FACTS, [stamped(fact, AT, FACTS.schema)])
    Housekeeping(history, FOREVER).tidy(AT + 3 * HOUR)
    (hour,) = history.files(FACTS)
    assert sorted(read_all(hour, FACTS)["name"].to_pylist()) == ["", "operator"]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_cycle_that_cant_be_read_is_set_aside_and_the_others_are_merged(
    tmp_path: Path, table: HistoryTable, caplog: pytest.LogCaptureFixture
) -> None:
    history = filled(tmp_path, range(10, 300, 20), table)
    Path(history.files(table)[1].place.path).write_bytes(b"damaged")
    Housekeeping(history, FOREVER).tidy(AT + 290 * 60)
    assert len(cycles(history, table)) == (14 if table.by_cycle else 12), "of two in 15 there is no row"
    assert "20250615T153000.000000Z.parquet is set aside" in caplog.text
    assert [path.name for path in tmp_path.rglob("*.bad")] == ["_20250615T153000.000000Z.bad"]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_an_hour_that_cant_be_read_is_set_aside_not_overwritten(tmp_path: Path, table: HistoryTable) -> None:
    history = filled(tmp_path, range(10, 300, 20), table)
    hour = Path(history.hour_file(table, AT).path)
    hour.write_bytes(b"damaged")
    Housekeeping(history, FOREVER).tidy(AT + 290 * 60)
    assert hour.with_name(f"_{hour.stem}.bad").read_bytes() == b"damaged"
    assert hour.exists()


def test_a_file_that_another_process_merges_leaves_the_hour_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = filled(tmp_path, range(10, 60, 20))
    listed = history.files(DEMAND)
    listed[1].place.remove()
    monkeypatch.setattr(history, "files", lambda table: listed if table is DEMAND else [])
    assert Housekeeping(history, FOREVER).compact(AT + 290 * 60) == 0
    monkeypatch.undo()
    assert names(history) == ["20250615T151000.000000Z.parquet", "20250615T155000.000000Z.parquet"]


def test_tidying_ends_between_two_cycles_when_asked(tmp_path: Path) -> None:
    history = filled(tmp_path, range(10, 300, 20))
    before, asked = cycles(history), iter([False, False, True])
    Housekeeping(history, FOREVER).tidy(AT + 290 * 60, lambda: next(asked))
    assert cycles(history) == before
    assert not list(tmp_path.rglob("*.tmp"))


_KILLED = """
import os, signal, sys
from pathlib import Path
import test_housekeeping as it

def die(name, when):
    real = getattr(it.Location, name)
    def dying(place, *rest):
        if when in place.name:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(place, *rest)
    setattr(it.Location, name, dying)

die(*sys.argv[2:])
it.Housekeeping(it.dataset(Path(sys.argv[1]), it.POLICY), it.FOREVER).tidy(it.AT + 290 * 60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize(
    ("step", "left"),
    [
        (("move", "T15Z.parquet"), "between writing an hour and naming it"),
        (("remove", "T151000"), "before the first of its cycles is removed"),
        (("remove", "T153000"), "between two of them"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_kill_anywhere_costs_no_cycle(tmp_path: Path, table: HistoryTable, step: tuple[str, str], left: str) -> None:
    history = filled(tmp_path, range(10, 300, 20), table)
    before = cycles(history, table)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    ended = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path), *step], check=False, env=environment)
    assert ended.returncode == -signal.SIGKILL, left
    assert len(names(history, table)) >= 14, left
    Housekeeping(history, FOREVER).tidy(AT + 290 * 60)
    assert cycles(history, table) == before
    assert len(names(history, table)) == 9
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize(
    ("owner", "step", "code"),
    [
        (pq.ParquetWriter, "write_table", errno.ENOSPC),
        (Location, "move", errno.EIO),
        (os, "fsync", errno.EIO),
        (Location, "remove", errno.EIO),
    ],
    ids=["full", "move", "fsync", "remove"],
)
def test_a_disk_that_refuses_any_step_costs_no_cycle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: HistoryTable, owner: object, step: str, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    history = filled(tmp_path, range(10, 300, 20), table)
    before = cycles(history, table)
    with monkeypatch.context() as disk:
        disk.setattr(owner, step, refuse)
        with pytest.raises(OSError, match=os.strerror(code)) as refused:
            Housekeeping(history, FOREVER).tidy(AT + 290 * 60)
    assert refused.value.errno == code
    Housekeeping(history, FOREVER).tidy(AT + 290 * 60)
    assert cycles(history, table) == before
    assert len(names(history, table)) == 9
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(("bound", "value"), [("seconds", 0), ("bytes", -1), ("merge_after", -1.0)])
def test_a_bound_that_cant_be_kept_is_refused(bound: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"history {bound} {value}"):
        Retention(**{bound: value})


def test_an_hour_of_topics_is_merged_in_pieces_that_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_GROUP", 100)
    history = dataset(tmp_path, POLICY)
    for minute in range(50):
        write(history, TOPICS, minute, count=30)
    before = told(history)
    Housekeeping(history, FOREVER).compact(AT + 2 * HOUR)
    (merged,) = history.files(TOPICS)
    about = pq.ParquetFile(merged.place.path).metadata
    assert [about.row_group(k).num_rows for k in range(about.num_row_groups)] == [120] * 12 + [60]
    assert told(history) == before


def test_parts_whose_times_overlap_are_merged_in_the_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "_GROUP", 1)
    history, times = dataset(tmp_path, POLICY), random.Random(1)
    written = []
    for minute in range(40):
        ats = sorted(AT + 60 * minute + times.uniform(-90, 90) for _ in range(3))
        written += ats
        given = pa.concat_tables([stamped(rows(FINDINGS, minute), at, FINDINGS.schema) for at in ats])
        place = history.cycle_file(FINDINGS, AT + 60 * minute, "refresh" if minute % 3 else "")
        put(place, FINDINGS, [given])
        if minute == 20:
            Housekeeping(history, FOREVER).compact(AT + 2 * HOUR)
    Housekeeping(history, FOREVER).compact(AT + 2 * HOUR)
    found = pq.read_table(tmp_path / "history" / FINDINGS.name)["at"].cast(pa.int64()).to_pylist()
    (merged,) = history.files(FINDINGS)
    assert pq.ParquetFile(merged.place.path).num_row_groups > 5
    assert found == sorted(round(at * 1000) for at in written)


def told(history: PolicyDataset) -> list[dict[str, object]]:
    """All rows about topics, in the order of their files."""
    return [row for file in history.files(TOPICS) for row in read_all(file, TOPICS).to_pylist()]
