"""Hermes' rules decide as the original classes did, on every recorded scenario."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conformance.replay import ALGORITHMS, replay
from recordings import lines

FOLDER = Path(__file__).parent / "hermes"
RECORDED = {
    "cycles-bundles": {"hermes.weighted.cycles": 40},
    "cycles-closed": {"hermes.weighted.cycles": 20},
    "cycles": {"hermes.weighted.cycles": 60},
    "selective": {"hermes.selective": 60},
    "small": dict.fromkeys(
        ("hermes.constraints", "hermes.diff", "hermes.ewma", "hermes.profiles", "hermes.target_weights.avg"), 4
    ),
    "target-weights": {"hermes.target_weights.scoring": 40},
    "weighted-bundles": {"hermes.weighted": 20},
    "weighted": {"hermes.weighted": 140},
}


@pytest.mark.parametrize("name", RECORDED)
def test_every_recorded_decision_is_matched_to_the_last_bit(name: str) -> None:
    report = replay(lines(FOLDER / f"{name}.jsonl.gz"))

    assert report.ok, report.lines()
    assert {found: tally.matched for found, tally in report.tallies.items()} == RECORDED[name]
    assert all(tally.undecided == 0 for tally in report.tallies.values())


def test_every_recording_and_every_rule_is_replayed() -> None:
    counted: Counter[str] = Counter()
    for counts in RECORDED.values():
        counted.update(counts)

    assert {path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.gz")} == set(RECORDED)
    assert set(counted) == {name for name in ALGORITHMS if name.startswith("hermes.")}


def comparable(scenario: dict[str, Any]) -> bool:
    """Whether the counts of a selective balance are settled: everything is placed, and all have the same count."""
    expected, consumers = scenario["expected"], scenario["input"].get("consumers", ())
    counts = expected.get("tasks_per_consumer", {})
    return "created" not in expected or (
        expected["missing"] == 0 and len(set(counts.values())) == 1 and len(counts) == len(consumers)
    )


def alter(expected: dict[str, Any]) -> None:
    """Change one decision, or one number in its last bits."""
    for key, value in expected.items():
        match value:
            case {"missing": _}:
                value["missing"] += 1
            case bool() | str():
                continue
            case int() | float():
                expected[key] = value * (1 + 1e-15) if isinstance(value, float) else value + 1
            case [{**first}, *_]:
                alter(first)
            case [float(), *_]:
                value[-1] *= 1 + 1e-15
            case [*_]:
                value.append("nobody")
            case {}:
                value["nobody"] = 1
        return


@pytest.mark.parametrize("name", RECORDED)
def test_one_changed_decision_is_found(name: str) -> None:
    """The comparison is sensitive: with one answer of a scenario changed, the same replay fails."""
    scenario = next(filter(comparable, map(json.loads, lines(FOLDER / f"{name}.jsonl.gz"))))
    alter(scenario["expected"].get("tasks_per_consumer", scenario["expected"]))

    report = replay([json.dumps(scenario)])

    assert report.exit_code == 1
    assert report.tallies[scenario["algorithm"]].matched == 0
