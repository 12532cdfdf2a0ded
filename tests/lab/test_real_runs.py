"""Two policies played the same load on real Pulsar brokers: the backtest of each history predicts the other run.

`benchmarks/prediction.py` recorded the histories in `real-runs`; docs/calibration.md has the figures.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

from trimtab_operator.cli.main import main

ROOT = Path(__file__).parents[2]
RUNS = Path(__file__).with_name("real-runs")
NAMES = ("trim", "avg")

Backtests = Mapping[tuple[str, str], Mapping[str, Any]]
"""Rows of a backtest by name, by the policy that is replayed and the policy whose history it is. `live` is what really
happened, and `check` says how well a replay shows that."""


@pytest.fixture(scope="module")
def backtests(tmp_path_factory: pytest.TempPathFactory) -> Backtests:
    sys.path.append(str(ROOT / "benchmarks"))
    played = import_module("calibration_lab")
    sys.path.remove(str(ROOT / "benchmarks"))
    root = tmp_path_factory.mktemp("real-runs")
    for name in NAMES:
        policy = played.manifest(name, played.POLICIES[name], "http://pulsar:8080", "http://prometheus:9090")
        (root / f"{name}.json").write_text(json.dumps(policy))
    return {(name, by): backtest(RUNS / f"{by}.tar", root / f"{name}.json") for name, by in product(NAMES, repeat=2)}


def backtest(history: Path, policy: Path) -> Mapping[str, Any]:
    with redirect_stdout(io.StringIO()) as out:
        assert main(["backtest", "--history", str(history), "--policy", str(policy), "-o", "json"]) == 0
    told = json.loads(out.getvalue())
    return {row["name"]: row for row in told["policies"]} | {"check": told["check"]}


@pytest.mark.parametrize(("name", "by"), [*permutations(NAMES)])
def test_a_backtest_predicts_the_other_run(name: str, by: str, backtests: Backtests) -> None:
    """Within three moves, 6 points of mean distance between the brokers, and 4 minutes above 85 %."""
    predicted, real = backtests[name, by][name], backtests[name, name]["live"]

    assert predicted["moves"] == pytest.approx(real["moves"], abs=3)
    assert predicted["area"] == pytest.approx(real["area"], abs=6)
    assert predicted["hot"] == pytest.approx(real["hot"], abs=4)


@pytest.mark.parametrize("by", NAMES)
def test_a_backtest_says_which_policy_is_better(by: str, backtests: Backtests) -> None:
    """Trim kept the brokers nearer to each other than AvgShedder did."""
    assert backtests["trim", by]["trim"]["area"] < backtests["avg", by]["avg"]["area"] - 5


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_repeats_the_run(name: str, backtests: Backtests) -> None:
    """All real moves, and the brokers' range within a point."""
    check = backtests[name, name]["check"]

    assert check["reproduced"] >= 0.9
    assert check["decided"] >= 0.9
    assert check["error"] <= 1
