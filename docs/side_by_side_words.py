"""How the runs of `side_by_side_page` are called, and who comes off best at what: read off the figures, not written."""  # noqa: INP001 - a part of a script

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Run = Mapping[str, Any]


def title(run: Run) -> str:
    """Who balances by what, in a few words."""
    return f"{run['run_by']}: {run['strategy']}, {run['manager']}, every {run['interval']}"


def number(value: float | None, digits: int = 0) -> str:
    """As a cell; a dash for what never was."""
    return "-" if value is None else f"{value:,.{digits}f}"


@dataclass(frozen=True, slots=True)
class Measure:
    """Something to be best at: its name, what it is of a run (None: never), digits and unit. Less is better."""

    name: str
    of: Callable[[Run], float | None]
    digits: int = 0
    unit: str = ""

    def told(self, value: float) -> str:
        """With its unit."""
        return f"{value:,.{self.digits}f}{self.unit}"


def _moves(run: Run) -> float | None:
    halves = (run["first"], run["shift"])
    return None if None in (half["settled"] for half in halves) else sum(half["moves"] for half in halves)


MEASURES: Sequence[Measure] = (
    Measure("level soonest at first", lambda run: run["first"]["settled"], unit=" s"),
    Measure("level soonest after the change", lambda run: run["shift"]["settled"], unit=" s"),
    Measure("least uneven at first, mean of the half", lambda run: run["first"]["uneven"], 2),
    Measure("least uneven after the change, mean of the half", lambda run: run["shift"]["uneven"], 2),
    Measure("smallest range of CPU at the end", lambda run: run["shift"]["cpu_range_end"], unit=" points"),
    Measure("fewest moves of those level at the end of both halves", _moves),
    Measure("shortest publish gap of a move, median", lambda run: run["gaps"]["median"], unit=" ms"),
    Measure("least silence in all", lambda run: run["gaps"]["interrupted"], 1, " s"),
)
"""In the order of the page."""


def best(measure: Measure, runs: Sequence[Run]) -> str:
    """The best of each side, and who that makes the winner: nobody when neither can be measured, open without both."""
    sides = {name: [run for run in runs if run["run_by"] == name] for name in ("Pulsar", "Trimtab")}
    found = {name: _best(measure, of) for name, of in sides.items()}
    least = min((one[0] for one in found.values() if one), default=None)
    winners = [name for name, one in found.items() if one and one[0] == least] or ["nobody"]
    who = " and ".join(winners) if all(sides.values()) else "open"
    cells = [_told(measure, found[name]) if of else "not run" for name, of in sides.items()]
    return f"| {measure.name} | {who} | {' | '.join(cells)} |"


def _told(measure: Measure, found: tuple[float, str] | None) -> str:
    return f"{measure.told(found[0])} ({found[1]})" if found else "never"


def _best(measure: Measure, runs: Sequence[Run]) -> tuple[float, str] | None:
    found = [(value, f"{run['strategy']}, {run['manager']}") for run in runs if (value := measure.of(run)) is not None]
    return min(found, default=None)
