"""The part of a policy's status that compares a policy in mode Shadow with the acting policy."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field

from trimtab_operator.resources.common import Status, Timestamp
from trimtab_strategies.counterfactual.comparison import DailyVerdict, PairSums, SideFigures
from trimtab_strategies.params import rounded


class ShadowFigures(Status):
    """Results of one of the two policies since the comparison began."""

    moves: Annotated[int, Field(ge=0)]
    """Number of bundles that were moved. New owners for bundles of a lost broker do not count."""
    cut: Annotated[float, Field(ge=0)] | None = None
    """Percent of all clients that these moves disconnected. Above 100 if clients were disconnected repeatedly. Absent
    if the number of clients is not known."""
    range: Annotated[float, Field(ge=0)] | None = None
    """Percentage points between the usage of the most and the least used broker, mean over time. The usage of a broker
    is that of its most used resource: CPU, network in or network out. Absent if it was never known."""
    hot_minutes: Annotated[float, Field(ge=0)] = 0.0
    """Minutes that brokers spent above 85 % usage, summed over the brokers."""

    @classmethod
    def of(cls, found: SideFigures) -> Self:
        """Convert `found` to the form of the status."""
        return cls(
            moves=found.moves, cut=rounded(found.cut, 2), range=rounded(found.range, 2), hot_minutes=round(found.hot, 1)
        )


class ShadowSavings(Status):
    """How much less a day of the shadow costs than a day of the acting policy, in points. Negative if it costs more.

    A day costs its mean range in points, plus the percent of clients disconnected, plus a fifth of the broker-minutes
    above 85 % per hour."""

    mean: float
    """Mean over the whole days that were judged."""
    lowest: float
    """The mean minus two standard errors. If it is above 0, the shadow is significantly better."""
    highest: float
    """The mean plus two standard errors."""


class ShadowComparison(Status):
    """Comparison of a policy in mode Shadow with the acting policy, over the same cycles. The shadow's figures are
    predictions: what the brokers would have used with the owners that it would have chosen."""

    policy: str
    """Name of the acting policy."""
    since: Timestamp
    """When the comparison began. It begins anew when either policy is edited."""
    begun: Annotated[str, Field(max_length=512)] = ""
    """Why the comparison began at that time."""
    hours: Annotated[float, Field(ge=0)] = 0.0
    """Hours that were compared. Gaps do not count."""
    acting: ShadowFigures
    """What really happened."""
    shadow: ShadowFigures
    """What would have happened."""
    summary: Annotated[str, Field(max_length=256)] = ""
    """Summary as `shadow : acting`: moves, percent of clients that were disconnected, range in points."""
    better: Literal["Yes", "No", "Unknown"] = "Unknown"
    """Whether the shadow is better beyond noise: over at least 7 whole days, by more than two standard errors."""
    days: Annotated[int, Field(ge=0)] = 0
    """Number of whole days (UTC) that were judged: the last 28 at most."""
    savings: ShadowSavings | None = None
    """Cost per day that the shadow saves, in points. Absent before two whole days were judged."""
    displaced: Annotated[int, Field(ge=0)] = 0
    """Number of bundles that are on another broker in the shadow than in reality."""
    measured: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percent of the load that is in bundles on the same broker in the shadow as in reality. The rest is predicted."""

    @classmethod
    def of(cls, total: PairSums, verdict: DailyVerdict, **plain: str | int) -> Self:
        """The comparison in the form of the status. total: sums since it began. plain: values of the other fields."""
        acting, shadow = (ShadowFigures.of(total.figures(side)) for side in (total.acting, total.shadow))
        saved = (verdict.saved, verdict.lowest, verdict.highest)
        mean, lowest, highest = (round(value, 2) if math.isfinite(value) else 0.0 for value in saved)
        return cls(
            **plain,
            hours=round(total.seconds / 3600, 1),
            acting=acting,
            shadow=shadow,
            summary=in_short(shadow, acting),
            better=str(verdict.better),
            days=verdict.days,
            savings=ShadowSavings(mean=mean, lowest=lowest, highest=highest) if math.isfinite(saved[0]) else None,
            measured=round(100 * total.measured / total.seconds, 1) if total.seconds else None,
        )


def in_short(shadow: ShadowFigures, acting: ShadowFigures) -> str:
    """The summary, such as ``14 : 220 moves, 1.1 : 19 % cut, 12 : 38 points``."""
    cut = f", {_shown(shadow.cut)} : {_shown(acting.cut)} % cut" if shadow.cut is not None else ""
    points = f", {_shown(shadow.range)} : {_shown(acting.range)} points" if shadow.range is not None else ""
    return f"{shadow.moves} : {acting.moves} moves{cut}{points}"


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"  # noqa: PLR2004  (two digits)
