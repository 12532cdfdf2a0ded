"""The owners that bundles really had from cycle to cycle, and the owners that another policy would have set.

Rows of bundles and brokers change between cycles, and bundles are split. So both classes identify them by name. After a
split, the children first have their parent's owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

import numpy as np

from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, Move
from trimtab_strategies.model.cluster_load import FloatArray, IntArray


class OwnerChange(NamedTuple):
    """A bundle that changed its owner."""

    bundle: str
    source: str
    destination: str


@dataclass
class RealOwners:
    """Finds changes of the real owners.

    ids: (m,) number of each bundle's owner in `brokers`, -1 if unknown. away: brokers that were not ready in the last
    cycle. at: epoch seconds of that cycle.
    """

    names: tuple[str, ...] = ()
    ids: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    brokers: dict[str, int] = field(default_factory=dict)
    away: frozenset[str] = frozenset()
    at: float = nan

    def changes(self, load: ClusterLoad) -> list[OwnerChange]:
        """The changes for balance since the last cycle.

        New owners of the bundles of a broker that was away are not among them, even if it is back already.
        """
        before, ids = self._before(load.bundles.names), numbers(load.brokers.names, self.brokers)
        then = np.append(ids, -1)[load.bundles.owner]
        self.ids = np.where(then >= 0, then, before)
        names, ready = np.array(load.brokers.names), load.brokers.ready
        stayed = ready & ~np.isin(names, list(self.away)) & ~(load.started >= self.at)
        self.away, self.at = frozenset(names[~ready].tolist()), load.now
        moved = np.flatnonzero((then >= 0) & (before != then) & np.isin(before, ids[stayed]))
        brokers = list(self.brokers)
        rows = zip(moved.tolist(), before[moved].tolist(), then[moved].tolist(), strict=True)
        return [OwnerChange(load.bundles.names[row], brokers[old], brokers[new]) for row, old, new in rows]

    def _before(self, names: tuple[str, ...]) -> IntArray:
        """(m,) the owner of each of `names` in the last cycle."""
        if names is not self.names:
            known = {name: row for row, name in enumerate(self.names)}
            rows = np.array([known.get(name, -1) for name in names], dtype=np.int64)
            self.names, self.ids = names, np.append(self.ids, -1)[rows]
        return self.ids


def numbers(names: Sequence[str], known: dict[str, int]) -> IntArray:
    """The number of each name in `known`. Adds new names to `known`."""
    return np.fromiter((known.setdefault(name, len(known)) for name in names), dtype=np.int64, count=len(names))


@dataclass
class VirtualOwners:
    """The owners that a policy would have set, with the bundle rows of the last cycle.

    ids: (m,) number of the broker in `brokers`, -1 if none. moved: (m,) epoch seconds of the last move, NaN if never.
    """

    names: tuple[str, ...] = ()
    ids: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    moved: FloatArray = field(default_factory=lambda: np.empty(0))
    brokers: dict[str, int] = field(default_factory=dict)
    _last: tuple[IntArray, IntArray, IntArray] | None = None  # the last `ids`, row of each broker, and result

    def rows(self, load: ClusterLoad, *, real: bool = False) -> IntArray:
        """(m,) row of each bundle's owner; -1 for a bundle of a broker that is gone or not ready.

        Pinned bundles have their real owners. real: use the real owners of all bundles. As long as nothing changes, the
        result is the same read-only array. Callers recognise unchanged owners by that.
        """
        ids = numbers(load.brokers.names, self.brokers)
        new = load.bundles.names is not self.names
        if real or new or load.bundles.pinned.any():
            then = np.append(ids, -1)[load.bundles.owner]
            if new:
                self._follow(load, then)
            after = np.where((load.bundles.pinned | real) & (then >= 0), then, self.ids)
            self.ids = self.ids if np.array_equal(after, self.ids) else after
        row = np.full(len(self.brokers) + 1, -1)
        ready = np.flatnonzero(load.brokers.ready)
        row[ids[ready]] = ready
        if self._last is None or self.ids is not self._last[0] or not np.array_equal(row, self._last[1]):
            owner: IntArray = row[self.ids]
            owner.flags.writeable = False
            self._last = self.ids, row, owner
        return self._last[2]

    def _follow(self, load: ClusterLoad, then: IntArray) -> None:
        """Switch to the rows of `load`. A new bundle first has its parent's owner, or else its real one."""
        before = {name: row for row, name in enumerate(self.names)}
        known = np.array([before.get(name, -1) for name in load.bundles.names], dtype=np.int64)
        ids = np.where(known >= 0, np.append(self.ids, -1)[known], then)
        parents = _parents(load.bundles.names, np.flatnonzero(known < 0), before)
        for row, parent in parents.items():
            ids[row] = self.ids[parent]
        self.moved = np.append(self.moved, np.nan)[known]
        self.names, self.ids = load.bundles.names, ids

    def divide(self, name: str, parts: Sequence[str], destinations: Sequence[str]) -> None:
        """Replace a bundle by its parts. They go to `destinations`, or stay if there are none."""
        row = self.names.index(name)
        owners = [self.brokers[broker] for broker in destinations] or [int(self.ids[row])] * len(parts)
        self.names = (*self.names[:row], *self.names[row + 1 :], *parts)
        self.ids = np.append(np.delete(self.ids, row), owners)
        self.moved = np.append(np.delete(self.moved, row), np.full(len(parts), np.nan))

    def take(self, moves: Iterable[Move], load: ClusterLoad) -> None:
        """Set the destinations of `moves` as owners."""
        made = tuple(moves)
        if not made:
            return
        self.ids, self.moved = self.ids.copy(), self.moved.copy()
        for move in made:
            row = load.bundles.index[move.bundle]
            self.ids[row] = self.brokers[move.destination]
            if move.source:
                self.moved[row] = load.now


def _parents(names: Sequence[str], new: IntArray, before: Mapping[str, int]) -> dict[int, int]:
    """For each of the `new` rows of `names`: the former row of the bundle that it was part of, if there was one."""
    gone: dict[str, list[tuple[int, int, int]]] = {}
    if not len(new) or not before:
        return {}
    for name in {*before} - {*names}:
        space, lower, upper = parse_bundle(name)
        gone.setdefault(space, []).append((lower, upper, before[name]))
    found = {}
    for row in new.tolist():
        space, lower, upper = parse_bundle(names[row])
        parent = [old for low, high, old in gone.get(space, ()) if low <= lower and upper <= high]
        if parent:
            found[row] = parent[0]
    return found
