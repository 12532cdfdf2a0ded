"""LeastResourceUsageWithWeight: any broker that is clearly below the average, picked at random.

Idea. Among the candidates take those whose smoothed usage is at least `average_difference` points below the average of
the candidates. If there is none, all candidates are equally good. If many bundles are placed at the same time, the
random choice spreads them over all brokers with room. A strict minimum would send them all to one broker.

Formula. u = weighted maximum of the resources' percent; ema = history * ema + (1 - history) * u; a = mean of ema over
the candidates; best = those with ema + d <= a, where d is `average_difference`.

There are two forms, because Pulsar has two load managers. `LeastResourceUsageWithWeight` (modular) advances its average
at *every call*, so it follows the number of placements rather than time. A broker without bundles, or without messages,
loses its history. `ExtensibleLeastResourceUsageWithWeight` counts heap memory, too. Its average advances once per
snapshot of the cluster. In Pulsar, brokers' reports advance it. Load that the plan has moved counts immediately and in
full.

When it helps. Together with a shedder that moves several bundles in one cycle. When it hurts. If no broker is
`average_difference` below the average, placement is random, and may choose the fullest.

Source. Pulsar 4.2.4 `...loadbalance.impl.LeastResourceUsageWithWeight` and
`...loadbalance.extensions.strategy.LeastResourceUsageWithWeight`, with equal decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.model import RATE_IN, RATE_OUT, RESOURCES, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import Percent, WeightedParams
from trimtab_strategies.protocols import Choice, recall, remember
from trimtab_strategies.usage import MODULAR_COLUMNS, Weight, Weights, mean, percent, smooth, weighted_maximum

ALL_COLUMNS = tuple(range(len(RESOURCES)))


class LeastResourceUsageWithWeightParams(WeightedParams):
    """Parameters of LeastResourceUsageWithWeight."""

    average_difference: Annotated[float, Field(ge=0, le=100)] = 10
    """Percentage points below the candidates' average at which a broker counts as having room.
    Pulsar: loadBalancerAverageResourceUsageDifferenceThresholdPercentage"""
    history_percent: Percent = 90
    """Percent of the smoothed usage that comes from earlier placements.
    Pulsar: loadBalancerHistoryResourcePercentage in 0-1"""


class ExtensibleLeastResourceUsageWithWeightParams(LeastResourceUsageWithWeightParams):
    """Parameters of ExtensibleLeastResourceUsageWithWeight."""

    memory_weight: Weight = 0
    """Factor on heap memory percent.
    Pulsar: loadBalancerMemoryResourceWeight"""

    @property
    def weights(self) -> Weights:
        """The weights of all resources."""
        return super().weights._replace(memory=self.memory_weight)


def with_room(ema: FloatArray, difference: float) -> BoolArray:
    """The brokers (mask) whose `ema` is at least `difference` points below the average; all if none is.

    ema: smoothed usage, ratio; NaN: unknown.
    """
    known = np.isfinite(ema)
    below: BoolArray = ema + difference / 100 <= mean(ema[known])
    return below if below.any() else np.ones(len(ema), dtype=bool)


@dataclass(frozen=True)
class LeastResourceUsageWithWeight:
    """The modular form, see the module.

    Memory: ``brokers.ema``, smoothed usage (ratio), advanced by every call; ``now`` of the last snapshot; and
    ``empty``, the names of that snapshot's brokers without a bundle, which would be slow to find at every call.
    """

    params: LeastResourceUsageWithWeightParams

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - the bundle does not matter
        """The candidates that have room."""
        if memory.get("now") != cluster.now:
            memory = {**memory, "now": cluster.now, "empty": _without_bundles(cluster)}
        names = _names(cluster, candidates)
        usage = _usage(cluster, candidates, self.params.weights, MODULAR_COLUMNS)
        history = np.where(_silent(cluster, candidates), np.nan, recall(memory, "ema", names))
        if memory["empty"]:
            history[np.isin(names, memory["empty"])] = np.nan
        ema = smooth(history, usage, self.params.history_percent / 100)
        room = with_room(ema, self.params.average_difference)
        return Choice(candidates[room], remember(memory, "ema", names, ema))


@dataclass(frozen=True)
class ExtensibleLeastResourceUsageWithWeight:
    """The extensible form, see the module.

    Memory: ``now`` of the last averaged snapshot, and its ``brokers.ema`` and ``brokers.usage`` (ratios).
    """

    params: ExtensibleLeastResourceUsageWithWeightParams

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - the bundle does not matter
        """The candidates that have room. Candidates without data count only if no candidate has data."""
        if memory.get("now") != cluster.now:
            memory = self.advanced(cluster, memory)
        names = _names(cluster, candidates)
        moved = _usage(cluster, candidates, self.params.weights, ALL_COLUMNS) - recall(memory, "usage", names)
        ema = recall(memory, "ema", names) + np.nan_to_num(moved)
        return Choice(candidates[with_room(ema, self.params.average_difference)], memory)

    def advanced(self, cluster: ClusterLoad, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The memory after one more snapshot of the cluster."""
        names = cluster.brokers.names
        usage = _usage(cluster, np.arange(len(names)), self.params.weights, ALL_COLUMNS)
        ema = smooth(recall(memory, "ema", names), usage, self.params.history_percent / 100)
        return {**remember(remember(memory, "ema", names, ema), "usage", names, usage), "now": cluster.now}


def _usage(cluster: ClusterLoad, rows: IntArray, weights: Weights, columns: tuple[int, ...]) -> FloatArray:
    """Weighted usage (ratio) of the brokers `rows`, NaN where it is unknown."""
    percents = percent(cluster.brokers.usage[rows], cluster.brokers.limit[rows])
    usage = weighted_maximum(percents, weights, columns)
    return np.where(np.isfinite(usage), usage, np.nan)


def _names(cluster: ClusterLoad, rows: IntArray) -> list[str]:
    names = cluster.brokers.names
    return [names[row] for row in rows.tolist()] if len(rows) < len(names) else list(names)


def _without_bundles(cluster: ClusterLoad) -> list[str]:
    """Names of the brokers that own no bundle."""
    counts = np.bincount(cluster.bundles.owner + 1, minlength=len(cluster.brokers) + 1)[1:]
    return _names(cluster, np.flatnonzero(counts == 0))


def _silent(cluster: ClusterLoad, rows: IntArray) -> BoolArray:
    """Which of the brokers have no messages in either direction."""
    traffic = cluster.brokers.traffic[rows]
    silent: BoolArray = (traffic[:, RATE_IN] == 0) & (traffic[:, RATE_OUT] == 0)
    return silent
