"""What each broker's CPU is made of: a background, and a slope times the work of its bundles.

    cpu_i(t) = b_i(t) + a_i * U_i(t)        cores; U = bytes/s in + bytes/s out + price of a message * msg/s

The slope `a` (cores per byte/s) says how much a bundle will cost on a broker, so mixed machines need no declaration.
The background `b` is everything else: other programs on the machine, a sidecar, idle connections.

A slope has two sources. The ratio r = median of cpu / U holds where there is no background. Differences between two
minutes hold always, as a steady background cancels; they need load that changes, and every landed move changes it. The
ratio is the prior, drawn towards the pool (the median of all brokers with as many cores) as far as it is uncertain. The
differences are the evidence:

    a ~ N(pool + (r - pool) d^2 / (d^2 + e^2), max(5 % of the pool, |d|)^2),  d = r - pool
    e = 1.25 sd(cpu / U) / sqrt(count), plus |d| while there are fewer than 3 samples; sd is at least the usual one
    information += w dU^2 / s^2,  drift += w dU dcpu / s^2                    s: noise in cores, w: Huber's weight

A slope is never so high that the bundles alone would take more CPU than was measured, by the median of the ring.

A machine that is suddenly full, although its bundles do not explain it, is believed in the second minute.

A broker with hardly any traffic has no ratio: its CPU is background.

Nothing is learned from a broker's CPU in the three minutes after bundles arrived: caches are cold, and all clients
connect at once. What the broker takes for good is seen by the difference from the minute before they came.

Once there are 8 samples the ratio follows by at most 0.4 % a minute. So a jump of CPU without a jump of traffic is
background, not slope.

Memory (by broker): ``ratio``, ``count``, ``information``, ``drift``; ``message``; and ``learned`` (epoch
seconds of the first sample of the newest row that was learned from).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray, RecentSamples
from trimtab_strategies.protocols import recall, remember
from trimtab_strategies.shedding.trim.samples import NEW_ROW

FULL = 0.975
"""Ratio of CPU from which a machine counts as full: it serves less than its clients want."""

SETTLES = 3.0
"""Minutes after the arrival of bundles in which a broker's CPU is not learned from."""

PRICES = (0.0, 100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0, 6400.0)
"""Prices of a message that are considered, in bytes that cost as much."""

_FEW_SAMPLES = 3  # below which a ratio is hardly known
_SETTLED = 8  # samples from which on the ratio follows slowly
_FOLLOWS = 0.004  # ratio by which it follows per minute
_IDLE = 0.05  # ratio of the busiest broker's traffic per core below which the ratio cpu / U is not used
_FALSE = 1.5  # times the ratio of its kind from which on a full machine's reading is odd
_GOOD_PART = 0.03  # ratio of its work from which on what arrived disturbs a broker
_FORGET = 0.995  # of the evidence, per minute
_OWN = 0.05  # ratio of the pool by which brokers of a kind differ in any case
_LEAST_NOISE = 0.002  # ratio of a broker's cores
_CLEAR = 2.0  # times the noise of a broker's CPU from which on what its bundles do not explain is background
_MOST_COUNTED = 60.0  # samples
_BY_WORK = ("ratio", "information", "drift")  # what is learned anew when the price of a message changes


@dataclass(frozen=True)
class BrokerModel:
    """The model of n brokers over the k minutes of the ring.

    slope: (n,) cores per byte/s. background: (k, n) cores. doubt: (n,) cores per byte/s by which the ratio may be off.
    cores: (n,) NaN unknown. nic: (n, 2) bytes/s in and out, inf where it is unknown. message: bytes that cost as much
    as one message.
    """

    slope: FloatArray
    background: FloatArray
    doubt: FloatArray
    cores: FloatArray
    nic: FloatArray
    message: float

    def only(self, brokers: BoolArray) -> BrokerModel:
        """The model of `brokers` (mask, n)."""
        return replace(
            self,
            slope=self.slope[brokers],
            background=self.background[:, brokers],
            doubt=self.doubt[brokers],
            cores=self.cores[brokers],
            nic=self.nic[brokers],
        )

    def work(self, sampled: FloatArray) -> FloatArray:
        """U in bytes/s of samples with the columns `SAMPLED` (..., 3)."""
        return work_of(sampled, self.message)


def work_of(sampled: FloatArray, message: float) -> FloatArray:
    """U in bytes/s of samples with the columns `SAMPLED` (..., 3), at a price of `message` bytes for each message."""
    work: FloatArray = sampled[..., 0] + sampled[..., 1] + message * sampled[..., 2]
    return work


def learned(
    cluster: ClusterLoad, recent: RecentSamples, memory: Mapping[str, Any]
) -> tuple[BrokerModel, dict[str, Any]]:
    """The model after the newest minute, and the memory."""
    names = cluster.brokers.names
    cores = np.where(cluster.brokers.limit[:, CPU] > 0, cluster.brokers.limit[:, CPU], np.nan)
    cpu, traffic = without_repeats(recent, cluster.bundles.owner)
    cpu = np.where(unsettled(cluster, recent), np.nan, cpu)
    kinds = np.unique(np.nan_to_num(cores), return_inverse=True)[1]
    loaded = np.where(_loaded(traffic, cores), cpu, np.nan)
    message = message_price(loaded, traffic, kinds, float(memory.get("message", 0.0)))
    work = work_of(traffic, message)
    if message != memory.get("message", 0.0):
        kept = {what: of for what, of in memory.get("brokers", {}).items() if what not in _BY_WORK}
        memory = {**memory, "brokers": kept}
    known = np.isfinite(loaded) & (work > 0)
    each = np.where(known, cpu, np.nan) / np.where(known, work, np.nan)
    odd = (cpu >= FULL * cores) & ~(each <= _FALSE * _pooled(_median(each), kinds))
    alone = odd.copy()
    alone[1:] &= ~odd[:-1]
    cpu, each = np.where(alone, np.nan, cpu), np.where(odd, np.nan, each)
    count = np.nan_to_num(recall(memory, "count", names))
    new_row = _fresh(recent, memory)
    fresh = new_row & known[-1]
    count = np.minimum(count + fresh, _MOST_COUNTED)
    ratio = _followed(recall(memory, "ratio", names), _median(each), count, fresh)
    pool = _pooled(ratio, kinds)
    spread = _spread(each)
    relative = np.divide(spread, ratio, out=np.full_like(spread, np.nan), where=ratio > 0)
    spread = np.fmax(spread, ratio * _median(relative[:, np.newaxis]))  # few samples may be alike by chance
    error = 1.25 * spread / np.sqrt(np.maximum(count, 1))
    away = np.nan_to_num(ratio - pool)
    error = np.where(np.isnan(ratio), 0.0, error + np.where(count < _FEW_SAMPLES, np.abs(away), 0.0))
    trust = np.divide(away**2, away**2 + error**2, out=np.zeros_like(away), where=away != 0)
    prior, sd = pool + away * trust, np.maximum(_OWN * pool, np.abs(away))
    information, drift = (np.nan_to_num(recall(memory, what, names)) for what in ("information", "drift"))
    if fresh.any() and len(recent) > 1:
        gain = _evidence(cpu, work, cores, prior)
        information = np.where(fresh, _FORGET * information + gain[0], information)
        drift = np.where(fresh, _FORGET * drift + gain[1], drift)
    slope = (prior / sd**2 + drift) / (1 / sd**2 + information) if np.all(sd > 0) else prior
    samples = np.maximum(np.isfinite(each).sum(axis=0), 1)
    most = np.where(samples < _FEW_SAMPLES, np.inf, _median(each) + 2 * 1.25 * spread / np.sqrt(samples))
    slope = np.fmin(np.clip(slope, 0.2 * pool, 5 * pool), most)
    rest = cpu - slope * work
    background = np.where(rest > _CLEAR * spread * work, rest, np.where(np.isnan(rest), np.nan, 0.0))
    nic = cluster.brokers.limit[:, [NETWORK_IN, NETWORK_OUT]]
    model = BrokerModel(
        slope=slope,
        background=np.nan_to_num(carried_on(background)),
        doubt=error,
        cores=cores,
        nic=np.where(nic > 0, nic, np.inf),
        message=message,
    )
    for what, values in (("ratio", ratio), ("count", count), ("information", information), ("drift", drift)):
        memory = remember(memory, what, names, values)
    last_learned = float(recent.time[-1]) if new_row else memory["learned"]
    return model, {**memory, "message": message, "learned": last_learned}


def without_repeats(recent: RecentSamples, owner: IntArray) -> tuple[FloatArray, FloatArray]:
    """CPU (k, n) and traffic (k, n, 3) without stale reports: the same figures as before, although bundles changed.

    owner: (m,) row of each bundle's owner.
    """
    cpu, traffic = recent.cpu, recent.traffic
    same = np.zeros(cpu.shape, dtype=bool)
    same[1:] = (cpu[1:] == cpu[:-1]) & (traffic[1:] == traffic[:-1]).all(axis=2)
    for row in np.flatnonzero(same.any(axis=1)).tolist():
        changed = np.nan_to_num(np.abs(recent.bundles[row] - recent.bundles[row - 1]).sum(axis=1))
        same[row] &= np.bincount(owner + 1, weights=changed, minlength=cpu.shape[1] + 1)[1:] > 0
    return np.where(same, np.nan, cpu), np.where(same[..., np.newaxis], np.nan, traffic)


def unsettled(cluster: ClusterLoad, recent: RecentSamples) -> BoolArray:
    """Minutes (k, n) in which a broker's CPU tells little, as a good part of its bundles have just arrived.

    A new owner reads from the bookies until its caches are warm, and all clients connect at once.
    """
    bundles, n = cluster.bundles, len(cluster.brokers)
    arrived = np.where(np.isnan(bundles.last_unload), -np.inf, bundles.last_unload)
    new = (bundles.owner >= 0) & (arrived >= recent.time[0] - 60 * SETTLES)
    latest = np.full(n, -np.inf)
    np.maximum.at(latest, bundles.owner[new], arrived[new])
    carried = np.nan_to_num(recent.bundles[-1]).sum(axis=1)
    every, recently = (
        np.bincount(bundles.owner + 1, weights=of, minlength=n + 1)[1:] for of in (carried, carried * new)
    )
    latest[recently < _GOOD_PART * every] = -np.inf
    since = recent.time[:, np.newaxis] - latest
    fresh: BoolArray = (since > 0) & (since <= 60 * SETTLES)
    return fresh


def _loaded(traffic: FloatArray, cores: FloatArray) -> BoolArray:
    """Where (k, n) cpu / U tells a slope: not on a broker that is idle beside the busiest. Its CPU is background."""
    carried = np.stack([traffic[..., 0] + traffic[..., 1], traffic[..., 2]], axis=-1)
    per_core = np.nan_to_num(carried / np.nan_to_num(cores, nan=1.0)[:, np.newaxis])
    loaded: BoolArray = (per_core >= _IDLE * per_core.max(axis=1, keepdims=True, initial=0.0)).any(axis=-1)
    return loaded


def message_price(cpu: FloatArray, traffic: FloatArray, kinds: IntArray, before: float) -> float:
    """The price of a message that makes brokers of a kind most alike in cpu / U; it changes only for a clear gain."""
    apart = {price: _unlike(cpu, traffic, kinds, price) for price in {*PRICES, before}}
    best = min(sorted(apart), key=lambda price: apart[price])
    clear = apart[best] < 0.7 * apart[before] and apart[before] - apart[best] > 0.01  # noqa: PLR2004
    return best if clear else before


def _unlike(cpu: FloatArray, traffic: FloatArray, kinds: IntArray, price: float) -> float:
    """Mean absolute deviation of log(cpu / U) within the kinds; 0 when there is nothing to compare."""
    work = work_of(traffic, price)
    known = (cpu > 0) & (work > 0)
    log = _median(np.log(np.divide(cpu, work, out=np.full(cpu.shape, np.nan), where=known)))
    away = log - _pooled(log, kinds, mean=True)
    return float(np.nanmean(np.abs(away))) if np.isfinite(away).any() else 0.0


def _fresh(recent: RecentSamples, memory: Mapping[str, Any]) -> bool:
    """Whether the newest minute is one that was not learned from."""
    return float(recent.time[-1]) - float(memory.get("learned", -np.inf)) >= NEW_ROW


def _followed(before: FloatArray, median: FloatArray, count: FloatArray, fresh: BoolArray) -> FloatArray:
    slow = np.clip(median, before * (1 - _FOLLOWS), before * (1 + _FOLLOWS))
    after = np.where(np.isnan(before) | (count <= _SETTLED), median, np.where(fresh, slow, before))
    return np.where(np.isnan(median), before, after)


def _pooled(values: FloatArray, kinds: IntArray, *, mean: bool = False) -> FloatArray:
    """The median (or mean) of each broker's kind (n,); of all brokers where the kind has none; 1 where no one has."""
    center = np.nanmean if mean else np.nanmedian
    found = np.full(len(values), np.nan)
    for kind in np.unique(kinds):
        of = kinds == kind
        if np.isfinite(values[of]).any():
            found[of] = center(values[of])
    return np.where(np.isnan(found), center(values) if np.isfinite(values).any() else 1.0, found)


def _evidence(cpu: FloatArray, work: FloatArray, cores: FloatArray, slope: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Information and drift (n,) of the newest difference between two minutes; none from a full machine."""
    work = np.where(np.isnan(cpu), np.nan, work)
    changed, caused = cpu[1:] - carried_on(cpu)[:-1], work[1:] - carried_on(work)[:-1]
    usable = (np.maximum(cpu[1:], cpu[:-1]) < FULL * cores) & np.isfinite(changed) & np.isfinite(caused)
    left = np.where(usable, changed - slope * caused, np.nan) / cores
    noise = 1.48 * float(np.nanmedian(np.abs(left))) if usable.any() else 0.0
    scale = max(noise, _LEAST_NOISE) * cores
    weight = np.minimum(1.0, 2 * scale / np.maximum(np.abs(left[-1]) * cores, 1e-12))
    weight = np.where(usable[-1], weight, 0.0)
    moved, cost = np.nan_to_num(caused[-1]), np.nan_to_num(changed[-1])
    return weight * moved**2 / scale**2, weight * moved * cost / scale**2


def _median(values: FloatArray) -> FloatArray:
    """Median over the rows (k, n) -> (n,); NaN where all are NaN."""
    count = np.count_nonzero(~np.isnan(values), axis=0)
    ordered, columns = np.sort(values, axis=0), np.arange(values.shape[1])  # NaN comes last
    middle = np.minimum(count // 2, len(values) - 1), np.maximum(count - 1, 0) // 2
    upper, lower = (ordered[row, columns] for row in middle)
    return np.where(count > 0, (lower + upper) / 2, np.nan)


def _spread(values: FloatArray) -> FloatArray:
    """Standard deviation over the rows (k, n) -> (n,), from the median step between two minutes.

    So one jump, or one false reading, does not count as noise. 0 where there are fewer than two values.
    """
    step = _median(np.abs(np.diff(values, axis=0))) if len(values) > 1 else np.zeros(values.shape[1])
    spread: FloatArray = np.nan_to_num(1.48 / np.sqrt(2) * step)
    return spread


def carried_on(values: FloatArray) -> FloatArray:
    """A copy of `values` (k, ...) with each gap filled by the minute before it; NaN where there is none before."""
    filled = values.copy()
    for row in range(1, len(filled)):
        filled[row] = np.where(np.isnan(filled[row]), filled[row - 1], filled[row])
    return filled
