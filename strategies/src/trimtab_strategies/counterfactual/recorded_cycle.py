"""Recorded cycles, and what brokers would have used in them if bundles had had other owners.

    cpu'_i = cpu_i + slope_i * (U'_i - U_i)         U, U': work of the bundles that i had, and would have had
    network'_i = network_i + (bytes'_i - bytes_i)

So usage that the bundles do not explain (a broker's idle CPU, other programs, noise) stays as it was measured. While
every bundle has its real owner, usage is as measured. Slopes are those of Trim's model of brokers, learned from the
cycles in their order. Memory does not follow bundles: it stays as measured.

Clients of a full machine want more than it serves: see `demand`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import Brokers, FloatArray, IntArray, SmallFloatArray, somewhere
from trimtab_strategies.shedding.trim.demand import served, wanted
from trimtab_strategies.shedding.trim.model import learned
from trimtab_strategies.shedding.trim.readings import FULL, work_of
from trimtab_strategies.shedding.trim.replay import WINDOW
from trimtab_strategies.shedding.trim.samples import sampled
from trimtab_strategies.usage import network_limits, sum_by_broker


@dataclass(frozen=True)
class RecordedCycle:
    """A cycle as it really was; n brokers, m bundles.

    load: the cluster as it was, each bundle with the owner it had.
    wanted: (m, 4) columns `TRAFFIC`, what each bundle's clients wanted. work: (m,) bytes/s of CPU work.
    slope: (n,) cores per byte/s of work. recent: the last minutes of the bundles, as in `RecentSamples`.
    sketches: bundle -> parts of its range, if known: (t, 4) first hash, number of hashes, topics, bytes/s.
    """

    load: ClusterLoad
    wanted: FloatArray
    work: FloatArray
    slope: FloatArray
    recent: Sequence[SmallFloatArray]
    sketches: Mapping[str, FloatArray] = field(default_factory=dict)

    @cached_property
    def clients(self) -> float:
        """Producers and consumers of all bundles; NaN if unknown."""
        sessions = self.load.bundles.sessions
        return float(np.nansum(sessions)) if np.isfinite(sessions).any() else float("nan")

    @cached_property
    def _all_work(self) -> float:
        return float(self.work.sum())

    def brokers_with(self, owner: IntArray) -> Brokers:
        """The brokers as they would have been measured with these owners: (m,) rows of brokers, -1 for none."""
        then, brokers = self.load.bundles.owner, self.load.brokers
        moved = np.flatnonzero(owner != then)
        if not len(moved):
            return brokers
        amounts, n = np.column_stack([self.wanted[moved], self.work[moved]]), len(brokers)  # of each bundle
        shift = sum_by_broker(owner[moved], amounts, n) - sum_by_broker(then[moved], amounts, n)
        usage, traffic = brokers.usage.copy(), np.maximum(brokers.traffic + shift[:, :4], 0)
        limit = np.where(brokers.limit[:, CPU] > 0, brokers.limit[:, CPU], np.inf)
        most = np.fmax(limit, usage[:, CPU])  # a sample may exceed the limit
        usage[:, CPU] = np.minimum(np.maximum(usage[:, CPU] + self.slope * shift[:, 4], 0), most)
        network = [NETWORK_IN, NETWORK_OUT]
        bytes_per_second = np.where(np.isfinite(network_limits(brokers.limit)), shift[:, 2:4], 0.0)
        usage[:, network] = np.maximum(usage[:, network] + bytes_per_second, 0)
        return replace(brokers, usage=usage, traffic=traffic)

    def measured_there(self, owner: IntArray) -> float:
        """Ratio 0-1 of the work that was measured on the broker that would have it with these owners (m,)."""
        there = owner == self.load.bundles.owner
        if there.all() or not self._all_work > 0:
            return 1.0
        return float(self.work[there].sum()) / self._all_work


@dataclass
class CycleReader:
    """Reads cycles, oldest first, and learns the slopes of the brokers from them. memory: that of Trim's model."""

    memory: dict[str, Any] = field(default_factory=dict)

    def read(self, seen: ClusterLoad) -> RecordedCycle | None:
        """The next cycle, with the slopes learned so far; None if `seen` has no recent samples yet."""
        if seen.recent is None or not len(seen.recent):
            return None
        model, self.memory = learned(seen, seen.recent.last(WINDOW), self.memory)
        slope = np.where(np.isfinite(model.slope), model.slope, 0.0)
        wants = _wanted(seen, seen.recent.bundles[:-1])
        work = work_of(sampled(wants), model.message)
        return RecordedCycle(seen, wants, work, slope, seen.recent.bundles)


def _wanted(load: ClusterLoad, earlier: Sequence[SmallFloatArray]) -> FloatArray:
    """(m, 4) what clients wanted: the newest sample, or else the short average; 0 for a bundle never measured.

    For bundles of a full broker, this includes what the broker could not serve (`demand`). earlier: minutes of the
    bundles before this cycle.
    """
    bundles, brokers = load.bundles, load.brokers
    known = np.isfinite(bundles.newest)
    newest = bundles.newest if known.all() else np.where(known, bundles.newest, np.nan_to_num(bundles.short))
    limit = brokers.limit[:, CPU]
    full = (limit > 0) & (brokers.usage[:, CPU] >= FULL * limit)
    if not somewhere(full):
        return newest
    return wanted(newest, served(sampled(newest), earlier, bundles.owner, full), bundles.owner)
