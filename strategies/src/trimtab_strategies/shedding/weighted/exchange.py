"""The exchange of two tasks between an overloaded consumer o and another consumer d (for the terms, see `nodes`).

o gives a heavy task of weight t and gets a light one of weight u. That is acceptable when o is at or above its target,
d does not end up above its own target, and o becomes lighter by at least the significant change. For a given t each
condition is monotone in u, even with the rounding of doubles. So the acceptable light tasks are contiguous, and
bisection finds them without a test of all pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

SLACK = 1e-9
"""Relative error far above the rounding of the few additions in the rule. A larger deviation is no rounding error."""

FIRST_ROWS = 16
"""Heavy tasks that are examined together at first. Each further step examines four times as many."""


class Sides(NamedTuple):
    """Book and target weight of o, and of d (`other_`), and the significant change in percent. book: see `ledger`."""

    book: float
    target: float
    other_book: float
    other_target: float
    min_change: float

    @property
    def least(self) -> float:
        """Smallest significant change, ops/s."""
        return self.min_change * self.book / 100

    @property
    def excess(self) -> float:
        """By how much o is above its target, ops/s."""
        return self.book - self.target

    @property
    def room(self) -> float:
        """By how much d is below its target, ops/s."""
        return self.other_target - self.other_book

    @property
    def wanted(self) -> float:
        """The change that brings one of the two consumers to its target and the other nearer to its own, ops/s."""
        return min(self.room, self.excess)


def hopeless(sides: Sides, heavy: FloatArray, light: FloatArray) -> bool:
    """Whether a quick test shows that no pair is acceptable. Weights are descending."""
    if not (len(heavy) and len(light)) or sides.book < sides.target or sides.book == 0:
        return True
    slack = SLACK * (sides.book + sides.other_book + sides.other_target + float(heavy[0]) + float(light[0]))
    widest = float(heavy[0]) - float(light[-1])
    return min(sides.room, widest) < sides.least - slack


@np.errstate(over="ignore", invalid="ignore")
def acceptable(sides: Sides, heavy: FloatArray, light: FloatArray) -> BoolArray:
    """Hermes' rule for pairs of weights, with the same operations in the same order. Shapes broadcast."""
    after = np.maximum(sides.other_book + heavy - light, 0.0)
    allowed: BoolArray = _lighter(sides, heavy, light) & (after <= sides.other_target)
    return allowed & (sides.book >= sides.target)


def _lighter(sides: Sides, heavy: FloatArray, light: FloatArray) -> BoolArray:
    """Whether o becomes lighter by a significant change. If one light task suffices, all lighter ones do, too."""
    book = sides.book
    if book == 0:
        return np.zeros(np.broadcast_shapes(heavy.shape, light.shape), dtype=bool)
    after = np.maximum(book + light - heavy, 0.0)
    lighter: BoolArray = (after <= book) & (np.abs(after - book) / book * 100 >= sides.min_change)
    return lighter


@np.errstate(over="ignore", invalid="ignore")
def first_acceptable(
    sides: Sides, heavy: FloatArray, light: FloatArray, row: int, column: int
) -> tuple[int, int] | None:
    """The first acceptable pair at or after (row, column), going through `light` for each of `heavy` (descending)."""
    step = FIRST_ROWS
    while row < len(heavy):
        rows = heavy[row : row + step]
        columns = _first_light_enough(sides, rows, light)
        columns[0] = max(column, int(columns[0]))
        there = np.flatnonzero(columns < len(light))
        fits = there[acceptable(sides, rows[there], light[columns[there]])]
        if len(fits):
            return row + int(fits[0]), int(columns[fits[0]])
        row, column, step = row + step, 0, step * 4
    return None


def _first_light_enough(sides: Sides, heavy: FloatArray, light: FloatArray) -> IntArray:
    """For each heavy task: the position of the first light one with which o becomes lighter by a significant change."""
    low = np.zeros(len(heavy), dtype=np.int64)
    high = np.full(len(heavy), len(light), dtype=np.int64)
    while (open_ := low < high).any():
        middle = np.where(open_, (low + high) // 2, 0)
        enough = _lighter(sides, heavy, light[middle])
        high = np.where(open_ & enough, middle, high)
        low = np.where(open_ & ~enough, middle + 1, low)
    return low


@np.errstate(over="ignore", invalid="ignore")
def best_exchange(sides: Sides, heavy: FloatArray, light: FloatArray) -> tuple[int, int] | None:
    """The fitting pair that reduces the squared distances to both targets most; None if no pair does.

    Weights are descending. For each heavy task only two light ones matter: those whose changes are the next below and
    the next above the wanted one. The larger change may still fit below d's target.
    """
    if not len(heavy) or not len(light):
        return None
    ascending = light[::-1]
    above = np.searchsorted(ascending, heavy - sides.wanted, side="left")
    places = np.stack([above, above - 1], axis=1)
    there = (places >= 0) & (places < len(light))
    change = heavy[:, np.newaxis] - ascending[np.where(there, places, 0)]
    gain = np.where(there & (change > 0) & (change <= sides.room), _gain(sides, change), 0.0)
    best = int(np.argmax(gain))
    if not gain.flat[best] > 0:
        return None
    row, side = divmod(best, 2)
    return row, len(light) - 1 - int(places[row, side])


def _gain(sides: Sides, change: FloatArray) -> FloatArray:
    """Half of the decrease in the squared distances to both targets when weight (ops/s) is shifted from o to d."""
    return change * (sides.excess + sides.room - change)


@np.errstate(over="ignore", invalid="ignore")
def best_move(sides: Sides, weights: FloatArray) -> int | None:
    """The task of o (weights descending) whose move to d without return helps most; None if none helps.

    A task without weight is never worth a move.
    """
    gain = np.where(weights <= sides.room, _gain(sides, weights), 0.0)
    best = int(np.argmax(gain)) if len(gain) else -1
    return best if best >= 0 and gain[best] > 0 else None


def nearest(sides: Sides, weights: FloatArray) -> int | None:
    """The task of o (weights descending) whose weight is closest to the wanted change; None if none is close enough.

    Neither consumer may get further from its target, and d may not exceed its own.
    """
    usable = np.flatnonzero((weights > 0) & (weights <= sides.room) & (weights < 2 * sides.wanted))
    return int(usable[np.argmin(np.abs(weights[usable] - sides.wanted))]) if len(usable) else None
