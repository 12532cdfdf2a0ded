"""Brokers two by two: the busiest with the idlest, the next with the next, and how long each pair has been apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_strategies.java import concurrent_map_order, hash_map_order
from trimtab_strategies.model.load import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Pairs:
    """Brokers two by two. names, score: of the brokers that take part (k,).

    idle, busy: positions of each pair's brokers, the widest pair first; the middle one of an odd number meets itself.
    apart, far: which pairs differ by the low, or the high threshold.
    """

    names: list[str]
    score: FloatArray
    idle: IntArray
    busy: IntArray
    apart: BoolArray
    far: BoolArray

    @classmethod
    def of(cls, names: list[str], score: FloatArray, *, low: float, high: float, java: bool) -> Pairs:
        """Pair brokers up by score; apart by `low` points, far apart by `high`. java: ties as in its hash map."""
        order = _ascending(names, score, java=java)
        half = (len(order) + 1) // 2
        idle, busy = order[:half], order[::-1][:half]
        gap = score[busy] - score[idle]
        apart = ~(gap < low)
        return cls(names, score, idle, busy, apart, apart & ~(gap < high))

    def counted(self, before: FloatArray, hit: BoolArray) -> FloatArray:
        """The brokers' counters (k,) after this cycle, in which the pairs `hit`: NaN none, 0 begun anew."""
        after = np.nan_to_num(before)
        after[self.members(~hit)] = 0
        np.add.at(after, self.members(hit), 1)
        after[self.members(~self.apart)] = np.nan
        return after

    def members(self, which: BoolArray) -> IntArray:
        """Positions of the brokers of some pairs, the idler ones first."""
        return np.concatenate([self.idle[which], self.busy[which]])

    def closest(self) -> str:
        """How far the widest pair is apart, in words."""
        if not len(self.idle):
            return "no broker's usage is known"
        busy, idle = self.busy[0], self.idle[0]
        return f"{self.names[busy]} is {self.score[busy] - self.score[idle]:.1f} points above {self.names[idle]}"

    def waits(self, pair: int, low: FloatArray) -> str:
        """Why a pair does not act yet, in words."""
        busy, idle = self.busy[pair], self.idle[pair]
        gap = self.score[busy] - self.score[idle]
        return f"{gap:.1f} points above {self.names[idle]}, apart from its partner for {low[busy]:.0f} cycles"


def _ascending(names: list[str], score: FloatArray, *, java: bool) -> IntArray:
    """Positions by ascending score; equal ones in the order of Java's score map, or by name."""
    if len(np.unique(score)) == len(score):
        return np.argsort(score)
    # Rows count as the order of insertion, which decides between the few names that share a slot of the map.
    tied = hash_map_order(concurrent_map_order(names)) if java else sorted(names)
    place = {name: k for k, name in enumerate(tied)}
    return np.lexsort((np.array([place[name] for name in names]), score))
