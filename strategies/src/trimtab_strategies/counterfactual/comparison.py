"""Compares a policy that acts with one that shadows it, over the same cycles, and says whether the shadow is better.

Each day (UTC) gives a pair of costs (`daily_cost`). Days are compared, not cycles, because successive cycles are
strongly correlated. The shadow is better once at least `DAYS` whole days were compared, and the mean of the daily
differences is above zero by more than two standard errors:

    d = cost of acting - cost of the shadow         for each of the last `JUDGED` whole days
    mean(d) - 2 sd(d) / sqrt(days) > 0

A day counts as whole if at least half of it was measured. Usage counts only while it is known for both policies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np

from trimtab_strategies.counterfactual.imbalance import HOT, busiest, daily_cost, range_of
from trimtab_strategies.counterfactual.ownership import OwnerChange
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import Brokers

DAYS = 7
"""With fewer whole days there is no verdict."""

JUDGED = 28
"""Maximum number of whole days that the verdict uses: the newest ones. Older days count in the totals only."""

_DAY = 86400.0
_WHOLE = _DAY / 2  # minimum number of measured seconds in a whole day
_LONGEST = 2.0  # maximum number of intervals that a cycle stands for; the rest of a longer gap does not count


class Better(StrEnum):
    """Whether the shadow is better than the policy that acts."""

    YES = "Yes"
    NO = "No"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class SideSums:
    """The sums of one side: one of the two policies.

    moves: bundles moved for balance. clients: clients that these moves disconnected. area: points between the busiest
    and the idlest broker, times seconds. hot: seconds that brokers spent above `HOT`.
    """

    moves: int = 0
    clients: float = 0.0
    area: float = 0.0
    hot: float = 0.0

    def __add__(self, other: SideSums) -> SideSums:
        return SideSums(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class PairSums:
    """The sums of both policies over the same `seconds`. known: the seconds in which usage was known.

    counted: the seconds in which clients were counted. clients: number of these clients, times the seconds. measured:
    ratio 0-1 of the work in bundles whose owner in the shadow is their real owner, times seconds.
    """

    seconds: float = 0.0
    known: float = 0.0
    clients: float = 0.0
    counted: float = 0.0
    measured: float = 0.0
    acting: SideSums = SideSums()
    shadow: SideSums = SideSums()

    def __add__(self, other: PairSums) -> PairSums:
        return PairSums(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def figures(self, side: SideSums) -> SideFigures:
        """The figures of one side."""
        mean = self.clients / self.counted if self.counted else 0.0
        return SideFigures(
            moves=side.moves,
            cut=100 * side.clients / mean if mean > 0 else float("nan"),
            range=side.area / self.known if self.known else float("nan"),
            hot=side.hot / 60,
        )

    def saved(self) -> float:
        """Points by which a day costs less with the shadow; NaN if usage was never known."""
        return self._cost(self.acting) - self._cost(self.shadow)

    def _cost(self, side: SideSums) -> float:
        found = self.figures(side)
        hours = self.seconds / 3600
        return daily_cost(area=found.range, cut=float(np.nan_to_num(found.cut)), hot=found.hot / hours)


@dataclass(frozen=True, slots=True)
class SideFigures:
    """The figures of one side.

    moves: bundles moved for balance. cut: percent of the clients that were disconnected; NaN if unknown.
    range: points between the busiest and the idlest broker, mean over time; NaN if unknown. hot: broker-minutes above
    `HOT`.
    """

    moves: int
    cut: float
    range: float
    hot: float


@dataclass(frozen=True, slots=True)
class DailyVerdict:
    """Whether the shadow is better. days: whole days that the verdict uses.

    saved: mean of the points that it saves a day. lowest, highest: two standard errors below and above that mean. All
    three are NaN for fewer than two days.
    """

    better: Better
    days: int
    saved: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both policies since the shadow began. since, last: epoch seconds of the first cycle and of the newest one.

    days: sums of the last `JUDGED` days and of today, by day number since 1970. before: sums of all earlier days.
    """

    since: float
    last: float
    days: tuple[tuple[int, PairSums], ...] = ()
    before: PairSums = field(default_factory=PairSums)

    @property
    def total(self) -> PairSums:
        """The sums since the shadow began."""
        return sum((sums for _, sums in self.days), start=self.before)

    def after(self, cycle: PairSums, now: float) -> Self:
        """The comparison after another `cycle`, that of `now` (epoch seconds)."""
        today = int(now // _DAY)
        days = dict(self.days)
        days[today] = days.get(today, PairSums()) + cycle
        kept = sorted(days)[-(JUDGED + 1) :]
        before = sum((days[day] for day in days if day not in kept), start=self.before)
        return replace(self, last=now, days=tuple((day, days[day]) for day in kept), before=before)

    def verdict(self) -> DailyVerdict:
        """Whether the shadow is better beyond noise. The day of the newest cycle does not count: it is not over."""
        today = int(self.last // _DAY)
        whole = [sums.saved() for day, sums in self.days if day < today and sums.seconds >= _WHOLE]
        saved = np.array([one for one in whole if np.isfinite(one)])
        count = len(saved)
        if count < 2:  # noqa: PLR2004  (a standard deviation needs two)
            return DailyVerdict(Better.UNKNOWN, count, *(float("nan"),) * 3)
        mean, doubt = float(saved.mean()), 2 * float(saved.std(ddof=1)) / count**0.5
        better = Better.UNKNOWN if count < DAYS else Better.YES if mean - doubt > 0 else Better.NO
        return DailyVerdict(better, count, mean, mean - doubt, mean + doubt)


def cycle_sums(
    load: ClusterLoad,
    acting: tuple[Brokers, Sequence[OwnerChange]],
    shadow: tuple[Brokers, Sequence[OwnerChange]],
    *,
    seconds: float,
    measured: float,
) -> PairSums:
    """The sums of one cycle. acting, shadow: the brokers with each policy's owners, and its moves in the cycle.

    load: as measured. seconds: the time that the cycle stands for. measured: from `RecordedCycle.measured_there`.
    """
    usage = [busiest(brokers) for brokers, _ in (acting, shadow)]
    ranges = [range_of(one) for one in usage]
    known = seconds if np.isfinite(ranges).all() else 0.0
    sessions = load.bundles.sessions
    counted = seconds if np.isfinite(sessions).any() else 0.0
    sides = [
        SideSums(
            moves=len(moves),
            clients=float(np.nansum([sessions[load.bundles.index[move.bundle]] for move in moves])),
            area=range_ * known if known else 0.0,
            hot=float((one > HOT).sum()) * known,
        )
        for (_, moves), one, range_ in zip((acting, shadow), usage, ranges, strict=True)
    ]
    return PairSums(seconds, known, float(np.nansum(sessions)) * counted, counted, measured * seconds, *sides)


def seconds_of(now: float, last: float, interval: float) -> float:
    """The seconds that a cycle of `now` stands for: those since the `last` one, but at most two intervals."""
    return min(max(now - last, 0.0), _LONGEST * interval)


_FIGURES = len(fields(PairSums)) - 2 + 2 * len(fields(SideSums))


def as_data(sums: PairSums) -> list[Any]:
    """The sums as a list of numbers, rounded to three decimals."""
    sides = [[getattr(side, one.name) for one in fields(side)] for side in (sums.acting, sums.shadow)]
    plain = [sums.seconds, sums.known, sums.clients, sums.counted, sums.measured]
    return [round(value, 3) for value in [*plain, *sides[0], *sides[1]]]


def from_data(values: Sequence[float]) -> PairSums:
    """The sums from a list that `as_data` made. Raises `ValueError` and `TypeError` for anything else."""
    if len(values) != _FIGURES:
        raise ValueError(f"{len(values)} figures of a day are not the {_FIGURES} that Trimtab writes")
    seconds, known, clients, counted, measured, *rest = map(float, values)
    sides = [SideSums(int(moves), *others) for moves, *others in (rest[:4], rest[4:])]
    return PairSums(seconds, known, clients, counted, measured, *sides)
