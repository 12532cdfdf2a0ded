"""Our strategies decide as the Java classes did, on every scenario that was recorded of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recordings import FOLDER, lines
from trimtab_strategies.conformance import ALGORITHMS, replay, replay_files


PULSAR = [name for name in ALGORITHMS if not name.startswith("hermes.")]


@pytest.mark.parametrize("algorithm", PULSAR)
def test_every_recorded_decision_is_matched(algorithm: str) -> None:
    report = replay(lines(FOLDER / f"{algorithm}.jsonl.gz"))

    tally = report.tallies[algorithm]
    assert report.lines() == [f"{algorithm}: matched {tally.total} of {tally.total} (undecided 0)"]
    assert tally.total >= 250
    assert report.exit_code == 0


def test_hand_made_cases_are_matched() -> None:
    report = replay(lines(FOLDER / "hand-made.jsonl"))

    assert report.ok, report.lines()
    assert {name: tally.matched for name, tally in report.tallies.items()} == {
        "base.resource_usage": 4,
        "modular.ThresholdShedder": 15,
        "modular.LeastResourceUsageWithWeight": 5,
        "extensible.LeastResourceUsageWithWeight": 7,
        "naming.topic_to_bundle": 8,
        "naming.hash_to_bundle": 1,
        "modular.BundleSplitterTask": 8,
        "extensible.DefaultNamespaceBundleSplitStrategyImpl": 7,
        "split.boundaries": 4,
        "split.children": 2,
    }


def test_files_of_one_algorithm_are_added_up() -> None:
    paths = [FOLDER / "naming.hash_to_bundle.jsonl.gz", FOLDER / "hand-made.jsonl"]

    report = replay_files({path.name: lines(path) for path in paths})

    assert report.tallies["naming.hash_to_bundle"].matched == 251


def test_every_recording_carried_here_is_of_an_algorithm_we_have() -> None:
    assert {path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.gz")} == set(PULSAR)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.gz")), ids=lambda path: path.name)
def test_one_changed_decision_is_found(path: Path) -> None:
    """The comparison bites: with the last answer of a scenario altered, the same replay fails."""
    scenario = json.loads(next(iter(lines(path))))
    _alter(scenario["expect"])

    report = replay([json.dumps(scenario)])

    assert report.exit_code == 1
    assert report.tallies[scenario["algorithm"]].matched == 0


def _alter(expect: Any) -> None:
    """Change the last thing that was answered, whatever its shape."""
    place = len(expect) - 1 if isinstance(expect, list) else list(expect)[-1]
    match expect[place]:
        case [_, *_] | {} as inner if inner:
            _alter(inner)
        case [] as nothing:
            nothing.append("t/n/0x00000000_0xffffffff")
        case {} as nothing:
            nothing["t/n/0x00000000_0xffffffff"] = "nobody:8080"
        case bool(flag):
            expect[place] = not flag
        case int(number) | float(number):
            expect[place] = number + 1
        case other:
            expect[place] = f"not {other}"
