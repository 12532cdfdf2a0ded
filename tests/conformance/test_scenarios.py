"""The random scenarios: the same for the same seed, rich enough to decide something, and run by the oracle."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pulsar_oracle import Oracle, OracleError
from pulsar_scenarios import GENERATORS, generate

SCENARIOS = 60


def decides(expect: Mapping[str, Any]) -> bool:
    """Whether an answer has a decision: an unload, a split, a choice among brokers, a boundary, an exception."""
    (found, *_) = (value for value in expect.values() if isinstance(value, list | dict))
    entries = found if isinstance(found, list) else [found]
    return any(entry if isinstance(entry, str) else _decided(entry) for entry in entries)


def _decided(entry: Mapping[str, Any]) -> bool:
    keys = ("unloads", "splits", "one_of", "broker", "boundaries", "children", "exception", "hash", "weighted_max_ema")
    found = [entry[key] for key in keys if key in entry]
    return any(found) if found else any(entry.values())


LEAST = {
    "extensible.DefaultNamespaceBundleSplitStrategyImpl": 0.25,
    "extensible.TransferShedder": 0.3,
    "modular.AvgShedder": 0.35,
    "modular.BundleSplitterTask": 0.35,
    "modular.OverloadShedder": 0.4,
    "modular.ThresholdShedder": 0.35,
    "modular.UniformLoadShedder": 0.4,
}
"""Share of scenarios that must have a decision, where it is not nearly all of them."""


@pytest.fixture(scope="module", params=GENERATORS)
def deciding(request: pytest.FixtureRequest, oracle: Oracle) -> tuple[str, list[bool]]:
    """An algorithm, and for each of its scenarios whether Java decides something."""
    algorithm: str = request.param
    return algorithm, [decides(oracle.ask(generate(algorithm, seed))) for seed in range(SCENARIOS)]


def test_scenarios_make_java_decide_something(deciding: tuple[str, list[bool]]) -> None:
    algorithm, decided = deciding

    assert sum(decided) >= LEAST.get(algorithm, 0.8) * SCENARIOS
    assert not (algorithm.endswith("Shedder") and all(decided)), "shedders leave something alone, too"


def test_a_seed_gives_the_same_scenario_in_every_process() -> None:
    support = Path(__file__).parents[1] / "support" / "strategies"
    program = "import json, pulsar_scenarios as s; print(json.dumps([s.generate(a, 7) for a in s.GENERATORS]))"

    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(support), "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]

    assert outputs[0] == outputs[1]
    assert json.loads(outputs[0]) == [generate(algorithm, 7) for algorithm in GENERATORS]


def test_reasons_not_to_move_all_occur(oracle: Oracle) -> None:
    answers = [oracle.ask(generate("extensible.TransferShedder", seed)) for seed in range(400)]

    skips = {skip for answer in answers for entry in answer["rounds"] for skip in entry["skip"]}
    reasons = {unload["reason"] for answer in answers for entry in answer["rounds"] for unload in entry["unloads"]}
    assert skips >= {f"Skip/{why}" for why in ("HitCount", "CoolDown", "NoLoadData", "NoBundles", "OutDatedData")}
    assert reasons == {"Overloaded", "Underloaded"}


def test_a_scenario_that_cannot_be_run_says_which_and_why(oracle: Oracle) -> None:
    with pytest.raises(OracleError, match=r"odd#1(.|\n)*algorithm 'odd'"):
        oracle.ask({"id": "odd#1", "algorithm": "odd"})

    assert oracle.ask(generate("base.resource_usage", 1))["percent"]
