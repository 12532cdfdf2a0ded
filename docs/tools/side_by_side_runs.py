"""Several runs of one entrant as one figure: the median, and in brackets the least and the most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

Run = Mapping[str, Any]
Value = float | None


@dataclass(frozen=True, slots=True)
class Spread:
    """Of some runs; infinite is what never was."""

    median: float
    least: float
    most: float

    def overlaps(self, other: Spread) -> bool:
        """Whether a run of the one may have come off better than one of the other, and the other way round."""
        return self.least <= other.most and other.least <= self.most


def spread(values: Sequence[Value]) -> Spread:
    """Of one value of each run; None never was, and comes after everything that was. Raises `ValueError` for none."""
    known = [math.inf if value is None else value for value in values]
    if not known:
        raise ValueError("a median needs a run, and there is none: give the values of one or more")
    return Spread(median(known), min(known), max(known))


def measured(values: Sequence[Value]) -> Sequence[Value]:
    """Only what was there to be measured; None when there was nothing in any run."""
    return [value for value in values if value is not None] or [None]


def cell(values: Sequence[Value], digits: int = 0) -> str:
    """The median, and the range unless all runs came to the same."""
    found = spread(values)
    if found.least == found.most:
        return number(found.median, digits)
    return f"{number(found.median, digits)} ({number(found.least, digits)} to {number(found.most, digits)})"


def number(value: float, digits: int = 0) -> str:
    """As a cell; a dash for what never was."""
    return "-" if math.isinf(value) else f"{value:,.{digits}f}"


def typical(runs: Sequence[Run]) -> Run:
    """The run to draw: the middle one by how uneven the brokers were, in both halves together."""
    order = sorted(runs, key=lambda run: run["first"]["uneven"] + run["shift"]["uneven"])
    return order[(len(order) - 1) // 2]
