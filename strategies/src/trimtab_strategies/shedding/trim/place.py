"""Where Trim places a bundle that has no owner, and the children of a split: where the busiest resource stays lowest.

The bundle is expected to cost as much CPU as its traffic costs on average over all brokers. CPU, network in and network
out count alike; the busiest one decides. Of many bundles, the heaviest is placed first. What a broker uses right now is
set off against the averages of its bundles, so that the noise of one sample does not attract bundles.
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

_RESOURCES = [CPU, NETWORK_IN, NETWORK_OUT]
_ALIKE = 1e-9  # ratio


class TrimPlacementParams(StrategyParams):
    """Trim's placement has no parameters."""


@dataclass(frozen=True)
class TrimPlacement:
    """See the module. It keeps no memory."""

    params: TrimPlacementParams
    heaviest_first: ClassVar[bool] = True

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:
        """The candidates whose busiest resource would be least used with the bundle."""
        cost = _cost(cluster)
        usage = cluster.brokers.usage[candidates][:, _RESOURCES] + _steadier(cluster, candidates, cost)
        limit = cluster.brokers.limit[candidates][:, _RESOURCES]
        traffic = np.nan_to_num(cluster.bundles.short[bundle, [THROUGHPUT_IN, THROUGHPUT_OUT]])
        load = np.array([cost * traffic.sum(), *traffic])
        after = np.divide(usage + load, limit, out=np.zeros_like(usage), where=limit > 0)
        busiest = np.nan_to_num(after).max(axis=1)
        return Choice(candidates[busiest <= busiest.min() + _ALIKE], memory)


def _cost(cluster: ClusterLoad) -> float:
    """Cores that a byte/s costs, on average over all brokers; 0 without traffic."""
    total = float(cluster.bundles.short_throughput.sum())
    return float(np.nansum(cluster.brokers.usage[:, CPU])) / total if total > 0 else 0.0


def _steadier(cluster: ClusterLoad, candidates: IntArray, cost: float) -> FloatArray:
    """Usage (c, 3) by which the candidates' bundles usually cause more than in their newest samples."""
    short, newest = cluster.bundles.by_newest
    more = np.zeros((len(cluster.brokers), 2))
    more[: len(short)] = short - newest
    return np.stack([cost * more[candidates].sum(axis=1), more[candidates, 0], more[candidates, 1]], axis=1)
