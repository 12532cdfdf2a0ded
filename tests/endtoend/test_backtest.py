"""What an operator recorded, replayed: a backtest makes the moves that it really made."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest

from small_cluster import NAMESPACE, POLICY, SmallCluster, until
from trimtab_operator.cli.main import main

INTERVAL = 2.0
"""Seconds between two cycles of `SmallCluster.apply_policy`."""

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]


def test_a_backtest_makes_the_moves_that_the_operator_made(
    stage: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    time.sleep(INTERVAL)  # a replay decides once in each interval, and cycles of the last test are in the history, too
    begun = datetime.now(UTC)
    stage.apply_policy(mode="Auto")  # its placement chooses by chance among the brokers with room
    stage.wait_condition("Balanced", "False", "Overloaded")
    until("nothing is left to move", lambda: stage.condition("Balanced")[0] == "True", within=150)
    stage.wait_cycles(3)
    window = ["--recorded", f"{NAMESPACE}/{POLICY}", "--from", begun.isoformat()]
    capsys.readouterr()

    code = main(["backtest", "--history", str(stage.dir / "history"), *window, "-o", "json"])

    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert found["check"]["moves"] >= 2
    assert found["check"]["reproduced"] >= 0.9, found
    assert found["check"]["decided"] >= 0.9, found
    assert found["check"]["error"] < 10
