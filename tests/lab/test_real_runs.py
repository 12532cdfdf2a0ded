"""Two policies played the same load on real Pulsar brokers: the backtest of each history predicts the other run.

`benchmarks/prediction.py` recorded the histories in `real-runs`; docs/calibration.md has the figures.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from trimtab_operator.cli.main import main

ROOT = Path(__file__).parents[2]
RUNS = Path(__file__).with_name("real-runs")
NAMES = ("trim", "avg")


@pytest.fixture(scope="module")
def policies() -> Any:
    """The strategies that were played, by name."""
    sys.path.append(str(ROOT / "benchmarks"))
    found = import_module("calibration_lab").POLICIES
    sys.path.remove(str(ROOT / "benchmarks"))
    return found


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with the history of each policy."""
    root = tmp_path_factory.mktemp("real-runs")
    for name in NAMES:
        assert main(["history", "import", str(RUNS / f"{name}.tar"), "--dir", str(root / name)]) == 0
    return root


def backtest(
    history: Path, name: str, strategy: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> dict[str, dict[str, Any]]:
    """The rows of a backtest, by name; `live` is what really happened, and `check` how well a replay shows it."""
    spec = {"mode": "Auto", "source": {"prometheus": {"url": "http://prometheus:9090"}}, **strategy}
    policy = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "BalancingPolicy",
        "metadata": {"name": name},
        "spec": {**spec, "pulsar": {"adminUrl": "http://pulsar:8080"}},
    }
    (folder / "policy.json").write_text(json.dumps(policy))
    capsys.readouterr()
    assert main(["backtest", "--history", str(history), "--policy", str(folder / "policy.json"), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    return {row["name"]: row for row in told["policies"]} | {"check": told["check"]}


@pytest.mark.parametrize(("name", "by"), [*permutations(NAMES)])
def test_a_backtest_predicts_the_other_run(
    name: str, by: str, histories: Path, policies: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within three moves, 6 points of mean distance between the brokers, and 4 minutes above 85 %."""
    predicted = backtest(histories / by, name, policies[name], tmp_path, capsys)[name]
    real = backtest(histories / name, name, policies[name], tmp_path, capsys)["live"]

    assert predicted["moves"] == pytest.approx(real["moves"], abs=3)
    assert predicted["area"] == pytest.approx(real["area"], abs=6)
    assert predicted["hot"] == pytest.approx(real["hot"], abs=4)


@pytest.mark.parametrize("by", NAMES)
def test_a_backtest_says_which_policy_is_better(
    by: str, histories: Path, policies: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trim kept the brokers nearer to each other than AvgShedder did."""
    found = {name: backtest(histories / by, name, policies[name], tmp_path, capsys)[name] for name in NAMES}

    assert found["trim"]["area"] < found["avg"]["area"] - 5


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_repeats_the_run(
    name: str, histories: Path, policies: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All real moves, and the brokers' range within a point."""
    check = backtest(histories / name, name, policies[name], tmp_path, capsys)["check"]

    assert check["reproduced"] >= 0.9
    assert check["decided"] >= 0.9
    assert check["error"] <= 1
