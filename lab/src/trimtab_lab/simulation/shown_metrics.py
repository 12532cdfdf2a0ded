"""What the metrics show: snapshots of a run as `ClusterLoad`, with the false values that the scenario requests.

Bundles are measured exactly, but perhaps late. The CPU of brokers may be noisy, spike, be missing, or come from an old
report. The figures of brokers may be averages, or rates over a minute that ended some seconds ago.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_lab.simulation.run_bundles import RunBundles
from trimtab_lab.simulation.served_load import Served
from trimtab_lab.simulation.world import MINUTE, START, World
from trimtab_strategies.model import (
    CPU,
    MEMORY,
    NETWORK_IN,
    NETWORK_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Brokers,
    Bundles,
    ClusterLoad,
    Topics,
)
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.usage import sum_by_broker

HOT = 0.1
"""The topics of a bundle are known if the bundle needs at least this ratio of an average machine's CPU."""

MEMORY_USED, MEMORY_LIMIT = 3.0, 10.0
"""Heap of every broker. It does not move with bundles."""


@dataclass
class _Report:
    """Figures of all brokers at the time of a report: usage (n, 5), traffic (n, 4), age (n,) seconds."""

    usage: FloatArray
    traffic: FloatArray
    age: FloatArray


class ShownMetrics:
    """Takes snapshots of one run. It remembers the last reports and averages of the brokers."""

    def __init__(self, world: World) -> None:
        """Prepare what does not change in a run."""
        self.world, n = world, len(world.cores)
        self._limit = np.stack(
            [world.cores, np.full(n, MEMORY_LIMIT), np.full(n, MEMORY_LIMIT), world.nic, world.nic], axis=1
        )
        rate = 1 / world.message
        share_in, share_out = world.share_in, 1 - world.share_in
        self._mix = np.stack([share_in * rate, share_out * rate, share_in, share_out], axis=1)
        self._averaged: _Report | None = None
        self._last: _Report | None = None
        self._shown: _Report | None = None
        gap = world.realism.reconnect
        self._gaps = {} if gap is None else dict.fromkeys(world.namespaces, gap.gap)
        self._names: tuple[int, tuple[str, ...]] = (0, ())

    def see_before(self, state: RunBundles, served: Served) -> None:
        """Include the figures of one minute before the first round in the averages of the brokers."""
        self._average(self._taken(state, served))

    def snapshot(self, step: int, state: RunBundles, served: Served, owner: IntArray, moving: IntArray) -> ClusterLoad:
        """The cluster after a round. owner: (m,) desired owners. moving: (m,) source of pending moves, otherwise -1."""
        bundles = self._bundles(state, owner, moving)
        brokers = self._brokers(step, state, served)
        return ClusterLoad(
            brokers,
            bundles,
            self.world.namespaces,
            START + MINUTE * step,
            topics=self._topics(state),
            traits=self.world.traits,
            policies=self.world.policies,
            publish_gaps=self._gaps,
        )

    def _bundles(self, state: RunBundles, owner: IntArray, moving: IntArray) -> Bundles:
        m, mix = len(state), self._mix[state.origin]
        unseen = (state.measured == 0)[:, np.newaxis]
        if self._names[0] != state.version:
            self._names = (state.version, tuple(state.names))
        return Bundles(
            names=self._names[1],
            namespace=state.namespace,
            owner=owner,
            short=np.where(unseen, np.nan, state.short[:, np.newaxis] * mix),
            long=np.where(unseen, np.nan, state.long[:, np.newaxis] * mix),
            topics=self._topic_counts(state),
            sessions=np.round(self.world.sessions[state.origin] * state.share),
            last_unload=state.last_unload.copy(),
            pinned=np.zeros(m, dtype=bool),
            in_flight=moving >= 0,
            moving_from=moving,
            moving_share=(moving >= 0).astype(np.float64),
            newest=np.where(unseen, np.nan, state.newest[:, np.newaxis] * mix),
        )

    def _topic_counts(self, state: RunBundles) -> FloatArray:
        counts = np.bincount(self.world.pieces.bundle, minlength=len(self.world.owner)).astype(np.float64)
        return np.maximum(np.round(counts[state.origin] * np.where(state.share < 1, state.share, 1.0)), 1)

    def _topics(self, state: RunBundles) -> Topics:
        """The topics of the bundles that need at least the ratio `HOT` of an average machine's CPU."""
        world, pieces = self.world, self.world.pieces
        part = state.newest * world.cost[state.origin] / float((world.cores * world.speed).mean())
        names: list[str] = []
        bundle, place, traffic = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)], [np.empty((0, 4))]
        for row in np.flatnonzero((part >= HOT) & (state.measured > 0)).tolist():
            origin = int(state.origin[row])
            first, last = np.searchsorted(pieces.bundle, [origin, origin + 1])
            inside = np.arange(first, last)
            inside = inside[(pieces.place[inside] >= state.lower[row]) & (pieces.place[inside] < state.upper[row])]
            space = world.namespaces[state.namespace[row]]
            names += [f"persistent://{space}/topic-{origin}-{number - first}" for number in inside.tolist()]
            bundle.append(np.full(len(inside), row))
            place.append(pieces.place[inside])
            share = pieces.share[inside] / pieces.share[inside].sum() * state.newest[row]
            traffic.append(share[:, np.newaxis] * self._mix[origin])
        return Topics(tuple(names), np.concatenate(bundle), np.concatenate(place), np.concatenate(traffic))

    def _taken(self, state: RunBundles, served: Served) -> _Report:
        """The true figures of this minute."""
        n = len(self.world.cores)
        traffic = sum_by_broker(state.serving, served.load[:, np.newaxis] * self._mix[state.origin], n)
        usage = np.zeros((n, 5))
        usage[:, CPU], usage[:, MEMORY] = served.cpu, MEMORY_USED
        usage[:, NETWORK_IN], usage[:, NETWORK_OUT] = traffic[:, THROUGHPUT_IN], traffic[:, THROUGHPUT_OUT]
        return _Report(usage, traffic, np.zeros(n))

    def _average(self, taken: _Report) -> _Report:
        """`taken`, averaged with the earlier reports."""
        weight, before = self.world.metrics.newest, self._averaged
        if before is not None and weight < 1:
            taken = _Report(
                before.usage + weight * (taken.usage - before.usage),
                before.traffic + weight * (taken.traffic - before.traffic),
                taken.age,
            )
        self._averaged = taken
        return taken

    def _brokers(self, step: int, state: RunBundles, served: Served) -> Brokers:
        """The brokers' reports with this round's false values."""
        world, lies, there = self.world, self.world.lies, self.world.present[step]
        taken = self._windowed(self._taken(state, served))
        report = self._average(taken)
        cpu = np.minimum(report.usage[:, CPU] * lies.factor[step], world.cores)
        usage, traffic, age = report.usage.copy(), report.traffic.copy(), report.age.copy()
        usage[:, CPU] = np.where(lies.full[step], world.cores, cpu)
        if self._shown is not None:
            old = lies.stale[step] & (self._shown.age < np.inf)
            usage[old], traffic[old], age[old] = self._shown.usage[old], self._shown.traffic[old], MINUTE
        usage[~there], traffic[~there], age[~there] = np.nan, 0.0, np.inf
        self._shown = _Report(usage.copy(), traffic, age)
        usage[lies.missing[step], CPU] = np.nan
        return Brokers(world.brokers, usage, self._limit, traffic, age, ready=there, schedulable=there, trusted=there)

    def _windowed(self, taken: _Report) -> _Report:
        """The rates over a window that ended earlier, so that each includes a part of the minute before."""
        before, self._last = self._last, taken
        late = self.world.lies.late[:, np.newaxis]
        if before is None or not late.any():
            return taken
        return _Report(
            taken.usage + late * (before.usage - taken.usage),
            taken.traffic + late * (before.traffic - taken.traffic),
            taken.age,
        )
