"""Our strategies decide as the Java classes did, on every recorded scenario."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from conformance.replay import ALGORITHMS, replay, replay_files
from conformance.report import Report
from recordings import FOLDER, RECORDINGS, ROOT, lines

EVERY_FILE = pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: str(path.relative_to(ROOT)))

PARTLY_SETTLED = {"hermes.selective"}
"""Algorithms whose answers depend in part on the order of hash maps, and are compared as far as they do not."""


@EVERY_FILE
def test_every_recorded_decision_is_matched(path: Path) -> None:
    report = replay(lines(path))

    counts = [(name, tally.total) for name, tally in report.tallies.items()]
    assert report.lines() == [f"{name}: matched {total} of {total} (undecided 0)" for name, total in counts]
    assert report.exit_code == 0


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.gz")), ids=lambda path: path.name)
def test_pulsar_s_recordings_are_of_one_algorithm_and_many(path: Path) -> None:
    recorded = [json.loads(line)["algorithm"] for line in lines(path)]

    assert set(recorded) == {path.name.removesuffix(".jsonl.gz")}
    assert len(recorded) >= 250


def test_what_is_recorded_is_what_we_can_run() -> None:
    assert {json.loads(line)["algorithm"] for path in RECORDINGS for line in lines(path)} == set(ALGORITHMS)


def test_files_of_one_algorithm_are_added_up() -> None:
    paths = [FOLDER / "naming.hash_to_bundle.jsonl.gz", FOLDER / "hand-made.jsonl"]

    report = replay_files({path.name: lines(path) for path in paths})

    assert report.tallies["naming.hash_to_bundle"].matched == 251


@EVERY_FILE
def test_one_changed_answer_is_found(path: Path) -> None:
    """The comparison is sensitive: with any answer of an algorithm's first scenario changed, the replay fails."""
    some: dict[str, list[dict[str, Any]]] = {}
    for line in lines(path):
        scenario = json.loads(line)
        if scenario.get("order_sensitive", "no") == "no":
            some.setdefault(scenario["algorithm"], []).append(scenario)
    for algorithm, scenarios in some.items():
        partly = algorithm in PARTLY_SETTLED
        found = [_found(scenario) for scenario in scenarios[: 20 if partly else 1]]
        assert any(map(any, found)) if partly else all(map(all, found)), f"a change of {algorithm} is not found"


def _found(scenario: dict[str, Any]) -> list[bool]:
    """By answer of a scenario, whether a change of it is detected."""
    answers = scenario["expect" if "expect" in scenario else "expected"]
    return [not _with_change(scenario, answers, answer).ok for answer in answers]


def _with_change(scenario: dict[str, Any], answers: dict[str, Any], answer: str) -> Report:
    """The replay of a scenario with one of its answers changed."""
    kept = copy.deepcopy(answers[answer])
    _alter(answers, answer)
    report = replay([json.dumps(scenario)])
    answers[answer] = kept
    return report


def _alter(answers: Any, place: Any) -> None:
    """Change the last value of an answer, whatever its structure."""
    match answers[place]:
        case [_, *_] as inner:
            _alter(inner, len(inner) - 1)
        case [] as nothing:
            nothing.append("t/n/0x00000000_0xffffffff")
        case dict(inner) if inner:
            _alter(inner, list(inner)[-1])
        case dict(nothing):
            nothing["t/n/0x00000000_0xffffffff"] = "nobody:8080"
        case bool(flag):
            answers[place] = not flag
        case int(number) | float(number):
            answers[place] = number + 1
        case other:
            answers[place] = f"not {other}"
