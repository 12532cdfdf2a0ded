"""Who decides in the world: a pair of strategies as Pulsar's leader runs it, or under Trimtab's balancer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trimtab_strategies.balancer import Pair, assign, decide, only_brokers
from trimtab_strategies.constraints import Limits, movable_bundles
from trimtab_strategies.model import ClusterLoad, Memory, Plan, Reason
from trimtab_strategies.model.load import IntArray
from trimtab_strategies.simulation.picture import MINUTE

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
        shedding = self.pair.shedder.shed(there, movable_bundles(there, Limits()).allowed, self.memory.shedder)
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
    limits: Limits = field(default_factory=Limits)
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
