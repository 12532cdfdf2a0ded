"""Where Trim places a bundle that has no owner, and the children of a split: where the busiest resource stays lowest.

The bundle is expected to cost as much CPU as its traffic costs on average over all brokers, in proportion to the cores
of each candidate. CPU, network in and network out count alike; the busiest one decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.protocols import Choice
from trimtab_strategies.usage import drivers

_RESOURCES = [CPU, NETWORK_IN, NETWORK_OUT]
_ALIKE = 1e-9  # ratio


class TrimPlacementParams(StrategyParams):
    """Trim's placement has no parameters."""


@dataclass(frozen=True)
class TrimPlacement:
    """See the module. It keeps no memory."""

    params: TrimPlacementParams

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:
        """The candidates whose busiest resource would be least used with the bundle."""
        usage, limit = cluster.brokers.usage[:, _RESOURCES], cluster.brokers.limit[:, _RESOURCES]
        load = _expected(cluster, bundle)
        with np.errstate(divide="ignore", invalid="ignore"):
            after = np.where(limit[candidates] > 0, (usage[candidates] + load) / limit[candidates], 0.0)
        busiest = np.nan_to_num(after).max(axis=1)
        return Choice(candidates[busiest <= busiest.min() + _ALIKE], memory)


def _expected(cluster: ClusterLoad, bundle: int) -> FloatArray:
    """Usage (3,) that the bundle will cause: cores, bytes/s in, bytes/s out. 0 for a bundle without data."""
    drive = drivers(cluster)
    cpu = cluster.brokers.usage[:, CPU]
    known = np.isfinite(cpu)
    carried = np.append(known, False)[cluster.bundles.owner]
    total = float(drive[carried, CPU].sum())
    per_byte = float(cpu[known].sum()) / total if total > 0 else 0.0
    return np.array([drive[bundle, CPU] * per_byte, drive[bundle, NETWORK_IN], drive[bundle, NETWORK_OUT]])
