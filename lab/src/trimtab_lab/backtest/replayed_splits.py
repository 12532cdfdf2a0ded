"""Splits that a replayed policy makes, and that did not really happen.

From the next cycle on, the policy sees the parts (children) instead of the bundle. They share the bundle's measured
load:

    topics    by the bundle's topics in the cycle of the split, if they were recorded
    sketch    else by the bundle's newest sketch
    evenly    else by the widths of their ranges: a guess, so the report says how much of the load was shared this way

The shares never change after the split. If the bundle is later really split or deleted, the replayed parts end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import numpy as np

from trimtab_strategies.counterfactual.recorded_cycle import RecordedCycle
from trimtab_strategies.hash_ring import BundleName, parse_bundle
from trimtab_strategies.model import THROUGHPUT_IN, THROUGHPUT_OUT, Split
from trimtab_strategies.model.cluster_load import Bundles, FloatArray, IntArray, Topics
from trimtab_strategies.splitting.boundaries import children

Ranges = Sequence[tuple[int, int]]


class Part(NamedTuple):
    """A part of a recorded bundle. share, topics: ratios 0-1 of the bundle's traffic, and of its topics and clients.

    guessed: whether these ratios are a guess, from the widths of the ranges.
    """

    name: str
    share: float = 1.0
    topics: float = 1.0
    guessed: bool = False


@dataclass
class ReplayedSplits:
    """The recorded bundles that a policy has divided, each with its parts in the order of their ranges."""

    parts: dict[str, list[Part]] = field(default_factory=dict)
    _version: int = 0
    _seen: tuple[tuple[str, ...], int] = ((), 0)
    _names: tuple[str, ...] = ()
    _rows: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _shares: FloatArray = field(default_factory=lambda: np.empty((0, 3)))

    def seen(self, cycle: RecordedCycle) -> RecordedCycle:
        """The cycle as the policy sees it: with parts instead of the bundles that it has divided."""
        if not self.parts:
            return cycle
        names = cycle.load.bundles.names
        if names is not self._seen[0] or self._version != self._seen[1]:
            self._line_up(names)
        rows, traffic = self._rows, self._shares[:, :1]
        bundles = self._divided(cycle.load.bundles)
        load = replace(cycle.load, bundles=bundles, topics=self._topics(cycle.load.topics))
        return replace(
            cycle, load=load, wanted=cycle.wanted[rows] * traffic, work=cycle.work[rows] * self._shares[:, 0]
        )

    def made(self, split: Split, cycle: RecordedCycle) -> list[str]:
        """Make a split. cycle: as the policy saw it. Returns the names of the parts, in the order of their ranges."""
        space, lower, upper = parse_bundle(split.bundle)
        ranges = children(lower, upper, split.boundaries)
        origin = next((name for name, parts in self.parts.items() if split.bundle in {p.name for p in parts}), "")
        whole = next((p for p in self.parts.get(origin, ()) if p.name == split.bundle), Part(split.bundle))
        shares, guessed = _shares(cycle, split.bundle, origin or split.bundle, ranges)
        new = [
            Part(str(BundleName(space, *hashes)), whole.share * share, whole.topics * topics, whole.guessed or guessed)
            for hashes, (share, topics) in zip(ranges, shares.tolist(), strict=True)
        ]
        others = [part for part in self.parts.get(origin, ()) if part.name != split.bundle]
        self.parts[origin or split.bundle] = sorted([*others, *new])
        self._version += 1
        return [part.name for part in new]

    def modelled(self, cycle: RecordedCycle) -> tuple[float, float]:
        """How much (0-1) of a cycle's work is in parts, and in parts whose shares are a guess. cycle: from `seen`."""
        total = float(cycle.work.sum())
        if not self.parts or total <= 0:
            return 0.0, 0.0
        guessed = {part.name: part.guessed for parts in self.parts.values() for part in parts}
        index = cycle.load.bundles.index
        work = [(float(cycle.work[index[name]]), guess) for name, guess in guessed.items() if name in index]
        return sum(each for each, _ in work) / total, sum(each for each, guess in work if guess) / total

    def _line_up(self, names: tuple[str, ...]) -> None:
        """Update rows and shares for bundles of these names. The parts of bundles that are gone are dropped."""
        self.parts = {name: parts for name, parts in self.parts.items() if name in set(names)}
        lines = [
            (part.name, row, part.share, part.topics)
            for row, name in enumerate(names)
            for part in self.parts.get(name, (Part(name),))
        ]
        self._seen, self._names = (names, self._version), tuple(line[0] for line in lines)
        self._rows = np.array([line[1] for line in lines], dtype=np.int64)
        self._shares = np.array([line[2:] for line in lines])

    def _divided(self, bundles: Bundles) -> Bundles:
        columns = {of.name: getattr(bundles, of.name)[self._rows] for of in fields(bundles) if of.name != "names"}
        traffic, count = self._shares[:, :1], self._shares[:, 1]
        for name in ("short", "long", "newest"):
            columns[name] = columns[name] * traffic
        for name in ("topics", "sessions"):
            columns[name] = columns[name] * count
        return Bundles(names=self._names, **columns)

    def _topics(self, topics: Topics) -> Topics:
        """The topics, each in the row of its part."""
        if not len(topics):
            return topics
        first, last = (np.searchsorted(self._rows, topics.bundle, side=side) for side in ("left", "right"))
        row = first.copy()
        for place in np.flatnonzero(last - first > 1).tolist():
            at = int(topics.place[place])
            parts = range(first[place], last[place])
            row[place] = next((part for part in parts if _holds(self._names[part], at)), first[place])
        return replace(topics, bundle=row)


def _holds(name: str, place: int) -> bool:
    _, lower, upper = parse_bundle(name)
    return lower <= place < upper


def _shares(cycle: RecordedCycle, name: str, origin: str, ranges: Ranges) -> tuple[FloatArray, bool]:
    """For each of `ranges` the ratios (k, 2) of a bundle's traffic, and of its topics and clients.

    Also whether these ratios are a guess. origin: the recorded bundle that this bundle is, or is a part of.
    """
    topics = cycle.load.topics
    own = np.flatnonzero(topics.bundle == cycle.load.bundles.index[name])
    weight = topics.traffic[own][:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1)
    if len(own) and weight.sum() > 0:
        rows = np.stack([topics.place[own], np.ones(len(own)), np.ones(len(own)), weight], axis=1)
        return _of_rows(rows, ranges), False
    sketch = cycle.sketches.get(origin)
    if sketch is not None and (found := _overlaps(sketch, ranges))[:, 3].sum() > 0:
        return _of_rows(found, ranges), False
    width = np.array([upper - lower for lower, upper in ranges], dtype=np.float64)
    return np.repeat((width / width.sum())[:, np.newaxis], 2, axis=1), True


def _overlaps(rows: FloatArray, ranges: Ranges) -> FloatArray:
    """The rows of a sketch that overlap the span of all `ranges`."""
    lower, upper = ranges[0][0], ranges[-1][1]
    inside: FloatArray = rows[(rows[:, 0] < upper) & (rows[:, 0] + rows[:, 1] > lower)]
    return inside


def _of_rows(rows: FloatArray, ranges: Ranges) -> FloatArray:
    """See `_shares`. rows: (t, 4) first hash, number of hashes; topics and bytes/s, spread evenly over these hashes."""
    first, width = rows[:, 0], rows[:, 1]
    last = ranges[-1][1]
    first = np.minimum(first, last - 1)  # only the range of a namespace's last bundle includes its upper end
    found = np.empty((len(ranges), 2))
    for row, (lower, upper) in enumerate(ranges):
        there = np.clip(np.minimum(first + width, upper) - np.maximum(first, lower), 0, None) / width
        found[row] = (there * rows[:, 3]).sum(), (there * rows[:, 2]).sum()
    total = found.sum(axis=0)
    return found / np.where(total > 0, total, 1.0)
