"""Scores Trim's predictions: compares the CPU predicted for each broker of a plan with the CPU measured later.

A prediction is due three minutes after its plan. If another plan touches the broker before that, a new prediction
replaces the old one. When a prediction is due, it counts only if the broker has the bundles that the plan gave it, and
no move from or to the broker is pending. So nothing is learned in mode DryRun, or when a move failed or is late. The
measured value is the median of these three minutes, because plans predict from medians, too. A prediction is right if
it is within 3 points.

The next plan may make `step` times the usual number of moves. `step` changes in each cycle in which a prediction
counts. If fewer than 70 % of the last 20 predictions are right, `step` halves, down to an eighth. Otherwise it doubles,
up to one. An error counts for a day only, because the model changes. While fewer than 10 errors count, `step` is one.

Stored in the strategy's `memory`: ``predictions`` ([due, broker, percent, checksum of its bundles]), ``scored`` ([epoch
seconds, points], the newest last; points are measured less predicted), ``step`` (ratio).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab_strategies.model import CPU, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, RecentSamples
from trimtab_strategies.protocols import Predictions
from trimtab_strategies.shedding.trim.owners import Owned, fingerprints
from trimtab_strategies.shedding.trim.plan import PlannedMove

WITHIN = 3.0
"""Points within which a prediction counts as right."""

RIGHT = 0.7
"""Ratio of predictions that must be right. Otherwise plans get smaller."""

_DUE = 180.0  # seconds after a plan at which its predictions are compared
_KEPT = 20  # errors that are stored
_ENOUGH = 10  # the least number of scored predictions that can make plans smaller
_COUNTS = 86400.0  # seconds for which an error counts
_SMALLEST = 0.125  # the least `step`


def step(memory: Mapping[str, Any]) -> float:
    """Ratio (0.125 to 1) of the usual number of moves that the next plan may make."""
    return float(memory.get("step", 1.0))


def predictions(memory: Mapping[str, Any]) -> Predictions:
    """The score so far."""
    errors = np.abs(np.array([points for _, points in memory.get("scored", ())], dtype=np.float64))
    known = len(errors) > 0
    return Predictions(
        judged=len(errors),
        right=float((errors <= WITHIN).mean()) if known else float("nan"),
        off=float(np.median(errors)) if known else float("nan"),
        within=WITHIN,
        step=step(memory),
    )


def predicted(
    memory: Mapping[str, Any], cluster: ClusterLoad, moves: Sequence[PlannedMove], percent: FloatArray
) -> dict[str, Any]:
    """The memory with the CPU (n, percent) predicted for the brokers of `moves`. It replaces their old predictions."""
    rows = sorted({row for move in moves for row in (move.source, move.destination)})
    names, owner = cluster.brokers.names, cluster.bundles.owner.copy()
    for move in moves:
        owner[move.bundle] = move.destination
        if move.returned >= 0:
            owner[move.returned] = move.source
    again, owns = {names[row] for row in rows}, fingerprints(cluster.bundles.names, owner, len(names)).tolist()
    kept = [entry for entry in memory.get("predictions", ()) if entry[1] not in again]
    new = [[cluster.now + _DUE, names[row], round(float(percent[row]), 2), owns[row]] for row in rows]
    return {**memory, "predictions": [*kept, *new]}


def checked(cluster: ClusterLoad, recent: RecentSamples, owned: Owned, memory: Mapping[str, Any]) -> dict[str, Any]:
    """The memory after the predictions that are due were compared with measured CPU. Old errors are removed."""
    now, open_ones, index = cluster.now, memory.get("predictions", ()), cluster.brokers.index
    due = [(index[name], percent, own) for at, name, percent, own in open_ones if at <= now and name in index]
    found = [_error(cluster, recent, row, percent) for row, percent, own in due if owned.fingerprints[row] == own]
    new = [error for error in found if np.isfinite(error)]
    scored = [[time, points] for time, points in memory.get("scored", ()) if now - time <= _COUNTS]
    scored = [*scored, *([now, points] for points in new)][-_KEPT:]
    after = {**memory, "predictions": [entry for entry in open_ones if entry[0] > now], "scored": scored}
    if len(scored) < _ENOUGH:
        return {**after, "step": 1.0}
    if not new:
        return after
    right = predictions(after).right >= RIGHT
    return {**after, "step": min(1.0, 2 * step(memory)) if right else max(_SMALLEST, step(memory) / 2)}


def _error(cluster: ClusterLoad, recent: RecentSamples, row: int, percent: float) -> float:
    """Points by which the measured CPU of a broker is above the predicted one; NaN if they can't be compared."""
    if _pending(cluster, row):
        return float("nan")
    cores, cpu = cluster.brokers.limit[row, CPU], recent.cpu[-3:, row]
    if not cores > 0 or not np.isfinite(cpu).any():
        return float("nan")
    return round(float(100 * np.nanmedian(cpu) / cores) - percent, 2) + 0.0  # never minus zero


def _pending(cluster: ClusterLoad, broker: int) -> bool:
    """Whether a move is not visible in the usage of `broker` (row) yet. `owner` is a pending move's destination."""
    bundles = cluster.bundles
    moving = bundles.in_flight | (bundles.moving_from >= 0)
    return bool((moving & ((bundles.owner == broker) | (bundles.moving_from == broker))).any())
