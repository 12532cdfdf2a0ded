"""What a replay costs, as one number: the search for parameters and the best plan in hindsight minimise it."""

from __future__ import annotations

import math

from trimtab_lab.backtest.trace import Figures
from trimtab_strategies.counterfactual.imbalance import daily_cost


def cost(figures: Figures, weight: float) -> float:
    """Points: area + weight x percent of the clients cut each day + broker-minutes above 85 % each hour / 5.

    Less than a day counts as one. Where the number of clients is not known, a move costs nothing. NaN if no two brokers
    were measured.
    """
    cut = 0.0 if math.isnan(figures.cut) else figures.cut
    hot = figures.hot / figures.hours
    return float(daily_cost(area=figures.area, cut=cut / days(figures.hours), hot=hot, weight=weight))


def days(hours: float) -> float:
    """The days to which the cut clients of so many hours are spread: what levels a cluster once is not done hourly."""
    return max(hours / 24, 1.0)
