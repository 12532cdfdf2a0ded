"""Where Trim places bundles without an owner, and the children of a split: where the busiest resource stays lowest.

Idea. The busiest resource of a broker decides how well it serves. Of several bundles, the heaviest is placed first.

Formula. A bundle is expected to cost as much CPU as its traffic costs on average over all brokers. CPU, network in and
network out count equally, each as a ratio of its limit. A broker's usage is corrected by the difference between the
averages and the newest samples of its bundles. So a single low sample does not attract bundles. Of the brokers within 3
points of the idlest, the one with the fewest bundles gets a bundle without known load.

When it helps. When a broker is lost or joins, or a bundle is split, the load is even immediately. When it hurts. With
machines whose cores differ in speed, the expected cost is only an average, and the shedder must correct the result.

Source. Trimtab's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.protocols import Choice
from trimtab_strategies.usage import network_limits

_RESOURCES = [CPU, NETWORK_IN, NETWORK_OUT]
_ALIKE = 1e-9  # brokers are equally good if their usage (ratio) differs by no more than this
_ALIKE_UNKNOWN = 0.03  # the same for a bundle without known load; the broker with the fewest bundles then gets it


class TrimPlacementParams(StrategyParams):
    """Trim's placement has no parameters."""


@dataclass(frozen=True)
class TrimPlacement:
    """See the module. This placement has no memory."""

    params: TrimPlacementParams
    heaviest_first: ClassVar[bool] = True

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:
        """The candidates whose busiest resource would be least used with the bundle."""
        with np.errstate(invalid="ignore", over="ignore"):  # a broker that is not measured counts as idle
            return self._best(cluster, bundle, candidates, memory)

    def _best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:
        cost, known = _cost(cluster), [THROUGHPUT_IN, THROUGHPUT_OUT]
        traffic = np.nan_to_num(cluster.bundles.short[bundle, known], posinf=0.0, neginf=0.0)
        usage = cluster.brokers.usage[candidates][:, _RESOURCES] + _steadier(cluster, candidates, cost)
        limits = cluster.brokers.limit[candidates]
        limit = np.column_stack([limits[:, CPU], network_limits(limits)])
        load = np.array([cost * traffic.sum(), *traffic])
        after = np.divide(usage + load, limit, out=np.zeros_like(usage), where=limit > 0)
        busiest = np.nan_to_num(after).max(axis=1)
        alike = _ALIKE if traffic.any() else _ALIKE_UNKNOWN
        return Choice(candidates[busiest <= busiest.min() + alike], memory)


def _cost(cluster: ClusterLoad) -> float:
    """The number of cores that a byte/s costs, on average over all brokers; 0 without traffic."""
    total = float(cluster.bundles.short_throughput.sum())
    cpu = cluster.brokers.usage[:, CPU]
    return float(cpu[np.isfinite(cpu)].sum()) / total if 0 < total < np.inf else 0.0


def _steadier(cluster: ClusterLoad, candidates: IntArray, cost: float) -> FloatArray:
    """Usage (c, 3) of the candidates' bundles by their averages, minus their usage by their newest samples."""
    short, newest = cluster.bundles.by_newest
    more = np.zeros((len(cluster.brokers), 2))
    more[: len(short)] = short - newest
    return np.stack([cost * more[candidates].sum(axis=1), more[candidates, 0], more[candidates, 1]], axis=1)
