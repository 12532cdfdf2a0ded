"""Deciders: a pair of strategies as Pulsar's leader runs it, or the same pair under Trimtab's planner."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from trimtab_lab.simulation.world import MINUTE
from trimtab_strategies.guard import MoveLimits, movable_bundles
from trimtab_strategies.model import ClusterLoad, Memory, Move, Reason, Split
from trimtab_strategies.planner.candidates import DestinationChoice, selection_on
from trimtab_strategies.planner.decide import Pair, assign, decide, only_brokers
from trimtab_strategies.planner.drain import EVACUATIONS, NO_DRAINS, Drains
from trimtab_strategies.planner.splits import splittable_bundles


@dataclass(frozen=True, slots=True)
class Orders:
    """What to do in a round: splits first, then moves."""

    moves: tuple[Move, ...] = ()
    splits: tuple[Split, ...] = ()


class Decider(Protocol):
    """Decides which broker each bundle should have."""

    def decide(self, cluster: ClusterLoad, rng: np.random.Generator, *, drains: Drains = NO_DRAINS) -> Orders:
        """Splits, moves for balance, and owners for unassigned bundles.

        drains: brokers to empty, and those that have restarted, in a rolling restart.
        """

    def forget(self) -> None:
        """Forget what another leader would not know."""


class Watcher(Protocol):
    """Sees each round of a run."""

    def see(self, cluster: ClusterLoad, orders: Orders) -> None:
        """A round: what the decider saw, and what it decided."""


@dataclass
class AsPulsar:
    """Runs a pair as the leader of Pulsar's modular manager does.

    It predicts nothing: it places all bundles of a round by the same snapshot, so all may go to one broker. It does not
    limit moves. A bundle that moved stays for half an hour. The children of a split are placed immediately.
    """

    pair: Pair
    memory: Memory = field(default_factory=Memory)

    def decide(self, cluster: ClusterLoad, rng: np.random.Generator, *, drains: Drains = NO_DRAINS) -> Orders:  # noqa: ARG002
        """See `Decider`. Pulsar does not know brokers that are gone, and does not see pods."""
        there = only_brokers(cluster, cluster.brokers.ready)
        placing = _Placing(there, self.pair, rng, self.memory.placement)
        for bundle in np.flatnonzero(there.bundles.owner < 0).tolist():
            placing.house(bundle)
        splits, splitter_memory = self._splits(there, placing)
        movable = movable_bundles(there, MoveLimits()).allowed
        movable[[there.bundles.index[split.bundle] for split in splits]] = False
        shedding = self.pair.shedder.shed(there, movable, self.memory.shedder)
        for unload in shedding.unloads:
            for bundle in unload.bundles.tolist():
                placing.move(bundle, unload.broker, unload.destination, unload.reason)
            for bundle in unload.returned.tolist():
                placing.move(bundle, unload.destination, unload.broker, unload.reason)
        self.memory = Memory(shedding.memory, placing.memory, splitter_memory)
        return Orders(tuple(placing.moves), splits)

    def forget(self) -> None:
        """See `Decider`. Pulsar's leader keeps its memory in the process."""
        self.memory = Memory()

    def _splits(self, cluster: ClusterLoad, placing: _Placing) -> tuple[tuple[Split, ...], Any]:
        if self.pair.splitter is None:
            return (), {}
        found = self.pair.splitter.split(cluster, splittable_bundles(cluster), self.memory.splitter)
        names, brokers = cluster.bundles.names, cluster.brokers.names
        splits = []
        for proposed in found.proposed:
            owners = [placing.best(proposed.bundle) for _ in range(len(proposed.boundaries) + 1)]
            owner = brokers[cluster.bundles.owner[proposed.bundle]]
            boundaries = tuple(proposed.boundaries.tolist())
            found_owners = tuple(brokers[row] if row >= 0 else owner for row in owners)
            destinations = found_owners if proposed.spread else ()
            splits.append(Split(names[proposed.bundle], owner, boundaries, proposed.reason, destinations))
        return tuple(splits), found.memory


class _Placing:
    """Chooses the destinations of one round, all by one snapshot, and collects the moves."""

    def __init__(self, cluster: ClusterLoad, pair: Pair, rng: np.random.Generator, memory: Any) -> None:
        self.cluster, self.rng, self.memory = cluster, rng, dict(memory)
        self.moves: list[Move] = []
        rows = np.arange(len(cluster.brokers))
        self._choosing = DestinationChoice(pair.placement, rows, selection_on(cluster, pair.selection))

    def best(self, bundle: int) -> int:
        """The broker (row) that the placement chooses; -1 when no broker may have the bundle (row)."""
        choice = self._choosing.best(bundle, self.cluster, self.memory)
        self.memory = dict(choice.memory)
        return int(choice.brokers[self.rng.integers(len(choice.brokers))]) if len(choice.brokers) else -1

    def house(self, bundle: int) -> None:
        """Give a bundle its first owner. The placement remembers this choice, but not the choices after shedding."""
        broker = self.best(bundle)
        if broker >= 0:
            self.memory = dict(self._choosing.chosen(bundle, broker, self.cluster, self.memory))
            self._add(bundle, -1, broker, Reason.BROKER_LOST)

    def move(self, bundle: int, source: int, destination: int, reason: Reason) -> None:
        """Move a bundle (row). Without a `destination` (-1), the placement chooses one."""
        broker = self.best(bundle) if destination < 0 else destination
        if broker not in (-1, source):
            self._add(bundle, source, broker, reason)

    def _add(self, bundle: int, source: int, destination: int, reason: Reason) -> None:
        names, brokers = self.cluster.bundles.names, self.cluster.brokers.names
        self.moves.append(Move(names[bundle], brokers[source] if source >= 0 else "", brokers[destination], reason))


@dataclass
class UnderTrimtab:
    """Runs the pair through `planner.decide` with `limits`, as the operator does."""

    pair: Pair
    limits: MoveLimits = field(default_factory=MoveLimits)
    memory: Memory = field(default_factory=Memory)
    _moved: deque[tuple[float, int]] = field(default_factory=deque)

    def decide(
        self,
        cluster: ClusterLoad,
        rng: np.random.Generator,
        *,
        drains: Drains = NO_DRAINS,
        balances: bool = True,
        admit: Callable[[Orders], Orders] = lambda orders: orders,
    ) -> Orders:
        """See `Decider`. Unassigned bundles come first; they are not shed in the same round.

        drains: brokers to empty. balances: whether to carry out all of the plan, and not only drains and new owners.
        admit: selects the orders that are carried out.
        """
        while self._moved and self._moved[0][0] <= cluster.now - 60 * MINUTE:
            self._moved.popleft()
        given = self.assign(cluster, rng, drains)
        last_hour = sum(count for _, count in self._moved)
        before = self.memory
        decision = decide(
            cluster, self.pair, self.limits, before, rng, moved_last_hour=last_hour, drains=drains, audited=False
        )
        self.memory, plan = decision.memory, decision.plan
        if not balances:
            if plan.splits:  # they are not made, so the hit counts stay
                self.memory = replace(self.memory, splitter=before.splitter)
            plan = replace(plan, moves=tuple(move for move in plan.moves if move.reason in EVACUATIONS), splits=())
        orders = admit(Orders((*given, *plan.moves), plan.splits))
        parted = sum(owner != split.source for split in orders.splits for owner in split.destinations)
        if moved := sum(bool(move.source) for move in orders.moves) + parted:
            self._moved.append((cluster.now, moved))
        return orders

    def resume(self, memory: Memory, moves: Sequence[tuple[float, int]]) -> None:
        """Continue from the state of another decider. moves: (epoch seconds, number of moves) in the last hour."""
        self.memory, self._moved = memory, deque(moves)

    def forget(self) -> None:
        """See `Decider`. Trimtab's memory is in a ConfigMap, so another leader has it."""

    def assign(self, cluster: ClusterLoad, rng: np.random.Generator, drains: Drains = NO_DRAINS) -> tuple[Move, ...]:
        """Owners for the bundles that have none."""
        bundles = np.flatnonzero(cluster.bundles.owner < 0)
        if not len(bundles):
            return ()
        pair, limits, reason = self.pair, self.limits, Reason.BROKER_LOST
        decision = assign(
            cluster, bundles, pair.placement, limits, self.memory, rng, reason, pair.selection, drains.restarted
        )
        self.memory = decision.memory
        return decision.plan.moves
