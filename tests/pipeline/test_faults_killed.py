"""``kill -9`` of the operator while it writes a cycle: the cycle is there as a whole or not at all, the others stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kept_histories import AT, FOREVER, LOAD, NoHousekeeping, keep, merge
from trimtab_pipeline.history.files import read_state
from trimtab_pipeline.history.reader import HistoryReader
from trimtab_pipeline.history.writer import HistoryWriter

pytestmark = pytest.mark.slow

POLICY, HORIZON = "prod/one", 1e6
STATE = ("state/prod/one/brokers", "state/prod/one/bundles")
HISTORY = tuple(f"history/{table}/policy=prod.one" for table in ("quality", "brokers", "topics", "demand"))
"""Folders of the tables, each in the order in which a cycle writes them."""

_WRITES = """
import os, signal, sys
from pathlib import Path
from kept_histories import LOAD, keep
from trimtab_pipeline.history.location import Location

root, fatal = sys.argv[1:3]
move = Location.move

def dying(place, target):
    if f"{root}/{fatal}" in target.path:
        os.kill(os.getpid(), signal.SIGKILL)
    return move(place, target)

Location.move = dying
keep(root, "prod/one", [2])
"""


def killed_while_placing(table: str, root: Path) -> int:
    """Exit status of a program that writes the cycle of minute 2 and dies between writing `table` and renaming it."""
    command = [sys.executable, "-c", _WRITES, str(root), table]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, check=False, timeout=120, env=environment).returncode


def times(root: Path) -> list[float]:
    """Minutes of the cycles that the history tells of."""
    return [(at - AT) / 60 for at in HistoryReader(root, POLICY).times()]


def state(root: Path, minute: float) -> list[float]:
    """Minute of the state that the cycle at `minute` continues from, after a restart."""
    last = HistoryWriter(root, POLICY, FOREVER, NoHousekeeping()).state(AT + 60 * minute, HORIZON)
    return sorted({(at - AT) / 60 for at in read_state(last.bundles)["seen"].to_pylist()})


def test_the_program_that_is_killed_below_would_have_written_a_cycle(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0, 1])
    assert killed_while_placing("(none)", tmp_path) == 0
    assert times(tmp_path) == [0, 1, 2]
    assert state(tmp_path, 3) == [2]
    assert all(len(list((tmp_path / folder).rglob("*.parquet"))) == 3 for folder in HISTORY)
    assert all(len(list((tmp_path / folder).rglob("*.parquet"))) == 2 for folder in STATE)


@pytest.mark.parametrize("fatal", [*STATE, *HISTORY])
def test_a_kill_between_write_and_rename_costs_that_cycle_alone(fatal: str, tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0, 1])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    assert killed_while_placing(fatal, tmp_path) == -signal.SIGKILL
    assert list((tmp_path / fatal).rglob("*.tmp")), "it died too early"

    assert times(tmp_path) == [0, 1]
    assert HistoryReader(tmp_path, POLICY).load().now == AT + 60
    assert state(tmp_path, 3) == ([1] if fatal in STATE else [2]), "the state is written before the history"
    assert {path: path.read_bytes() for path in before if path.exists()} | before == before

    keep(tmp_path, POLICY, [3])
    assert times(tmp_path) == [0, 1, 3]
    again = HistoryReader(tmp_path, POLICY).load()
    assert set(again.bundles.names) == set(LOAD.bundles.names)
    merge(tmp_path, POLICY, 200)
    assert times(tmp_path) == [0, 1, 3]
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob("*.bad"))
