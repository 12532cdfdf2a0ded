"""How the runs of `side_by_side_page` are called, and who comes off best at what: read off the figures, not written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from side_by_side_runs import Run, Spread, Value, measured, number, spread

Runs = Sequence[Run]
"""Of one entrant."""


def title(run: Run) -> str:
    """Who balances by what, in a few words."""
    return f"{run['run_by']}: {run['strategy']}, {run['manager']}, every {run['interval']}"


@dataclass(frozen=True, slots=True)
class Measure:
    """Something to be best at: its name, what it is of a run, digits and unit. Less is better.

    A run in which it is None never got there; with `optional` there was nothing to measure, and the run is left out.
    """

    name: str
    of: Callable[[Run], Value]
    digits: int = 0
    unit: str = ""
    optional: bool = False

    def spread(self, runs: Runs) -> Spread:
        """Of an entrant's runs."""
        values = [self.of(run) for run in runs]
        return spread(measured(values) if self.optional else values)

    def told(self, found: Spread) -> str:
        """The median with its unit, and the range if there is one."""
        middle = f"{number(found.median, self.digits)}{self.unit}"
        if found.least == found.most:
            return middle
        return f"{middle}, {number(found.least, self.digits)} to {number(found.most, self.digits)}"


def _moves(run: Run) -> Value:
    halves = (run["first"], run["shift"])
    return None if None in (half["settled"] for half in halves) else sum(half["moves"] for half in halves)


MEASURES: Sequence[Measure] = (
    Measure("level soonest at first", lambda run: run["first"]["settled"], unit=" s"),
    Measure("level soonest after the change", lambda run: run["shift"]["settled"], unit=" s"),
    Measure("least uneven at first, mean of the half", lambda run: run["first"]["uneven"], 2),
    Measure("least uneven after the change, mean of the half", lambda run: run["shift"]["uneven"], 2),
    Measure("smallest range of CPU at the end", lambda run: run["shift"]["cpu_range_end"], unit=" points"),
    Measure("fewest moves of those level at the end of both halves", _moves),
    Measure("shortest publish gap of a move, median", lambda run: run["gaps"]["median"], unit=" ms", optional=True),
    Measure("least silence in all", lambda run: run["gaps"]["interrupted"], 1, " s"),
)
"""In the order of the page."""


def best(measure: Measure, entrants: Sequence[Runs]) -> str:
    """The best of each side, and who that makes the winner.

    Nobody when neither can be measured, open without both; with a mark when runs of the two overlap.
    """
    sides = {name: [runs for runs in entrants if runs[0]["run_by"] == name] for name in ("Pulsar", "Trimtab")}
    found = {name: _best(measure, of) for name, of in sides.items()}
    who = _winner([(name, one[0]) for name, one in found.items() if one]) if all(sides.values()) else "open"
    cells = [_told(measure, found[name]) if of else "not run" for name, of in sides.items()]
    return f"| {measure.name} | {who} | {' | '.join(cells)} |"


def _winner(found: Sequence[tuple[str, Spread]]) -> str:
    if not found:
        return "nobody"
    least = min(one.median for _, one in found)
    names = [name for name, one in found if one.median == least]
    close = len(names) < len(found) and found[0][1].overlaps(found[1][1])
    return " and ".join(names) + (" (runs overlap)" if close else "")


def _told(measure: Measure, found: tuple[Spread, str] | None) -> str:
    return f"{measure.told(found[0])} ({found[1]})" if found else "never"


def _best(measure: Measure, entrants: Sequence[Runs]) -> tuple[Spread, str] | None:
    """The least median and whose it is; None when no median is finite."""
    found = [(measure.spread(runs), f"{runs[0]['strategy']}, {runs[0]['manager']}") for runs in entrants]
    finite = [one for one in found if not math.isinf(one[0].median)]
    return min(finite, key=lambda one: (one[0].median, one[1]), default=None)
