"""Cycles become hours and old files go; nobody who reads sees the difference, and no crash costs a cycle."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trimtab_pipeline.api import Retention
from trimtab_pipeline.history.files import listed, read_cycles
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.store import History

SCHEMA = pa.schema([("bundle", pa.string()), ("seen", pa.float64())])
HOUR = 3600.0
AT = 486_111 * HOUR  # on the hour
FOREVER = Retention(seconds=1e9, bytes=2**40)


def rows(seen: float, count: int = 1) -> pa.Table:
    return pa.table({"bundle": [f"b{k}" for k in range(count)], "seen": [seen] * count})


def history(folder: Path) -> History:
    return History(folder, SCHEMA, "test/1")


def filled(folder: Path, minutes: range) -> History:
    """A cycle each `minutes` of the clock, the minute being what was seen; every seventh saw nothing."""
    files = history(folder)
    for minute in minutes:
        files.write(rows(minute, count=0 if minute % 7 == 0 else 2), AT + 60 * minute)
    return files


def cycles(folder: Path) -> dict[float, list[float]]:
    """What was seen, by cycle; fails on one that is there twice."""
    found: dict[float, list[float]] = {}
    for file in listed(folder):
        for time, table in read_cycles(file, history(folder).schema):
            assert time not in found
            found[time] = table["seen"].to_pylist()
    return found


def names(folder: Path) -> list[str]:
    return [file.path.name for file in listed(folder)]


def test_an_hour_is_merged_an_hour_after_its_end_and_readers_see_no_difference(tmp_path: Path) -> None:
    files = filled(tmp_path, range(0, 130, 10))
    before, table = cycles(tmp_path), pq.read_table(tmp_path).sort_by("at")
    Housekeeping([files], FOREVER).tidy(AT + 119.9 * 60)
    assert len(names(tmp_path)) == 13
    Housekeeping([files], FOREVER).tidy(AT + 120 * 60)
    assert len(names(tmp_path)) == 8
    assert names(tmp_path)[0] == "20250615T15Z.parquet"
    assert cycles(tmp_path) == before
    assert pq.read_table(tmp_path).sort_by("at").equals(table)
    assert pd.read_parquet(tmp_path / "20250615T15Z.parquet")["seen"].tolist() == [
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


def test_tidying_again_changes_nothing(tmp_path: Path) -> None:
    files = filled(tmp_path, range(0, 300, 20))
    tidy = Housekeeping([files], FOREVER).tidy
    tidy(AT + 300 * 60)
    contents = {path: path.read_bytes() for path in tmp_path.iterdir()}
    tidy(AT + 300 * 60)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == contents


def test_the_newest_cycle_stays_a_file_however_old_it_is(tmp_path: Path) -> None:
    files = filled(tmp_path, range(0, 60, 20))
    Housekeeping([files], Retention(seconds=1.0, bytes=1)).tidy(AT + 1e6)
    assert cycles(tmp_path) == {AT + 2400: [40, 40]}
    assert files.state(AT + 2500, HOUR).name == "20250615T154000.000000Z.parquet"


def test_what_is_past_its_age_goes(tmp_path: Path) -> None:
    files = filled(tmp_path, range(0, 600, 30))
    Housekeeping([files], Retention(seconds=4 * HOUR, merge_after=0)).tidy(AT + 570 * 60)
    assert min(cycles(tmp_path)) == AT + 5 * HOUR
    assert max(cycles(tmp_path)) == AT + 570 * 60


def test_what_is_too_much_goes_oldest_first_over_all_tables(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "one", range(0, 60, 10)), filled(tmp_path / "other", range(0, 60, 10))
    size = sum(path.stat().st_size for path in tmp_path.glob("*/*.parquet"))
    Housekeeping([one, other], Retention(bytes=size // 2)).tidy(AT + 3000)
    left = sum(path.stat().st_size for path in tmp_path.glob("*/*.parquet"))
    assert 0 < left <= size // 2
    newest = [AT + 60 * minute for minute in (30, 40, 50)]
    assert list(cycles(tmp_path / "one")) == newest[1:]
    assert list(cycles(tmp_path / "other")) == newest


def test_a_clock_that_was_ahead_does_not_cost_the_files_of_today(tmp_path: Path) -> None:
    files = filled(tmp_path, range(1, 4))
    for minute in (600, 601, 602):
        files.write(rows(minute), AT + 60 * minute)
    keep = sum(file.path.stat().st_size for file in listed(tmp_path)[:3])
    Housekeeping([files], FOREVER).tidy(AT + 180)
    assert len(cycles(tmp_path)) == 6
    Housekeeping([files], Retention(bytes=keep)).tidy(AT + 180)
    assert list(cycles(tmp_path)) == [AT + 60, AT + 120, AT + 180]


def test_cycles_that_come_later_join_their_hour_and_replace_what_it_held_of_them(tmp_path: Path) -> None:
    files = filled(tmp_path, range(10, 60, 20))
    tidy = Housekeeping([files], Retention(merge_after=0)).tidy
    files.write(rows(100), AT + 2 * HOUR)
    tidy(AT + 2 * HOUR)
    files.write(rows(20), AT + 1200)  # the clock went back
    files.write(rows(99), AT + 1800)
    files.write(rows(101), AT + 3 * HOUR)
    tidy(AT + 3 * HOUR)
    assert names(tmp_path)[0] == "20250615T15Z.parquet"
    assert cycles(tmp_path) == {
        AT + 600: [10, 10],
        AT + 1200: [20],
        AT + 1800: [99],
        AT + 3000: [50, 50],
        AT + 2 * HOUR: [100],
        AT + 3 * HOUR: [101],
    }


def test_a_cycle_that_cant_be_read_is_set_aside_and_the_others_are_merged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = filled(tmp_path, range(10, 300, 20))
    listed(tmp_path)[1].path.write_bytes(b"damaged")
    Housekeeping([files], FOREVER).tidy(AT + 290 * 60)
    assert len(cycles(tmp_path)) == 14
    assert "20250615T153000.000000Z.parquet is set aside" in caplog.text
    assert [path.name for path in tmp_path.glob("*.bad")] == ["_20250615T153000.000000Z.bad"]


def test_an_hour_that_cant_be_read_is_set_aside_not_overwritten(tmp_path: Path) -> None:
    files = filled(tmp_path, range(10, 300, 20))
    hour = tmp_path / "20250615T15Z.parquet"
    hour.write_bytes(b"damaged")
    Housekeeping([files], FOREVER).tidy(AT + 290 * 60)
    assert hour.with_name(f"_{hour.stem}.bad").read_bytes() == b"damaged"
    assert len(cycles(tmp_path)) == 15


def test_tidying_ends_between_two_cycles_when_asked(tmp_path: Path) -> None:
    files = filled(tmp_path, range(10, 300, 20))
    before, asked = cycles(tmp_path), iter([False, False, True])
    Housekeeping([files], FOREVER).tidy(AT + 290 * 60, lambda: next(asked))
    assert cycles(tmp_path) == before
    assert not list(tmp_path.glob("*.tmp"))


_KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {here!r})
import test_housekeeping as it

def die(name, *when):
    real = getattr(it.Path, name)
    def dying(path, *rest, **more):
        if any(word in path.name for word in when):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(path, *rest, **more)
    setattr(it.Path, name, dying)

files = it.history(Path(sys.argv[1]))
die(*sys.argv[2:])
it.Housekeeping([files], it.FOREVER).tidy(it.AT + 290 * 60)
"""


@pytest.mark.parametrize(
    ("step", "left"),
    [
        (("replace", "T15Z.parquet.tmp"), "between writing an hour and naming it"),
        (("unlink", "T151000"), "before the first of its cycles is removed"),
        (("unlink", "T153000"), "between two of them"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_kill_anywhere_costs_no_cycle(tmp_path: Path, step: tuple[str, str], left: str) -> None:
    filled(tmp_path, range(10, 300, 20))
    before = cycles(tmp_path)
    code = _KILLED.format(here=str(Path(__file__).parent))
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path), *step], check=False)
    assert ended.returncode == -signal.SIGKILL, left
    assert len(names(tmp_path)) >= 14, left
    restarted = history(tmp_path)
    assert restarted.state(AT + 300 * 60, HOUR).name == "20250615T195000.000000Z.parquet"
    assert not list(tmp_path.glob("*.tmp"))
    Housekeeping([restarted], FOREVER).tidy(AT + 290 * 60)
    assert cycles(tmp_path) == before
    assert len(names(tmp_path)) == 9


def test_a_full_disk_while_merging_costs_no_cycle_and_the_next_tidying_goes_on(tmp_path: Path) -> None:
    files = filled(tmp_path, range(10, 300, 20))
    before = cycles(tmp_path)
    tidy = Housekeeping([files], FOREVER).tidy
    (tmp_path / "_20250615T16Z.parquet.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space") as refused:
        tidy(AT + 290 * 60)
    assert refused.value.errno == errno.ENOSPC
    assert cycles(tmp_path) == before
    tidy(AT + 290 * 60)
    assert cycles(tmp_path) == before
    assert len(names(tmp_path)) == 9


@pytest.mark.parametrize("step", ["replace", "fsync", "unlink"])
def test_a_disk_that_refuses_any_step_costs_no_cycle(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    files = filled(tmp_path, range(10, 300, 20))
    before = set(cycles(tmp_path))
    with monkeypatch.context() as disk:
        disk.setattr(*((os, step) if step == "fsync" else (Path, step)), refuse)
        with pytest.raises(OSError, match="Input/output"):
            Housekeeping([files], FOREVER).tidy(AT + 290 * 60)
    Housekeeping([history(tmp_path)], FOREVER).tidy(AT + 290 * 60)
    assert set(cycles(tmp_path)) == before
    assert len(names(tmp_path)) == 9


@pytest.mark.parametrize(("bound", "value"), [("seconds", 0), ("bytes", -1), ("merge_after", -1.0)])
def test_a_bound_that_cant_be_kept_is_refused(bound: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"history {bound} {value}"):
        Retention(**{bound: value})
