"""What each broker's CPU is made of: a background, and a slope times the work of its bundles.

    cpu_i(t) = b_i(t) + a_i * U_i(t)        cores; U = bytes/s in + bytes/s out + price of a message * msg/s

U is the work of broker i (see `readings`). The slope `a` (cores per byte/s) says how much a bundle will cost on a
broker, so a policy does not declare what machines there are. The background `b` is everything else: the broker's own
idle CPU, other programs on the machine, a sidecar.

A slope has two sources. The ratio r = median of (cpu - idle) / U is right only if no other program runs. Differences
between two minutes are always right, because a steady background cancels out. But they need load that changes, such as
after a move. The ratio is the prior. The more uncertain it is, the more it is drawn towards the pool: the median ratio
of all brokers of the same kind (with the same number of cores). The differences are the evidence:

    a ~ N(pool + t d, max(5 % of the pool, |d|)^2),  d = r - pool,  t = (1 - 3 ln(n) e^2 / d^2)+
    e = 1.25 sd(r) / sqrt(count); sd(r) / r is at least that of the median broker
    information += w dU^2 / s^2,  drift += w dU dcpu / s^2                    s: noise in cores, w: Huber's weight

Of n brokers of one kind, one always differs by chance. So t counts a difference only as far as it exceeds chance. The
doubt of a slope (how much it may be wrong) is e, but at most the slope's distance from the pool. With fewer than 3
samples t is half as large, and |d| is added to the doubt. Brokers of different kinds are compared by their pools. So if
there are several kinds, the error of the pool, e / sqrt(n), is added to the doubt.

A slope is kept between a fifth of the pool and five times the pool. With three recent samples or more, it is also at
most their median plus twice the error of this median. So the bundles alone never take clearly more CPU than was
measured.

Up to 8 samples the ratio is their median. Later samples are averaged into it. A later sample that is more than 1.5 sd
from the ratio counts as 1.5 sd away. If the median of the recent samples is clearly different, the ratio follows it, by
at most 0.4 % a minute. So a jump of CPU without a jump of traffic is background, not slope.

Stored in the strategy's `memory`: what `readings` stores; ``brokers.ratio``, ``brokers.count`` (samples so far),
``brokers.information``, ``brokers.drift``; and ``learned`` (time of the newest minute that was learned from, epoch s).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, RecentSamples, everywhere, somewhere
from trimtab_strategies.protocols import recall, remember
from trimtab_strategies.shedding.trim.readings import (
    FULL,
    BrokerReadings,
    median,
    middle,
    pooled,
    work_of,
    zeroed,
)
from trimtab_strategies.shedding.trim.samples import NEW_ROW
from trimtab_strategies.usage import network_limits

_FEW_SAMPLES = 3  # with fewer samples a ratio is very uncertain
_SETTLED = 8  # with more samples than this the ratio changes slowly
_FOLLOWS = 0.004  # a ratio follows a clearly different median by at most this share of itself per minute
_OUTLYING = 1.5  # a sample counts as at most this many standard deviations from the ratio
_ELSEWHERE = 2.0  # the median of the recent samples is clearly different if it differs by this many of its errors
_BY_CHANCE = 3.0  # the ratio of one of n brokers may differ by sqrt(3 ln(n)) errors by chance
_FORGET = 0.995  # ratio of the evidence that is kept per minute
_OWN = 0.05  # ratio of the pool by which brokers of one kind may always differ
_LEAST_NOISE = 0.002  # the least noise of CPU that is assumed, as a ratio of a broker's cores
_MOST_COUNTED = 60.0  # samples are counted up to this number: more would make the ratio ever slower


@dataclass(frozen=True)
class BrokerModel:
    """The model of n brokers over the last k minutes.

    slope: (n,) cores per byte/s. background: (k, n) cores. idle: (n,) the part of the background that the broker uses
    without load. doubt: (n,) cores per byte/s by which the slope may be off. cores: (n,) NaN if unknown. nic: (n, 2)
    limits of bytes/s in and out, inf if unknown. message: bytes that cost as much as one message.
    """

    slope: FloatArray
    background: FloatArray
    idle: FloatArray
    doubt: FloatArray
    cores: FloatArray
    nic: FloatArray
    message: float

    def only(self, brokers: BoolArray) -> BrokerModel:
        """The model reduced to `brokers` (mask, n)."""
        return replace(
            self,
            slope=self.slope[brokers],
            background=self.background[:, brokers],
            idle=self.idle[brokers],
            doubt=self.doubt[brokers],
            cores=self.cores[brokers],
            nic=self.nic[brokers],
        )

    def work(self, sampled: FloatArray) -> FloatArray:
        """U in bytes/s of samples with the columns `SAMPLED` (..., 3)."""
        return work_of(sampled, self.message)


def learned(
    cluster: ClusterLoad, recent: RecentSamples, memory: Mapping[str, Any]
) -> tuple[BrokerModel, dict[str, Any]]:
    """The model after the newest minute, and the memory."""
    readings, memory = BrokerReadings.of(cluster, recent, memory)
    names, new_row = cluster.brokers.names, _fresh(recent, memory)
    fresh = new_row & readings.known[-1]
    count = np.minimum(zeroed(recall(memory, "count", names)) + fresh, _MOST_COUNTED)
    ratios = _Ratios.of(readings, recall(memory, "ratio", names), count, fresh)
    information, drift = (zeroed(recall(memory, what, names)) for what in ("information", "drift"))
    if somewhere(fresh) and len(recent) > 1:
        gain = _evidence(readings.cpu, readings.work, readings.cores, ratios.prior)
        information = np.where(fresh, _FORGET * information + gain[0], information)
        drift = np.where(fresh, _FORGET * drift + gain[1], drift)
    slope = ratios.slope(readings, information, drift)
    idle = readings.own_idle(slope)
    model = BrokerModel(
        slope=slope,
        background=readings.background(idle, slope, ratios.spread),
        idle=idle,
        doubt=np.minimum(ratios.error, np.abs(slope - ratios.pool)) + ratios.more,
        cores=readings.cores,
        nic=network_limits(cluster.brokers.limit),
        message=readings.message,
    )
    for what, values in (("ratio", ratios.ratio), ("count", count), ("information", information), ("drift", drift)):
        memory = remember(memory, what, names, values)
    return model, {**memory, "learned": float(recent.time[-1]) if new_row else memory["learned"]}


@dataclass(frozen=True)
class _Ratios:
    """What the ratio of CPU to work shows about each broker's slope; all are (n,) cores per byte/s.

    ratio: the broker's own, NaN if unknown. pool: the median of its kind. spread: standard deviation of the samples.
    error: how much the ratio may be off. more: how much more it may be off because there are few samples, or the pool
    is off. prior: the ratio, drawn towards the pool. sd: standard deviation of the prior.
    """

    ratio: FloatArray
    pool: FloatArray
    spread: FloatArray
    error: FloatArray
    more: FloatArray
    prior: FloatArray
    sd: FloatArray

    @classmethod
    def of(cls, readings: BrokerReadings, before: FloatArray, count: FloatArray, fresh: BoolArray) -> _Ratios:
        """The ratios after a minute. before: (n,) last ratios. count: (n,) samples. fresh: (n,) with a new sample."""
        found = median(readings.each)
        found = np.where(np.isnan(found), before, found)
        spread = _spread(readings.each, found)
        followed = _followed(before, found, readings.each[-1], spread, np.maximum(count, 1))
        settled = ~np.isnan(before) & (count > _SETTLED)
        ratio = np.where(settled, np.where(fresh, followed, before), found)
        pool = pooled(ratio, readings.kinds)
        away = zeroed(ratio - pool)
        noise = np.where(np.isnan(ratio), 0.0, 1.25 * spread / np.sqrt(np.maximum(count, 1)))
        few = np.where(count < _FEW_SAMPLES, np.abs(away), 0.0)
        alike = np.bincount(readings.kinds)[readings.kinds]
        chance = _BY_CHANCE * np.log(alike) * noise**2
        clear = np.maximum(away**2 - chance, 0)
        trust = np.divide(clear, away**2 + few**2, out=np.zeros_like(away), where=away != 0)
        sd = np.maximum(_OWN * pool, np.abs(away))
        more = few + noise / np.sqrt(alike) if readings.kinds.any() else few
        return cls(ratio, pool, spread, noise, more, pool + away * trust, sd)

    def slope(self, readings: BrokerReadings, information: FloatArray, drift: FloatArray) -> FloatArray:
        """The slopes (n,) that follow from the ratios and the evidence."""
        prior, sd = self.prior, self.sd
        slope = (prior / sd**2 + drift) / (1 / sd**2 + information) if everywhere(sd > 0) else prior
        each = np.where(readings.known.any(axis=0), readings.each, readings.whole)
        samples = np.maximum(np.isfinite(each).sum(axis=0), 1)
        most = median(each) + 2 * 1.25 * self.spread / np.sqrt(samples)
        most = np.where(samples < _FEW_SAMPLES, np.inf, most)
        bounded: FloatArray = np.fmin(slope.clip(0.2 * self.pool, 5 * self.pool), most)
        return bounded


def _fresh(recent: RecentSamples, memory: Mapping[str, Any]) -> bool:
    """Whether the model has not yet learned from the newest minute."""
    return float(recent.time[-1]) - float(memory.get("learned", -np.inf)) >= NEW_ROW


def _followed(
    before: FloatArray, found: FloatArray, newest: FloatArray, spread: FloatArray, count: FloatArray
) -> FloatArray:
    """The ratio (n,) after the `newest` of `count` samples, see the module. found: median of the recent samples."""
    bound = _OUTLYING * spread
    average = before + np.clip(newest - before, -bound, bound) / count
    slow = np.clip(found, before * (1 - _FOLLOWS), before * (1 + _FOLLOWS))
    elsewhere = np.abs(found - before) > _ELSEWHERE * 1.25 * spread / np.sqrt(_SETTLED)
    after: FloatArray = np.where(elsewhere, slow, average)
    return after


def _evidence(cpu: FloatArray, work: FloatArray, cores: FloatArray, slope: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Information and drift (n,) from the newest difference between two minutes; 0 for a full machine."""
    work = np.where(np.isnan(cpu), np.nan, work)
    changed, caused = np.diff(cpu, axis=0), np.diff(work, axis=0)
    # differences are also NaN right after a gap: caches of a broker that just received bundles may then be cold
    usable = (np.maximum(cpu[1:], cpu[:-1]) < FULL * cores) & np.isfinite(changed) & np.isfinite(caused)
    left = np.where(usable, changed - slope * caused, np.nan) / cores
    known = left[~np.isnan(left)]
    noise = 1.48 * float(middle(np.abs(known))) if len(known) else 0.0
    scale = max(noise, _LEAST_NOISE) * cores
    weight = np.minimum(1.0, 2 * scale / np.maximum(np.abs(left[-1]) * cores, 1e-12))
    weight = np.where(usable[-1], weight, 0.0)
    moved, cost = zeroed(caused[-1]), zeroed(changed[-1])
    return weight * moved**2 / scale**2, weight * moved * cost / scale**2


def _spread(values: FloatArray, middles: FloatArray) -> FloatArray:
    """Standard deviation over the rows (k, n) -> (n,), from the median step between two readings.

    So one jump, or one false reading, does not count as noise. Relative to `middles` (n,), the deviation is at least
    that of the median broker, because a few readings may be equal by chance. 0 where nothing is known.
    """
    if len(values) < 2:  # noqa: PLR2004
        return np.zeros(len(middles))
    spread = 1.48 / np.sqrt(2) * median(np.abs(np.diff(values, axis=0)))
    relative = np.divide(spread, middles, out=np.full_like(spread, np.nan), where=middles > 0)
    return zeroed(np.fmax(spread, middles * median(relative[:, np.newaxis])))
