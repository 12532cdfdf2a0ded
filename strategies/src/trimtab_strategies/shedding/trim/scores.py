"""How good Trim's predictions were: the CPU that a plan predicted for the brokers it touched, against the measured one.

A prediction is due three minutes after its plan, if no other plan touched the broker since. It hit when the median of
the three minutes is within 3 points. When fewer than 70 % of the last 20 hit, `step` halves, down to an eighth; each
further check doubles or halves it.

Memory: ``predictions`` ([due, broker, percent]), ``hits`` (1 or 0, the newest last), ``step`` (ratio).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab_strategies.model import CPU, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, RecentSamples

WITHIN = 3.0
"""Points within which a prediction counts as right."""

RIGHT = 0.7
"""Ratio of the predictions that must be right for full plans."""

_DUE = 180.0  # seconds
_KEPT = 20  # predictions
_ENOUGH = 10  # predictions from which on they are judged
_SMALLEST = 0.125


def step(memory: Mapping[str, Any]) -> float:
    """Ratio of the usual number of moves that the next plan may make."""
    return float(memory.get("step", 1.0))


def predicted(
    memory: Mapping[str, Any], names: Sequence[str], touched: BoolArray, percent: FloatArray, now: float
) -> dict[str, Any]:
    """The memory with the predicted CPU (n, percent) of the `touched` brokers (n,). Older predictions for them end."""
    rows = np.flatnonzero(touched).tolist()
    again = {names[row] for row in rows}
    kept = [entry for entry in memory.get("predictions", ()) if entry[1] not in again]
    return {
        **memory,
        "predictions": [*kept, *([now + _DUE, names[row], round(float(percent[row]), 2)] for row in rows)],
    }


def checked(cluster: ClusterLoad, recent: RecentSamples, memory: Mapping[str, Any]) -> dict[str, Any]:
    """The memory after the predictions that are due were compared with what was measured."""
    open_ones: Sequence[Any] = memory.get("predictions", ())
    due = [entry for entry in open_ones if entry[0] <= cluster.now]
    if not due:
        return dict(memory)
    new: list[int] = []
    for _, name, percent in due:
        row = cluster.brokers.index.get(name)
        measured = np.nan if row is None else _measured(cluster, recent, row)
        if np.isfinite(measured):
            new.append(int(abs(measured - percent) <= WITHIN))
    hits = [*memory.get("hits", ()), *new][-_KEPT:]
    after = {**memory, "predictions": [entry for entry in open_ones if entry[0] > cluster.now], "hits": hits}
    if len(hits) < _ENOUGH or not new:
        return after
    right = sum(hits) / len(hits) >= RIGHT
    return {**after, "step": min(1.0, 2 * step(memory)) if right else max(_SMALLEST, step(memory) / 2)}


def _measured(cluster: ClusterLoad, recent: RecentSamples, row: int) -> float:
    cores, cpu = cluster.brokers.limit[row, CPU], recent.cpu[-3:, row]
    return float(100 * np.nanmedian(cpu) / cores) if cores > 0 and np.isfinite(cpu).any() else float("nan")
