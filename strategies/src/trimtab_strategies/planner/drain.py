"""Evacuating: what must leave a broker whatever the load says, because a person drains it or it is about to restart.

A broker that is *drained* gives all it has, through the placement. The broker that restarts *next* gives ahead of its
restart, and only to brokers that have *restarted*: anywhere else its bundles would have to move once more. So over a
rolling restart each bundle moves once, but for those of the first broker, which nobody can take for good.

The caps hold, cool-down and quarantine don't: they protect from moves for the load's sake. A destination stays below
`OVERLOAD_LINE`; of what goes ahead of a restart none gets more than its fair share with one broker missing, or those
that came first would carry everything. What a person pinned, and namespaces that are left out of balancing, stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab_strategies.guard import Guarded, MoveCaps, MoveLimits, Verdict, movable_bundles
from trimtab_strategies.model import CPU, ClusterLoad, HeldBack, Move, Reason, counted, some
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.planner.assign import expected_load
from trimtab_strategies.planner.candidates import Choosing, LeastLoaded
from trimtab_strategies.planner.prediction import OVERLOAD_LINE, PredictedLoad
from trimtab_strategies.protocols import NOTHING, Shedder, Shedding
from trimtab_strategies.usage import percent

_NAMED = 5
"""Bundles that stay, named in one entry."""


@dataclass(frozen=True, slots=True)
class Evacuation:
    """What is to be emptied, by names of brokers.

    drained: of all they have. following: ahead of their restart, which comes next. restarted: those that have restarted
    already. pause: why nothing is shed or divided meanwhile, None: it is.
    """

    drained: frozenset[str] = frozenset()
    following: frozenset[str] = frozenset()
    restarted: frozenset[str] = frozenset()
    pause: HeldBack | None = None


NO_EVACUATION = Evacuation()
"""Nobody is to be emptied."""


@dataclass(frozen=True, slots=True)
class Rests:
    """The shedder of a decision that sheds nothing, for the reason `why`; it keeps the memory of the other one."""

    why: HeldBack

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:  # noqa: ARG002 - so it looks at nothing
        """Nothing."""
        return Shedding(held_back=(self.why,), memory=memory)


@dataclass
class Evacuating:
    """One decision's evacuations. `taken` marks the bundles (m) that it moved, or that it tried to."""

    cluster: ClusterLoad
    choosing: Choosing
    allowed: Guarded
    limits: MoveLimits
    caps: MoveCaps
    predicted: PredictedLoad
    rng: np.random.Generator
    memory: Mapping[str, Any]
    _left_out: dict[tuple[str, Reason], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unhurried = replace(self.limits, cool_down=-1.0)
        self._movable = movable_bundles(replace(self.cluster, withheld={}), unhurried)
        self.taken: BoolArray = np.zeros(len(self.cluster.bundles), dtype=bool)

    def moves(self, evacuation: Evacuation) -> Iterator[Move]:
        """The moves off drained brokers, then those ahead of a restart; of each broker the largest bundle first."""
        restarted = rows_of(self.cluster, evacuation.restarted)
        for source in rows_of(self.cluster, evacuation.drained).tolist():
            yield from self._emptied(source, Reason.DRAINED, self.choosing, OVERLOAD_LINE)
        ahead = replace(
            self.choosing,
            placement=LeastLoaded(self.predicted),
            brokers=np.intersect1d(restarted, self.choosing.brokers),
        )
        fair = self._fair_share()
        for source in rows_of(self.cluster, evacuation.following - evacuation.drained).tolist():
            yield from self._emptied(source, Reason.ROLLING_OUT, ahead, fair)

    def _emptied(self, source: int, reason: Reason, choosing: Choosing, line: float) -> Iterator[Move]:
        """The moves off one broker by `choosing`, to brokers that stay below `line` (weighted usage, ratio)."""
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
        """The bundles (rows) of a broker that may leave it; why the others may not is noted."""
        rows = self.cluster.bundles.owned_by(source)
        reasons = [_stays(self._movable, self.allowed.sheddable, row) for row in rows.tolist()]
        for row, reason in zip(rows.tolist(), reasons, strict=True):
            if reason is not None:
                self._leave_out(source, reason, row)
        leaving: IntArray = rows[[reason is None for reason in reasons]] if len(rows) else NOTHING
        return leaving

    def _destination(self, bundle: int, source: int, load: FloatArray, choosing: Choosing, line: float) -> int | Reason:
        """The broker (row) that gets a bundle, or why none does."""
        if not self.caps.allow():
            return self.allowed.cap
        if not self.caps.may_send(source):
            return Reason.BROKER_CAP
        candidates = np.setdiff1d(np.intersect1d(self.choosing.candidates(bundle), choosing.brokers), [source])
        if not len(candidates):
            return choosing.why_none(bundle)
        if not len(free := np.setdiff1d(candidates, self.caps.full)):
            return Reason.BROKER_CAP
        fitting = self.predicted.fitting(free, load, line)
        if not len(fitting):
            return Reason.NO_CANDIDATE
        choice = replace(choosing, brokers=fitting).best(bundle, self.predicted.cluster, self.memory)
        self.memory = choice.memory
        best = choice.brokers if len(choice.brokers) else fitting
        return int(best[self.rng.integers(len(best))])

    def _fair_share(self) -> float:
        """Weighted usage (ratio) at which all brokers but one would carry the load alike, `OVERLOAD_LINE` at most.

        The one may be missing now, so brokers that carry nothing because they restart are counted, too.
        """
        pressure = self.predicted.pressure(np.flatnonzero(self.allowed.may_shed.allowed))
        return min(OVERLOAD_LINE, float(np.nansum(pressure)) / max(1, len(self.cluster.brokers) - 1))

    def _move(  # noqa: PLR0917 - what a move is made of
        self, bundle: int, source: int, destination: int, load: FloatArray, traffic: FloatArray, reason: Reason
    ) -> Move:
        """The move, counted against the caps and into the prediction."""
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
        """What could not leave, one entry per broker and reason."""
        return tuple(
            HeldBack(broker, reason, f"{counted(len(names), 'bundle')} can't leave yet: {some(names)}", len(names))
            for (broker, reason), names in self._left_out.items()
        )


def _stays(movable: Verdict, sheddable: Verdict, row: int) -> Reason | None:
    """Why a bundle stays; None when it may leave. That it was never measured does not keep it."""
    if sheddable.reason(row) is Reason.SPLITTING:
        return Reason.SPLITTING
    reason = movable.reason(row)
    return None if reason is Reason.NO_LOAD_DATA else reason


def rows_of(cluster: ClusterLoad, brokers: frozenset[str]) -> IntArray:
    """Rows of the brokers of these names that are there, ascending."""
    index = cluster.brokers.index
    return np.array(sorted(index[name] for name in brokers if name in index), dtype=np.int64)


def set_apart(allowed: Guarded, cluster: ClusterLoad, evacuation: Evacuation) -> Guarded:
    """`allowed` with drained brokers left out of the comparison: an empty one would make the others seem too full.

    Nor do brokers receive that are drained, or restart next.
    """
    drained, closed = np.zeros(len(cluster.brokers), dtype=bool), np.zeros(len(cluster.brokers), dtype=bool)
    drained[rows_of(cluster, evacuation.drained)] = True
    closed[rows_of(cluster, evacuation.following)] = True
    may_shed = allowed.may_shed.rule_out(drained, Reason.UNSCHEDULABLE)
    may_receive = allowed.may_receive.rule_out(drained, Reason.UNSCHEDULABLE)
    return replace(allowed, may_shed=may_shed, may_receive=may_receive.rule_out(closed, Reason.ROLLING_OUT))


def resting(shedder: Shedder, allowed: Guarded, evacuation: Evacuation) -> Shedder:
    """The shedder, or one that rests: while `evacuation` says so, and when it leaves nobody to compare."""
    if evacuation.pause is not None:
        return Rests(evacuation.pause)
    left = int(allowed.may_shed.allowed.sum())
    if evacuation.drained and left < 2:  # noqa: PLR2004 - it takes two
        return Rests(HeldBack("", Reason.NO_BROKERS, f"{counted(left, 'broker')} left that is not drained"))
    return shedder
