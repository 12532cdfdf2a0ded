"""Finds regressions: scores of a strategy in a scenario that became worse, beyond noise.

A golden file has the scores of a few fixed seeds for each scenario. After a change of the code, `worse` lists the
scores that became worse, with old and new values. `better` lists those that became better, as a reason to renew the
file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from trimtab_lab.simulation.build import build
from trimtab_lab.simulation.contenders import contender
from trimtab_lab.simulation.deciders import Decider
from trimtab_lab.simulation.run import run
from trimtab_lab.simulation.scenario import Goal, Scenario, catalogue
from trimtab_lab.simulation.score import score
from trimtab_lab.simulation.verdict import TIES, is_less, ties
from trimtab_lab.simulation.world import World

SEEDS = (1, 2, 3)
"""Seeds of each scenario. A long scenario is run with the first seed only: see `LONG`."""

LONG = 60 * 1000
"""A scenario counts as long if its rounds times its bundles exceed this."""

Scores = Mapping[str, Sequence[float]]
"""Score -> its value with each seed."""


def golden_seeds(scenario: Scenario) -> tuple[int, ...]:
    """The seeds with which a golden file is made."""
    return SEEDS[:1] if scenario.rounds * int(scenario.bundles.sum()) > LONG else SEEDS


def trim(world: World) -> Decider:
    """Trim with its default parameters, run by Trimtab's planner with its guard and caps."""
    return contender("Trim").decider(world)


def play(
    scenario: Scenario, seeds: Iterable[int], decider: Callable[[World], Decider] = trim
) -> dict[str, list[float]]:
    """The scores of a decider in a scenario with each seed. decider: makes a new one for each run."""
    found = [_played(scenario, decider, seed) for seed in seeds]
    return {name: [one[name] for one in found] for name in TIES}


def _played(scenario: Scenario, decider: Callable[[World], Decider], seed: int) -> dict[str, float]:
    world = build(scenario, np.random.default_rng(seed))
    record = run(world, decider(world), np.random.default_rng(seed))
    got = score(record, scenario.event, scenario.goal)
    return {name: round(float(getattr(got, name)), 3) for name in TIES}


def worse(name: str, before: Scores, after: Scores, goal: Goal) -> list[str]:
    """A line for each score whose median over the seeds became worse by more than a tie allows.

    Where nothing should move, a run that moves bundles is also worse if it moved none before.
    """
    lines = [_line(name, key, before, after) for key in ties(goal) if _is_less(key, before, after)]
    moved = [now for was, now in zip(before["moves"], after["moves"], strict=True) if now > 0 and was == 0]
    if goal is Goal.STILL and moved and not lines:
        lines.append(_line(name, "moves", before, after))
    return lines


def better(name: str, before: Scores, after: Scores, goal: Goal) -> list[str]:
    """A line for each score whose median over the seeds became better by more than a tie allows."""
    return [_line(name, key, before, after) for key in ties(goal) if _is_less(key, after, before)]


def _is_less(key: str, these: Scores, those: Scores) -> bool:
    return is_less(key, median(these[key]), median(those[key]))


def _line(name: str, key: str, before: Scores, after: Scores) -> str:
    was, now = (
        f"{median(scores[key]):g} ({', '.join(f'{value:g}' for value in scores[key])})" for scores in (before, after)
    )
    return f"{name}: {key} was {was}, is {now}"


def again(scenario: Scenario, before: Scores, decider: Callable[[World], Decider] = trim) -> dict[str, list[float]]:
    """The scores of the current code, with as many of `SEEDS` as each score in `before` has values."""
    return play(scenario, SEEDS[: len(before["moves"])], decider)


def read(file: Path) -> dict[str, dict[str, list[float]]]:
    """Read a golden file: scenario -> scores."""
    found: dict[str, dict[str, list[float]]] = json.loads(file.read_text())
    return found


def write(file: Path, golden: Mapping[str, Scores]) -> None:
    """Write a golden file, a line for each scenario, in the order of the catalogue."""
    lines = [f"  {json.dumps(name)}: {json.dumps(golden[name])}" for name in catalogue() if name in golden]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
