"""What Trim says about a decision: which broker, how far from its level, for how long, and what would make Trim act.

`trimtab explain`, conditions and Events show these texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_strategies.model import counted, some
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.shedding.trim.cause import SURGE, WINDOWS, Cause, Watch


@dataclass(frozen=True)
class Worth:
    """A plan weighed against its price.

    moves: number of bundles that move. gained: points that it takes off brokers above their level. life: minutes that
    the difference will probably last. price: point-minutes that it must save. cut: ratio 0-1 of all clients that it
    disconnects, NaN if unknown.
    """

    moves: int
    gained: float
    life: float
    price: float
    cut: float

    @property
    def saved(self) -> float:
        """Point-minutes that the plan saves."""
        return self.gained * self.life

    def __str__(self) -> str:
        clients = "" if np.isnan(self.cut) else f", and cut {100 * self.cut:.1f} % of the clients"
        lasts = f"{self.gained:.1f} points for {self.life:.0f} minutes, {self.saved:.0f} point-minutes"
        return f"{counted(self.moves, 'move')} would save {lasts}{clients}"


def above(names: Sequence[str], found: Cause) -> str:
    """The broker farthest above its level in a window: ``broker-4 was 12.0 points above its level for 8 minutes``.

    If this broker is less than `hot` points above its level, the text names the two brokers that are farthest apart
    (within one pool). names: the brokers' names.
    """
    minutes = counted(found.window, "minute")
    if found.hottest >= found.hot:
        return f"{names[_most(found.low)]} was {found.hottest:.1f} points above its level for {minutes}"
    top, bottom = _ends(found.low, found.high, found.pools)
    level = f"{names[top]} was {found.low[top]:.1f} points above its level"
    return f"{level}, and {found.range:.1f} above {names[bottom]}, for {minutes}"


def _ends(low: FloatArray, high: FloatArray, pools: IntArray) -> tuple[int, int]:
    """The row of the broker with the largest `low`, and that of the broker with the least `high`.

    Both are in the pool in which these two are farthest apart. low, high: (n,) points from the level, as in `Cause`.
    """
    if not pools.any():
        return _most(low), _most(-high)
    rows = max(
        (np.flatnonzero(pools == pool) for pool in np.unique(pools)),
        key=lambda rows: float(low[rows].max() - high[rows].min()),
    )
    return int(rows[_most(low[rows])]), int(rows[_most(-high[rows])])


def _most(points: FloatArray) -> int:
    """The row of the largest of `points`. Of several that are equal to three decimals, it is the first."""
    return int(points.round(3).argmax())


def made(names: Sequence[str], found: Cause, worth: Worth) -> str:
    """Why a plan is made."""
    return f"{above(names, found)}; {worth}: worth it from {worth.price:.0f} on"


def not_worth(names: Sequence[str], found: Cause, worth: Worth, watch: Watch, *, price: float, least: float) -> str:
    """Why a cause leads to no moves, and what would change that. price, least: the parameters `price` and `worth`."""
    if not worth.moves:
        none = f"no move gains enough to be worth its price (trim.price is {price:g}: less makes moves cheaper)"
        return f"{above(names, found)}; {none}"
    needed = f"worth it from {worth.price:.0f} on"
    if found.window < WINDOWS[0] and worth.gained * watch.life(WINDOWS[0]) >= worth.price:
        needed += f", or once it has lasted for {WINDOWS[0]} minutes"
    elif worth.saved > 0:
        needed += f" (trim.worth is {least:g}; {_two_digits(least * worth.saved / worth.price)} or less would act)"
    return f"{above(names, found)}; {worth}: {needed}"


def below_floor(busiest: float, floor: float, names: Sequence[str], now: FloatArray) -> str:
    """Why a cluster with little load is left alone. busiest: percent of the busiest broker. floor: the parameter.

    names, now: the brokers, and their measured CPU (n,) in percent. It differs from the replay after moves and starts.
    """
    act = f"; {_two_digits(busiest)} or less would act" if busiest >= 1 else ""
    at, top = f"{busiest:.0f} %", int(np.nan_to_num(now, nan=-1.0).argmax())
    if np.nan_to_num(now[top]) >= busiest + 1:
        at += f" with the current owners of the bundles, though {names[top]} was at {now[top]:.0f} % last"
    return f"the busiest broker is at {at}; balancing begins at {floor:g} % (trim.floor){act}"


def filled(names: Sequence[str], moves: int, cut: float) -> str:
    """Why the brokers `names` are filled. cut: ratio 0-1 of all clients that are disconnected, NaN: unknown."""
    clients = "" if np.isnan(cut) else f" and cut {100 * cut:.1f} % of the clients"
    have = "has hardly any bundles" if len(names) == 1 else "have hardly any bundles"
    return f"{some(names)} {have}; {counted(moves, 'move')} would change that{clients}"


def waiting(names: Sequence[str], away: FloatArray, pools: IntArray, watch: Watch, *, hot: float, apart: float) -> str:
    """How far brokers are from their levels now, and what a plan needs.

    away: (n,) points above the level. pools: (n,) see `Replay`. hot, apart: the parameters; reaching either suffices.
    """
    top, bottom = _ends(away, away, pools)
    if away.max() >= hot:
        top = _most(away)
        alike = np.flatnonzero(pools == pools[top])
        bottom = int(alike[_most(-away[alike])])
    text = (
        f"{names[top]} is {away[top]:.1f} points above its level, {away[top] - away[bottom]:.1f} above {names[bottom]}"
    )
    needed = _needed(watch.share, hot, apart)
    if away[top] < hot and away[top] - away[bottom] < apart:
        return f"{text}; {needed} that last for {WINDOWS[-1]} to {WINDOWS[0]} minutes"
    lasted = watch.lasted(watch.since)[top]
    since = f", for {counted(round(lasted), 'minute')} now" if lasted >= 1 else ""
    return f"{text}{since}; {needed}{_longer(watch, lasted)}"


def _needed(share: float, hot: float, apart: float) -> str:
    """The points that a difference needs for a plan, in words. share: as `Watch.share`."""
    if share == 1:
        return f"a plan needs {hot:g} points (trim.hot) or {apart:g} (trim.apart)"
    of = f"{100 * share:.0f} % of trim.hot and trim.apart"
    return f"a plan now needs {hot * share:.1f} points or {apart * share:.1f} ({of})"


def _longer(watch: Watch, lasted: float) -> str:
    """For how long a difference must last, in words, and when that is. lasted: minutes for which it has lasted."""
    needed, text = float(WINDOWS[0]), f" that last for {WINDOWS[-1]} to {WINDOWS[0]} minutes, the larger the sooner"
    if watch.patience:
        needed = watch.patience
        text = (
            f" that last for {needed:.0f} minutes, as one of {watch.spike:.0f} minutes ended by itself within an hour"
        )
    elif watch.young and not watch.campaign and lasted > needed:
        needed, text = SURGE, f"{text}; load that is new must last for {SURGE:.0f} minutes in the first half hour"
    if not 0 < lasted < needed:
        return text
    hour, minute = divmod(int(watch.now / 60 + needed - lasted) % 1440, 60)
    return f"{text}; acts by {hour:02}:{minute:02} UTC if it lasts and a plan pays"


def _two_digits(value: float) -> str:
    """The largest number with two significant digits that is at most `value`, which is above 0."""
    step = 10.0 ** (np.floor(np.log10(value)) - 1)
    return f"{np.floor(value / step + 1e-9) * step:g}"
