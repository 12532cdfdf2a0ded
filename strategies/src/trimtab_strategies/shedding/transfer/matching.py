"""One cycle of TransferShedder: how much the brokers' usage differs, and which bundles move between which brokers.

The brokers are sorted by smoothed usage. The most used broker gives bundles to the least used one, the second most
used to the second least used, and so on, until the predicted standard deviation is small enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trimtab_strategies.model import Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.protocols import Unload
from trimtab_strategies.shedding.transfer.reports import Reports

MOST_MINIMUM = 0.5
"""A broker is underloaded below this ratio of the average usage, or below half the target if that is less."""

WORTH_A_SWAP = 0.75
"""After a swap, the giving broker must be below this ratio of its former throughput."""


@dataclass(frozen=True, slots=True)
class Loads:
    """The loads that the cycle compares, by broker row (n,).

    usage: smoothed usage (ratio). smoothed, throughput: smoothed and current throughput (bytes/s). receives: whether
    the broker may receive bundles.
    """

    usage: FloatArray
    smoothed: FloatArray
    throughput: FloatArray
    receives: BoolArray


@dataclass(slots=True)
class Spread:
    """Mean and standard deviation of usage (ratios) over `count` brokers, and how moves change it."""

    count: int
    mean: float
    squares: float
    deviation: float

    @staticmethod
    def of(usage: FloatArray, *, exact: bool) -> Spread:
        """The spread of these usages, summed in this order.

        exact: as in Java, the deviation is NaN if rounding makes the variance negative.
        """
        mean = float(np.cumsum(usage)[-1]) / len(usage)
        squares = float(np.cumsum(usage * usage)[-1])
        variance = squares / len(usage) - mean * mean
        with np.errstate(invalid="ignore"):
            return Spread(len(usage), mean, squares, float(np.sqrt(variance if exact else max(0.0, variance))))

    def shift(self, top: float, low: float, amount: float) -> None:
        """Account for `amount` (ratio) of usage that moves from a broker with usage `top` to one with usage `low`."""
        self.squares -= top * top + low * low
        left, right = float(np.maximum(0, top - amount)), low + amount
        self.squares += left * left + right * right
        self.deviation = float(np.sqrt(abs(self.squares / self.count - self.mean * self.mean)))


@dataclass(frozen=True, slots=True)
class TransferSettings:
    """The settings of a cycle. The first four are parameters; percentages are ratios here.

    counts_returned: whether bundles that a swap gives back count as moved load. rewinds: whether each swap considers
    all of the low broker's bundles again. sheds_at_zero: whether a broker without usage may give bundles.
    """

    target: float
    overload: float
    max_brokers: int
    transfer: bool
    counts_returned: bool
    rewinds: bool
    sheds_at_zero: bool


@dataclass
class TransferCycle:
    """State of one cycle. `order`: brokers (rows) from the least to the most used one."""

    loads: Loads
    order: IntArray
    spread: Spread
    settings: TransferSettings
    reports: Reports
    unreported: int = 0
    too_few: int = 0
    _low: int = 0
    _top: int = field(init=False)

    def __post_init__(self) -> None:
        self._top = len(self.order) - 1
        self._skip_closed()

    def cause(self) -> Reason | None:
        """Why bundles should move now; None if the brokers are close enough."""
        if self.spread.deviation > self.settings.target:
            return Reason.OVERLOADED
        if self.underloaded(int(self.order[self._low])):
            return Reason.UNDERLOADED
        return Reason.OVERLOADED if self.overloaded(int(self.order[self._top])) else None

    def underloaded(self, broker: int) -> bool:
        """Whether a broker's usage is far below the average, or its throughput is far below the top broker's."""
        ratio = min(MOST_MINIMUM, max(0.0, self.settings.target / 2))
        loads, top = self.loads, self.order[self._top]
        low_usage = loads.usage[broker] < self.spread.mean * ratio
        return bool(low_usage or loads.smoothed[broker] < loads.smoothed[top] * ratio)

    def overloaded(self, broker: int) -> bool:
        """Whether a broker is above the limit, and above the average by more than the target."""
        usage = self.loads.usage[broker]
        return bool(usage > self.settings.overload and usage > self.spread.mean + self.settings.target)

    def unloads(self) -> Iterator[Unload]:
        """The moves, one bundle or swap at a time, in the order of decision."""
        shed = 0
        while shed < self.settings.max_brokers and self._low < self._top and (reason := self.cause()) is not None:
            top, low = int(self.order[self._top]), int(self.order[self._low])
            self._top -= 1
            if (bundles := self._reported(top)) is None:
                continue
            relief = Relief(self, top, low, bundles)
            yield from relief.unloads(reason)
            if relief.marked > 0:
                usage = self.loads.usage
                self.spread.shift(float(usage[top]), float(usage[low]), relief.shifted)
                shed += 1
                self._low += 1
                self._skip_closed()
            else:
                self.too_few += 1

    def _reported(self, broker: int) -> IntArray | None:
        """The bundles that a broker could give. If there are none: None, and `unreported` or `too_few` is increased."""
        bundles = self.reports.of(broker)
        if bundles is None or not len(bundles):
            self.unreported += 1
            return None
        if len(bundles) == 1 or not (self.settings.sheds_at_zero or self.loads.usage[broker] > 0):
            self.too_few += 1
            return None
        return bundles

    def _skip_closed(self) -> None:
        while self._low < self._top and not self.loads.receives[self.order[self._low]]:
            self._low += 1


class _Swap(NamedTuple):
    """Bundles (rows) that a broker gives back in exchange, and their throughput (bytes/s)."""

    bundles: list[int]
    throughput: float


class Relief:
    """One pair of brokers: the bundles that `top` gives to `low`, and those that it gets back. Amounts are bytes/s."""

    def __init__(self, cycle: TransferCycle, top: int, low: int, bundles: IntArray) -> None:
        """Choose which of its reported `bundles` (rows, lightest first) `top` (row) gives to `low` (row)."""
        self.cycle, self.top, self.low = cycle, top, low
        self.bundles = bundles.tolist()
        loads = cycle.loads
        self.throughput, self.low_throughput = float(loads.throughput[top]), float(loads.throughput[low])
        self.usage = float(loads.usage[top])
        self.wanted = _quotient(self.throughput * ((self.usage - float(loads.usage[low])) / 2), self.usage)
        self.marked = self.gained = 0.0
        returning = cycle.reports.of(low) if cycle.settings.transfer else None
        self._returning = None if returning is None else returning.tolist()
        self._considered = 0
        self._returned: set[int] = set()

    @property
    def shifted(self) -> float:
        """The usage (ratio) that goes from top to low."""
        return _quotient((self.marked - self.gained) * self.usage, self.throughput)

    def unloads(self, reason: Reason) -> Iterator[Unload]:
        """The bundles that leave, each with those that are given back for it."""
        remaining = len(self.bundles)
        transfer, reports = self.cycle.settings.transfer, self.cycle.reports
        for bundle in self.bundles:
            if not reports.may_leave(bundle) or not reports.transferable(bundle, self.low):
                continue
            if remaining <= 1:
                return
            amount = reports.throughput(bundle)
            if amount == 0:
                continue
            swap = _Swap([], 0.0)
            if self.marked - self.gained + amount > self.wanted:
                found = self._swap(amount)
                if found is None:
                    return
                swap = found
            self._returned.update(swap.bundles)
            yield Unload(self.top, _rows([bundle]), reason, self.low if transfer else -1, _rows(swap.bundles))
            self.marked += amount
            self.gained += swap.throughput if self.cycle.settings.counts_returned else 0.0
            remaining -= 1

    def _swap(self, amount: float) -> _Swap | None:
        """The bundles that could come back for `amount` so that both brokers improve; None if there are none."""
        if self._returning is None:
            return None
        reports = self.cycle.reports
        at_top = self.throughput - self.marked + self.gained - amount
        at_low = self.low_throughput + self.marked - self.gained + amount
        swap, total = [], 0.0
        for bundle in self._not_considered():
            back = reports.throughput(bundle)
            if back == 0 or not reports.may_return(bundle) or not reports.transferable(bundle, self.top):
                continue
            if at_top + back < self.throughput and at_low - back < self.throughput:
                at_top, at_low, total = at_top + back, at_low - back, total + back
                swap.append(bundle)
                if at_low <= at_top < self.throughput * WORTH_A_SWAP:
                    return _Swap(swap, total)
        return None

    def _not_considered(self) -> Iterator[int]:
        """The low broker's bundles from where the last swap stopped; with `rewinds`, all that it still has."""
        assert self._returning is not None
        if self.cycle.settings.rewinds:
            yield from (bundle for bundle in self._returning if bundle not in self._returned)
            return
        while self._considered < len(self._returning):
            self._considered += 1
            yield self._returning[self._considered - 1]


def _quotient(dividend: float, divisor: float) -> float:
    """Floating-point division; the result is NaN or infinite if `divisor` is 0."""
    with np.errstate(all="ignore"):
        return float(np.float64(dividend) / np.float64(divisor))


def _rows(rows: list[int]) -> IntArray:
    return np.array(rows, dtype=np.int64)
