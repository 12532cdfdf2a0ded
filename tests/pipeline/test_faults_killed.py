"""``kill -9`` of the operator while it writes a cycle: the cycle is there as a whole or not at all, the others stay."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kept_histories import AT, LOAD, keep
from trimtab_pipeline.api import Retention
from trimtab_pipeline.history.reader import HistoryReader
from trimtab_pipeline.history.writer import TABLES, HistoryTidier, HistoryWriter

POLICY, HORIZON = "prod/one", 1e6
WRITTEN = ("quality", "picture", "brokers", "bundles")
"""The tables in the order in which a cycle writes them."""

_WRITES = """
import os, signal, sys
from pathlib import Path
from dataclasses import replace
sys.path.insert(0, sys.argv[2])
from kept_histories import AT, LOAD, tables
from pipeline_clusters import topology
from trimtab_pipeline.transform.snapshot import Measurement
from trimtab_pipeline.history.writer import HistoryTidier, HistoryWriter
from trimtab_pipeline.api import Retention

folder, fatal = Path(sys.argv[1]), sys.argv[3]
put_in_place = Path.replace

def dying(path, target):
    if Path(target).parent.name == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return put_in_place(path, target)

Path.replace = dying
at, background = AT + 120, HistoryTidier()
made, world = tables(LOAD, at), topology({name: f"{name}-pod" for name in LOAD.brokers.names}, {})
measurement = Measurement(made["brokers"], made["bundles"])
HistoryWriter(folder, Retention(), background).keep(measurement, replace(LOAD, now=at), world)
background.close()
"""


def killed_while_placing(table: str, root: Path) -> int:
    """Exit status of a program that writes the cycle of minute 2 and dies between writing `table` and renaming it."""
    support = str(Path(__file__).parents[1] / "support" / "prometheus")
    command = [sys.executable, "-c", _WRITES, str(root / POLICY), support, table]
    return subprocess.run(command, check=False, timeout=120).returncode


def times(root: Path) -> list[float]:
    """Minutes of the cycles that the history tells of."""
    return [(at - AT) / 60 for at in HistoryReader(root, POLICY).times()]


def test_the_program_that_is_killed_below_would_have_written_a_cycle(tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0, 1])
    assert killed_while_placing("(none)", tmp_path) == 0
    assert times(tmp_path) == [0, 1, 2]
    assert all(len(list((tmp_path / POLICY / table).glob("*.parquet"))) == 3 for table in TABLES)


@pytest.mark.parametrize("fatal", WRITTEN)
def test_a_kill_between_write_and_rename_costs_that_cycle_alone(fatal: str, tmp_path: Path) -> None:
    keep(tmp_path, POLICY, [0, 1])
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.parquet")}
    assert killed_while_placing(fatal, tmp_path) == -signal.SIGKILL
    assert list((tmp_path / POLICY / fatal).glob("*.tmp")), "it died too early"

    assert times(tmp_path) == [0, 1]
    assert HistoryReader(tmp_path, POLICY).load().now == AT + 60
    background = HistoryTidier()
    restarted = HistoryWriter(tmp_path / POLICY, Retention(), background)
    for history in (restarted.brokers, restarted.bundles):
        assert history.state(AT + 120, HORIZON).name == "20250615T150100.000000Z.parquet"
    background.close()
    assert {path: path.read_bytes() for path in before} == before

    keep(tmp_path, POLICY, [2])
    assert times(tmp_path) == [0, 1, 2]
    again = HistoryReader(tmp_path, POLICY).load()
    assert set(again.bundles.names) == set(LOAD.bundles.names)
    assert not list(tmp_path.rglob("*.tmp"))
    assert not list(tmp_path.rglob("*.bad"))
