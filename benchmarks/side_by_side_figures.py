"""The figures of a run, from observations: unevenness of the brokers over time, number of moves, and their cost.

Unevenness is (most - least) / mean of the brokers' messages/s: 0 if all are equal, 3 if one of three has everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from side_by_side_entrants import BROKERS, Topic

Array = npt.NDArray[np.float64]

LEVEL = 0.5
"""The brokers are level while their unevenness is at most this."""

STEP = 10.0
"""Seconds over which messages and CPU are averaged."""


@dataclass(frozen=True, slots=True)
class Change:
    """At `at` (epoch seconds) a bundle (row) was first seen at `target`, after `source`.

    `source` and `target` are rows of brokers. They are equal if the bundle was released and came back.
    """

    at: float
    bundle: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Row:
    """Counters at a time (epoch seconds): messages acknowledged by topic, CPU seconds by broker, owners by bundle."""

    at: float
    acked: tuple[int, ...]
    cpu: tuple[float, ...]
    owners: tuple[int, ...]


def rates(rows: Sequence[Row], topics: Sequence[Topic]) -> Array:
    """Acknowledged messages/s by interval between rows and by broker; a topic counts where its bundle was served."""
    times = np.array([row.at for row in rows])
    acked = np.diff(np.array([row.acked for row in rows], dtype=float), axis=0) / np.diff(times)[:, None]
    owners = np.array([[row.owners[topic.bundle] for topic in topics] for row in rows[1:]])
    return np.stack([np.where(owners == broker, acked, 0.0).sum(axis=1) for broker in range(BROKERS)], axis=1)


def cores(rows: Sequence[Row]) -> Array:
    """CPU cores used, by interval between two rows and by broker."""
    times = np.array([row.at for row in rows])
    return np.asarray(np.diff(np.array([row.cpu for row in rows]), axis=0) / np.diff(times)[:, None])


def steps(times: Array, values: Array, begin: float, end: float) -> Array:
    """Means of `values` over steps of `STEP` seconds from `begin` to `end`; nan without an observation."""
    edges = begin + STEP * np.arange(int((end - begin) / STEP + 1e-6) + 1)
    parts = [values[(times > low) & (times <= high)] for low, high in pairwise(edges)]
    empty = np.full(values.shape[1], np.nan)
    return np.array([part.mean(axis=0) if len(part) else empty for part in parts]).reshape(-1, values.shape[1])


def uneven(by_broker: Array) -> Array:
    """(most - least) / mean of each row."""
    mean = by_broker.mean(axis=1)
    return np.asarray((by_broker.max(axis=1) - by_broker.min(axis=1)) / np.where(mean > 0, mean, np.nan))


def settled(unevenness: Array) -> float | None:
    """Seconds until the brokers are level and stay level; None if they are not level at the end."""
    above = np.flatnonzero(~(unevenness <= LEVEL))
    first = 0 if not len(above) else int(above[-1]) + 1
    return None if first >= len(unevenness) else first * STEP


def counted(changes: Sequence[Change]) -> dict[str, int]:
    """Numbers of moves, of moves of bundles that had moved before, and of bundles that were released and came back."""
    moved = [change for change in changes if change.source != change.target]
    times = Counter(change.bundle for change in moved)
    return {
        "moves": len(moved),
        "again": sum(count - 1 for count in times.values()),
        "returned": len(changes) - len(moved),
    }


def half(rows: Sequence[Row], topics: Sequence[Topic], changes: Sequence[Change], limit: float) -> dict[str, Any]:
    """Figures of one half of the scenario, which `rows` cover. limit: CPU limit of a broker, in cores."""
    begin, end = rows[0].at, rows[-1].at
    times = np.array([row.at for row in rows[1:]])
    messages = steps(times, rates(rows, topics), begin, end)
    cpu = steps(times, cores(rows), begin, end) / limit * 100
    over = uneven(messages)
    inside = [change for change in changes if begin <= change.at <= end]
    return {
        **counted(inside),
        "settled": settled(over),
        "uneven": _rounded(np.nanmean(over), 3),
        "uneven_end": _rounded(np.nanmean(over[-3:]), 3),
        "cpu_range": _rounded(np.nanmean(np.ptp(cpu, axis=1)), 1),
        "cpu_range_end": _rounded(np.nanmean(np.ptp(cpu[-3:], axis=1)), 1),
        "rates": [[_rounded(value, 0) for value in row] for row in messages],
        "cpu": [[_rounded(value, 1) for value in row] for row in cpu],
        "moved_at": [round(change.at - begin, 1) for change in inside if change.source != change.target],
    }


def gaps(of_moves: Sequence[float], usual: Sequence[float]) -> Mapping[str, float | None]:
    """Publish gaps (ms) of moved topics. usual: the usual gap between two messages of each of these topics.

    `interrupted`: the sum over all moved topics of the seconds for which they were silent longer than usual.
    """
    if not of_moves:
        return {"median": None, "p90": None, "max": None, "interrupted": 0.0}
    longer = np.maximum(np.array(of_moves) - np.array(usual), 0.0)
    return {
        "median": _rounded(np.median(of_moves), 0),
        "p90": _rounded(np.quantile(of_moves, 0.9), 0),
        "max": _rounded(max(of_moves), 0),
        "interrupted": _rounded(longer.sum() / 1000, 2),
    }


def _rounded(value: Any, digits: int) -> float | None:
    number = round(float(value), digits)
    return None if np.isnan(number) else number
