"""The rate of a counter some of whose values are older than their samples.

The true counter is never below a sample, so values that are not above all before them say nothing. Three estimates are
left: what was gained between the first and the last new value, and the slopes of the lines that lie on the samples of
the window, and of all that were read, from above. Late values pull each in another way, so the middle one counts, and
what lies between them, and between them and the mean rate of all samples, says how unsure it is.

A counter that never falls, but repeats values, is renewed less often than it is scraped: a new value came after the
sample before it. So each two new values bound the rate from both sides. All bounds together hold for a steady rate; if
none is within all of them, those of the window's ends count.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from trimtab_strategies.model.cluster_load import FloatArray

_LEAST = 8
"""Fewer new values can't tell how often the counter is renewed."""


@dataclass(frozen=True, slots=True)
class Uneven:
    """What an uneven counter `gained` in the seconds that its samples `cover`.

    unsure: difference between the estimates, in units/s. still: seconds for which the counter has not changed beyond
    the longest time in which it did not change before. If there are some, the counter has stopped: then that is all.
    """

    gained: float
    cover: float
    unsure: float
    still: float

    @classmethod
    def of(cls, time: FloatArray, value: FloatArray, window: float) -> Self:
        """The samples of a counter without a reset, oldest first."""
        new = np.append(True, value[1:] > np.maximum.accumulate(value)[:-1])
        times, values, before = time[new], value[new], np.append(time[0], time[:-1])[new]
        usual = float(np.diff(times).max()) if len(times) > 1 else 0.0
        still = max(float(time[-1] - times[-1]) - usual, 0.0)
        if still:
            return cls(0.0, 0.0, 0.0, still)
        first = max(int(np.searchsorted(times, times[-1] - window, side="right")) - 1, 0)
        cover = float(times[-1] - times[first])
        if len(times) > _LEAST // 2 and (np.diff(value) >= 0).all():
            low, high = _bounds(times, before, values, max(first, 1))
            return cls((low + high) / 2 * cover, cover, (high - low) / 2, 0.0)
        rates = (
            float(values[-1] - values[first]) / cover,
            _slope(times[first:], values[first:]),
            _slope(times, values),
        )
        whole = float(values[-1] - values[0]) / float(times[-1] - times[0])
        unsure = float(np.ptp([*rates, whole]) if len(times) >= _LEAST else max(*rates, whole))
        return cls(float(np.median(rates)) * cover, cover, unsure, 0.0)


def _bounds(times: FloatArray, before: FloatArray, values: FloatArray, first: int) -> tuple[float, float]:
    """The least and the highest rate of a counter whose new values came after `before` and until `times`.

    first: the new value from which on the bounds count if the rate was not steady. The oldest value counts in neither
    case, because it may have come long before its sample.
    """
    gained = values - values[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        low = gained / (times - before[:, None])
        high = np.where(before > times[:, None], gained / (before - times[:, None]), np.inf)
    pairs = np.triu(np.ones_like(gained, dtype=bool), 1)
    pairs[0] = False
    steady = float(low[pairs].max()), float(high[pairs].min())
    return steady if steady[0] <= steady[1] else (float(low[first, -1]), float(high[first, -1]))


def _slope(times: FloatArray, values: FloatArray) -> float:
    """The slope of the line above the points that is nearest to all of them: a side of their upper hull."""
    hull: list[tuple[float, float]] = []
    for time, value in zip(times.tolist(), values.tolist(), strict=True):
        while len(hull) > 1:
            (t0, v0), (t1, v1) = hull[-2:]
            if (v1 - v0) * (time - t0) > (value - v0) * (t1 - t0):
                break
            hull.pop()
        hull.append((time, value))
    middle = float(times.mean())
    for (t0, v0), (t1, v1) in pairwise(hull):
        if t0 <= middle <= t1 and t1 > t0:
            return (v1 - v0) / (t1 - t0)
    return 0.0
