"""The last minutes, replayed with the owners that bundles will have once all pending moves have landed.

Trim decides by the replay, not by measured usage. So it can decide while averages still contain the load under earlier
owners. It does not repeat a move whose effect is not measured yet. And late broker metrics do no harm.

In the formulae, a is a broker's slope and b its background (see `model`). U is the work of all brokers. in and out are
their traffic.

    usage[k, i, r]  ratio: what broker i would have used of resource r in minute k; r is CPU, network in, network out
    level L[k]      the least ratio at which all load would fit if it could be divided freely:
                    sum_i min((L cores_i - b_i)+ / (a_i U), L nic_i,in / in, L nic_i,out / out) = 1
    target[k, i]    max(L[k], b_i / cores_i): a broker can't get below its own background
    away[k, i]      max_r usage[k, i, r] - target[k, i], in percentage points

Brokers that isolation keeps apart can't exchange bundles. Brokers that can exchange bundles form a pool. Each pool has
its own level.

The minutes before the replayed ones show which load is usual for the bundles. Load that is not usual is a surge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import (
    BoolArray,
    FloatArray,
    IntArray,
    RecentSamples,
    SmallFloatArray,
    everywhere,
    somewhere,
)
from trimtab_strategies.protocols import Destinations
from trimtab_strategies.shedding.trim.model import BrokerModel
from trimtab_strategies.shedding.trim.readings import FULL, middle, zeroed
from trimtab_strategies.shedding.trim.replayed_minutes import (
    KnownMinutes,
    ReplayedMinutes,
    carried_by,
    complete,
    sums_of,
)
from trimtab_strategies.shedding.trim.samples import sampled

BEGUN = 0.25
"""The cluster's load has just begun if some minute had at most this ratio of the newest minute's traffic."""

NEW = 600.0
"""A cluster is new while every broker started at most so many seconds ago."""

BELIEVED = 0.15
"""Ratio by which the load of a minute may be wrong if it was not measured, but assumed from averages."""

WINDOW = 8
"""Minutes that are replayed."""

FEWEST_EARLIER = 4
"""The least number of earlier minutes that show what is usual."""

_FEW, _LITTLE = 0.25, 0.1  # a broker with less than these ratios of an average broker's bundles and work is vacant
_FEWEST_OF_TREND = 12  # the least number of minutes that show growth
_CLEAR_TREND = 3.0  # growth counts only above this multiple of its uncertainty
_HIGHEST = 64.0  # the highest level, as a ratio of usage
_STEPS, _BISECTS = 200, 3  # the most steps; one in three is a bisection
_EXACT = 1e-11  # error of the level at which the steps stop, as a ratio of the work or of usage
_BLOCK = 8192  # bundles for which arrays with all minutes are made at a time
_FREE = 1e9  # share of the work per unit of level if work costs no CPU


@dataclass(frozen=True)
class Replay:
    """The replay of k minutes of n brokers and m bundles; see the module.

    owner: (m,) row of the owner once pending moves have landed, -1 if none. assumed: number of leading minutes that
    were not measured. pools: (n,) number of each broker's pool. earlier: j arrays (m, 3), the minutes before, which may
    have gaps. begun: whether the load of the whole cluster has just begun, or the cluster is `NEW`.
    """

    model: BrokerModel
    minutes: ReplayedMinutes
    earlier: Sequence[SmallFloatArray]
    owner: IntArray
    assumed: int
    pools: IntArray
    namespace: IntArray
    begun: bool = False

    def __len__(self) -> int:
        return len(self.minutes)

    @property
    def load(self) -> FloatArray:
        """(k, m, 3) columns `SAMPLED`, without gaps."""
        return self.minutes.load

    @cached_property
    def long(self) -> FloatArray:
        """(m, 3) columns `SAMPLED`: the bundles' long averages."""
        long = sampled(self.minutes.cluster.bundles.long)
        return np.where(np.isfinite(long), long, self.minutes.newest)

    @cached_property
    def carried(self) -> FloatArray:
        """What each broker would have carried (k, n, 3): bytes/s of work, bytes/s in, bytes/s out."""
        return self.minutes.carried(self.owner, self.model.message)

    def _carried(self, load: FloatArray) -> FloatArray:
        return carried_by(load, self.owner, len(self.model.slope), self.model.message)

    def sums(self, load: FloatArray) -> FloatArray:
        """Sums (n, 3) of the columns of `load` (m, 3) by owner."""
        return sums_of(list(load.T), self.owner, len(self.model.slope))

    @cached_property
    def usage(self) -> FloatArray:
        """(k, n, 3) see `usage` in the module's docstring."""
        return used(self.model, self.carried, self.model.background)

    @cached_property
    def away(self) -> FloatArray:
        """(k, n) percentage points, see `away` in the module's docstring."""
        return self._away(self.carried, self.model.background)

    @cached_property
    def growth(self) -> FloatArray:
        """Ratio per minute by which the work of each bundle (m,) grows, 0 if no growth is clear.

        It is the slope of a line through the measured minutes, divided by their mean. All bundles of a namespace share
        one line. Growth of a bundle beyond that line counts only if it is more than three times its uncertainty.
        """
        minutes = (*self.earlier, *self.load[self.assumed :])
        if len(minutes) < _FEWEST_OF_TREND:
            return np.zeros(len(self.owner))
        work = np.empty((len(minutes), len(self.owner)))
        for row, minute in enumerate(minutes):
            work[row] = self.model.work(minute)
        work = complete(work, work[-1])
        spaces = int(self.namespace.max(initial=-1)) + 1
        sums = (np.bincount(self.namespace, weights=minute, minlength=spaces) for minute in work)
        together: FloatArray = np.stack(list(sums))
        shared: FloatArray = _grown(together)[self.namespace]
        time = _since_middle(len(work))[:, np.newaxis]
        for some in _blocks(work.shape[1]):
            part = work[:, some]
            shared[some] += _grown(part - part.mean(axis=0) * shared[some] * time)
        return shared

    @cached_property
    def usual(self) -> FloatArray:
        """`away` (n,) if each bundle carried its usual load, with the background of the last minute.

        The usual load is the median of the earlier minutes, or the long average if there are too few. If no load can be
        usual yet (`begun`), the current load counts as usual.
        """
        if self.begun:
            now: FloatArray = self.away[-1]
            return now
        enough = len(self.earlier) >= FEWEST_EARLIER
        usual = _middle_of(self.earlier, self.load[0]) if enough else self.long
        carried, background = self._carried(usual)[np.newaxis], self.model.background[-1:]
        away: FloatArray = self._away(carried, background)[0]
        return away

    def away_with(self, background: FloatArray) -> FloatArray:
        """`away` (n,) of the last minute if the brokers' background were `background` (n,), cores."""
        away: FloatArray = self._away(self.carried[-1:], background[np.newaxis])[0]
        return away

    def _away(self, carried: FloatArray, background: FloatArray) -> FloatArray:
        usage = used(self.model, carried, background).max(axis=2)
        away: FloatArray = 100 * (usage - targets(self.model, carried, background, self.pools))
        return away

    @cached_property
    def doubt(self) -> FloatArray:
        """Percentage points (k, n) by which `away` may be off."""
        off = zeroed(100 * self.model.doubt * self.carried[..., 0] / self.model.cores)
        off[: self.assumed] += 100 * BELIEVED * self.usage[: self.assumed].max(axis=2)
        return off

    @cached_property
    def vacant(self) -> BoolArray:
        """Brokers (n,) with hardly any bundles, and hardly any load even if each bundle has its largest recent load.

        A broker is compared with an average broker of its pool. One that can't get any bundles is not vacant.
        """
        pools, owned, now = self.pools, self.minutes.owned.count, self.minutes.used
        count = owned if now is None else self._count(now)
        few = self._few(count, owned)  # a quick test: the mean counts all bundles, also those without traffic
        if somewhere(few):
            count = owned if now is None else self._count(now | _any_column(self.long > 0))
            few = self._few(count, count)
        if not somewhere(few):
            return few
        most = reduce(np.fmax, [*self.earlier, *self.load], self.long)
        cores = np.nan_to_num(self.model.cores, nan=1.0)
        carried = self._carried(np.nan_to_num(most))[:, 0]
        per_core = np.bincount(pools, weights=carried)[pools] / np.bincount(pools, weights=cores)[pools]
        vacant: BoolArray = few & (carried / cores < _LITTLE * per_core)
        return vacant

    def _count(self, bundles: BoolArray) -> IntArray:
        """Number (n,) of those `bundles` (m,) that each broker owns."""
        return np.bincount(self.owner[bundles] + 1, minlength=len(self.model.slope) + 1)[1:]

    def _few(self, count: IntArray, of_all: IntArray) -> BoolArray:
        """Brokers (n,) whose `count` (n,) of bundles is small compared with the mean of `of_all` (n,) in their pool."""
        pools = self.pools
        few: BoolArray = count < _FEW * (np.bincount(pools, weights=of_all) / np.maximum(np.bincount(pools), 1))[pools]
        return few

    def magnified(self, factor: float) -> Replay:
        """The same load on machines whose capacity is divided by `factor`."""
        model = replace(self.model, cores=self.model.cores / factor, nic=self.model.nic / factor)
        return replace(self, model=model)

    @cached_property
    def full(self) -> BoolArray:
        """Brokers (n,) that would have been full in the last minute."""
        full: BoolArray = self.usage[-1].max(axis=1) >= FULL
        return full


def replayed(
    cluster: ClusterLoad,
    recent: RecentSamples,
    model: BrokerModel,
    destinations: Destinations | None = None,
    known: KnownMinutes | None = None,
    *,
    newest: RecentSamples | None = None,
) -> Replay:
    """The replay of the last `WINDOW` minutes with the owners of `cluster`: pending moves count as landed.

    known: results of an earlier replay, updated with those of this one. newest: those minutes of `recent`, if the
    caller has them already.
    """
    newest = recent.last(WINDOW) if newest is None else newest
    minutes = ReplayedMinutes(cluster, newest, KnownMinutes() if known is None else known)
    owner, earlier = cluster.bundles.owner, recent.bundles[: -len(newest)]
    kept_apart = pools(owner, len(model.slope), destinations)
    begun = _new(cluster) or _begun(recent)
    return Replay(model, minutes, earlier, owner, newest.assumed, kept_apart, cluster.bundles.namespace, begun)


def _any_column(found: BoolArray) -> BoolArray:
    """Whether (m,) any column of each row of `found` (m, 3) is true. numpy's `any` over rows is slower."""
    any_: BoolArray = found[:, 0] | found[:, 1] | found[:, 2]
    return any_


def _new(cluster: ClusterLoad) -> bool:
    """Whether all brokers started at most `NEW` seconds ago, so that no load is usual yet.

    A broker whose start is unknown counts as old.
    """
    return bool(len(cluster.brokers)) and everywhere(cluster.now - cluster.started <= NEW)


def _begun(recent: RecentSamples) -> bool:
    """Whether all brokers together had hardly any traffic in some minute, compared with the newest minute."""
    carried = recent.traffic[..., :2].sum(axis=2)
    if carried.size and everywhere(np.isfinite(carried)):
        return somewhere(carried.sum(axis=1) <= BEGUN * carried[-1].sum())
    there = np.isfinite(carried[-1])
    both = np.isfinite(carried[:, there])
    before = np.where(both, carried[:, there], 0).sum(axis=1)
    now = (both * carried[-1, there]).sum(axis=1)
    half = both.mean(axis=1) > 0.5 if there.any() else np.zeros(len(carried), dtype=bool)  # noqa: PLR2004
    return bool((half & (before <= BEGUN * now)).any())


def pools(owner: IntArray, brokers: int, destinations: Destinations | None) -> IntArray:
    """The pool (n,) of each broker. Two brokers share a pool if a bundle may go from one to the other, or via others.

    owner: (m,) rows.
    """
    pool = np.arange(brokers)
    if destinations is None:
        return np.zeros_like(pool)
    allowed, kind = np.unique(destinations.allowed, axis=0, return_inverse=True)  # many groups have the same brokers
    owned = np.unique((kind.ravel()[destinations.group] * brokers + owner)[owner >= 0])
    some: BoolArray = np.asarray(allowed.any(axis=1))
    owned = owned[some[owned // brokers]]
    allowed[owned // brokers, owned % brokers] = True
    for rows in (np.flatnonzero(allowed[each]) for each in np.unique(owned // brokers).tolist()):
        pool[np.isin(pool, pool[rows])] = pool[rows].min()
    return pool


def used(model: BrokerModel, carried: FloatArray, background: FloatArray) -> FloatArray:
    """Usage (..., n, 3), ratio, of brokers with `carried` (..., n, 3) and a background of (..., n) cores."""
    usage = np.empty(carried.shape)
    usage[..., 0] = (background + model.slope * carried[..., 0]) / model.cores
    usage[..., 1:] = carried[..., 1:] / model.nic
    return zeroed(usage)


def level(model: BrokerModel, carried: FloatArray, background: FloatArray) -> FloatArray:
    """The level (k,) as a ratio, see the module. Only the totals of `carried` (k, n, 3) matter."""
    total = carried.sum(axis=1)  # (k, 3)
    with np.errstate(divide="ignore", invalid="ignore"):
        per_core = model.cores / (model.slope * total[:, :1])  # (k, n): share of the work per unit of level
        wires = model.nic.T[np.newaxis] / total[:, 1:, np.newaxis]  # (k, 2, n)
        wire = np.fmin(wires[:, 0], wires[:, 1])
        wire[np.isnan(wire)] = np.inf
    no_limit = np.isnan(per_core) & np.isinf(wire)  # no limit of the broker is known
    per_core = np.where(no_limit | (total[:, :1] <= 0), 0.0, np.fmin(per_core, _FREE))
    occupied = zeroed(background / model.cores)
    return np.where(total[:, 0] > 0, _filled_up(occupied, per_core, wire), 0.0)


def _filled_up(occupied: FloatArray, per_core: FloatArray, wire: FloatArray) -> FloatArray:
    """The level (k,), at most `_HIGHEST`, at which the brokers' shares of the work sum to 1.

    A share (k, n) is (level - occupied) * per_core, at most level * wire. The sum is piecewise linear in the level. So
    a few Newton steps usually suffice. Every third step is a bisection.
    """
    low, high, at = np.zeros(len(wire)), np.full(len(wire), _HIGHEST), np.ones(len(wire))
    for number in range(_STEPS):
        above = np.maximum(at[:, np.newaxis] - occupied, 0)
        by_cpu, by_wire = above * per_core, at[:, np.newaxis] * wire
        wired = ~(by_cpu <= by_wire)
        over = np.where(wired, by_wire, by_cpu).sum(axis=1) - 1
        slope = np.where(wired, wire, np.where(above > 0, per_core, 0)).sum(axis=1)
        low, high = np.where(over >= 0, low, at), np.where(over >= 0, at, high)
        step = at - np.divide(over, slope, out=np.full_like(over, np.inf), where=slope > 0)
        if everywhere((np.abs(over) <= _EXACT) | (high - low <= _EXACT)):
            break
        good = (step > low) & (step < high) & (number % _BISECTS < _BISECTS - 1)
        at = np.where(good, step, (low + high) / 2)
    return at


def targets(model: BrokerModel, carried: FloatArray, background: FloatArray, pools: IntArray) -> FloatArray:
    """The targets (k, n) as ratios, see the module."""
    if not somewhere(pools):
        together = level(model, carried, background)[:, np.newaxis]
        return np.maximum(together, zeroed(background / model.cores))
    levels = np.empty(background.shape)
    for pool in np.unique(pools):
        rows = pools == pool
        levels[:, rows] = level(model.only(rows), carried[:, rows], background[:, rows])[:, np.newaxis]
    return np.maximum(levels, zeroed(background / model.cores))


def _middle_of(minutes: Sequence[SmallFloatArray], average: FloatArray) -> FloatArray:
    """Median (m, ...) of `minutes`, completed with `average` (m, ...)."""
    found = np.empty(average.shape)
    for some in _blocks(len(average)):
        part = np.stack([minute[some] for minute in minutes], dtype=np.float64)
        found[some] = middle(complete(part, average[some]))
    return found


def _blocks(bundles: int) -> Iterator[slice]:
    """Slices of the bundles. Arrays with all minutes are made for one slice after the other, which saves memory."""
    return (slice(first, first + _BLOCK) for first in range(0, bundles, _BLOCK))


def _since_middle(minutes: int) -> FloatArray:
    """Minutes (k,) from the middle of a window."""
    return np.arange(minutes, dtype=np.float64) - (minutes - 1) / 2


def _grown(work: FloatArray) -> FloatArray:
    """Growth (x,) per minute of a line through `work` (k, x), as a ratio of the mean; 0 if it may be noise, or a step.

    If `work` is a step, one half of the minutes shows no growth. So the half that grows less counts.
    """
    half, mean = len(work) // 2, work.mean(axis=0)
    lines = np.stack([_slope(part) for part in (work, work[:half], work[-half:])])
    time = _since_middle(len(work))
    off = work - mean - time[:, np.newaxis] * lines[0]
    error = np.sqrt((off**2).sum(axis=0) / (len(work) - 2) / (time**2).sum())
    steady = np.where((np.sign(lines) == np.sign(lines[0])).all(axis=0), np.abs(lines).min(axis=0), 0)
    clear = (np.abs(lines[0]) > _CLEAR_TREND * error) & (mean > 0)
    growth: FloatArray = np.divide(np.sign(lines[0]) * steady, mean, out=np.zeros_like(mean), where=clear)
    return growth


def _slope(work: FloatArray) -> FloatArray:
    time = _since_middle(len(work))
    slope: FloatArray = time @ work / (time**2).sum()
    return slope
