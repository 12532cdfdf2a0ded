"""A policy, or what really happened, played over the cycles of a recording.

A replay has its own owners. They begin as they really were. While it warms up, all bundles count as pinned, so that it
decides and learns, but moves nothing. Later its moves land by the next cycle. Bundles that a lost broker leaves behind
get an owner from the policy's placement, at once. Pinned bundles are where they were. What a recorded split makes of a
bundle begins with the bundle's owner.

A window that begins in the middle of a replay has no owners to begin with. So policies act for some time before it,
which does not count: `Phase.RUN_IN`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

import numpy as np

from trimtab_lab.backtest.feed import RecordedCycle
from trimtab_lab.backtest.trace import Trace
from trimtab_lab.simulation.deciders import UnderTrimtab
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, Move
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.shedding.trim.samples import SampleRing

EARLY = 0.5
"""Ratio of the time between two cycles of the recording by which a decision may be early."""


class Phase(Enum):
    """What a cycle is for."""

    WARM_UP = "averages and memory learn; nothing moves"
    RUN_IN = "policies act, and nothing counts"
    COUNTED = "policies act, and figures count"


class HistoryReplay(Protocol):
    """Something that is played over a recording."""

    name: str
    trace: Trace

    def step(self, cycle: RecordedCycle, phase: Phase) -> None:
        """Play one cycle."""


def play(
    cycles: Iterable[RecordedCycle],
    replays: Sequence[HistoryReplay],
    begin: float,
    *,
    act: float | None = None,
    seen: Callable[[float], None] = lambda _: None,
) -> None:
    """Play all `replays` over `cycles`, oldest first.

    begin: epoch seconds from which cycles count. act: from which policies act, `begin` unless given; cycles before warm
    up. seen: is called with the time of each cycle that was played.
    """
    act = begin if act is None else act
    for cycle in cycles:
        now = cycle.load.now
        phase = Phase.COUNTED if now >= begin else Phase.RUN_IN if now >= act else Phase.WARM_UP
        for each in replays:
            each.step(cycle, phase)
        seen(now)


@dataclass
class LiveReplay:
    """What really happened: every bundle is where it was, and moves are the changes of owners."""

    name: str = "live"
    trace: Trace = field(default_factory=Trace)
    _names: tuple[str, ...] = ()
    _ids: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # of owners in `_brokers`, -1 unknown
    _brokers: dict[str, int] = field(default_factory=dict)

    def step(self, cycle: RecordedCycle, phase: Phase) -> None:
        """See `HistoryReplay`."""
        load = cycle.load
        before, ids = self._before(load.bundles.names), _numbers(load.brokers.names, self._brokers)
        then = np.append(ids, -1)[load.bundles.owner]
        if phase is Phase.COUNTED:
            self.trace.add(cycle, load, self._moves(load, before, then, ids[load.brokers.ready]), measured=1.0)
        self._ids = np.where(then >= 0, then, before)

    def _before(self, names: tuple[str, ...]) -> IntArray:
        """(m,) the owner of each of `names` in the last cycle."""
        if names is not self._names:
            known = {name: row for row, name in enumerate(self._names)}
            rows = np.array([known.get(name, -1) for name in names], dtype=np.int64)
            self._names, self._ids = names, np.append(self._ids, -1)[rows]
        return self._ids

    def _moves(
        self, load: ClusterLoad, before: IntArray, then: IntArray, ready: IntArray
    ) -> list[tuple[str, str, str]]:
        """The changes of owners. A bundle that a lost broker left behind did not move for balance."""
        moved = np.flatnonzero((then >= 0) & (before != then) & np.isin(before, ready))
        brokers = list(self._brokers)
        rows = zip(moved.tolist(), before[moved].tolist(), then[moved].tolist(), strict=True)
        return [(load.bundles.names[row], brokers[old], brokers[new]) for row, old, new in rows]


def _numbers(names: Sequence[str], known: dict[str, int]) -> IntArray:
    """The number of each name in `known`, which gets the new ones."""
    return np.fromiter((known.setdefault(name, len(known)) for name in names), dtype=np.int64, count=len(names))


@dataclass
class _Ownership:
    """The owners of a replay, by bundle in the rows of the last cycle.

    ids: (m,) number of the broker in `brokers`, -1 none. moved: (m,) epoch seconds of the last move, NaN never.
    """

    names: tuple[str, ...] = ()
    ids: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    moved: FloatArray = field(default_factory=lambda: np.empty(0))
    brokers: dict[str, int] = field(default_factory=dict)

    def rows(self, load: ClusterLoad, *, real: bool) -> IntArray:
        """(m,) row of each bundle's owner; -1 for a bundle of a broker that is gone or not ready.

        real: all of them are as they really were.
        """
        ids = _numbers(load.brokers.names, self.brokers)
        then = np.append(ids, -1)[load.bundles.owner]
        if load.bundles.names is not self.names:
            self._follow(load, then)
        self.ids = np.where((load.bundles.pinned | real) & (then >= 0), then, self.ids)
        row = np.full(len(self.brokers) + 1, -1)
        ready = np.flatnonzero(load.brokers.ready)
        row[ids[ready]] = ready
        owner: IntArray = row[self.ids]
        return owner

    def _follow(self, load: ClusterLoad, then: IntArray) -> None:
        """Bring everything into the rows of `load`; a new bundle begins with its parent's owner, or with its own."""
        before = {name: row for row, name in enumerate(self.names)}
        known = np.array([before.get(name, -1) for name in load.bundles.names], dtype=np.int64)
        ids = np.where(known >= 0, np.append(self.ids, -1)[known], then)
        parents = _parents(load.bundles.names, np.flatnonzero(known < 0), before)
        for row, parent in parents.items():
            ids[row] = self.ids[parent]
        self.moved = np.append(self.moved, np.nan)[known]
        self.names, self.ids = load.bundles.names, ids

    def take(self, moves: Iterable[Move], load: ClusterLoad) -> None:
        """Make the moves."""
        self.ids, self.moved = self.ids.copy(), self.moved.copy()
        for move in moves:
            row = load.bundles.index[move.bundle]
            self.ids[row] = self.brokers[move.destination]
            if move.source:
                self.moved[row] = load.now


@dataclass
class PolicyReplay:
    """A policy. interval: seconds from one decision to the next."""

    name: str
    decider: UnderTrimtab
    interval: float
    seed: int = 1
    trace: Trace = field(default_factory=Trace)
    _owners: _Ownership = field(default_factory=_Ownership)
    _ring: SampleRing = field(default_factory=SampleRing)
    _due: float = -np.inf
    _last: float = np.inf

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def step(self, cycle: RecordedCycle, phase: Phase) -> None:
        """See `HistoryReplay`."""
        then, acts = cycle.load, phase is not Phase.WARM_UP
        owner = self._owners.rows(then, real=not acts)
        pinned = then.bundles.pinned if acts else np.ones(len(owner), dtype=bool)
        bundles = replace(then.bundles, owner=owner, last_unload=self._owners.moved, pinned=pinned)
        cluster = replace(then, brokers=cycle.brokers_with(owner), bundles=bundles)
        cluster = self._ring.add_brokers(cluster, cycle.recent)
        moves = self._decided(cluster)
        self._last = cluster.now
        if acts:
            self._owners.take(moves, cluster)
        if phase is Phase.COUNTED:
            balancing = [(move.bundle, move.source, move.destination) for move in moves if move.source]
            self.trace.add(cycle, cluster, balancing, measured=cycle.measured_there(owner))

    def _decided(self, cluster: ClusterLoad) -> Sequence[Move]:
        if cluster.now < self._due:
            return self.decider.assign(cluster, self._random)
        self._due = cluster.now + self.interval - EARLY * max(cluster.now - self._last, 0.0)
        return self.decider.decide(cluster, self._random).moves


def _parents(names: Sequence[str], new: IntArray, before: Mapping[str, int]) -> dict[int, int]:
    """For each of the `new` rows of `names` the row before of the bundle that it was part of, if there was one."""
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
