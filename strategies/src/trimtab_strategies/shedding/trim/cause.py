"""When Trim acts: a difference must have lasted in the replay, and the plan's gain must be worth its moves.

A window is the last 2 to 8 minutes of the replay. low_i is the least distance of broker i from its target (see
`replay`) in the window, minus the doubt: the points by which the model may be wrong. high_i is the largest distance,
plus the doubt. There is a cause, a reason to act, when

    max low >= hot,  or  max low - min high >= apart        (a third of both within a campaign)

A campaign is the three minutes after a plan. Windows of 8, 6, 5, 4, 3 and 2 minutes are tried, the longest first. A
burst of one minute never leads to a plan. A plan pays when

    (points taken off brokers above their target) x (minutes that the difference will probably last)
        >= worth x (price of its moves) / (bundles per broker)

For a broker whose bundles alone explain most of its usage, points above 85 % usage count three times, and points above
95 % twenty times. A difference is expected to last as long as it has lasted: the length of the window. After eight
minutes it is expected to last an hour. Within a campaign, each difference is expected to last at least 20 minutes. So a
difference of twelve points leads to a plan after eight minutes, one of 45 points after two or three. If the load of the
whole cluster has just begun, or all brokers have just started, a difference is due to placement and not to the load of
one bundle. So it is expected to last at least 20 minutes, too.

Two rules make Trim patient.

1. It remembers spikes for an hour. A broker's excess begins a little above `hot` points, and ends at about half of
   that. An excess that ends by itself is a spike. So is a time in which a broker was below the median broker by as many
   points. After a spike, a difference is a cause only if it lasts one and a half times as long as the longest spike,
   plus a minute. For a broker that is above 85 % for the whole window, eight minutes always suffice. Within a campaign,
   spikes do not matter. A background (CPU that no bundle explains) that rises and falls again is a spike, too. It
   counts even if bundles move meanwhile, but not if it falls within a campaign.
2. Unusual load must last longer, unless its broker is above 85 %. A background above the usual one must last seven
   minutes. In its first half hour Trim knows of few spikes. So in this time, load above the bundles' usual load (see
   `replay`) must last twelve minutes. If the load of the whole cluster has just begun, no load is unusual.

A difference that a change of owners causes is no spike:

- an excess, if the broker's bundles changed after it began, or in the three minutes before;
- the excess of every broker, if any broker left or started in that time;
- a background that began to be above the usual one in the three minutes after bundles came.

A small difference that stays is a cause, too. After an hour, two thirds of `hot` and `apart` suffice. During that hour
the limits fall in proportion.

The two rules of patience do not apply when Trim fills a broker that has hardly any bundles: that broker is empty
whatever the load does. It is filled after two minutes.

Stored in the strategy's `memory` (all times are epoch seconds):

- ``brokers.since``, ``brokers.below``: since when a broker is in excess, or below the median broker by as much;
- ``brokers.calm``: its usual background, in percent;
- ``brokers.loud``: since when its background is above the usual one;
- ``brokers.answered``: time of a plan that touched the broker since ``brokers.loud``;
- ``brokers.owns``, ``brokers.changed``: a checksum of its bundles, and when they last changed;
- ``spikes``: [end, minutes] of each spike of the last hour;
- ``campaign``: time of the last plan;
- ``planned``: the brokers of that plan, each with a checksum of its former bundles, until the next decision;
- ``born``: time of the first decision;
- ``wide``: since when two thirds of `hot` or `apart` have been exceeded; null: they are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray, somewhere
from trimtab_strategies.protocols import recall, remember
from trimtab_strategies.shedding.trim.owners import Owned
from trimtab_strategies.shedding.trim.readings import SETTLES, middle, zeroed
from trimtab_strategies.shedding.trim.replay import Replay

WINDOWS = (8, 6, 5, 4, 3, 2)
"""Windows in minutes, in the order in which they are tried."""

SURE = 3
"""In windows shorter than this (minutes), unusual load is no cause even on a broker above 85 %."""

EXCESS, STILL = 16 / 15, 8 / 15
"""An excess begins at the first multiple of `hot` above the broker's target, and ends at the second.

With lower limits Trim would remember more and longer spikes. It would then wait too long when a tenant's load steps up
or down.
"""

SURGE, LOUD = 12.0, 7.0
"""Minutes for which an unusual load (`SURGE`) and an unusual background (`LOUD`) must last."""

CAMPAIGN = 3.0
"""Minutes after a plan in which a smaller difference suffices."""

NARROW, NARROWS = 2 / 3, 60.0
"""Ratio of `hot` and `apart` that suffices once a difference has lasted for this many minutes."""

BUSY, CRITICAL = 85.0, 95.0
"""Percent of usage from which points count three times, and twenty times."""

_HOUR = 3600.0  # seconds
_DUE_TO_OWNERS = 60 * SETTLES  # an excess that begins within so many seconds of a change of bundles is due to it
_YOUNG = 1800.0  # seconds after the first decision in which few spikes are known
_RISES = 0.1  # points by which the usual background follows a higher one, per decision
_PATIENCE = 1.5  # an excess must last for this multiple of the longest spike
_OFTEN = 60.0  # minutes that a difference is expected to last after the longest window
_AT_LEAST = 20.0  # minutes that a difference is expected to last within a campaign, or if the load has just begun


@dataclass(frozen=True)
class Watch:
    """What is remembered of the brokers' excesses. All times are epoch seconds.

    since: (n,) since when a broker is in excess, NaN: it is not. below: (n,) since when it is as far below the median
    broker, NaN: it is not. calm: (n,) usual background, cores. loud: (n,) since when the background is higher, NaN: it
    is not. answered: (n,) time of a plan that touched the broker since `loud`, NaN: none did. spike: minutes of the
    longest spike of the last hour. campaign: whether there is one now. young: whether Trim started too recently to know
    of spikes. wide: minutes for which two thirds of `hot` or `apart` have been exceeded. filling: whether brokers
    without bundles are filled, which needs no patience. begun: whether the load of the cluster has just begun.
    """

    now: float
    since: FloatArray
    below: FloatArray
    calm: FloatArray
    loud: FloatArray
    answered: FloatArray
    spike: float
    campaign: bool
    young: bool
    wide: float = 0.0
    filling: bool = False
    begun: bool = False

    def lasted(self, since: FloatArray) -> FloatArray:
        """Minutes (n,) from `since` to now, including the first one; 0 where `since` is NaN."""
        lasted: FloatArray = zeroed((self.now - since) / 60 + 1)
        return lasted

    @property
    def share(self) -> float:
        """Ratio of `hot` and `apart` that suffices: less within a campaign, and for a small difference that stays."""
        return 1 / 3 if self.campaign else 1 - (1 - NARROW) * min(self.wide / NARROWS, 1.0)

    @property
    def patience(self) -> float:
        """Minutes that a difference must last because of earlier spikes; 0 without any."""
        return _PATIENCE * self.spike + 1 if self.spike and not self.filling else 0.0

    def windows(self, minutes: int) -> list[int]:
        """The windows that may be tried when there are samples of so many `minutes`."""
        least = 0.0 if self.campaign else min(self.patience, WINDOWS[0])
        return [window for window in WINDOWS if least <= window <= minutes]

    def life(self, window: int) -> float:
        """Minutes that a difference is expected to last after it has lasted for `window`."""
        lasts = _OFTEN if self.filling or window == WINDOWS[0] else float(window)
        return max(lasts, _AT_LEAST) if self.campaign or self.begun else lasts


def watched(
    replay: Replay, names: Sequence[str], now: float, memory: Mapping[str, Any], *, hot: float, apart: float
) -> tuple[Watch, dict[str, Any]]:
    """The watch after the newest minute, and the memory. hot, apart: as in `TrimParams`."""
    away, doubt = replay.away[-1], replay.doubt[-1]
    changed, memory = _changed(replay.minutes.cluster, replay.minutes.owned, memory)
    before = {what: recall(memory, what, names) for what in ("since", "below", "loud")}
    moved = {what: changed >= begun - _DUE_TO_OWNERS for what, begun in before.items()}
    moved["loud"] &= changed <= before["loud"]  # a later move does not end another program's load
    since, ended = _followed(away - doubt, before["since"], now, hot, moved["since"])
    # the median, not the level: another program on one machine puts all other brokers equally far below the level
    lower = middle(away) - away - doubt
    below, filled = _followed(lower, before["below"], now, hot, moved["below"])
    model = replay.model
    background = 100 * zeroed((model.background[-1] - model.idle) / model.cores)
    calm = recall(memory, "calm", names)
    calm = np.minimum(background, np.where(np.isnan(calm), background, calm + _RISES))
    loud, fell = _followed(background - calm, before["loud"], now, hot, moved["loud"])
    answered = np.where(np.isnan(loud), np.nan, recall(memory, "answered", names))
    campaign, born = now - memory.get("campaign", -np.inf) <= 60 * CAMPAIGN, memory.get("born", now)
    fell = [] if campaign else fell  # in a campaign, the CPU that fell may be that of arriving bundles
    spikes = [*memory.get("spikes", ()), *([now, minutes] for minutes in (*ended, *filled, *fell))]
    spikes = [[end, minutes] for end, minutes in spikes if now - end <= _HOUR and minutes > 0]
    spike = max((minutes for _, minutes in spikes), default=0.0)
    kept = {"since": since, "below": below, "calm": calm, "loud": loud, "answered": answered}
    for what, values in kept.items():
        memory = remember(memory, what, names, values)
    usual = zeroed(np.minimum(calm, background) / 100 * model.cores) + model.idle
    far = _shown(replay, WINDOWS[0], hot * NARROW, apart * NARROW).given and len(replay) >= WINDOWS[0]
    wide = (memory.get("wide") or now) if far else None
    lasts = 0.0 if wide is None else (now - wide) / 60
    young, begun = now - born < _YOUNG, replay.begun
    watch = Watch(now, since, below, usual, loud, answered, spike, campaign, young, lasts, begun=begun)
    return watch, {**memory, "spikes": spikes, "born": born, "wide": wide}


def _followed(
    excess: FloatArray, since: FloatArray, now: float, hot: float, moved: BoolArray
) -> tuple[FloatArray, list[float]]:
    """Since when each broker is in `excess` (n, points), NaN if it is not; and the minutes of each excess that ended.

    The limit at which an excess ends is lower, so a value that varies around the first limit does not end it. moved:
    (n,) brokers whose excess a change of owners explains. They are left out of the minutes, because such an excess does
    not end by itself.
    """
    known, begins = np.isfinite(since), excess > EXCESS * hot
    if not (somewhere(known) or somewhere(begins)):
        return since, []
    on = begins | (known & (excess > STILL * hot))
    ended = known & ~on & ~moved
    return np.where(on, np.where(np.isnan(since), now, since), np.nan), ((now - since[ended]) / 60).tolist()


def _changed(cluster: ClusterLoad, owned: Owned, memory: Mapping[str, Any]) -> tuple[FloatArray, dict[str, Any]]:
    """When the bundles of each broker last changed (n,), epoch seconds, NaN if never; and the memory.

    When a broker leaves or starts, the level changes for all. So that counts as a change for each broker.
    """
    names, now = cluster.brokers.names, cluster.now
    before, owns = recall(memory, "owns", names), owned.fingerprints.astype(np.float64)
    left = any(time == now for time, _ in memory.get("departures", ()))
    started = somewhere(now - cluster.started <= _DUE_TO_OWNERS)
    known = np.isfinite(before)
    changed = np.where((known & (owns != before)) | left | started, now, recall(memory, "changed", names))
    return changed, remember(remember(memory, "owns", names, owns), "changed", names, changed)


def carried_out(memory: Mapping[str, Any], cluster: ClusterLoad, owned: Owned) -> dict[str, Any]:
    """The memory, without the campaign if its plan moved nothing: it was only shown, or limits held it back."""
    planned, kept = memory.get("planned"), {key: value for key, value in memory.items() if key != "planned"}
    if planned is None:
        return kept
    index, owns = cluster.brokers.index, owned.fingerprints
    moved = any(name in index and owns[index[name]] != before for name, before in planned)
    return {key: value for key, value in kept.items() if moved or key != "campaign"}


def acted(memory: Mapping[str, Any], names: Sequence[str], touched: BoolArray, now: float) -> dict[str, Any]:
    """The memory after a plan: a campaign begins, and the excess of `touched` brokers (n,) does not end by itself.

    If their background is above the usual one, the plan has reacted to it. So a background that is still above needs no
    more patience.
    """
    for what in ("since", "below"):
        memory = remember(memory, what, names, np.where(touched, np.nan, recall(memory, what, names)))
    loud, answered = recall(memory, "loud", names), recall(memory, "answered", names)
    memory = remember(memory, "answered", names, np.where(touched & np.isfinite(loud), now, answered))
    return {**memory, "campaign": now, "wide": None}


@dataclass(frozen=True)
class Cause:
    """How far brokers are from their targets in a window, in points. See the module for low (n,) and high (n,)."""

    window: int
    low: FloatArray
    high: FloatArray
    pools: IntArray
    hot: float
    apart: float

    @property
    def given(self) -> bool:
        """Whether the difference is large enough."""
        return self.hottest >= self.hot or self.range >= self.apart

    @property
    def hottest(self) -> float:
        """How many points the hottest broker is above its target."""
        return float(self.low.max())

    @property
    def range(self) -> float:
        """Points between the brokers farthest above and below their targets, within one pool (see `replay`)."""
        return widest(self.low, self.high, self.pools)


def may_differ(replay: Replay, watch: Watch, window: int, *, hot: float, apart: float) -> bool:
    """Whether `window`, or a longer one, may show a cause. A longer one never shows a larger difference."""
    return _shown(replay, window, hot * watch.share, apart * watch.share).given


def cause(replay: Replay, watch: Watch, window: int, *, hot: float, apart: float) -> Cause:
    """The cause that `window` shows."""
    shown = _shown(replay, window, hot * watch.share, apart * watch.share)
    if watch.filling or not shown.given:  # patience can only remove a cause
        return shown
    low, high = _patient(replay, watch, window, shown.low, shown.high)
    return replace(shown, low=low, high=high)


def _shown(replay: Replay, window: int, hot: float, apart: float) -> Cause:
    away, doubt = replay.away[-window:], replay.doubt[-window:]
    return Cause(window, (away - doubt).min(axis=0), (away + doubt).max(axis=0), replay.pools, hot, apart)


def widest(low: FloatArray, high: FloatArray, pools: IntArray) -> float:
    """The largest `low` (n,) minus the least `high` (n,), in the pool where this difference is largest."""
    if not somewhere(pools):
        return float(low.max() - high.min())
    return max(float(low[pools == pool].max() - high[pools == pool].min()) for pool in np.unique(pools))


def _patient(
    replay: Replay, watch: Watch, window: int, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """`low` and `high` (n,) without unusual load, or background, that has not lasted long enough."""
    busy = 100 * replay.usage[-window:].max(axis=2).min(axis=0) > BUSY
    believed = busy | (watch.lasted(watch.loud) >= LOUD) | np.isfinite(watch.answered)
    calm = replay.away_with(np.where(believed, replay.model.background[-1], watch.calm))
    low = np.where(believed, low, np.minimum(low, calm))
    high = np.maximum(high, calm)  # a loud background raises the level, so all other brokers seem to be below the level
    if window < SURE:
        low = np.minimum(low, replay.usual)
    lasted = watch.lasted(watch.since)
    if watch.young and not watch.campaign:
        low = np.where(busy | (lasted >= SURGE), low, np.minimum(low, replay.usual))
        high = np.maximum(high, replay.usual)
    if watch.patience > WINDOWS[0] and not watch.campaign:
        low = np.where(busy | (lasted >= watch.patience), low, np.minimum(low, 0))
        high = np.where(busy.any() | (watch.lasted(watch.below) >= watch.patience), high, np.maximum(high, 0))
    return low, high


def relief(usage: FloatArray, after: FloatArray, target: FloatArray, explained: BoolArray) -> float:
    """Points that a change from `usage` to `after` (n, percent) takes off brokers above their `target` (n, percent).

    explained: (n,) brokers whose bundles alone explain their usage. Only for these, points above 85 % count for more.
    """
    return float((_weighed(usage, target, explained) - _weighed(after, target, explained)).sum())


def _weighed(usage: FloatArray, target: FloatArray, explained: BoolArray) -> FloatArray:
    plain = np.maximum(usage - target, 0)
    busy = np.maximum(usage - np.maximum(target, BUSY), 0)
    critical = np.maximum(usage - np.maximum(target, CRITICAL), 0)
    return plain + np.where(explained, 2 * busy + 17 * critical, 0.0)
