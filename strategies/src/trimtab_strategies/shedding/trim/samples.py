"""The ring of recent samples: what each bundle and each broker did in the last minutes.

A row is one minute. Cycles that come more often than once a minute are averaged into one row, so a window means the
same time at every interval. Rows older than the ring's span are dropped: after a gap, old minutes are no evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from trimtab_strategies.model import CPU, RATE_IN, RATE_OUT, SAMPLED, THROUGHPUT_IN, THROUGHPUT_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, RecentSamples

MINUTES = 8
"""Rows of the ring, one per minute."""

NEW_ROW = 55.0
"""Seconds: a sample this long after the first one of a row begins the next. Cycles of a minute may be 5 s early."""

_GAP = 1.5  # rows older than this many times the ring's span are dropped


@dataclass
class SampleRing:
    """Collects the samples of each cycle. Names are kept, so bundles and brokers may come, go and change rows.

    rows: number of minutes that it keeps.
    averaged: whether the bundles' short averages cover the minutes before the first sample. They then fill the ring.
    """

    rows: int = MINUTES
    averaged: bool = False
    _bundles: tuple[str, ...] = ()
    _brokers: tuple[str, ...] = ()
    _minutes: list[_Minute] = field(default_factory=list)

    def add(self, cluster: ClusterLoad) -> ClusterLoad:
        """Keep the newest samples of `cluster`; returns it with its `recent`. A time that was seen changes nothing."""
        self._follow(cluster)
        if not self._minutes or cluster.now > self._minutes[-1].last:
            self._keep(cluster)
        return replace(cluster, recent=self._recent())

    def _follow(self, cluster: ClusterLoad) -> None:
        """Bring all rows into the order of `cluster`; a bundle or broker that is new was not measured before."""
        bundles, brokers = cluster.bundles.names, cluster.brokers.names
        if (bundles, brokers) != (self._bundles, self._brokers):
            of_bundles, of_brokers = _places(self._bundles, bundles), _places(self._brokers, brokers)
            for minute in self._minutes:
                minute.reorder(of_bundles, of_brokers)
            self._bundles, self._brokers = bundles, brokers

    def _keep(self, cluster: ClusterLoad) -> None:
        if self.averaged and not self._minutes:
            self._minutes = [_Minute.assumed_at(cluster, cluster.now - 60 * ago) for ago in range(self.rows - 1, 0, -1)]
        oldest = cluster.now - _GAP * self.rows * 60
        minutes = [minute for minute in self._minutes if minute.first > oldest]
        if minutes and cluster.now - minutes[-1].first < NEW_ROW:
            minutes[-1].merge(cluster)
        else:
            minutes.append(_Minute.of(cluster))
        self._minutes = minutes[-self.rows :]

    def _recent(self) -> RecentSamples:
        minutes = self._minutes
        return RecentSamples(
            time=np.array([minute.last for minute in minutes]),
            bundles=np.stack([minute.bundles for minute in minutes]),
            cpu=np.stack([minute.cpu for minute in minutes]),
            traffic=np.stack([minute.traffic for minute in minutes]),
            assumed=sum(minute.assumed for minute in minutes),
        )


@dataclass
class _Minute:
    """One row: the mean of the samples from `first` to `last` (epoch seconds). Shapes as in `RecentSamples`."""

    first: float
    last: float
    bundles: FloatArray
    cpu: FloatArray
    traffic: FloatArray
    count: int = 1
    assumed: bool = False

    @classmethod
    def assumed_at(cls, cluster: ClusterLoad, time: float) -> _Minute:
        """A minute before the first sample: bundles as on average, brokers not measured."""
        n = len(cluster.brokers)
        bundles = sampled(cluster.bundles.short)
        return cls(time, time, bundles, np.full(n, np.nan), np.full((n, len(SAMPLED)), np.nan), assumed=True)

    @classmethod
    def of(cls, cluster: ClusterLoad) -> _Minute:
        brokers = cluster.brokers
        traffic = sampled(brokers.traffic)
        believed = brokers.ready & brokers.trusted & (brokers.limit[:, CPU] > 0)
        believed &= np.isfinite(brokers.usage[:, CPU]) & np.isfinite(traffic).all(
            axis=1
        )  # one without the other misleads
        return cls(
            first=cluster.now,
            last=cluster.now,
            bundles=sampled(cluster.bundles.newest),
            cpu=np.where(believed, brokers.usage[:, CPU], np.nan),
            traffic=np.where(believed[:, np.newaxis], traffic, np.nan),
        )

    def merge(self, cluster: ClusterLoad) -> None:
        """Add one more sample to the mean."""
        other, self.count = _Minute.of(cluster), self.count + 1
        self.last = other.last
        for name in ("bundles", "cpu", "traffic"):
            setattr(self, name, _mean(getattr(self, name), getattr(other, name), self.count))

    def reorder(self, of_bundles: npt.NDArray[np.int64], of_brokers: npt.NDArray[np.int64]) -> None:
        self.bundles = _taken(self.bundles, of_bundles)
        self.cpu, self.traffic = _taken(self.cpu, of_brokers), _taken(self.traffic, of_brokers)


def sampled(traffic: FloatArray) -> FloatArray:
    """Columns `TRAFFIC` (k, 4) as columns `SAMPLED` (k, 3)."""
    found = np.empty((len(traffic), len(SAMPLED)))
    found[:, 0], found[:, 1] = traffic[:, THROUGHPUT_IN], traffic[:, THROUGHPUT_OUT]
    np.add(traffic[:, RATE_IN], traffic[:, RATE_OUT], out=found[:, 2])
    return found


def _mean(before: FloatArray, sample: FloatArray, count: int) -> FloatArray:
    mean = before + (sample - before) / count
    return np.where(np.isnan(before), sample, np.where(np.isnan(sample), before, mean))


def _places(before: Sequence[str], now: Sequence[str]) -> npt.NDArray[np.int64]:
    """For each of `now`, its position in `before`; -1 for a new one."""
    known = {name: row for row, name in enumerate(before)}
    return np.array([known.get(name, -1) for name in now], dtype=np.int64)


def _taken(values: FloatArray, places: npt.NDArray[np.int64]) -> FloatArray:
    """Rows of `values` at `places`; NaN for -1."""
    found = np.full((len(places), *values.shape[1:]), np.nan)
    found[places >= 0] = values[places[places >= 0]]
    return found
