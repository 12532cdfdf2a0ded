"""The result of a comparison: scores over many seeds, ties, the best baseline, and which strategy dominates which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab_lab.simulation.compare import COLUMNS, SeedInterval
from trimtab_lab.simulation.scenario import Goal

SHARE = 0.05
"""Two scores within this ratio of the larger one are a tie."""

TIES: Mapping[str, float] = {
    "moves": 1,
    "cut": 0.5,
    "backward": 1,
    "waited": 1,
    "area": 1,
    "left": 2,
    "overshoot": 2,
    "overload": 1,
    "unserved": 0.1,
}
"""Scores that decide a comparison -> the difference, in the unit of the score, up to which two values are a tie."""

STILL_TIES: Mapping[str, float] = {"moves": TIES["moves"], "cut": TIES["cut"]}
"""The scores that decide where nothing should move, with the same ties."""


Cell = Mapping[str, SeedInterval]
"""The result of a strategy in a scenario: score -> interval."""


def cell(runs: Sequence[Mapping[str, Any]]) -> dict[str, SeedInterval]:
    """The intervals of each of `COLUMNS` over `runs`, as `compare.measured` returns them."""
    return {name: SeedInterval.of(run[name] for run in runs) for name in COLUMNS}


def ties(goal: Goal) -> Mapping[str, float]:
    """The scores that decide in a scenario with this goal, each with its tie."""
    return TIES if goal is Goal.LEVEL else STILL_TIES


def is_less(score: str, one: float, other: float) -> bool:
    """Whether `one` is less than `other`, and the two are no tie. Less is better in every score."""
    return other - one > max(TIES[score], SHARE * max(abs(one), abs(other)))


@dataclass(frozen=True, slots=True)
class ScenarioVerdict:
    """A strategy against the best baseline of one scenario, by medians.

    best:         the baseline that costs least; of equal ones the one with the least area.
    better, tied, worse: scores in which the strategy is below the best baseline, equal to it, and above it.
    cost:         cost of the strategy divided by that of the best baseline; 1 if both are 0.
    dominated_by: baselines that dominate the strategy.
    dominates:    baselines that the strategy dominates.
    """

    best: str
    better: tuple[str, ...]
    tied: tuple[str, ...]
    worse: tuple[str, ...]
    cost: float
    dominated_by: tuple[str, ...]
    dominates: tuple[str, ...]


def verdict(ours: Cell, baselines: Mapping[str, Cell], goal: Goal) -> ScenarioVerdict:
    """Judge `ours` against `baselines`, by name, in a scenario with this goal."""
    best = min(baselines, key=lambda name: (baselines[name]["cost"].median, baselines[name]["area"].median))
    scores, against = ties(goal), baselines[best]
    better = tuple(_less(ours, against, scores))
    worse = tuple(_less(against, ours, scores))
    return ScenarioVerdict(
        best=best,
        better=better,
        tied=tuple(name for name in scores if name not in (*better, *worse)),
        worse=worse,
        cost=_ratio(ours["cost"].median, against["cost"].median),
        dominated_by=tuple(name for name, other in baselines.items() if dominates(other, ours, goal)),
        dominates=tuple(name for name, other in baselines.items() if dominates(ours, other, goal)),
    )


def dominates(one: Cell, other: Cell, goal: Goal) -> bool:
    """Whether `one` is worse than `other` in no score and better in at least one, by medians."""
    scores = ties(goal)
    return any(_less(one, other, scores)) and not any(_less(other, one, scores))


def _less(one: Cell, other: Cell, scores: Iterable[str]) -> Iterator[str]:
    return (name for name in scores if is_less(name, one[name].median, other[name].median))


def _ratio(cost: float, best: float) -> float:
    if best == 0:
        return 1.0 if cost == 0 else float("inf")
    return cost / best
