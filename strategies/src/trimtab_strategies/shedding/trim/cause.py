"""When Trim acts: a difference that has lasted in the replay, and a plan whose gain is worth its moves.

A window is a number of minutes. low_i is the least, high_i the largest distance of broker i from its target in it, with
the doubt of the model taken off, or added. There is a cause when

    max low >= hot,  or  max low - min high >= apart        (a third of both within a campaign)

Windows of 8, 6, 4, 3 and 2 minutes are tried, the longest first: twelve points act after eight minutes, 45 points after
three or four, a burst of a minute never. A plan pays when

    (points taken off brokers above their target) x (minutes that will probably last) >= worth x (price of its moves)

Points above 85 % count three times, above 95 % twenty times. A difference will last as long as it has lasted: the
window, but an hour after eight minutes, and at least 20 minutes within a campaign. A campaign lasts three minutes after
each plan.

Two memories make it patient. An excess that ended by itself is a spike: for an hour, only what lasts one and a half
times as long counts. A background that rose and fell again is one too, whatever was moved meanwhile. And what is
unusual must last longer, unless its broker is above 85 %: a background above the usual one for seven minutes; and in
the first half hour, in which it can't know of spikes, a load that was not usual for its bundles in the minutes before
for twelve.

Memory: ``brokers.since`` and ``brokers.below`` (epoch seconds since which a broker is in excess, or as far below),
``brokers.calm`` (its usual background, in percent), ``brokers.loud`` (epoch seconds since which the background is above
it), ``spikes`` ([end, minutes] of the last hour), ``campaign`` (epoch seconds of the last plan), ``born`` (epoch
seconds of the first decision).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab_strategies.model.cluster_load import BoolArray, FloatArray
from trimtab_strategies.protocols import recall, remember
from trimtab_strategies.shedding.trim.replay import Replay

WINDOWS = (8, 6, 4, 3, 2)
"""Minutes, in the order in which they are tried."""

EXCESS = 8.0
"""Points above its target from which a broker is in excess."""

SURGE, LOUD = 12.0, 7.0
"""Minutes that an unusual load, and an unusual background, must last."""

CAMPAIGN = 3.0
"""Minutes after a plan in which a smaller cause suffices."""

BUSY, CRITICAL = 85.0, 95.0
"""Percent of usage from which points count three times, and twenty times."""

_HOUR = 3600.0
_YOUNG = 1800.0  # seconds
_RISES = 0.1  # points by which the usual background follows a higher one, per decision
_PATIENCE = 1.5  # times the longest spike that an excess must last
_OFTEN = 60.0  # minutes that a difference will last which has lasted for the longest window
_AT_LEAST = 20.0  # minutes that it will last within a campaign


@dataclass(frozen=True)
class Watch:
    """What the memory knows of the brokers' excesses. now: epoch seconds. since: (n,) NaN: not in excess. below: (n,)
    since when a broker is as far below its target.

    calm: (n,) usual background, cores. loud: (n,) epoch seconds since which it is higher, NaN: it is not.
    spike: minutes of the longest excess of the last hour that ended by itself. campaign: whether one is on. young:
    whether it is too new to know of spikes.
    """

    now: float
    since: FloatArray
    below: FloatArray
    calm: FloatArray
    loud: FloatArray
    spike: float
    campaign: bool
    young: bool

    def lasted(self, since: FloatArray) -> FloatArray:
        """Minutes (n,) from `since` to now, 0 where it is NaN."""
        lasted: FloatArray = np.nan_to_num((self.now - since) / 60 + 1)
        return lasted

    @property
    def patience(self) -> float:
        """Minutes that a difference must last."""
        return _PATIENCE * self.spike + 1 if self.spike else 0.0

    def windows(self, minutes: int) -> list[int]:
        """The windows that may be tried with so many minutes in the ring."""
        least = min(self.patience, WINDOWS[0])
        return [window for window in WINDOWS if least <= window <= minutes]

    def life(self, window: int) -> float:
        """Minutes that a difference will last which has lasted for `window`."""
        lasts = _OFTEN if window == WINDOWS[0] else float(window)
        return max(lasts, _AT_LEAST) if self.campaign else lasts


def watched(
    replay: Replay, names: Sequence[str], now: float, memory: Mapping[str, Any]
) -> tuple[Watch, dict[str, Any]]:
    """The watch after the newest minute, and the memory."""
    above = replay.away[-1] - replay.doubt[-1] > EXCESS
    since, ended = _followed(above, recall(memory, "since", names), now)
    below, filled = _followed(replay.away[-1] + replay.doubt[-1] < -EXCESS, recall(memory, "below", names), now)
    background = 100 * np.nan_to_num(replay.model.background[-1] / replay.model.cores)
    calm = recall(memory, "calm", names)
    calm = np.minimum(background, np.where(np.isnan(calm), background, calm + _RISES))
    loud, fell = _followed(background - calm > EXCESS, recall(memory, "loud", names), now)
    spikes = [*memory.get("spikes", ()), *([now, minutes] for minutes in (*ended, *filled, *fell))]
    spikes = [[end, minutes] for end, minutes in spikes if now - end <= _HOUR and minutes > 0]
    spike = max((minutes for _, minutes in spikes), default=0.0)
    campaign, born = now - memory.get("campaign", -np.inf) <= 60 * CAMPAIGN, memory.get("born", now)
    for what, values in (("since", since), ("below", below), ("calm", calm), ("loud", loud)):
        memory = remember(memory, what, names, values)
    usual = np.minimum(calm, background) / 100 * replay.model.cores
    return Watch(now, since, below, np.nan_to_num(usual), loud, spike, campaign, now - born < _YOUNG), {
        **memory,
        "spikes": spikes,
        "born": born,
    }


def _followed(on: BoolArray, since: FloatArray, now: float) -> tuple[FloatArray, list[float]]:
    """Since when each broker is `on` (n,), NaN if it is not; and the minutes of those that are no longer."""
    ended = ~on & np.isfinite(since)
    return np.where(on, np.where(np.isnan(since), now, since), np.nan), ((now - since[ended]) / 60).tolist()


def acted(memory: Mapping[str, Any], names: Sequence[str], touched: BoolArray, now: float) -> dict[str, Any]:
    """The memory after a plan: a campaign begins, and the excess of `touched` brokers (n,) does not end by itself."""
    for what in ("since", "below"):
        memory = remember(memory, what, names, np.where(touched, np.nan, recall(memory, what, names)))
    return {**memory, "campaign": now}


@dataclass(frozen=True)
class Cause:
    """How far brokers are from their targets in a window: (n,) points, with doubt counted against acting."""

    window: int
    low: FloatArray
    high: FloatArray
    hot: float
    apart: float

    @property
    def given(self) -> bool:
        """Whether the difference is large enough."""
        return self.hottest >= self.hot or self.range >= self.apart

    @property
    def hottest(self) -> float:
        """Points of the broker farthest above its target."""
        return float(self.low.max())

    @property
    def range(self) -> float:
        """Points between the brokers farthest above and below."""
        return float(self.low.max() - self.high.min())


def cause(replay: Replay, watch: Watch, window: int, *, hot: float, apart: float) -> Cause:
    """The cause that `window` shows. A surge counts only as far as it is usual."""
    away, doubt = replay.away[-window:], replay.doubt[-window:]
    low, high = (away - doubt).min(axis=0), (away + doubt).max(axis=0)
    busy = 100 * replay.usage[-window:].max(axis=2).min(axis=0) > BUSY
    low = np.where(busy | (watch.lasted(watch.loud) >= LOUD), low, np.minimum(low, replay.away_with(watch.calm)))
    lasted = watch.lasted(watch.since)
    if watch.young and not watch.campaign:
        low = np.where(busy | (lasted >= SURGE), low, np.minimum(low, replay.usual))
        high = np.maximum(high, replay.usual)
    if watch.patience > WINDOWS[0]:
        low = np.where(lasted >= watch.patience, low, np.minimum(low, 0))
        high = np.where(watch.lasted(watch.below) >= watch.patience, high, np.maximum(high, 0))
    share = 1 / 3 if watch.campaign else 1.0
    return Cause(window, low, high, hot * share, apart * share)


def relief(usage: FloatArray, after: FloatArray, target: FloatArray, explained: BoolArray) -> float:
    """Points that a change from `usage` to `after` (n, percent) takes off brokers above their `target` (n, percent).

    explained: (n,) brokers whose bundles alone explain their usage; only there do points above 85 % count for more.
    """
    return float((_weighed(usage, target, explained) - _weighed(after, target, explained)).sum())


def _weighed(usage: FloatArray, target: FloatArray, explained: BoolArray) -> FloatArray:
    plain = np.maximum(usage - target, 0)
    busy = np.maximum(usage - np.maximum(target, BUSY), 0)
    critical = np.maximum(usage - np.maximum(target, CRITICAL), 0)
    return plain + np.where(explained, 2 * busy + 17 * critical, 0.0)
