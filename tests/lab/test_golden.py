"""Trim does not get worse: its scores in each scenario of the catalogue against those of the golden file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trimtab_lab.simulation import Decider, Goal, UnderTrimtab, World, catalogue, named
from trimtab_lab.simulation.regression import again, better, read, worse
from trimtab_lab.simulation.verdict import TIES
from trimtab_strategies import registry

GOLDEN = read(Path(__file__).parent / "golden" / "catalogue.json")

RENEW = ".venv/bin/python benchmarks/lab.py --golden --scenarios {}"
"""The command that renews the golden file, if a change is meant."""


def told(name: str, lines: list[str]) -> str:
    """The message of a scenario that has become worse."""
    return "\n".join([f"{line} (worse)" for line in lines] + [f"if that is meant: {RENEW.format(name)}"])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", catalogue())
def test_trim_is_not_worse_than_it_was(name: str) -> None:
    """What is better is printed (pytest -rP)."""
    assert name in GOLDEN, f"no golden scores: {RENEW.format(name)}"
    after, goal = again(named(name), GOLDEN[name]), named(name).goal

    lines = worse(name, GOLDEN[name], after, goal)
    assert not lines, told(name, lines)
    for line in better(name, GOLDEN[name], after, goal):
        sys.stdout.write(f"{line} (better); to keep it: {RENEW.format(name)}\n")


def worsened(world: World, **params: float) -> Decider:
    """Trim with parameters that make it worse."""
    del world
    return UnderTrimtab(registry.pair("Trim", params, "Trim", {}))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "params", "score"),
    [("skewed", {"price": 6400}, "left"), ("foreign-load", {"worth": 4000}, "area")],
)
def test_a_worse_trim_is_found(name: str, params: dict[str, float], score: str) -> None:
    """The golden file sees moves that must bring too much, and a wait that is too long."""
    after = again(named(name), GOLDEN[name], lambda world: worsened(world, **params))

    lines = worse(name, GOLDEN[name], after, named(name).goal)

    assert [line for line in lines if line.startswith(f"{name}: {score} was ")], lines


def scores(**given: list[float]) -> dict[str, list[float]]:
    """Scores of three seeds, 0 where nothing else is said."""
    return {name: given.get(name, [0.0, 0.0, 0.0]) for name in TIES}


def test_the_message_names_the_scenario_the_score_and_both_values() -> None:
    before, after = scores(area=[4.0, 5.0, 6.0], moves=[20, 21, 22]), scores(area=[4.0, 7.5, 9.0], moves=[20, 12, 11])

    assert worse("skewed", before, after, Goal.LEVEL) == ["skewed: area was 5 (4, 5, 6), is 7.5 (4, 7.5, 9)"]
    assert better("skewed", before, after, Goal.LEVEL) == ["skewed: moves was 21 (20, 21, 22), is 12 (20, 12, 11)"]


def test_noise_is_no_change() -> None:
    before, after = scores(area=[5.0, 5.0, 5.0], moves=[50, 50, 50]), scores(area=[5.0, 5.9, 6.0], moves=[50, 52, 60])

    assert worse("skewed", before, after, Goal.LEVEL) == []


@pytest.mark.parametrize("goal", Goal)
def test_one_run_that_moves_where_none_did_is_worse_only_where_nothing_should_move(goal: Goal) -> None:
    lines = worse("idle", scores(), scores(moves=[0, 0, 3]), goal)

    assert bool(lines) is (goal is Goal.STILL)
    assert lines in ([], ["idle: moves was 0 (0, 0, 0), is 0 (0, 0, 3)"])
