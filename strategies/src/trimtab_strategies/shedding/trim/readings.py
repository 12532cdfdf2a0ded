"""What the recent samples show about brokers: CPU and work without misleading readings, and what a message costs.

    U = bytes/s in + bytes/s out + price of a message * msg/s

U is a broker's work, in bytes/s. The price of a message is the number of bytes that cost as much CPU as one message.

A broker uses CPU without any load, too: its idle CPU. Brokers of one kind (with the same number of cores) that carry
different loads show how much it is. A line through their CPU at these loads gives the CPU at zero load. If idle CPU
were ignored, bundles would seem to cost much on a broker with little load.

If a machine is suddenly full, and its bundles do not explain that, the CPU of the first such minute is not used.

A broker with hardly any traffic does not show its slope: how much CPU a unit of work costs. Its CPU counts as
background: CPU that its bundles do not explain.

Nothing is learned from a broker's CPU in the three minutes after bundles arrived: caches are cold, and all clients
connect at the same time. The step of CPU from the last minute before these three to the first one after them is not
used either.

Stored in the strategy's `memory`: ``brokers.idle`` (ratio of the cores), ``message`` (bytes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np

from trimtab_strategies.model import CPU, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray, RecentSamples, everywhere, somewhere
from trimtab_strategies.protocols import recall, remember

FULL = 0.975
"""From this ratio of CPU on, a machine counts as full: it serves less than its clients want."""

SETTLES = 3.0
"""Minutes after bundles arrived in which nothing is learned from the broker's CPU."""

PRICES = (0.0, 100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0, 6400.0)
"""The prices of a message that are compared, in bytes."""

_LITTLE = 0.05  # ratio of the busiest broker's traffic per core below which a broker's cpu / U is not used
_FALSE = 1.5  # a full machine's reading is not believed at first above this multiple of its kind's ratio cpu / U
_GOOD_PART = 0.03  # bundles that arrived disturb a broker's readings if they carry at least this ratio of its traffic
_CLEAR = 2.0  # idle CPU, or a background, counts only above this multiple of the noise
_ON_A_LINE = 3  # the least number of brokers of a kind for a line
_UNLIKE = 2.0  # for a line, the largest load must be at least this multiple of the least one
_FAR = 0.2  # two brokers show a slope if their loads differ by more than this ratio of the range
_STRAIGHT = 0.06  # brokers may be off the line by this ratio of its rise
# Ratios of the cores. Idle CPU up to the first counts as 0. Above the second it counts only if the line rises by
# `_RISE`. Above the third it never counts.
_CLEARLY_IDLE, _MUCH_IDLE, _MOST_IDLE = 0.03, 0.4, 0.75
_RISE = 0.2  # ratio of the cores by which the line must rise for idle CPU above `_MUCH_IDLE`
_MORE_THAN_IDLE = 2.0  # a broker shows a slope from this multiple of its idle CPU on
_ENOUGH_MORE = 0.25  # or if its CPU exceeds its idle CPU by at least this ratio of its cores
_NEWLY_IDLE = 0.02  # idle CPU is updated if it differs by more than this ratio of the cores


def work_of(sampled: FloatArray, message: float | FloatArray) -> FloatArray:
    """U in bytes/s of samples with the columns `SAMPLED` (..., 3), at a price of `message` bytes for each message.

    The shapes of prices and samples must broadcast.
    """
    work: FloatArray = sampled[..., 0] + sampled[..., 1] + message * sampled[..., 2]
    return work


@dataclass(frozen=True)
class BrokerReadings:
    """What the samples of k minutes show about n brokers; NaN where a reading would mislead.

    cpu: (k, n) cores. work: (k, n) U. each, whole: (k, n) CPU per work: `each` without idle CPU, `whole` with it.
    known: (k, n) where `each` shows a slope. cores: (n,) declared cores. idle: (n,) cores that a broker of its kind
    uses without load. kinds: (n,) number of each broker's kind. message: the price of a message.
    """

    cpu: FloatArray
    work: FloatArray
    each: FloatArray
    whole: FloatArray
    known: BoolArray
    cores: FloatArray
    idle: FloatArray
    kinds: IntArray
    message: float

    @classmethod
    def of(
        cls, cluster: ClusterLoad, recent: RecentSamples, memory: Mapping[str, Any]
    ) -> tuple[Self, Mapping[str, Any]]:
        """The readings of `recent`, and the memory without values that a new price, or new idle CPU, makes wrong."""
        cores = np.where(cluster.brokers.limit[:, CPU] > 0, cluster.brokers.limit[:, CPU], np.nan)
        cpu, traffic = without_repeats(recent, cluster.bundles.owner)
        cpu = _masked(cpu, unsettled(cluster, recent))
        kinds = _kinds(zeroed(cores).tobytes())
        loaded = np.where(_loaded(traffic, cores), cpu, np.nan)
        message = message_price(loaded, traffic, kinds, float(memory.get("message", 0.0)))
        if message != memory.get("message", 0.0):
            memory = _without(memory, ("ratio", "information", "drift"))
        work = work_of(traffic, message)
        before = zeroed(recall(memory, "idle", cluster.brokers.names))
        share = _idle(cpu / cores, work / cores, kinds, before)
        if somewhere(share != before):
            memory = _without(memory, ("ratio", "calm", "loud"))
        idle = zeroed(share * cores)
        there = np.isfinite(loaded) & (work > 0)
        whole = np.where(there, cpu, np.nan) / np.where(there, work, np.nan)
        known = there & _tells(cpu, idle, cores, kinds)
        each = np.where(known, cpu - idle, np.nan) / np.where(known, work, np.nan)
        full = cpu >= FULL * cores
        if somewhere(full):
            odd = full & ~(each <= _FALSE * pooled(median(each), kinds))
            alone = odd.copy()
            alone[1:] &= ~odd[:-1]
            cpu, each, known = _masked(cpu, alone), _masked(each, odd), known & ~odd
        readings = cls(cpu, work, each, whole, known, cores, idle, kinds, message)
        return readings, remember({**memory, "message": message}, "idle", cluster.brokers.names, share)

    def background(self, idle: FloatArray, slope: FloatArray, spread: FloatArray) -> FloatArray:
        """Background (k, n), cores: idle CPU, plus CPU that neither the bundles nor noise explain.

        idle: (n,) cores, from `own_idle`. slope, spread: (n,) cores per byte/s.
        """
        rest = self.cpu - idle - slope * self.work
        more = np.where(rest > _CLEAR * spread * self.work, rest, np.where(np.isnan(rest), np.nan, 0.0))
        found: FloatArray = idle + zeroed(carried_on(more))
        return found

    def own_idle(self, slope: FloatArray) -> FloatArray:
        """Idle CPU (n,) of each broker, in cores: that of its kind, but at most what its bundles do not explain."""
        rest = median(self.cpu - slope * self.work)
        own: FloatArray = np.where(np.isnan(rest), self.idle, rest.clip(0, self.idle))
        return own


@lru_cache(maxsize=4)
def _kinds(cores: bytes) -> IntArray:
    """The number (n,) of each broker's kind, by its `cores` (n, floats). Cached, because machines rarely change."""
    return np.unique(np.frombuffer(cores), return_inverse=True)[1]


def _masked(values: FloatArray, misleading: BoolArray) -> FloatArray:
    """`values` with NaN where they are `misleading`; the same array if none is."""
    return np.where(misleading, np.nan, values) if somewhere(misleading) else values


def _without(memory: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """The memory without the `columns` of brokers, so that these are learned anew."""
    return {**memory, "brokers": {what: of for what, of in memory.get("brokers", {}).items() if what not in columns}}


def _idle(busy: FloatArray, load: FloatArray, kinds: IntArray, before: FloatArray) -> FloatArray:
    """Ratio (n,) of its cores that a broker uses without load.

    Brokers of one kind that carry different loads show it. While their loads are alike, it stays as it was: `before`
    (n,). busy: (k, n) ratio of CPU. load: (k, n) work per core.
    """
    busy, load, found = median(busy), median(np.where(np.isfinite(busy), load, np.nan)), before.copy()
    for of in members(kinds):
        seen = idle_share(busy[of], load[of])
        if np.isfinite(seen):
            found[of] = np.where(np.abs(seen - before[of]) > _NEWLY_IDLE, seen, before[of])
    return found


def idle_share(busy: FloatArray, load: FloatArray) -> float:
    """Ratio of its cores that a broker of one kind uses without load: where a line through these brokers begins.

    busy: (n,) ratio of CPU. load: (n,) work per core. The line is the Theil-Sen estimator: one odd broker does not
    change it. NaN if the brokers do not show the ratio: there are fewer than three, their loads are too much alike, or
    they are not on one line. Small brokers may use half of their CPU without load. Such a large ratio counts only if
    brokers with load use clearly more.
    """
    there = np.isfinite(busy) & np.isfinite(load)
    busy, load = busy[there], load[there]
    if len(load) < _ON_A_LINE or load.max() < _UNLIKE * load.min() or load.max() <= 0:
        return float("nan")
    apart, range_ = load[:, np.newaxis] - load, np.ptp(load)
    slopes = (busy[:, np.newaxis] - busy)[apart > _FAR * range_] / apart[apart > _FAR * range_]
    slope = float(np.median(slopes))
    rise = slope * range_
    begins = busy - slope * load
    share, off = float(np.median(begins)), 1.48 * float(np.median(np.abs(begins - np.median(begins))))
    if slope <= 0 or off > _STRAIGHT * rise or share > (_MOST_IDLE if rise >= _RISE else _MUCH_IDLE):
        return float("nan")
    if share <= _CLEARLY_IDLE:
        return 0.0
    return share if share > _CLEAR * off else float("nan")


def _tells(cpu: FloatArray, idle: FloatArray, cores: FloatArray, kinds: IntArray) -> BoolArray:
    """Where (k, n) a broker uses so much more CPU than without load that it shows a slope.

    If no broker of a kind does so in any minute, all readings of this kind above idle CPU count.
    """
    tells: BoolArray = cpu >= np.fmin(_MORE_THAN_IDLE * idle, idle + _ENOUGH_MORE * cores)
    for of in members(kinds):
        if not somewhere(tells[:, of]):
            tells[:, of] = cpu[:, of] > idle[of]
    return tells


def without_repeats(recent: RecentSamples, owner: IntArray) -> tuple[FloatArray, FloatArray]:
    """CPU (k, n) and traffic (k, n, 3); NaN where a broker's samples did not change although its bundles' load did.

    owner: (m,) row of each bundle's owner.
    """
    cpu, traffic = recent.cpu, recent.traffic
    same = np.zeros(cpu.shape, dtype=bool)
    same[1:] = cpu[1:] == cpu[:-1]
    if not somewhere(same):
        return cpu, traffic
    same[1:] &= (traffic[1:] == traffic[:-1]).all(axis=2)
    for row in np.flatnonzero(same.any(axis=1)).tolist():
        changed = np.nan_to_num(np.abs(recent.bundles[row] - recent.bundles[row - 1]).sum(axis=1))
        same[row] &= np.bincount(owner + 1, weights=changed, minlength=cpu.shape[1] + 1)[1:] > 0
    return np.where(same, np.nan, cpu), np.where(same[..., np.newaxis], np.nan, traffic)


def unsettled(cluster: ClusterLoad, recent: RecentSamples) -> BoolArray:
    """Minutes (k, n) whose CPU is not used, because bundles with enough of the broker's traffic have just arrived.

    A new owner reads from the bookies until its caches are warm, and all clients connect at the same time.
    """
    bundles, n = cluster.bundles, len(cluster.brokers)
    new = (bundles.owner >= 0) & (bundles.last_unload >= recent.time[0] - 60 * SETTLES)
    if not somewhere(new):
        return np.zeros((len(recent), n), dtype=bool)
    latest = np.full(n, -np.inf)
    np.maximum.at(latest, bundles.owner[new], bundles.last_unload[new])
    carried = np.nan_to_num(recent.bundles[-1]).sum(axis=1)
    every, recently = (
        np.bincount(bundles.owner + 1, weights=of, minlength=n + 1)[1:] for of in (carried, carried * new)
    )
    latest[recently < _GOOD_PART * every] = -np.inf
    since = recent.time[:, np.newaxis] - latest
    fresh: BoolArray = (since > 0) & (since <= 60 * SETTLES)
    return fresh


def _loaded(traffic: FloatArray, cores: FloatArray) -> BoolArray:
    """Where (k, n) cpu / U shows a slope: not on a broker with hardly any traffic compared with the busiest."""
    carried = np.stack([traffic[..., 0] + traffic[..., 1], traffic[..., 2]], axis=-1)
    known = cores if everywhere(np.isfinite(cores)) else np.nan_to_num(cores, nan=1.0)
    per_core = zeroed(carried / known[:, np.newaxis])
    loaded: BoolArray = (per_core >= _LITTLE * per_core.max(axis=1, keepdims=True, initial=0.0)).any(axis=-1)
    return loaded


@lru_cache(maxsize=4)
def _prices(before: float) -> FloatArray:
    """The prices to compare, ascending."""
    return np.array(sorted({*PRICES, before}))


def message_price(cpu: FloatArray, traffic: FloatArray, kinds: IntArray, before: float) -> float:
    """The price of a message at which brokers of a kind differ least in cpu / U; `before` if that is hardly worse."""
    prices = _prices(before)
    apart = _unlike(cpu, traffic, kinds, prices)
    best, now = int(apart.argmin()), int(prices.searchsorted(before))
    clear = apart[best] < 0.7 * apart[now] and apart[now] - apart[best] > 0.01  # noqa: PLR2004
    return float(prices[best]) if clear else before


def _unlike(cpu: FloatArray, traffic: FloatArray, kinds: IntArray, prices: FloatArray) -> FloatArray:
    """Mean absolute deviation of log(cpu / U) within kinds, for each of `prices` (p,); 0 if none is known."""
    k, n = cpu.shape
    message = prices[:, np.newaxis]
    work = work_of(traffic[:, np.newaxis], message)  # (k, p, n)
    known = (cpu[:, np.newaxis] > 0) & (work > 0)
    ratio = np.divide(cpu[:, np.newaxis], work, out=np.full(work.shape, np.nan), where=known)
    log = median(np.log(ratio).reshape(k, len(prices) * n)).reshape(len(prices), n)
    if somewhere(kinds) or not everywhere(np.isfinite(log)):
        away = np.stack([np.abs(each - pooled(each, kinds, mean=True)) for each in log])
    else:
        away = np.abs(log - log.mean(axis=1, keepdims=True))
    found = np.isfinite(away)
    mean: FloatArray = np.where(found, away, 0).sum(axis=1) / np.maximum(found.sum(axis=1), 1)
    return mean


def pooled(values: FloatArray, kinds: IntArray, *, mean: bool = False) -> FloatArray:
    """The median (or mean) of `values` in each broker's kind (n,); of all brokers if the kind has none; or else 1."""
    known = np.isfinite(values)
    if not somewhere(known):
        return np.ones(len(values))
    center = np.mean if mean else middle
    found = np.full(len(values), center(values[known]))
    if not somewhere(kinds):
        return found
    for of in members(kinds):
        own = of & known
        if own.any():
            found[of] = center(values[own])
    return found


def members(kinds: IntArray) -> list[BoolArray]:
    """The brokers (mask, n) of each kind. Kinds are numbered from 0."""
    return [kinds == kind for kind in range(int(kinds.max(initial=-1)) + 1)]


def zeroed(values: FloatArray) -> FloatArray:
    """`values` with 0 for NaN, and the largest number for infinity. If all are finite, the same array."""
    return values if everywhere(np.isfinite(values)) else np.nan_to_num(values)


def middle(values: FloatArray) -> FloatArray:
    """Median over the first axis, by sorting: rows are few and columns many. No value may be NaN."""
    ordered, k = np.sort(values, axis=0), len(values)
    found: FloatArray = ordered[k // 2] if k % 2 else (ordered[k // 2 - 1] + ordered[k // 2]) / 2
    return found


def median(values: FloatArray) -> FloatArray:
    """Median over the rows (k, n) -> (n,); NaN where all are NaN."""
    unknown = np.isnan(values)
    if not somewhere(unknown):
        return middle(values)
    known = ~unknown
    ordered, count, columns = np.sort(values, axis=0), np.count_nonzero(known, axis=0), np.arange(values.shape[1])
    rows = np.minimum(count // 2, len(values) - 1), np.maximum(count - 1, 0) // 2  # NaN comes last
    upper, lower = (ordered[row, columns] for row in rows)
    return np.where(count > 0, (lower + upper) / 2, np.nan)


def carried_on(values: FloatArray) -> FloatArray:
    """`values` (k, ...) with each gap filled from the minute before; NaN if there is none before.

    Without a gap, the array itself is returned.
    """
    if not somewhere(np.isnan(values)):
        return values
    filled = values.copy()
    for row in range(1, len(filled)):
        filled[row] = np.where(np.isnan(filled[row]), filled[row - 1], filled[row])
    return filled
