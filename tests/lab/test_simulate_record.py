"""`trimtab simulate --record`: a simulated run as a history, which a backtest replays move by move."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from trimtab_operator.cli.main import main
from trimtab_pipeline.history.recording import Recording

pytestmark = pytest.mark.long

AVERAGES = {
    "apiVersion": "trimtab.dev/v1alpha1",
    "kind": "BalancingPolicy",
    "metadata": {"name": "old"},
    "spec": {
        "source": {"prometheus": {"url": "http://prometheus:9090"}},
        "shedder": {"type": "AvgShedder"},
        "placement": {"type": "AvgShedder"},
    },
}


@pytest.mark.slow
def test_a_backtest_of_a_recorded_policy_makes_the_moves_that_it_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """From an hour after the beginning on: then averages and memory are what they were."""
    policy, history = tmp_path / "old.yaml", str(tmp_path / "history")
    policy.write_text(json.dumps(AVERAGES))

    assert main(["simulate", "time-zones", "--policy", str(policy), "--seeds", "1", "--record", history]) == 0
    assert f"{history} has the history of this run" in capsys.readouterr().err
    assert main(["backtest", "--history", history, "--from", "90m", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert found["recording"] == "simulated/time-zones"
    assert found["check"]["moves"] > 20
    assert found["check"]["reproduced"] >= 0.9
    assert found["check"]["decided"] >= 0.9
    assert found["check"]["error"] < 1
    assert found["lacks"] == []
    assert main(["backtest", "--history", history]) == 0
    assert "averages and memory began empty there" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_recorded_split_is_part_of_the_history(tmp_path: Path) -> None:
    history = str(tmp_path / "history")

    assert main(["simulate", "hot-bundle", "--seeds", "1", "--record", history]) == 0
    cycles = list(Recording(history, "hot-bundle").cycles(0, 1e12))

    names = [set(cycle.bundles.names) for cycle in cycles]
    assert len(names[0]) == 8 * 12
    assert len(names[-1]) > 8 * 12
    assert any(before - after for before, after in pairwise(names))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["skewed", "two-hot"], "--record takes one scenario and one strategy, not 2 and 1"),
        (["skewed", "--against", "AvgShedder"], "--record takes one scenario and one strategy, not 1 and 2"),
    ],
)
def test_what_can_not_be_recorded_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], said: str
) -> None:
    assert main(["simulate", *words, "--seeds", "1", "--record", str(tmp_path / "history")]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.slow
def test_a_history_is_not_written_over(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["simulate", "two-brokers", "--seeds", "1", "--record", str(tmp_path / "history")]
    assert main(words) == 0

    assert main(words) == 2
    assert "has a history of simulated/two-brokers already: name another folder" in capsys.readouterr().err
