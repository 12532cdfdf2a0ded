"""The balancer: runs a pair of strategies under the guard and makes a `Plan` of what they say.

`decide` moves bundles between brokers. A move is kept only if it makes things better: the destination, with the
bundle, must stay below what the source is at now. That holds whatever the strategies answer, so two of them that
disagree can't pass a bundle back and forth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab_strategies.assignment import assign
from trimtab_strategies.constraints import Guarded, Limits, guard
from trimtab_strategies.model import CPU, ClusterLoad, Decision, HeldBack, Memory, Move, Plan, Reason, counted
from trimtab_strategies.model.load import BoolArray, FloatArray, IntArray
from trimtab_strategies.predicted import PredictedLoad
from trimtab_strategies.protocols import Placement, Shedder, Shedding, Unload, forget_others
from trimtab_strategies.usage import DEFAULT_WEIGHTS, Weights, attributed, percent, with_moves_in_flight

__all__ = ["Pair", "assign", "decide"]

MAX_ROUNDS = 10
"""How often in one decision the shedder is asked for others than those that no broker can take."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A shedder and a placement, and the weights by which the balancer compares brokers (those of the shedder)."""

    shedder: Shedder
    placement: Placement
    weights: Weights = DEFAULT_WEIGHTS


def decide(
    cluster: ClusterLoad,
    pair: Pair,
    limits: Limits,
    memory: Memory,
    rng: np.random.Generator,
    *,
    moved_last_hour: int = 0,
) -> Decision:
    """What `pair` would move now, within `limits`, and what it would not and why.

    memory: what the last decision returned. rng: picks among equally good destinations. moved_last_hour: moves made in
    the hour before `cluster.now`. When the guard refuses the cycle nothing moves and the memory stays as it is, since
    doubtful data must not enter the averages.
    """
    before = percent(cluster.brokers.usage, cluster.brokers.limit).astype(np.float64)
    landed = with_moves_in_flight(cluster)
    allowed = guard(landed, limits, moved_last_hour=moved_last_hour)
    predicted = PredictedLoad(landed, pair.weights)
    if allowed.refusal is not None:
        held_back = (allowed.refusal, *allowed.held_back)
        return Decision(Plan((), held_back, cluster.brokers.names, before, predicted.percent()), memory)
    placing = _Placing(landed, pair.placement, allowed, limits, predicted, rng, memory.placement)
    shedding, moves = _shed_and_place(landed, pair.shedder, allowed, placing, memory.shedder)
    held_back = (*shedding.held_back, *placing.held_back(), *allowed.held_back)
    plan = Plan(tuple(moves), held_back, cluster.brokers.names, before, predicted.percent())
    names = cluster.brokers.names
    return Decision(plan, Memory(forget_others(shedding.memory, names), forget_others(placing.memory, names)))


def _shed_and_place(
    cluster: ClusterLoad, shedder: Shedder, allowed: Guarded, placing: _Placing, memory: Mapping[str, Any]
) -> tuple[Shedding, list[Move]]:
    """The shedder's answer, and the moves made of it.

    A bundle that no broker could take without being worse off is taken off the table, and the shedder is asked again
    on the same memory: else a broker with one huge bundle would offer it for ever and keep the small ones as well.
    """
    first = shed(cluster, shedder, allowed, placing.homeless, memory)
    moves = list(placing.moves(first.unloads))
    known = 0
    for _ in range(MAX_ROUNDS - 1):
        if placing.homeless.sum() == known:
            break
        known = int(placing.homeless.sum())
        moves += placing.moves(shed(cluster, shedder, allowed, placing.homeless, memory).unloads)
    return first, moves


def shed(
    cluster: ClusterLoad, shedder: Shedder, allowed: Guarded, homeless: BoolArray, memory: Mapping[str, Any]
) -> Shedding:
    """Ask the shedder about the brokers that take part, without the `homeless` bundles (m); in rows of `cluster`."""
    part = allowed.may_shed.allowed
    sheddable = allowed.sheddable.allowed & ~homeless
    if part.all():
        return shedder.shed(cluster, sheddable, memory)
    rows = np.flatnonzero(part)
    smaller = only_brokers(cluster, part)
    answer = shedder.shed(smaller, sheddable & (smaller.bundles.owner >= 0), memory)
    return replace(answer, unloads=tuple(replace(unload, broker=int(rows[unload.broker])) for unload in answer.unloads))


def only_brokers(cluster: ClusterLoad, part: BoolArray) -> ClusterLoad:
    """The cluster with only the brokers marked in `part` (n); bundles of the others are left without an owner."""
    brokers = cluster.brokers
    row = np.append(np.where(part, np.cumsum(part) - 1, -1), -1)  # the last one is for bundles of nobody (-1)
    columns = ("usage", "limit", "traffic", "age", "ready", "schedulable", "trusted")
    fewer = replace(
        brokers,
        names=tuple(name for name, kept in zip(brokers.names, part.tolist(), strict=True) if kept),
        **{column: getattr(brokers, column)[part] for column in columns},
    )
    bundles = replace(cluster.bundles, owner=row[cluster.bundles.owner], moving_from=row[cluster.bundles.moving_from])
    return replace(cluster, brokers=fewer, bundles=bundles)


@dataclass
class _Placing:
    """One decision's placements: gives each bundle that should leave a destination, until a cap is reached."""

    cluster: ClusterLoad
    placement: Placement
    allowed: Guarded
    limits: Limits
    predicted: PredictedLoad
    rng: np.random.Generator
    memory: Mapping[str, Any]
    _left_out: dict[tuple[int, Reason], list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.cluster.brokers)
        self._sent, self._received = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self._candidates = np.flatnonzero(self.allowed.may_receive.allowed)
        self._budget = self.allowed.budget
        self._seen: set[int] = set()
        self.homeless: BoolArray = np.zeros(len(self.cluster.bundles), dtype=bool)

    def moves(self, unloads: tuple[Unload, ...]) -> Iterator[Move]:
        """The moves that are kept, in the order in which they are to be made."""
        unloads = tuple(replace(unload, bundles=self.movable(unload)) for unload in unloads)
        order = np.concatenate([unload.bundles for unload in unloads] or [np.empty(0, dtype=np.int64)])
        load = attributed(self.cluster, order)
        points = percent(load, self.cluster.brokers.limit[self.cluster.bundles.owner[order]])[:, CPU]
        caused = dict(zip(order.tolist(), zip(load, points.tolist(), strict=True), strict=True))
        for unload, bundle in self.in_turn(unloads):
            if bundle in self._seen:
                continue  # named twice, or in an earlier round
            self._seen.add(bundle)
            load, cpu = caused[bundle]
            destination = self.destination(unload.broker, bundle, load)
            if isinstance(destination, Reason):
                self.homeless[bundle] = destination is Reason.NO_CANDIDATE
                self._left_out.setdefault((unload.broker, destination), []).append(self.cluster.bundles.names[bundle])
            else:
                yield self.made(unload, bundle, destination, load, cpu)

    def movable(self, unload: Unload) -> IntArray:
        """The unload's bundles that its broker really has and that may be moved, whatever the strategy says."""
        rows = unload.bundles
        movable: IntArray = rows[
            self.allowed.sheddable.allowed[rows] & (self.cluster.bundles.owner[rows] == unload.broker)
        ]
        return movable

    def in_turn(self, unloads: tuple[Unload, ...]) -> Iterator[tuple[Unload, int]]:
        """Every broker's first bundle, the most used broker first, then every second one: caps hit all alike."""
        sources = np.array([unload.broker for unload in unloads], dtype=np.int64)
        usage = self.predicted.pressure(sources)
        busiest = [unloads[k] for k in np.argsort(-usage, kind="stable")]
        for turn in range(max((len(unload.bundles) for unload in unloads), default=0)):
            yield from ((unload, int(unload.bundles[turn])) for unload in busiest if turn < len(unload.bundles))

    def destination(self, source: int, bundle: int, load: FloatArray) -> int | Reason:
        """The broker (row) that gets the bundle, or why none does."""
        if self._budget <= 0:
            return self.allowed.cap
        if self._sent[source] >= self.limits.max_moves_per_broker:
            return Reason.BROKER_CAP
        if not len(self._candidates):
            return Reason.NO_CANDIDATE if not self.allowed.may_receive.allowed.any() else Reason.BROKER_CAP
        choice = self.placement.best(self.predicted.cluster, bundle, self._candidates, self.memory)
        self.memory = choice.memory
        others = choice.brokers[choice.brokers != source]
        if not len(others):
            return Reason.SAME_BROKER
        better = self.predicted.better(source, others, load)
        return int(better[self.rng.integers(len(better))]) if len(better) else Reason.NO_CANDIDATE

    def made(self, unload: Unload, bundle: int, destination: int, load: FloatArray, cpu: float) -> Move:
        """The move, counted against the caps and into the prediction."""
        cluster, source = self.cluster, unload.broker
        self.predicted.move(source, destination, load, cluster.bundles.short[bundle])
        self._budget -= 1
        self._sent[source] += 1
        self._received[destination] += 1
        if self._received[destination] >= self.limits.max_moves_per_broker:
            self._candidates = self._candidates[self._candidates != destination]
        names = cluster.brokers.names
        return Move(cluster.bundles.names[bundle], names[source], names[destination], unload.reason, cpu)

    def held_back(self) -> list[HeldBack]:
        """What was not moved, one entry per source and reason."""
        words = {
            Reason.SAME_BROKER: "the placement chose no other broker",
            Reason.NO_CANDIDATE: "no broker would be better off than the source is now",
            Reason.BROKER_CAP: f"at most {counted(self.limits.max_moves_per_broker, 'move')} per broker and cycle",
            Reason.CYCLE_CAP: f"at most {counted(self.limits.max_moves_per_cycle, 'move')} per cycle",
            Reason.HOUR_CAP: f"at most {counted(self.limits.max_moves_per_hour, 'move')} per hour",
        }
        found = [(self.cluster.brokers.names[broker], why, names) for (broker, why), names in self._left_out.items()]
        return [
            HeldBack(broker, why, f"{counted(len(names), 'bundle')}, first {names[0]}: {words[why]}", len(names))
            for broker, why, names in found
        ]
