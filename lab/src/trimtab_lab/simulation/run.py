"""Runs a world round by round: serve, snapshot, decision, moves that land after a while, next round."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from trimtab_lab.simulation.deciders import Decider, Watcher
from trimtab_lab.simulation.run_bundles import RunBundles
from trimtab_lab.simulation.served_load import latency, pressure, serve, serve_before, usage
from trimtab_lab.simulation.shown_metrics import ShownMetrics
from trimtab_lab.simulation.world import MINUTE, World
from trimtab_strategies.filters.isolation import IsolationRules
from trimtab_strategies.model import ClusterLoad, HeldBack, Move, Reason, Split, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.planner.drain import NO_DRAINS, Drains
from trimtab_strategies.shedding.trim.samples import SampleRing

UPHILL = 0.01
"""Ratio by which the destination's usage must exceed the source's for a move to count as backward."""


@dataclass(frozen=True)
class Record:
    """The history of a run.

    imbalance: (rounds + 1,) percentage points: the range of the brokers' distances from their target usage, without
               noise. The first value is before any move, each other one after the round's moves have landed.
    pressure:  (rounds + 1, n) usage (ratio) if all traffic were served, without noise; NaN for absent brokers.
    overshoot: (rounds,) most percentage points by which a broker that received more than it gave is above its target.
    moves, splits: (rounds,) number of bundles that the decider moved for balance, and that it split.
    cut:       ratio of the cluster's clients that lost their connection, counted each time.
    again:     moves of bundles that had moved before.
    backward:  moves to a broker whose usage exceeded the source's by `UPHILL` or more.
    wanted, unserved: bytes/s, summed over all rounds: what clients wanted, and what was not served in the end.
    latency:   (rounds, n) milliseconds of a publish (99th percentile), NaN for absent brokers.
    owned:     number of times that a bundle without an owner got one, divided by the number of all bundles.
    """

    imbalance: FloatArray
    pressure: FloatArray
    overshoot: FloatArray
    moves: IntArray
    splits: IntArray
    cut: float
    again: int
    backward: int
    wanted: float
    unserved: float
    latency: FloatArray
    owned: float


def run(world: World, decider: Decider, rng: np.random.Generator, watcher: Watcher | None = None) -> Record:
    """Let `decider` balance `world` from its first round to its last. watcher: sees each round."""
    (chance,) = rng.spawn(1)
    loop = _Loop(world, chance)
    for step in range(world.rounds):
        loop.run_round(step, decider, rng, watcher)
    return loop.record()


@dataclass
class _Landing:
    """A pending move: name of the bundle, row of its destination, and the round in which it lands."""

    bundle: str
    broker: int
    due: int


class _Loop:
    """One run in progress."""

    def __init__(self, world: World, chance: np.random.Generator) -> None:
        self.world, self.chance = world, chance
        self.state, self.metrics, self.ring = RunBundles.of(world), ShownMetrics(world), SampleRing(averaged=True)
        self.landing: list[_Landing] = []
        self.rows = {name: row for row, name in enumerate(world.brokers)}
        self.allowed = _isolated(world)
        self.recent: deque[FloatArray] = deque(maxlen=world.metrics.bundles_late + 1)
        for minute in range(len(world.before)):
            served = serve_before(world, minute, self.state)
            self.state.measure(self._late(served.load))
            self.metrics.see_before(self.state, served)
        self.imbalance: list[float] = []
        self.pressure: list[FloatArray] = []
        self.overshoot: list[float] = []
        self.latency: list[FloatArray] = []
        self.moves, self.splits = np.zeros((2, world.rounds), dtype=np.int64)
        self.cut, self.again, self.backward, self.owned = 0.0, 0, 0, 0
        self.wanted, self.lost = 0.0, 0.0
        self._score(0, np.zeros(len(world.cores)))

    def record(self) -> Record:
        """The history of the rounds so far."""
        late = float(self.state.backlog.sum()) / MINUTE
        return Record(
            imbalance=np.array(self.imbalance),
            pressure=np.array(self.pressure),
            overshoot=np.array(self.overshoot[1:]),
            moves=self.moves,
            splits=self.splits,
            cut=self.cut / float(self.world.sessions.sum()),
            again=self.again,
            backward=self.backward,
            wanted=self.wanted,
            unserved=self.lost + late,
            latency=np.array(self.latency),
            owned=self.owned / len(self.world.owner),
        )

    def run_round(self, step: int, decider: Decider, rng: np.random.Generator, watcher: Watcher | None) -> None:
        """Play one round, and show it to the watcher."""
        world, state = self.world, self.state
        state.serving[(state.serving >= 0) & ~world.present[step][state.serving]] = -1
        served = serve(world, step, state)
        self.wanted, self.lost = self.wanted + served.wanted, self.lost + served.lost
        state.measure(self._late(served.load))
        used = usage(world, state, served.load, world.foreign[step], state.serving)
        slow = latency(world, np.maximum(used, served.cpu / world.cores))
        self.latency.append(np.where(world.present[step], slow, np.nan))
        owner, moving = self._desired()
        if step in world.failovers:
            self.ring = SampleRing(averaged=True)
            decider.forget()
        cluster = self.ring.add(self.metrics.snapshot(step, state, served, owner, moving))
        orders = decider.decide(cluster, rng, drains=self._rollout(step))
        if watcher is not None:
            watcher.see(cluster, orders)
        state.since += 1
        state.gap[:] = 0
        parted = self._split(step, orders.splits)
        self._begin(step, cluster, [*parted, *orders.moves], {move.bundle for move in parted})
        self._land(step)

    def _rollout(self, step: int) -> Drains:
        """What pods show of a rolling restart: which brokers have restarted, and that others will."""
        restarted = self.world.rollouts.get(step)
        if restarted is None:
            return NO_DRAINS
        text = f"{counted(len(restarted), 'broker')} of a rolling restart have restarted; nothing is shed meanwhile"
        return Drains(restarted=restarted, pause=HeldBack("", Reason.ROLLING_OUT, text))

    def _late(self, load: FloatArray) -> FloatArray:
        """The load (m,) that is measured in this round, which is an older one if bundles are measured late."""
        if self.recent and len(self.recent[-1]) != len(load):
            self.recent.clear()  # a split changed the rows
        self.recent.append(load)
        return self.recent[0]

    def _desired(self) -> tuple[IntArray, IntArray]:
        """The desired owner (m,) of each bundle, and the source (m,) of its pending move, otherwise -1."""
        owner, moving = self.state.serving.copy(), np.full(len(self.state), -1)
        for move in self.landing:
            row = self.state.index[move.bundle]
            owner[row], moving[row] = move.broker, self.state.serving[row]
        return owner, moving

    def _split(self, step: int, splits: Iterable[Split]) -> list[Move]:
        """Make the splits, and return the moves of the children that leave."""
        moves: list[Move] = []
        open_ones = {move.bundle for move in self.landing}
        for split in splits:
            row = self.state.index.get(split.bundle)
            if row is None or split.bundle in open_ones or self.state.serving[row] < 0:
                continue
            self.cut += float(self.world.sessions[self.state.origin[row]] * self.state.share[row])
            children = self.state.split(self.world, row, split.boundaries)
            for child in children:
                self.state.times[self.state.index[child]] = 0
            self.splits[step] += 1
            pairs = zip(children, split.destinations or (split.source,) * len(children), strict=True)
            moves += [Move(child, split.source, to, split.reason) for child, to in pairs if to != split.source]
        return moves

    def _begin(self, step: int, cluster: ClusterLoad, moves: Iterable[Move], parted: set[str]) -> None:
        """Begin moves of bundles that are not moving. parted: children whose clients the split has disconnected."""
        now = pressure(self.world, step, self.state)
        open_ones = {move.bundle for move in self.landing}
        for move in moves:
            row, broker = self.state.index.get(move.bundle), self.rows[move.destination]
            if row is None or move.bundle in open_ones or not self.allowed[self.state.namespace[row], broker]:
                continue
            open_ones.add(move.bundle)
            source = int(self.state.serving[row])
            landing = _Landing(move.bundle, broker, step + self.world.landing)
            there = self.world.present[step] & self.allowed[self.state.namespace[row]]
            self.landing.append(self._outcome(landing, source, there))
            if source < 0:
                self.owned += 1
                continue
            self.moves[step] += 1
            self.again += int(self.state.times[row] > 0)
            self.state.times[row] += 1
            self.backward += int(now[broker] - now[source] >= UPHILL)
            self.state.last_unload[row] = cluster.now
            if move.bundle not in parted:
                self.cut += float(self.world.sessions[self.state.origin[row]] * self.state.share[row])

    def _outcome(self, move: _Landing, source: int, there: BoolArray) -> _Landing:
        """The move as it will end: it may have no effect, or end elsewhere. there: (n,) brokers that may have it."""
        failures = self.world.realism.failures
        if failures is None:
            return move
        luck, other = self.chance.random(), int(self.chance.integers(len(self.world.cores)))
        if luck < failures.lost:
            return replace(move, broker=source)
        return replace(move, broker=other) if luck < failures.lost + failures.elsewhere and there[other] else move

    def _land(self, step: int) -> None:
        """Complete the moves that are due by the next round, and score the cluster after them."""
        state, net = self.state, np.zeros(len(self.world.cores))
        for move in self.landing:
            row = state.index[move.bundle]
            source, load = int(state.serving[row]), float(self.world.real[step, state.origin[row]] * state.share[row])
            if move.due > step + 1 or source == move.broker:
                continue
            if source >= 0:
                net[source] -= load
                net[move.broker] += load
                state.gap[row] = self._gap()
            state.serving[row], state.since[row] = move.broker, 0
        self.landing = [move for move in self.landing if move.due > step + 1]
        self._score(step, net)

    def _gap(self) -> float:
        reconnect = self.world.realism.reconnect
        if reconnect is None or reconnect.gap == 0:
            return 0.0
        return min(MINUTE, reconnect.gap * float(np.exp(self.chance.normal(0, reconnect.spread))))

    def _score(self, step: int, net: FloatArray) -> None:
        """Note imbalance, overshoot and pressure. net: (n,) bytes/s that landed on each broker, less what left it."""
        there = self.world.present[step]
        now = pressure(self.world, step, self.state)
        away = (now - self.world.targets[step]) * 100
        self.imbalance.append(float(np.ptp(away[there])) if there.any() else 0.0)
        self.overshoot.append(float(away[there & (net > 0)].max(initial=0.0)))
        self.pressure.append(np.where(there, now, np.nan))


def _isolated(world: World) -> BoolArray:
    """Which brokers each namespace is isolated to, (namespaces, n)."""
    rules = IsolationRules(world.brokers, world.policies)
    allowed = np.ones((len(world.namespaces), len(world.brokers)), dtype=bool)
    for row, space in enumerate(world.namespaces):
        if (hosts := rules.of(space)) is not None:
            allowed[row] = hosts.primary
    return allowed
