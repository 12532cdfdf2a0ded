"""Values of raw samples: the newest value of a gauge, the rate of a counter, and how well the samples cover it.

`rate()` of PromQL divides by the whole window, even if only part of it has samples. A broker whose samples stop or
restart then looks idle. Here an increase is divided by the time that the samples cover, and that time is reported.

A *pair* is two consecutive samples. It covers the time between them, unless

- the samples are further apart than the window: too little is known of the time between them;
- the counter was reset between them, or may have been: it is so small that a new process can have counted that far.

The window of a rate ends at the newest sample. A pair that reaches into the window counts as a whole, so samples at any
interval up to half the window cover it, even if some are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from trimtab_pipeline.prometheus.samples import Samples
from trimtab_strategies.model.cluster_load import FloatArray

ENOUGH = 0.75
"""Ratio of the window: samples that cover less give no rate."""
_NEAR = 1.1
"""Number of intervals that `rate()` bridges at the window's ends."""
_APART = 2.0
"""Multiple of the usual interval: a longer time between samples means that samples are missing."""
_YOUNG = 1.2
"""A counter above this multiple of its fastest increase in a pair can't have had a hidden reset in that pair."""


@dataclass(frozen=True, slots=True)
class Sampled:
    """The value of one series.

    value: units of a gauge, units/s of a counter; NaN where no pair covers any time.
    time: epoch seconds of the newest sample. interval: longest seconds between samples if none is missing, NaN unknown.
    cover: covered seconds of the window, NaN for a gauge. samples, resets: how many are in the window.
    """

    value: float
    time: float
    interval: float
    cover: float
    samples: float
    resets: float


def gauge(points: FloatArray, window: float) -> Sampled:
    """The value of a gauge with the samples `points` (k, 2; times and values, k > 0); `window` in seconds."""
    times, values = points.T
    interval = _interval(np.diff(times))
    return Sampled(float(values[-1]), float(times[-1]), interval, np.nan, _inside(times, window), 0.0)


def counter(points: FloatArray, window: float) -> Sampled:
    """The rate of a counter with the samples `points` (k, 2; times and values, k > 0); `window` in seconds."""
    (times, values), steps = points.T, np.diff(points[:, 0])
    with np.errstate(invalid="ignore"):  # infinities
        gained = np.diff(values)
    inside = times[1:] > times[-1] - window
    joined = steps <= window
    fastest = np.fmax.reduce((gained / steps)[joined], initial=0.0)
    whole = (gained >= 0) & (values[1:] >= _YOUNG * fastest * steps)
    good = inside & joined & (whole | np.isnan(gained))
    cover = float(steps[good].sum())
    rate = float(gained[good].sum()) / cover if cover else np.nan
    rate = rate if np.isfinite(values[-1]) else float(values[-1])
    resets = float((inside & (gained < 0)).sum())
    return Sampled(rate, float(times[-1]), _interval(steps), cover, _inside(times, window), resets)


def rated(points: FloatArray, window: float, at: float) -> Sampled:
    """Seconds of the window of a counter that `rate()` at `at` (epoch s) covers; see `counter`.

    It extends an increase to the window's ends, or by half an interval where those are further away than 1.1 intervals.
    """
    times = points[points[:, 0] > at - window, 0]
    cover, said = 0.0, counter(points, window)
    if len(times) > 1:
        between = times[-1] - times[0]
        interval = between / (len(times) - 1)
        ends = np.array([times[0] - (at - window), at - times[-1]])
        cover = float(between + np.where(ends < _NEAR * interval, ends, interval / 2).sum())
    return replace(said, cover=cover)


def of_each_pod(answer: Samples, say: Callable[[FloatArray], Sampled]) -> dict[str, Sampled]:
    """Pod -> the value of its series with the newest sample; the highest if several have it."""
    found: dict[str, Sampled] = {}
    for pod, points in zip(answer.label("pod").to_pylist(), answer.points, strict=False):
        said = say(points)
        if pod not in found or _before(found[pod], said):
            found[pod] = said
    return found


def _before(one: Sampled, other: Sampled) -> bool:
    return (one.time, np.nan_to_num(one.value, nan=-1.0)) < (other.time, np.nan_to_num(other.value, nan=-1.0))


def _inside(times: FloatArray, window: float) -> float:
    return float((times > times[-1] - window).sum())


def _interval(steps: FloatArray) -> float:
    return float(min(steps.max(), _APART * np.median(steps))) if len(steps) else np.nan
