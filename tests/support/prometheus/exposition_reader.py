"""Prometheus' text format read the plain way, so that tests can work figures out without the code they test."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

_SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)(?: (\d+))?$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Raw = tuple[str, dict[str, str], float, float]
"""Name, labels, value, time (epoch seconds, NaN none) of one sample."""


def samples_of(page: str) -> list[Raw]:
    """Every labelled sample of a page."""
    found = (_SAMPLE.match(line) for line in page.splitlines())
    return [
        (match[1], dict(_LABEL.findall(match[2])), float(match[3]), float(match[4] or "nan") / 1000)
        for match in found
        if match
    ]


def history(pages: Iterable[str], name: str, labels: Mapping[str, str]) -> npt.NDArray[np.float64]:
    """(k, 2) times and values of one series over many pages, each time once, ascending."""
    rows = {
        t: v for page in pages for n, found, v, t in samples_of(page) if n == name and labels.items() <= found.items()
    }
    return np.array(sorted(rows.items())).reshape(-1, 2)


def rate(series: npt.NDArray[np.float64], at: float, window: float) -> float:
    """Increase per second of a counter within the window, resets bridged, as Prometheus documents `rate`.

    The increase between the first and the last sample in the window is stretched to the window's ends, or by half an
    interval where an end is further away from its sample than 1.1 intervals.
    """
    inside = series[(series[:, 0] >= at - window) & (series[:, 0] <= at)]
    steps = np.diff(inside[:, 1])
    gained = np.where(steps < 0, inside[1:, 1], steps).sum()
    between = inside[-1, 0] - inside[0, 0]
    interval = between / (len(inside) - 1)
    gaps = np.array([inside[0, 0] - (at - window), at - inside[-1, 0]])
    stretched = between + np.where(gaps < 1.1 * interval, gaps, interval / 2).sum()
    return float(gained * stretched / between / window)
