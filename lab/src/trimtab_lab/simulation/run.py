"""Runs a simulated cluster round by round: snapshot, decision, moves that land after a delay, next snapshot.

A decider is a pair of strategies as Pulsar's leader runs it, or the same pair under Trimtab's planner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trimtab_lab.simulation.world import MINUTE, START, Camera, MeasuredAverages, World
from trimtab_strategies.guard import MoveLimits, movable_bundles
from trimtab_strategies.model import ClusterLoad, Memory, Plan, Reason
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.planner.decide import Pair, assign, decide, only_brokers

DesiredOwner = tuple[int, int]
"""A bundle and its desired owner (rows)."""


class Decider(Protocol):
    """Decides which broker each bundle should have."""

    def desired_owners(self, cluster: ClusterLoad, rng: np.random.Generator) -> list[DesiredOwner]:
        """Moves for balance, and owners for unassigned bundles."""


@dataclass
class AsPulsar:
    """Runs a pair as the leader of Pulsar's modular manager does.

    It predicts nothing: all bundles of a round are placed by the same snapshot, and may all go to one broker. There is
    no limit on moves. A bundle that moved stays for half an hour.
    """

    pair: Pair
    memory: Memory = field(default_factory=Memory)

    def desired_owners(self, cluster: ClusterLoad, rng: np.random.Generator) -> list[DesiredOwner]:
        """See `Decider`. Pulsar does not know brokers that are gone."""
        rows = np.flatnonzero(cluster.brokers.ready)
        there = only_brokers(cluster, cluster.brokers.ready)
        unassigned = np.flatnonzero(there.bundles.owner < 0)
        placing: Any = dict(self.memory.placement)
        found: list[DesiredOwner] = []
        for bundle in unassigned.tolist():
            broker, placing = self._placed(there, bundle, placing, rng)
            placing = self._remembered(there, bundle, broker, placing)
            found.append((bundle, broker))
        shedding = self.pair.shedder.shed(there, movable_bundles(there, MoveLimits()).allowed, self.memory.shedder)
        for unload in shedding.unloads:
            for bundle in unload.bundles.tolist():
                broker = unload.destination
                if broker < 0:
                    broker, placing = self._placed(there, bundle, placing, rng)
                found += [(bundle, broker)] if broker != unload.broker else []
            found += [(bundle, unload.broker) for bundle in unload.returned.tolist()]
        self.memory = Memory(shedding.memory, placing)
        return [(bundle, int(rows[broker])) for bundle, broker in found]

    def _placed(self, cluster: ClusterLoad, bundle: int, memory: Any, rng: np.random.Generator) -> tuple[int, Any]:
        choice = self.pair.placement.best(cluster, bundle, np.arange(len(cluster.brokers)), memory)
        return int(choice.brokers[rng.integers(len(choice.brokers))]), choice.memory

    def _remembered(self, cluster: ClusterLoad, bundle: int, broker: int, memory: Any) -> Any:
        """The placement's memory after a bundle got an owner by placement. Shedding does not update it."""
        chosen = getattr(self.pair.placement, "chosen", None)
        return chosen(cluster, bundle, broker, memory) if chosen else memory


@dataclass
class UnderTrimtab:
    """Runs the pair through `planner.decide` with `limits`, as the operator does."""

    pair: Pair
    limits: MoveLimits = field(default_factory=MoveLimits)
    memory: Memory = field(default_factory=Memory)
    _moved: deque[tuple[float, int]] = field(default_factory=deque)

    def desired_owners(self, cluster: ClusterLoad, rng: np.random.Generator) -> list[DesiredOwner]:
        """See `Decider`. Unassigned bundles come first; they are not shed in the same round."""
        while self._moved and self._moved[0][0] <= cluster.now - 60 * MINUTE:
            self._moved.popleft()
        unassigned = self._unassigned(cluster)
        given: list[DesiredOwner] = []
        if len(unassigned):
            decision = assign(
                cluster, unassigned, self.pair.placement, self.limits, self.memory, rng, Reason.BROKER_LOST
            )
            self.memory = decision.memory
            given = list(_desired_owners(cluster, decision.plan))
        last_hour = sum(count for _, count in self._moved)
        decision = decide(cluster, self.pair, self.limits, self.memory, rng, moved_last_hour=last_hour)
        self.memory = decision.memory
        moved = list(_desired_owners(cluster, decision.plan))
        self._moved.append((cluster.now, len(moved)))
        return [*given, *moved]

    def _unassigned(self, cluster: ClusterLoad) -> IntArray:
        return np.flatnonzero(cluster.bundles.owner < 0)


def _desired_owners(cluster: ClusterLoad, plan: Plan) -> Iterator[DesiredOwner]:
    bundles, brokers = cluster.bundles.index, cluster.brokers.index
    return ((bundles[move.bundle], brokers[move.destination]) for move in plan.moves)


UPHILL = 0.01
"""Ratio by which the destination's usage must exceed the source's for a move to count as backward."""


@dataclass(frozen=True)
class Record:
    """The history of a run.

    imbalance: (rounds + 1,) percent points, see `World.imbalance`; the first before any move.
    pressure:  (rounds + 1, n) usage as ratio that serving everything needs, without noise; NaN for absent brokers.
    moves:     (rounds,) bundles that the decider moved for balance.
    times:     (m,) how often each bundle moved for balance.
    backward:  number of moves to a broker whose usage exceeded the source's by `UPHILL` or more.
    """

    imbalance: FloatArray
    pressure: FloatArray
    moves: IntArray
    times: IntArray
    backward: int


def run(world: World, decider: Decider, rng: np.random.Generator) -> Record:
    """Let `decider` balance `world` from its first round to its last."""
    loop = _Loop(world)
    moves = [loop.run_round(step, decider, rng) for step in range(world.rounds)]
    return Record(
        imbalance=np.array(loop.imbalance),
        pressure=np.array(loop.pressure),
        moves=np.array(moves, dtype=np.int64),
        times=loop.times,
        backward=loop.backward,
    )


class _Loop:
    """One run in progress. serving: (m,) broker of each bundle. landing: open moves with the round in which they
    land.
    """

    def __init__(self, world: World) -> None:
        self.world, self.camera = world, Camera(world)
        self.serving = world.owner.copy()
        self.last_unload = np.full(len(world.owner), np.nan)
        self.times = np.zeros(len(world.owner), dtype=np.int64)
        self.landing: list[tuple[int, int, int]] = []
        self.backward = 0
        self.measured = MeasuredAverages(np.zeros(len(world.size)), np.zeros(len(world.size)))
        for minute in range(len(world.before)):
            self.measured.see(world.served_before(minute, self.serving))
        self.imbalance: list[float] = []
        self.pressure: list[FloatArray] = []
        self._score(0)

    def run_round(self, step: int, decider: Decider, rng: np.random.Generator) -> int:
        """Play one round; returns the number of moves for balance that were decided."""
        self.serving = np.where(self._gone(step), -1, self.serving)
        self.measured.see(self.world.served(step, self.serving))
        open_ones = {bundle: broker for bundle, broker, _ in self.landing}
        owner, moving_from = self.serving.copy(), np.full(len(self.serving), -1)
        for bundle, broker in open_ones.items():
            owner[bundle], moving_from[bundle] = broker, self.serving[bundle]
        cluster = self.camera.snapshot(step, owner, moving_from, self.last_unload.copy(), self.measured)
        desired_owners = [desired for desired in decider.desired_owners(cluster, rng) if desired[0] not in open_ones]
        moved = self._begin(step, desired_owners)
        self.land(step + 1)
        self._score(step)
        return moved

    def land(self, step: int) -> None:
        """Complete the moves that are due by round `step`."""
        for bundle, broker, due in self.landing:
            if due <= step:
                self.serving[bundle] = broker
        self.landing = [desired for desired in self.landing if desired[2] > step]

    def _begin(self, step: int, desired_owners: list[DesiredOwner]) -> int:
        pressure = self.world.pressure(step, self.serving)
        moved = 0
        for bundle, broker in desired_owners:
            source = self.serving[bundle]
            self.landing.append((bundle, broker, step + self.world.delay))
            if source >= 0:
                moved += 1
                self.times[bundle] += 1
                self.backward += int(pressure[broker] - pressure[source] >= UPHILL)
                self.last_unload[bundle] = START + MINUTE * step
        return moved

    def _gone(self, step: int) -> IntArray:
        gone: IntArray = (self.serving >= 0) & ~self.world.present[step][self.serving]
        return gone

    def _score(self, step: int) -> None:
        self.imbalance.append(self.world.imbalance(step, self.serving))
        pressure = self.world.pressure(step, self.serving)
        self.pressure.append(np.where(self.world.present[step], pressure, np.nan))
