"""An independent reader of Prometheus' text format, so that tests compute figures without the code under test."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

_SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)(?: (\d+))?$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Raw = tuple[str, dict[str, str], float, float]
"""Name, labels, value, time (epoch seconds, NaN for none) of one sample."""


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
    """Increase per second of a counter from the last sample before the window to the newest one, without resets.

    The window ends at the newest sample up to `at`. A step from one sample to the next is left out if the counter
    falls, or if it may have been reset in between. A reset is possible if the new value is below 1.2 times the
    increase that the fastest step of the last five windows would have made in the same time.
    """
    past = series[(series[:, 0] > at - 5 * window) & (series[:, 0] <= at)]
    steps = [(before[0], after[0] - before[0], after[1] - before[1], after[1]) for before, after in pairwise(past)]
    fastest = max(rose / seconds for _, seconds, rose, _ in steps)
    inside = [step for step in steps if step[0] + step[1] > past[-1, 0] - window]
    sure = [(seconds, rose) for _, seconds, rose, to in inside if rose >= 0 and to >= 1.2 * fastest * seconds]
    return float(sum(rose for _, rose in sure) / sum(seconds for seconds, _ in sure))


def increase(series: npt.NDArray[np.float64], at: float, window: float) -> float:
    """Increase of a counter between its samples in the `window` seconds up to `at`, across resets."""
    inside = series[(series[:, 0] > at - window) & (series[:, 0] <= at)]
    steps = np.diff(inside[:, 1])
    return float(np.where(steps < 0, inside[1:, 1], steps).sum())
