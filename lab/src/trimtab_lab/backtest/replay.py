"""A policy, or what really happened, played over the cycles of a recording.

A replay has its own owners. It begins with the real ones. During the warm-up (`ReplayPhase.WARM_UP`), all bundles count
as pinned: the policy decides and learns, but moves nothing. Bundles that really moved during the warm-up are in their
cool-down in the replay, too. The policy that really ran continues from its recorded memory, if there is one.

After the warm-up, moves land by the next cycle. Bundles of a lost broker immediately get an owner from the policy's
placement. Drained brokers are emptied. Outside of the policy's windows nothing else moves. Pinned bundles are where
they really were. The children of a recorded split begin with the bundle's owner. A move waits while the policy's
disruption budget does not allow it.

If the recording is divided into several windows of time (`tasks.TimeWindow`), it is not known which owners a policy
would have chosen before each later window. So policies act for some time before that window. This time
(`ReplayPhase.RUN_IN`) does not count in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from trimtab_lab.backtest.replayed_splits import ReplayedSplits
from trimtab_lab.backtest.trace import Trace
from trimtab_lab.simulation.budget import PlayedBudget
from trimtab_lab.simulation.deciders import Orders, UnderTrimtab
from trimtab_operator.loop.schedule import opening
from trimtab_operator.resources.common import Window
from trimtab_pipeline.history.recorded_topics import RecordedTopics
from trimtab_strategies.counterfactual.ownership import RealOwners, VirtualOwners
from trimtab_strategies.counterfactual.recorded_cycle import CycleReader, RecordedCycle
from trimtab_strategies.model import Brokers, ClusterLoad, Memory, Split
from trimtab_strategies.model.cluster_load import BoolArray
from trimtab_strategies.planner.decide import chance
from trimtab_strategies.planner.drain import Drains
from trimtab_strategies.shedding.trim.samples import SampleRing
from trimtab_strategies.usage import with_moves_in_flight

EARLY = 0.5
"""A decision may be early by this ratio of the time between two recorded cycles."""


_FRESH = 3600.0
"""Seconds for which a recorded memory can be used: the operator writes it every hour."""


class Remembered(NamedTuple):
    """A policy's memory after the cycle at `at` (epoch s). moves: (epoch s, number of moves) in the hour before."""

    at: float
    memory: Memory
    moves: Sequence[tuple[float, int]] = ()


class ReplayPhase(Enum):
    """What the replay does in a cycle."""

    WARM_UP = "averages and memory learn; nothing moves"
    RUN_IN = "policies act, and nothing counts"
    COUNTED = "policies act, and figures count"


class HistoryReplay(Protocol):
    """A policy, or what really happened, while it is played over a recording."""

    name: str
    trace: Trace

    def step(self, cycle: RecordedCycle, phase: ReplayPhase) -> None:
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

    begin: epoch seconds from which on cycles count in the result. act: epoch seconds from which on policies act,
    `begin` unless given. Before that, averages and memory only warm up. seen: is called with the time of each cycle
    that was played.
    """
    act = begin if act is None else act
    for cycle in cycles:
        now = cycle.load.now
        phase = ReplayPhase.COUNTED if now >= begin else ReplayPhase.RUN_IN if now >= act else ReplayPhase.WARM_UP
        for each in replays:
            each.step(cycle, phase)
        seen(now)


@dataclass
class LiveReplay:
    """What really happened: every bundle is where it was, and moves are the changes of owners."""

    name: str = "live"
    trace: Trace = field(default_factory=Trace)
    _owners: RealOwners = field(default_factory=RealOwners)
    _serving: frozenset[str] = frozenset()  # brokers of the last cycle that were ready, and not drained

    def step(self, cycle: RecordedCycle, phase: ReplayPhase) -> None:
        """See `HistoryReplay`."""
        brokers, changes = cycle.load.brokers, self._owners.changes(cycle.load)
        lost = self._serving - _named(brokers, brokers.ready)
        self._serving = _named(brokers, brokers.ready & brokers.schedulable)
        if phase is ReplayPhase.COUNTED:
            self.trace.add(cycle, cycle.load, changes, measured=1.0)
            self.trace.lost += [(cycle.load.now, name) for name in sorted(lost)]


@dataclass
class PolicyReplay:
    """A policy that is played over a recording.

    interval: seconds from one decision to the next. windows: when it acts; empty: always. replayed_splits: the splits
    that it makes; None: its splits are not replayed. budget: its disruption budget; None: it has none.
    lacks_splits: whether it would make splits that are left out. past: its memory after some cycles, oldest first.

    seed: for choices between equally good brokers; None: choose as the operator did. follows: whether each cycle
    begins with the real owners, so that only its decision is replayed; else the replay goes on from its own moves.
    """

    name: str
    decider: UnderTrimtab
    interval: float
    seed: int | None = 1
    trace: Trace = field(default_factory=Trace)
    replayed_splits: ReplayedSplits | None = None
    budget: PlayedBudget | None = None
    windows: Sequence[Window] = ()
    lacks_splits: bool = False
    past: Sequence[Remembered] = ()
    follows: bool = False
    _real: RealOwners = field(default_factory=RealOwners)
    _acts: bool = False
    _owners: VirtualOwners = field(default_factory=VirtualOwners)
    _ring: SampleRing = field(default_factory=SampleRing)
    _due: float = -np.inf
    _last: float = np.inf

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def step(self, cycle: RecordedCycle, phase: ReplayPhase) -> None:
        """See `HistoryReplay`."""
        cycle = cycle if self.replayed_splits is None else self.replayed_splits.seen(cycle)
        then, acts = cycle.load, phase is not ReplayPhase.WARM_UP
        real = self.follows or not self._acts
        owner = self._owners.rows(then, real=real)
        if real:
            self._follow(then)
        if acts and not self._acts:
            self._begin(then.now)
        pinned = then.bundles.pinned if acts else np.ones(len(owner), dtype=bool)
        bundles = replace(then.bundles, owner=owner, last_unload=self._owners.moved, pinned=pinned)
        brokers = cycle.brokers_with(owner)
        if self.replayed_splits is None:
            recent = self._ring.add_brokers(then.now, brokers, bundles.names, cycle.recent)
            cluster = replace(then, brokers=brokers, bundles=bundles, recent=recent)
        else:  # a replay with its own splits has its own samples, too
            cluster = self._ring.add(replace(then, brokers=brokers, bundles=bundles))
        orders = self._decided(cluster)
        self._last = cluster.now
        if acts:
            self._owners.take(orders.moves, cluster)
        if phase is ReplayPhase.COUNTED:
            balancing = [(move.bundle, move.source, move.destination) for move in orders.moves if move.source]
            self.trace.add(cycle, cluster, balancing, measured=cycle.measured_there(owner))
        if acts and self.replayed_splits is not None:
            self._split(self.replayed_splits, orders.splits, cycle, cluster, phase)

    def _follow(self, load: ClusterLoad) -> None:
        """Put bundles that really moved into their real cool-down, and charge their moves to the budget."""
        moved = np.fmax(self._owners.moved, load.bundles.last_unload)
        changes = self._real.changes(load)
        for change in changes:
            row = load.bundles.index[change.bundle]
            moved[row] = np.fmax(moved[row], self._last)  # it was decided in the cycle before
        self._owners.moved = moved
        if changes and self.budget is not None:
            self.budget.charge(changes, load, min(self._last, load.now))

    def _begin(self, now: float) -> None:
        """Act from now on."""
        self._acts = True
        known = [one for one in self.past if now - _FRESH <= one.at < now]
        if known:
            self.decider.resume(known[-1].memory, known[-1].moves)

    def _decided(self, cluster: ClusterLoad) -> Orders:
        if self.seed is None:
            self._random = chance(cluster.now)
        if cluster.now < self._due:
            return self._admitted(Orders(self.decider.assign(cluster, self._random)), cluster)
        self._due = cluster.now + self.interval - EARLY * max(cluster.now - self._last, 0.0)
        balances = opening(self.windows, cluster.now).open
        known = cluster if self.budget is None else self.budget.withheld(cluster)
        admit = partial(self._admitted, cluster=cluster)
        return self.decider.decide(known, self._random, drains=_drains(cluster), balances=balances, admit=admit)

    def _admitted(self, orders: Orders, cluster: ClusterLoad) -> Orders:
        if self.budget is None or not (orders.moves or orders.splits):
            return orders
        return self.budget.admitted(orders, cluster, paid=self._acts and not self.follows)

    def _split(
        self,
        replayed_splits: ReplayedSplits,
        splits: Sequence[Split],
        cycle: RecordedCycle,
        cluster: ClusterLoad,
        phase: ReplayPhase,
    ) -> None:
        """Make the splits of a cycle, and note what they cost."""
        if phase is ReplayPhase.COUNTED:
            self.trace.divided.append(replayed_splits.modelled(cycle))
        for split in splits:
            parts = replayed_splits.made(split, cycle)
            self._owners.divide(split.bundle, parts, split.destinations)
            if phase is ReplayPhase.COUNTED:
                self.trace.note_split(cluster, split, parts)


def _drains(cluster: ClusterLoad) -> Drains:
    """The brokers to empty. A broker whose pod terminates is not among them: it is not ready any more."""
    return Drains(drained=_named(cluster.brokers, cluster.brokers.ready & ~cluster.brokers.schedulable))


def _named(brokers: Brokers, rows: BoolArray) -> frozenset[str]:
    """The names of some brokers (n,)."""
    return frozenset(brokers.names[row] for row in np.flatnonzero(rows).tolist())


def recorded_cycles(loads: Iterable[ClusterLoad], topics: RecordedTopics | None = None) -> Iterator[RecordedCycle]:
    """The cycles of a recording, oldest first, each with the slopes that were learned by then (see `RecordedCycle`).

    topics: the recorded topics of bundles, if they are needed. Raises `ForeignFileError`.
    """
    ring, reader = SampleRing(), CycleReader()
    for load in loads:
        if (cycle := reader.read(ring.add(load))) is not None:
            if topics is None:
                yield replace(cycle, load=_landed(cycle.load))
            else:
                yield replace(cycle, load=topics.added(_landed(load)), sketches=topics.sketches)


def _landed(load: ClusterLoad) -> ClusterLoad:
    """The load that the policy saw: pending moves count as landed.

    No bundle is in flight, because a replay makes its own moves.
    """
    if not (load.bundles.in_flight.any() or (load.bundles.moving_from >= 0).any()):
        return load
    landed, m = with_moves_in_flight(load), len(load.bundles)
    idle, none = np.zeros(m, dtype=bool), np.full(m, -1, dtype=np.int64)
    bundles = replace(landed.bundles, in_flight=idle, moving_from=none, moving_share=np.zeros(m))
    return replace(landed, bundles=bundles)
