"""The results of a comparison for people: a table of each scenario, and a sentence below it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.text import Text

from trimtab_lab.simulation.compare import COLUMNS, Outcome, SeedInterval, intervals
from trimtab_lab.simulation.scenario import Goal, Scenario
from trimtab_operator.cli.tables import Grid

USUAL = ("moves", "cut", "waited", "area", "left", "overload", "cost")
"""Columns of the table by default."""

NAMED = 3
"""Maximum number of players (strategies and policies) that the sentence names."""

_DECIMALS = {"unserved": 2, "owned": 2, "cut": 1, "area": 1, "left": 1, "overshoot": 1, "latency": 1, "cost": 1}
_SHORT = 10
"""A value of this or more is written without decimals."""


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A player's intervals by column, in one scenario."""

    name: str
    seeds: int
    found: dict[str, SeedInterval]

    @classmethod
    def of(cls, outcome: Outcome) -> ScoreRow:
        """The row of an outcome."""
        return cls(outcome.who.name, len(outcome.seeds), intervals(outcome.scores))

    @property
    def cost(self) -> float:
        """Median of the cost."""
        return self.found["cost"].median


def title(scenario: str, world: Scenario, seeds: int) -> str:
    """The heading of a scenario's table."""
    how = f"{seeds} seeds: median (5 to 95 %)" if seeds > 1 else "1 seed"
    return f"{scenario}: {world.title}, {how}"


def grid(world: Scenario, outcomes: Sequence[Outcome], columns: Sequence[str]) -> Grid:
    """The table of a scenario, with the lowest cost first. The best value of each column is green."""
    rows = sorted(map(ScoreRow.of, outcomes), key=lambda row: row.cost)
    best = {name: min(row.found[name].median for row in rows) for name in columns}
    told = {name for name in columns if len({row.found[name].median for row in rows}) > 1}
    return Grid(
        title="",
        headings=("strategy", *(COLUMNS[name] for name in columns)),
        rows=[(row.name, *(_cell(row, name, world, best, told) for name in columns)) for row in rows],
        numbers=tuple(COLUMNS.values()),
        spare=_spare(columns),
    )


def _spare(columns: Sequence[str]) -> list[str]:
    """Headings that a narrow terminal leaves out, in this order: first the unusual ones, then some usual ones."""
    unusual = [name for name in reversed(columns) if name not in USUAL]
    usual = [name for name in ("overload", "left", "area", "cut") if name in columns]
    return [COLUMNS[name] for name in (*unusual, *usual)]


def _cell(row: ScoreRow, name: str, world: Scenario, best: dict[str, float], told: Collection[str]) -> Text:
    found = row.found[name]
    style = "green" if name in told and found.median == best[name] else ""
    return Text(_written(name, found, row.seeds, world), style=style)


def _written(name: str, found: SeedInterval, seeds: int, world: Scenario) -> str:
    """``31 (28-33)``; without the interval if there is one seed, or if it has no width."""
    median, low, high = (_number(name, value, world) for value in (found.median, found.low, found.high))
    if seeds == 1 or median == low == high:
        return median
    return f"{median} ({low}-{high})"


def _number(name: str, value: float, world: Scenario) -> str:
    if name == "waited":
        return "never" if value >= world.rounds - world.event else f"{value:.0f}"
    return f"{value:.{_DECIMALS.get(name, 0) if value < _SHORT else 0}f}"


def words(world: Scenario, outcomes: Sequence[Outcome]) -> str:
    """The medians of the first player, and of the best others, in a sentence."""
    first, *others = map(ScoreRow.of, outcomes)
    others.sort(key=lambda row: row.cost)
    named = "; ".join(_said(row, world) for row in (first, *others[: NAMED - 1]))
    more = len(others) - (NAMED - 1)
    useless = "Every move is useless here. " if world.goal is Goal.STILL else ""
    return f"{useless}{named}{f'; {more} more in the table' if more > 0 else ''}."


def _said(row: ScoreRow, world: Scenario) -> str:
    moves, cut, cost = (_number(name, row.found[name].median, world) for name in ("moves", "cut", "cost"))
    noun = "move" if moves == "1" else "moves"
    balanced = "" if world.goal is Goal.STILL else f" {_balanced(row, world)},"
    return f"{row.name}: {moves} {noun}, {cut} % of clients cut,{balanced} cost {cost}"


def _balanced(row: ScoreRow, world: Scenario) -> str:
    minutes = _number("waited", row.found["waited"].median, world)
    after = "after 1 minute" if minutes == "1" else f"after {minutes} minutes"
    return {"never": "never balanced", "0": "balanced at once"}.get(minutes, f"balanced {after}")
