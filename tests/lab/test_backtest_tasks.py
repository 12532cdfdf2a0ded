"""Backtests in parts: windows, their seams, and the same result here, on one core of Spark and on two."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from backtest_parts import end_of, new_policy, replays, same, write_wandering
from recorded_history import POLICY
from trim_world import START
from trimtab_lab.backtest.replay import HistoryReplay
from trimtab_lab.backtest.tasks import RUN_IN, WARM_UP, InProcess, Runner, TimeWindow, play_all, seams, tasks, windows
from trimtab_lab.backtest.trace import Change, Trace
from trimtab_operator.cli.main import main
from trimtab_testbed.servers.processes import children, descendants

HOUR = 3600.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten hours of three brokers, a cycle every two minutes; load wanders from one to the next."""
    root = tmp_path_factory.mktemp("history")
    write_wandering(root)
    return root


@pytest.fixture(scope="module")
def whole(folder: Path) -> list[HistoryReplay]:
    """The replays of all ten hours, in one window and one task."""
    return played(folder, InProcess(), windows(START, end_of(folder)), 1)


@pytest.fixture(scope="module")
def halves(folder: Path) -> list[HistoryReplay]:
    """The same in two windows of five hours."""
    return played(folder, InProcess(), windows(START, end_of(folder), 5 * HOUR), 1)


def played(folder: Path, runner: Runner, parts: list[TimeWindow], parallelism: int) -> list[HistoryReplay]:
    found = replays()
    assert play_all(tasks(str(folder), POLICY, parts, found, parallelism), found, runner, lambda _: None) == ""
    return found


def test_windows_cover_the_time_and_begin_earlier() -> None:
    parts = windows(0, 10 * HOUR, 4 * HOUR)

    assert [part.begin for part in parts] == [0, 4 * HOUR, 8 * HOUR]
    assert [part.end for part in parts] == pytest.approx([4 * HOUR, 8 * HOUR, 10 * HOUR], abs=0.01)
    assert parts[0].act == parts[0].begin
    assert parts[1].act == parts[1].begin - RUN_IN
    assert parts[1].read == parts[1].act - WARM_UP
    assert parts[0].end < parts[1].begin


def test_each_core_gets_a_task_and_each_policy_is_played_once_in_each_window() -> None:
    found = replays()
    for parts, parallelism, expected in ((1, 1, 1), (1, 3, 3), (1, 100, 4), (3, 2, 3), (3, 6, 6)):
        cut = windows(0, 9 * HOUR, 9 * HOUR / parts)
        work = tasks("folder", POLICY, cut, found, parallelism)
        assert len(work) == expected
        assert sorted((one.window, each.name) for one in work for each in one.replays) == sorted(
            (window, each.name) for window in cut for each in found
        )


@pytest.mark.slow
def test_the_result_does_not_depend_on_the_number_of_tasks(folder: Path, whole: list[HistoryReplay]) -> None:
    many = played(folder, InProcess(), windows(START, end_of(folder)), 4)

    assert [len(each.trace.times) for each in whole] == [300] * 4
    assert whole[0].trace.changes
    assert all(map(same, whole, many))


@pytest.mark.slow
def test_windows_give_nearly_the_figures_of_one(folder: Path, whole: list[HistoryReplay]) -> None:
    """A window begins with owners that the policy gave, so it levels nothing a second time."""
    parts = windows(START, end_of(folder), 2 * HOUR)
    one, cut = whole[0], played(folder, InProcess(), parts, 1)[0]

    assert cut.trace.times == one.trace.times
    assert cut.trace.figures().area == pytest.approx(one.trace.figures().area, abs=2.5)
    assert cut.trace.figures().moves < 1.6 * one.trace.figures().moves
    found = seams(cut.trace, parts)
    assert found is not None
    assert found.number == 4
    assert found.jump < 12
    assert str(found).startswith("4 seams: range of the brokers changes by ")


@pytest.mark.slow
def test_what_really_happened_has_no_seams(folder: Path, halves: list[HistoryReplay]) -> None:
    parts = windows(START, end_of(folder), 5 * HOUR)
    live = halves[-1]
    found = seams(live.trace, parts)

    assert found is not None
    assert found.jump == pytest.approx(found.usual, abs=3)
    assert seams(live.trace, parts[:1]) is None


def test_windows_of_less_than_an_hour_count_each_move_once() -> None:
    """An hour, with seams after 15, 30 and 45 minutes: all but the first quarter is in the hour after a seam."""
    moves = [Change(at, "bundle", "a", "b", 1.0, 1.0) for at in (600.0, 1800.0, 2000.0)]
    times = [60.0 * minute for minute in range(60)]
    trace = Trace(times, usage=[np.array([50.0, 40.0])] * 60, changes=moves)

    found = seams(trace, windows(0, 3540, 900))

    assert found is not None
    assert (found.number, found.jump, found.usual) == (3, 0, 0)
    assert found.moves == pytest.approx(2 / 0.75)
    assert found.others == pytest.approx(1 / 0.25)


@pytest.mark.slow
def test_progress_goes_from_nothing_to_all(folder: Path) -> None:
    seen: list[float] = []
    found = replays()
    work = tasks(str(folder), POLICY, windows(START, end_of(folder), 5 * HOUR), found, 1)
    play_all(work, found, InProcess(), seen.append)

    assert seen == sorted(seen)
    assert seen[0] < 0.01
    assert seen[-1] == pytest.approx(1)


ON_SPARK = """
import pickle, sys
from trimtab_lab.backtest.tasks import play_all, tasks
from trimtab_pipeline.factory import task_pool

folder, policy, parts, replays = pickle.load(sys.stdin.buffer)
seen, pool = [], task_pool("local[2]")
try:
    parallelism = pool.parallelism()
    error = play_all(tasks(folder, policy, parts, replays, parallelism), replays, pool, seen.append)
finally:
    pool.close()
pickle.dump((parallelism, error, replays, seen), sys.stdout.buffer)
"""
"""Plays replays on Spark. It is a process of its own, which has no session of other tests."""


@pytest.mark.spark
def test_spark_gives_the_same_result_and_says_how_far_it_is(folder: Path, halves: list[HistoryReplay]) -> None:
    parts = windows(START, end_of(folder), 5 * HOUR)
    given = pickle.dumps((str(folder), POLICY, parts, replays()))
    output = subprocess.run([sys.executable, "-c", ON_SPARK], input=given, stdout=subprocess.PIPE, check=True).stdout
    parallelism, error, found, seen = pickle.loads(output)

    assert (parallelism, error) == (2, "")
    assert len(found) == len(halves)
    assert all(map(same, halves, found))
    assert seen == sorted(seen)
    assert 0 < seen[-1] <= 1


@pytest.mark.spark
def test_the_command_says_why_a_task_failed(folder: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "history"
    subprocess.run(["cp", "-r", str(folder), str(damaged)], check=True)
    for file in list(damaged.glob("history/brokers/**/*.parquet"))[100:110]:
        file.write_bytes(b"PAR1 no more")
    words = ["backtest", "--history", str(damaged), "--policy", new_policy(tmp_path), "--spark", "local[2]"]
    ended = subprocess.run(
        [sys.executable, "-m", "trimtab_operator", *words], capture_output=True, text=True, check=False
    )

    assert ended.returncode != 0
    assert "history/brokers" in ended.stderr
    assert "says which files are damaged" in ended.stderr


@pytest.mark.spark
def test_interrupting_leaves_nothing_running(folder: Path, tmp_path: Path) -> None:
    """^C while tasks run: the command ends, and so do its JVM and its workers."""
    words = ["backtest", "--history", str(folder), "--policy", new_policy(tmp_path), "--spark", "local[2]"]
    words += ["--sweep", "shedder.trim.worth=1..1000", "--samples", "200"]
    command = [sys.executable, "-m", "trimtab_operator", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while len(begun := descendants(process.pid, children())) < 4:  # the JVM, the workers' parent, two workers
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert process.returncode != 0
    deadline = time.monotonic() + 10
    while running := [pid for pid in begun if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, running
        time.sleep(0.2)


@pytest.mark.spark
def test_a_wrong_master_is_refused(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(["backtest", "--history", str(folder), "--policy", new_policy(tmp_path), "--spark", "yarn"])

    assert code != 0
    assert "master 'yarn' must be local[N]" in capsys.readouterr().err
