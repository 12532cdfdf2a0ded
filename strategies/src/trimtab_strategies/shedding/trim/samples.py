"""The recent samples: what the clients of each bundle wanted, and what each broker used, in the last minutes.

The samples are kept in a ring, a list with a maximum number of rows: when it is full, a new row drops the oldest. What
clients wanted is the measured load, and on a full machine also its hidden demand (see `demand`).

A row is one minute. Cycles that come more often than once a minute are averaged into one row. So a given number of rows
covers the same time, whatever the interval between cycles is. Rows older than the ring's span are dropped, because
after a gap old minutes show nothing.

The ring returns its own arrays, not copies. So they are read-only. Each minute of the bundles is an array of 32-bit
floats, which all later cycles share: 2 MB for 180,000 bundles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from trimtab_strategies.model import CPU, RATE_IN, RATE_OUT, SAMPLED, THROUGHPUT_IN, THROUGHPUT_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import Brokers, FloatArray, RecentSamples, SmallFloatArray, somewhere
from trimtab_strategies.shedding.trim.demand import served, wanted
from trimtab_strategies.shedding.trim.readings import FULL

MINUTES = 24
"""Rows of the ring, one per minute. The newest ones are replayed. The earlier ones show which load is usual."""

NEW_ROW = 55.0
"""A sample at least so many seconds after the first one of a row begins the next row: a cycle may come 5 s early."""

REPLAYED = 8
"""The number of newest rows that are replayed. Rows that `fill` added are kept only among these."""

_GAP = 1.5  # rows older than this many times `SampleRing.rows` minutes are dropped

Names = tuple[str, ...]
Places = npt.NDArray[np.int64]
AnyFloats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class CycleSamples:
    """The samples of one cycle, without averages. NaN: not measured, or not trusted.

    time: epoch seconds. bundles, brokers: names (m), (n).
    load: (m, 3) columns `SAMPLED` of the bundles. cpu: (n,) cores. traffic: (n, 3) columns `SAMPLED` of the brokers.
    """

    time: float
    bundles: Names
    brokers: Names
    load: SmallFloatArray
    cpu: FloatArray
    traffic: FloatArray

    @classmethod
    def of(cls, time: float, brokers: Brokers, bundles: Names, newest: FloatArray) -> Self:
        """The samples of a cycle. newest: (m, 4) as in `Bundles`.

        A broker counts while it is ready and trusted, and its limit of CPU is known.
        """
        return cls.measured(time, brokers, bundles, sampled(newest).astype(np.float32))

    @classmethod
    def measured(cls, time: float, brokers: Brokers, bundles: Names, load: SmallFloatArray) -> Self:
        """Like `of`, but with the `load` of the bundles in place of `newest`."""
        traffic = sampled(brokers.traffic)
        believed = brokers.ready & brokers.trusted & (brokers.limit[:, CPU] > 0)
        believed &= np.isfinite(brokers.usage[:, CPU]) & np.isfinite(traffic).all(axis=1)  # either alone would mislead
        return cls(
            time=time,
            bundles=bundles,
            brokers=brokers.names,
            load=load,
            cpu=np.where(believed, brokers.usage[:, CPU], np.nan),
            traffic=np.where(believed[:, np.newaxis], traffic, np.nan),
        )


_NOTHING = RecentSamples(np.empty(0), (), np.empty((0, 0)), np.empty((0, 0, len(SAMPLED))))


@dataclass
class SampleRing:
    """Collects the samples of each cycle. It matches bundles and brokers by name: they may come, go and change order.

    rows: number of minutes that it keeps.
    averaged: whether the ring starts with the bundles' short averages in place of the minutes before the first sample.
    """

    rows: int = MINUTES
    averaged: bool = False
    _bundles: Names = ()
    _brokers: Names = ()
    _starts: tuple[float, ...] = ()  # epoch seconds of the first sample of each row
    _counts: tuple[int, ...] = ()  # samples in each row; 0: `fill` added it
    _recent: RecentSamples = _NOTHING

    @classmethod
    def of(cls, cycles: Iterable[CycleSamples], rows: int = MINUTES) -> Self:
        """A ring with `cycles`, oldest first. The first cluster that is added later decides which names remain."""
        ring = cls(rows)
        ring._keep_all(cycles)
        return ring

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def span(self) -> float:
        """The age in seconds up to which a row counts."""
        return _GAP * self.rows * 60

    @property
    def newest(self) -> float:
        """Epoch seconds of the newest sample; -inf before the first."""
        return float(self._recent.time[-1]) if len(self) else -np.inf

    def add(self, cluster: ClusterLoad) -> ClusterLoad:
        """Add the newest samples of `cluster`, and return it with its `recent`.

        Nothing is added if `cluster` is not newer than the last sample.
        """
        bundles, brokers = cluster.bundles, cluster.brokers
        if self.averaged and not len(self):
            self._assume(cluster)
        cycle = CycleSamples.of(cluster.now, brokers, bundles.names, bundles.newest)
        full = cycle.cpu >= FULL * brokers.limit[:, CPU]
        if somewhere(full):
            places = _places(self._bundles, bundles.names)
            earlier = [_taken(minute, places) for minute in self._recent.bundles]
            ratio = served(cycle.load, earlier, bundles.owner, full)
            cycle = replace(cycle, load=wanted(cycle.load, ratio, bundles.owner))
        self._keep(cycle, bundles.names, brokers.names)
        return replace(cluster, recent=self._recent)

    def add_brokers(
        self, time: float, brokers: Brokers, names: Names, bundles: Sequence[SmallFloatArray]
    ) -> RecentSamples:
        """Add the newest samples of `brokers`, and return all samples.

        bundles: the minutes of another ring, for the bundles `names`; the same cycles were added to that ring. So
        clusters that differ only in the load of their brokers share the minutes of the bundles.
        """
        none = np.empty((0, len(SAMPLED)), dtype=np.float32)
        self._keep(CycleSamples.measured(time, brokers, names, none), names, brokers.names, bundles)
        return self._recent

    def fill(self, cycles: Iterable[CycleSamples]) -> None:
        """Add past `cycles` where the ring has no row within `NEW_ROW`. They replace assumed rows.

        These rows show how long load has lasted. They are not used to learn which load is usual: all load that began
        after them would then count as unusual.
        """
        own = range(self._recent.assumed, len(self))
        free = [one for one in cycles if all(abs(one.time - self._starts[row]) >= NEW_ROW for row in own)]
        if not free:
            return
        kept = {self._starts[row]: (self._counts[row], self._recent.time[row]) for row in own}
        rows = sorted([*map(self._row, own), *free], key=lambda one: one.time)
        self._clear()
        self._keep_all(rows)
        times = self._recent.time.tolist()
        found = [kept.get(start, (0, time)) for start, time in zip(self._starts, times, strict=True)]
        self._counts = tuple(count for count, _ in found)
        self._recent = replace(self._recent, time=np.array([time for _, time in found]))

    def _clear(self) -> None:
        """Drop all rows."""
        self._bundles = self._brokers = self._starts = self._counts = ()
        self._recent = _NOTHING

    def _row(self, row: int) -> CycleSamples:
        """A row as the samples of one cycle, whose time is the start of the row."""
        recent = self._recent
        return CycleSamples(
            self._starts[row], self._bundles, self._brokers, recent.bundles[row], recent.cpu[row], recent.traffic[row]
        )

    def _assume(self, cluster: ClusterLoad) -> None:
        """Fill the minutes before the first sample with the bundles' averages. Brokers count as not measured."""
        self._bundles, self._brokers = cluster.bundles.names, cluster.brokers.names
        self._starts = tuple(cluster.now - 60.0 * ago for ago in range(self.rows - 1, 0, -1))
        k, n = len(self._starts), len(self._brokers)
        self._counts = (1,) * k
        self._recent = RecentSamples(
            time=np.array(self._starts),
            bundles=(sampled(cluster.bundles.short).astype(np.float32),) * k,
            cpu=np.full((k, n), np.nan),
            traffic=np.full((k, n, len(SAMPLED)), np.nan),
            assumed=k,
        )

    def _keep_all(self, cycles: Iterable[CycleSamples]) -> None:
        """Add cycles, oldest first, and keep all names."""
        for cycle in cycles:
            self._keep(cycle, _joined(self._bundles, cycle.bundles), _joined(self._brokers, cycle.brokers))

    def _keep(
        self, cycle: CycleSamples, bundles: Names, brokers: Names, shared: Sequence[SmallFloatArray] | None = None
    ) -> None:
        """Add a cycle, and reorder all rows to `bundles` and `brokers`. New names have no past.

        shared: the resulting rows of the bundles, if another ring has them.
        """
        before, (kept, count), n = self._recent, self._room(cycle.time), len(brokers)
        last = [cycle.time] if count else []
        of_bundles = _Places.of(self._bundles, cycle.bundles, bundles) if shared is None else _SAME
        of_brokers = _Places.of(self._brokers, cycle.brokers, brokers)
        self._recent = RecentSamples(
            time=np.array([*before.time[kept[: len(kept) - (count > 1)]], *last]),
            bundles=of_bundles.rows(before.bundles, kept, cycle.load, count) if shared is None else shared,
            cpu=of_brokers.stacked(before.cpu, kept, cycle.cpu, count, n),
            traffic=of_brokers.stacked(before.traffic, kept, cycle.traffic, count, n),
            assumed=sum(row < before.assumed for row in kept),
        )
        self._bundles, self._brokers = bundles, brokers
        self._starts = (*(self._starts[row] for row in kept), *(last if count == 1 else ()))
        counts = tuple(self._counts[row] for row in kept)
        self._counts = (*counts[: len(self._starts) - 1], count) if count else counts

    def _room(self, now: float) -> tuple[list[int], int]:
        """The rows to keep when a sample of `now` is added, and how many samples its row then has.

        0 samples: the sample is not added, because `now` is not after the newest sample.
        """
        kept = [row for row, start in enumerate(self._starts) if start > now - self.span]
        if now <= self.newest:
            return kept, 0
        if kept and now - self._starts[kept[-1]] < NEW_ROW:
            return kept, self._counts[kept[-1]] + 1
        kept = kept[max(len(kept) + 1 - self.rows, 0) :]
        return [row for place, row in enumerate(kept) if self._counts[row] or place > len(kept) - REPLAYED], 1


@dataclass(frozen=True, slots=True)
class _Places:
    """Positions of the ring's names among its former names, and among those of the added cycle; -1 if absent.

    None if the names are the same.
    """

    before: Places | None
    cycle: Places | None

    @classmethod
    def of(cls, before: Names, cycle: Names, names: Names) -> Self:
        return cls(_places(before, names), _places(cycle, names))

    def rows(
        self, before: Sequence[AnyFloats] | AnyFloats, kept: Sequence[int], sample: AnyFloats, count: int
    ) -> tuple[AnyFloats, ...]:
        """The rows `kept` of `before`, with `sample` added. Rows and `sample`: (x, ...).

        count: samples in the row of `sample`: 1 begins a new row, more average it into the last row, 0 leaves it out.
        """
        rows = [_taken(before[old], self.before) for old in kept]
        if count:
            newest = _taken(sample, self.cycle)
            rows = [*rows[:-1], _mean(rows[-1], newest, count)] if count > 1 else [*rows, newest]
        return tuple(rows)

    def stacked(self, before: FloatArray, kept: Sequence[int], sample: FloatArray, count: int, n: int) -> FloatArray:
        """`rows` as one array. n: number of names."""
        if self.before is not None or not kept:
            rows = self.rows(before, kept, sample, count)
            return np.array(rows, dtype=np.float64).reshape(len(rows), n, *sample.shape[1:])
        old = before[kept]
        if not count:
            return old
        newest = _taken(sample, self.cycle)
        if count == 1:
            return np.concatenate([old, newest[np.newaxis]])
        old[-1] = _mean(old[-1], newest, count)
        return old


_SAME = _Places(None, None)


def sampled(traffic: FloatArray) -> FloatArray:
    """Columns `TRAFFIC` (k, 4) as columns `SAMPLED` (k, 3)."""
    found = np.empty((len(traffic), len(SAMPLED)))
    found[:, 0], found[:, 1] = traffic[:, THROUGHPUT_IN], traffic[:, THROUGHPUT_OUT]
    np.add(traffic[:, RATE_IN], traffic[:, RATE_OUT], out=found[:, 2])
    return found


def _mean(before: AnyFloats, sample: AnyFloats, count: int) -> AnyFloats:
    mean = before + (sample - before) / count
    if not np.isnan(mean).any():
        return mean
    return np.where(np.isnan(before), sample, np.where(np.isnan(sample), before, mean))


def _joined(before: Names, now: Names) -> Names:
    """The names in `before` or `now`, those of `before` first."""
    if before is now or before == now:
        return before
    known = set(before)
    return (*before, *(name for name in now if name not in known))


def _places(before: Names, now: Names) -> Places | None:
    """For each name in `now` its position in `before`; -1 for a new one. None: the names are the same."""
    if before is now or before == now:
        return None
    known = {name: row for row, name in enumerate(before)}
    return np.array([known.get(name, -1) for name in now], dtype=np.int64)


def _taken(values: AnyFloats, places: Places | None) -> AnyFloats:
    """Rows of `values` at `places`; NaN for -1. If `places` is None, the same array."""
    if places is None:
        return values
    found = np.full((len(places), *values.shape[1:]), np.nan, dtype=values.dtype)
    found[places >= 0] = values[places[places >= 0]]
    return found
