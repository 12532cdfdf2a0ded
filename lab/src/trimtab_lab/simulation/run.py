"""Runs a world round by round: snapshot, decision, moves that land after a delay, next snapshot.

A decider is a pair of strategies as Pulsar's leader runs it, or the same pair under Trimtab's planner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trimtab_lab.simulation.world import MINUTE, START, Camera, Measured, World
from trimtab_strategies.guard import MoveLimits, movable_bundles
from trimtab_strategies.model import ClusterLoad, Memory, Plan, Reason
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.planner.decide import Pair, assign, decide, only_brokers

Wish = tuple[int, int]
"""A bundle and the broker that is to have it (rows)."""


class Decider(Protocol):
    """Says which bundles should go where."""

    def wishes(self, cluster: ClusterLoad, rng: np.random.Generator) -> list[Wish]:
        """Moves for balance, and owners for bundles of nobody."""


@dataclass
class AsPulsar:
    """The shedder's word is carried out as the leader of Pulsar's modular manager does it.

    Nothing is predicted: all bundles of a round are placed on the same picture, and may pile up. No cap; a bundle that
    moved stays for half an hour.
    """

    pair: Pair
    memory: Memory = field(default_factory=Memory)

    def wishes(self, cluster: ClusterLoad, rng: np.random.Generator) -> list[Wish]:
        """See `Decider`. Brokers that are gone are not known to Pulsar at all."""
        rows = np.flatnonzero(cluster.brokers.ready)
        there = only_brokers(cluster, cluster.brokers.ready)
        homeless = np.flatnonzero(there.bundles.owner < 0)
        placing: Any = dict(self.memory.placement)
        found: list[Wish] = []
        for bundle in homeless.tolist():
            broker, placing = self._placed(there, bundle, placing, rng)
            placing = self._told(there, bundle, broker, placing)
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

    def _told(self, cluster: ClusterLoad, bundle: int, broker: int, memory: Any) -> Any:
        """What the placement remembers of a bundle that gets an owner; shedding does not tell it."""
        chosen = getattr(self.pair.placement, "chosen", None)
        return chosen(cluster, bundle, broker, memory) if chosen else memory


@dataclass
class UnderTrimtab:
    """The pair under `balancer.decide` with `limits`, as the operator runs it."""

    pair: Pair
    limits: MoveLimits = field(default_factory=MoveLimits)
    memory: Memory = field(default_factory=Memory)
    _moved: deque[tuple[float, int]] = field(default_factory=deque)

    def wishes(self, cluster: ClusterLoad, rng: np.random.Generator) -> list[Wish]:
        """See `Decider`. Owners are given first; what was given one is not shed in the same round."""
        while self._moved and self._moved[0][0] <= cluster.now - 60 * MINUTE:
            self._moved.popleft()
        homeless = self._homeless(cluster)
        given: list[Wish] = []
        if len(homeless):
            decision = assign(cluster, homeless, self.pair.placement, self.limits, self.memory, rng, Reason.BROKER_LOST)
            self.memory = decision.memory
            given = list(_wishes(cluster, decision.plan))
        last_hour = sum(count for _, count in self._moved)
        decision = decide(cluster, self.pair, self.limits, self.memory, rng, moved_last_hour=last_hour)
        self.memory = decision.memory
        moved = list(_wishes(cluster, decision.plan))
        self._moved.append((cluster.now, len(moved)))
        return [*given, *moved]

    def _homeless(self, cluster: ClusterLoad) -> IntArray:
        return np.flatnonzero(cluster.bundles.owner < 0)


def _wishes(cluster: ClusterLoad, plan: Plan) -> Iterator[Wish]:
    bundles, brokers = cluster.bundles.index, cluster.brokers.index
    return ((bundles[move.bundle], brokers[move.destination]) for move in plan.moves)


UPHILL = 0.01
"""Ratio by which a destination must be more used than the source for a move to count as wrong."""


@dataclass(frozen=True)
class Record:
    """What happened.

    imbalance: (rounds + 1,) percent points, see `World.imbalance`; the first before anything moved.
    pressure:  (rounds + 1, n) usage as ratio that serving everything would need, noise left out; NaN where absent.
    moves:     (rounds,) bundles that were asked to move for balance.
    times:     (m,) how often each bundle moved for balance.
    backward:  how many of the moves went to a broker that was more used, by `UPHILL` or more, than the one they left.
    """

    imbalance: FloatArray
    pressure: FloatArray
    moves: IntArray
    times: IntArray
    backward: int


def run(world: World, decider: Decider, rng: np.random.Generator) -> Record:
    """Let `decider` balance `world` from its first round to its last."""
    loop = _Loop(world)
    moves = [loop.turn(turn, decider, rng) for turn in range(world.rounds)]
    return Record(
        imbalance=np.array(loop.imbalance),
        pressure=np.array(loop.pressure),
        moves=np.array(moves, dtype=np.int64),
        times=loop.times,
        backward=loop.backward,
    )


class _Loop:
    """One run under way. `serving` (m,) has each bundle, `landing` are the open moves and the round they land in."""

    def __init__(self, world: World) -> None:
        self.world, self.camera = world, Camera(world)
        self.serving = world.owner.copy()
        self.last_unload = np.full(len(world.owner), np.nan)
        self.times = np.zeros(len(world.owner), dtype=np.int64)
        self.landing: list[tuple[int, int, int]] = []
        self.backward = 0
        self.measured = Measured(np.zeros(len(world.size)), np.zeros(len(world.size)))
        for minute in range(len(world.before)):
            self.measured.see(world.served_before(minute, self.serving))
        self.imbalance: list[float] = []
        self.pressure: list[FloatArray] = []
        self._score(0)

    def turn(self, turn: int, decider: Decider, rng: np.random.Generator) -> int:
        """One round: the number of moves for balance that were decided in it."""
        self.serving = np.where(self._gone(turn), -1, self.serving)
        self.measured.see(self.world.served(turn, self.serving))
        open_ones = {bundle: broker for bundle, broker, _ in self.landing}
        owner, moving_from = self.serving.copy(), np.full(len(self.serving), -1)
        for bundle, broker in open_ones.items():
            owner[bundle], moving_from[bundle] = broker, self.serving[bundle]
        cluster = self.camera.picture(turn, owner, moving_from, self.last_unload.copy(), self.measured)
        wishes = [wish for wish in decider.wishes(cluster, rng) if wish[0] not in open_ones]
        moved = self._begin(turn, wishes)
        self.land(turn + 1)
        self._score(turn)
        return moved

    def land(self, turn: int) -> None:
        """Carry out the moves that are due by round `turn`."""
        for bundle, broker, due in self.landing:
            if due <= turn:
                self.serving[bundle] = broker
        self.landing = [wish for wish in self.landing if wish[2] > turn]

    def _begin(self, turn: int, wishes: list[Wish]) -> int:
        pressure = self.world.pressure(turn, self.serving)
        moved = 0
        for bundle, broker in wishes:
            source = self.serving[bundle]
            self.landing.append((bundle, broker, turn + self.world.delay))
            if source >= 0:
                moved += 1
                self.times[bundle] += 1
                self.backward += int(pressure[broker] - pressure[source] >= UPHILL)
                self.last_unload[bundle] = START + MINUTE * turn
        return moved

    def _gone(self, turn: int) -> IntArray:
        gone: IntArray = (self.serving >= 0) & ~self.world.present[turn][self.serving]
        return gone

    def _score(self, turn: int) -> None:
        self.imbalance.append(self.world.imbalance(turn, self.serving))
        pressure = self.world.pressure(turn, self.serving)
        self.pressure.append(np.where(self.world.present[turn], pressure, np.nan))
