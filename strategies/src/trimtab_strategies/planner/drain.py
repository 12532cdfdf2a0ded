"""Moves off a broker regardless of its load, because a user drains it or because it restarts next.

A broker that is *drained* gives away all its bundles, through the placement. The broker that restarts *next* gives its
bundles away before its restart, and only to brokers that have *restarted*: from any other broker they would have to
move again. So each bundle moves once in a rolling restart. The bundles of the first broker are an exception, because
no broker has restarted before it.

The caps apply. The cool-down doesn't: it limits moves made because of load. A destination stays below
`OVERLOAD_LINE`. Before a restart, no destination gets more than a fair share: the load divided among all brokers but
one. Otherwise the brokers that restarted first would carry everything. Pinned bundles stay, and so do the bundles of
namespaces that are excluded from balancing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from trimtab_strategies.guard import Guarded, MoveCaps, MoveLimits, Verdict, movable_bundles
from trimtab_strategies.model import CPU, ClusterLoad, HeldBack, Move, Reason, counted, some
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.planner.assign import expected_load
from trimtab_strategies.planner.candidates import DestinationChoice, LeastLoaded
from trimtab_strategies.planner.prediction import OVERLOAD_LINE, PredictedLoad
from trimtab_strategies.protocols import NOTHING, RestsAfterSplits, Shedder, Shedding
from trimtab_strategies.usage import percent

EVACUATIONS = frozenset({Reason.DRAINED, Reason.ROLLING_OUT})
"""Reasons of moves off a broker that is drained or restarts. Windows don't apply: these moves are not balancing."""


@dataclass(frozen=True, slots=True)
class Drains:
    """The brokers to be emptied, by name.

    drained: brokers that a user drains. following: brokers that restart next. restarted: brokers that have already
    restarted. pause: why nothing is shed or split in the meantime; None: balancing goes on.
    """

    drained: frozenset[str] = frozenset()
    following: frozenset[str] = frozenset()
    restarted: frozenset[str] = frozenset()
    pause: HeldBack | None = None


NO_DRAINS = Drains()
"""No broker is to be emptied."""


@dataclass(frozen=True, slots=True)
class NoShedding:
    """A shedder that sheds nothing, for the reason `why`. It keeps the memory of the shedder that it replaces."""

    why: HeldBack

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:  # noqa: ARG002 - it uses none of them
        """An empty result with the reason, and the same memory."""
        return Shedding(held_back=(self.why,), memory=memory)


@dataclass
class DrainMoves:
    """The drain moves of one decision. `taken` marks the bundles (m) that it moved or tried to move."""

    cluster: ClusterLoad
    choosing: DestinationChoice
    allowed: Guarded
    limits: MoveLimits
    caps: MoveCaps
    predicted: PredictedLoad
    rng: np.random.Generator
    memory: Mapping[str, Any]
    _left_out: dict[tuple[str, Reason], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.taken: BoolArray = np.zeros(len(self.cluster.bundles), dtype=bool)

    @cached_property
    def _movable(self) -> Verdict:
        """The bundles (m) that may be drained, also those that have just moved."""
        return movable_bundles(replace(self.cluster, withheld={}), replace(self.limits, cool_down=-1.0))

    def moves(self, drains: Drains) -> Iterator[Move]:
        """The moves off drained brokers, then those before a restart. Each broker's largest bundle comes first."""
        if not drains.drained and not drains.following:
            return
        restarted = rows_of(self.cluster, drains.restarted)
        for source in rows_of(self.cluster, drains.drained).tolist():
            yield from self._emptied(source, Reason.DRAINED, self.choosing, OVERLOAD_LINE)
        ahead = replace(
            self.choosing,
            placement=LeastLoaded(self.predicted),
            brokers=np.intersect1d(restarted, self.choosing.brokers),
        )
        fair = self._fair_share()
        for source in rows_of(self.cluster, drains.following - drains.drained).tolist():
            yield from self._emptied(source, Reason.ROLLING_OUT, ahead, fair)

    def _emptied(self, source: int, reason: Reason, choosing: DestinationChoice, line: float) -> Iterator[Move]:
        """The moves off one broker to brokers that stay below `line` (weighted usage, ratio)."""
        bundles = self._leaving(source)
        load, traffic = expected_load(self.cluster, bundles)
        for k in np.argsort(-traffic.sum(axis=1), kind="stable").tolist():
            bundle = int(bundles[k])
            self.taken[bundle] = True
            destination = self._destination(bundle, source, load[k], choosing, line)
            if isinstance(destination, Reason):
                self._leave_out(source, destination, bundle)
            else:
                yield self._move(bundle, source, destination, load[k], traffic[k], reason)

    def _leaving(self, source: int) -> IntArray:
        """The bundles (rows) of a broker that may leave it. Records why the others may not."""
        rows = self.cluster.bundles.owned_by(source)
        reasons = [_stays(self._movable, self.allowed.sheddable, row) for row in rows.tolist()]
        for row, reason in zip(rows.tolist(), reasons, strict=True):
            if reason is not None:
                self._leave_out(source, reason, row)
        leaving: IntArray = rows[[reason is None for reason in reasons]] if len(rows) else NOTHING
        return leaving

    def _destination(
        self, bundle: int, source: int, load: FloatArray, choosing: DestinationChoice, line: float
    ) -> int | Reason:
        """The broker (row) that gets a bundle, or why none does."""
        if not self.caps.allow():
            return self.allowed.cap
        if not self.caps.may_send(source):
            return Reason.BROKER_CAP
        fitting = self._fitting(bundle, source, load, choosing, line)
        if isinstance(fitting, Reason):
            return fitting
        choice = replace(choosing, brokers=fitting).best(bundle, self.predicted.cluster, self.memory)
        self.memory = choice.memory
        best = choice.brokers if len(choice.brokers) else fitting
        return int(best[self.rng.integers(len(best))])

    def _fitting(
        self, bundle: int, source: int, load: FloatArray, choosing: DestinationChoice, line: float
    ) -> IntArray | Reason:
        """The brokers (rows) with room for a bundle, or why none has room.

        If any broker that the namespace prefers has room, only such brokers.
        """
        answer = Reason.NO_CANDIDATE
        for among in (self.choosing, self.choosing.without_preferences()):
            candidates = np.setdiff1d(np.intersect1d(among.candidates(bundle), choosing.brokers), [source])
            if not len(candidates):
                answer = choosing.why_none(bundle)
            elif not len(free := np.setdiff1d(candidates, self.caps.full_for_drains)):
                answer = Reason.BROKER_CAP
            elif len(fitting := self.predicted.fitting(free, load, line)):
                return fitting
            else:
                answer = Reason.NO_CANDIDATE
        return answer

    def _fair_share(self) -> float:
        """Weighted usage (ratio) if all brokers but one shared the load equally; `OVERLOAD_LINE` at most.

        Brokers that carry nothing because they restart are counted, too: one of them may be the broker that is left
        out.
        """
        pressure = self.predicted.pressure(np.flatnonzero(self.allowed.may_shed.allowed))
        return min(OVERLOAD_LINE, float(np.nansum(pressure)) / max(1, len(self.cluster.brokers) - 1))

    def _move(  # noqa: PLR0917 - the parts of a move
        self, bundle: int, source: int, destination: int, load: FloatArray, traffic: FloatArray, reason: Reason
    ) -> Move:
        """Make the move, and count it in the caps and the prediction."""
        self.predicted.move(source, destination, load, traffic)
        self.caps.count(source, destination)
        self.memory = self.choosing.chosen(bundle, destination, self.predicted.cluster, self.memory)
        names = self.cluster.brokers.names
        points = float(percent(load, self.cluster.brokers.limit[source])[CPU])
        return Move(self.cluster.bundles.names[bundle], names[source], names[destination], reason, points)

    def _leave_out(self, source: int, reason: Reason, bundle: int) -> None:
        name = self.cluster.brokers.names[source]
        self._left_out.setdefault((name, reason), []).append(self.cluster.bundles.names[bundle])

    def held_back(self) -> tuple[HeldBack, ...]:
        """The bundles that could not leave, one entry per broker and reason."""
        return tuple(
            HeldBack(broker, reason, f"{counted(len(names), 'bundle')} can't leave yet: {some(names)}", len(names))
            for (broker, reason), names in self._left_out.items()
        )


def _stays(movable: Verdict, sheddable: Verdict, row: int) -> Reason | None:
    """Why a bundle stays; None if it may leave. A bundle that was never measured may leave."""
    if sheddable.reason(row) is Reason.SPLITTING:
        return Reason.SPLITTING
    reason = movable.reason(row)
    return None if reason is Reason.NO_LOAD_DATA else reason


def rows_of(cluster: ClusterLoad, brokers: frozenset[str]) -> IntArray:
    """Rows of those named brokers that exist, ascending."""
    index = cluster.brokers.index
    return np.array(sorted(index[name] for name in brokers if name in index), dtype=np.int64)


def set_apart(allowed: Guarded, cluster: ClusterLoad, drains: Drains) -> Guarded:
    """`allowed` without drained brokers in the comparison: an empty broker would make the others look too full.

    Brokers that are drained or restart next receive nothing.
    """
    if not drains.drained and not drains.following:
        return allowed
    drained, closed = np.zeros(len(cluster.brokers), dtype=bool), np.zeros(len(cluster.brokers), dtype=bool)
    drained[rows_of(cluster, drains.drained)] = True
    closed[rows_of(cluster, drains.following)] = True
    may_shed = allowed.may_shed.rule_out(drained, Reason.UNSCHEDULABLE)
    may_receive = allowed.may_receive.rule_out(drained, Reason.UNSCHEDULABLE)
    return replace(allowed, may_shed=may_shed, may_receive=may_receive.rule_out(closed, Reason.ROLLING_OUT))


def resting(shedder: Shedder, allowed: Guarded, drains: Drains, parted: int = 0) -> Shedder:
    """The shedder, or one that sheds nothing.

    Nothing is shed while drains pause balancing or leave too few brokers to compare. A shedder that `RestsAfterSplits`
    also sheds nothing while children of split bundles (`parted` of them) leave their parent's owner.
    """
    if drains.pause is not None:
        return NoShedding(drains.pause)
    left = int(allowed.may_shed.allowed.sum())
    if drains.drained and left < 2:  # noqa: PLR2004 - a comparison needs two
        return NoShedding(HeldBack("", Reason.NO_BROKERS, f"{counted(left, 'broker')} not drained; two are needed"))
    if parted and isinstance(shedder, RestsAfterSplits):
        text = f"{parted} children of split bundles go to other brokers first"
        return NoShedding(HeldBack("", Reason.SPLITTING, text))
    return shedder
