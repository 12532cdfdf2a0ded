"""The best plan in hindsight, as sentences and as data. This module does not need the solver."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from trimtab_lab.backtest.trace import Figures, cost

BEST = "best plan"
"""Name of the plan's row in the table."""

COSTS = ("cost", "above %")
"""Headings of the columns that a search adds to the table."""

_PROVEN = 0.1
"""Percent by which a plan may be above the bound and still count as the best."""


@dataclass(frozen=True)
class OptimumResult:
    """The best plan in hindsight, as far as it is known.

    bound: points; no plan can cost less. weight: how much disconnected clients count in the cost. seconds: the time
    limit of the search. figures: those of the best plan that was found; None if none was found in time.
    """

    bound: float
    weight: float
    seconds: float
    figures: Figures | None

    def cost(self, figures: Figures) -> float:
        """The cost in points; NaN if it is not known."""
        return cost(figures, self.weight)

    def above(self, figures: Figures) -> float:
        """Percent by which the cost exceeds the bound. Even the best plan may exceed it. NaN for a bound of 0."""
        return 100 * max(self.cost(figures) / self.bound - 1, 0.0) if self.bound > 0 else math.nan

    @property
    def proven(self) -> bool:
        """Whether the plan that was found is the best one."""
        return self.figures is not None and self.cost(self.figures) <= self.bound * (1 + _PROVEN / 100)

    def cells(self, figures: Figures) -> tuple[str, str]:
        """The texts of the columns `COSTS`."""
        points, above = self.cost(figures), self.above(figures)
        return "-" if math.isnan(points) else f"{points:.2f}", "-" if math.isnan(above) else f"{above:.1f}"

    def costs(self, figures: Figures) -> dict[str, float | None]:
        """The values that a search adds to the data of a replay; null for what is not known."""
        return {"cost": _known(self.cost(figures)), "above": _known(self.above(figures))}

    def lines(self, others: Mapping[str, Figures]) -> list[str]:
        """The result as sentences. others: the figures of the replays, by name."""
        return [f"Best plan in hindsight: {self._found()}.", *self._above(others)]

    def as_data(self) -> dict[str, Any]:
        """The result as JSON values; null for what is not known."""
        known = {"bound": self.bound, "weight": self.weight, "seconds": self.seconds, "proven": self.proven}
        if self.figures is None:
            return {**known, "figures": None, "cost": None, "above": None}
        figures = {key: _known(value) for key, value in asdict(self.figures).items()}
        return {**known, "figures": figures, **self.costs(self.figures)}

    def _found(self) -> str:
        if self.figures is None:
            return f"none was found in {self.seconds:g} s; none costs less than {self.bound:.2f} points"
        moves = "1 move" if self.figures.moves == 1 else f"{self.figures.moves} moves"
        plan = f"{moves}, {self.cost(self.figures):.2f} points"
        if self.proven:
            return f"{plan}; none costs less"
        return f"{plan} after {self.seconds:g} s; a better one is not ruled out, but none below {self.bound:.2f}"

    def _above(self, others: Mapping[str, Figures]) -> list[str]:
        above = {name: self.above(figures) for name, figures in others.items()}
        most = "" if self.proven else "at most "
        known = [f"{name} {most}{_percent(value)}" for name, value in above.items() if not math.isnan(value)]
        return [f"Above the best plan: {', '.join(known)}."] if known else []


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"  # noqa: PLR2004 - small values have a decimal


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
