"""The figures of docs/data/comparison.json: the results of every strategy in every scenario, and summaries of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import median

from page_text import ROOT

from trimtab_lab.simulation import Goal, Scenario, catalogue, shown
from trimtab_lab.simulation.compare import SeedInterval
from trimtab_lab.simulation.verdict import Cell, ScenarioVerdict, verdict

OURS = "Trim/Trimtab"
"""The strategy that is judged; all others are baselines."""

STRATEGIES = tuple(who.name for who in shown())
"""All strategies, in the order of the page."""

MISSING = "docs/data/comparison.json has no figures of {}: run benchmarks/lab.py"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A scenario with the result of each strategy, by name. seeds: runs of each strategy."""

    name: str
    scenario: Scenario
    cells: Mapping[str, Cell]
    seeds: Mapping[str, int]

    @property
    def still(self) -> bool:
        """Whether nothing should move."""
        return self.scenario.goal is Goal.STILL

    @property
    def ours(self) -> Cell:
        """Trim's result."""
        return self.cells[OURS]

    @property
    def verdict(self) -> ScenarioVerdict:
        """Trim against the baselines."""
        baselines = {name: cell for name, cell in self.cells.items() if name != OURS}
        return verdict(self.ours, baselines, self.scenario.goal)

    def balanced(self, strategy: str) -> bool:
        """Whether the cluster became level in the median run."""
        return self.cells[strategy]["waited"].median < self.scenario.rounds - self.scenario.event


@cache
def comparisons() -> dict[str, Comparison]:
    """All scenarios of the catalogue, by name. Raises `ValueError` if a strategy has no figures for one of them."""
    rows = json.loads((ROOT / "docs" / "data" / "comparison.json").read_text())["cells"]
    found = {(row["scenario"], row["strategy"]): row for row in rows}
    return {name: _comparison(name, scenario, found) for name, scenario in catalogue().items()}


def _comparison(name: str, scenario: Scenario, rows: Mapping[tuple[str, str], Mapping[str, object]]) -> Comparison:
    if missing := [who for who in STRATEGIES if (name, who) not in rows]:
        raise ValueError(MISSING.format(f"{', '.join(missing)} in {name}"))
    own = {who: rows[name, who] for who in STRATEGIES}
    seeds = {who: int(str(row["seeds"])) for who, row in own.items()}
    return Comparison(name, scenario, {who: _cell(row["scores"]) for who, row in own.items()}, seeds)


def _cell(scores: object) -> Cell:
    assert isinstance(scores, dict)
    return {name: SeedInterval(*values) for name, values in scores.items()}


def moving() -> list[Comparison]:
    """The scenarios in which something should move."""
    return [one for one in comparisons().values() if not one.still]


def still() -> list[Comparison]:
    """The scenarios in which nothing should move."""
    return [one for one in comparisons().values() if one.still]


@dataclass(frozen=True, slots=True)
class Overview:
    """The results of a strategy in the scenarios in which something should move: medians of medians.

    ratio:    its cost divided by that of the cheapest strategy of the scenario.
    cheapest: number of scenarios in which no other strategy costs less.
    balanced: number of scenarios in which the cluster becomes level.
    moved:    number of scenarios in which it moves something although nothing should move.
    """

    strategy: str
    ratio: float
    cheapest: int
    balanced: int
    moves: float
    cut: float
    area: float
    left: float
    moved: int


def overviews() -> Iterator[Overview]:
    """An overview of each strategy."""
    scenarios = moving()
    least = {one.name: min(cell["cost"].median for cell in one.cells.values()) for one in scenarios}
    for who in STRATEGIES:
        costs = {one.name: one.cells[who]["cost"].median for one in scenarios}
        yield Overview(
            strategy=who,
            ratio=median(costs[name] / least[name] for name in costs),
            cheapest=sum(costs[name] == least[name] for name in costs),
            balanced=sum(one.balanced(who) for one in scenarios),
            **{name: median(one.cells[who][name].median for one in scenarios) for name in _SHOWN},
            moved=sum(one.cells[who]["moves"].median > 0 for one in still()),
        )


_SHOWN = ("moves", "cut", "area", "left")
