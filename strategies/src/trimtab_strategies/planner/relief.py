"""Unloads one broker because a person requested it. The chosen bundles go through guard and placement as usual.

`BrokerRelief` needs no threshold and no history. The broker gives away its largest bundles that together do not exceed
its excess over the average of the brokers. If no broker may take one of these bundles, other bundles are chosen
instead, and the broker may end up a little below the average.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.planner.prediction import PredictedLoad
from trimtab_strategies.protocols import Shedding, Unload
from trimtab_strategies.usage import DEFAULT_WEIGHTS, MOVING, Weights, attributed, percent

_NO_PART = "it takes no part in the comparison: it is not selected, not ready, or its data is not trusted"

_KEPT = "it can't be moved now: it is pinned, cooling down, already moving, or without load data"

_ELSEWHERE = "the broker does not own it"

_ROUNDING = 1e-6
"""Tolerance for rounding errors when loads are added up."""


@dataclass(frozen=True, slots=True)
class BrokerRelief:
    """A shedder that unloads only the broker with the name `broker`.

    bundle: the only bundle to unload; empty: as many as bring the broker to the average. weights: resource weights by
    which brokers are compared.
    """

    broker: str
    bundle: str = ""
    weights: Weights = DEFAULT_WEIGHTS

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """Unload bundles of the broker, the largest first. The memory stays as it is."""
        broker = cluster.brokers.index.get(self.broker, -1)
        if broker < 0:
            return Shedding(held_back=(HeldBack(self.broker, Reason.UNKNOWN_BROKER, _NO_PART),), memory=memory)
        rows = cluster.bundles.owned_by(broker)
        movable: IntArray = rows[sheddable[rows]]
        chosen = self._the_one(cluster, movable) if self.bundle else self._excess(cluster, broker, movable)
        if isinstance(chosen, HeldBack):
            return Shedding(held_back=(chosen,), memory=memory)
        return Shedding((Unload(broker, chosen, Reason.ADMIN),), memory=memory)

    def _the_one(self, cluster: ClusterLoad, movable: IntArray) -> IntArray | HeldBack:
        row = cluster.bundles.index.get(self.bundle, -1)
        found: IntArray = movable[movable == row]
        if len(found):
            return found
        ours = row >= 0 and cluster.bundles.owner[row] == cluster.brokers.index[self.broker]
        return HeldBack(self.bundle, Reason.NO_BUNDLES, _KEPT if ours else _ELSEWHERE)

    def _excess(self, cluster: ClusterLoad, broker: int, movable: IntArray) -> IntArray | HeldBack:
        """The largest of `movable` (rows) that together do not exceed the broker's excess over the average."""
        pressure = PredictedLoad(cluster, self.weights).pressure(np.arange(len(cluster.brokers)))
        mean = float(np.nanmean(pressure)) if np.isfinite(pressure).any() else np.nan
        left = float(pressure[broker]) - mean
        if not left > 0:
            text = f"its usage is {pressure[broker]:.0%}, not above the average of {mean:.0%}"
            return HeldBack(self.broker, Reason.BALANCED, text)
        load, chosen = self._load(cluster, broker, movable), list[int]()
        for k in np.argsort(-load, kind="stable").tolist():
            if 0 < load[k] <= left + _ROUNDING:
                left -= float(load[k])
                chosen.append(int(movable[k]))
        if not chosen:
            text = f"each of its {len(movable)} movable bundles is larger than its excess over the average, {left:.1%}"
            return HeldBack(self.broker, Reason.NO_BUNDLES, text)
        return np.array(chosen, dtype=np.int64)

    def _load(self, cluster: ClusterLoad, broker: int, bundles: IntArray) -> FloatArray:
        """What each bundle (rows, k) adds to the broker's most used resource, weighted, as a ratio (k,)."""
        limit, weights = cluster.brokers.limit[broker], np.array(self.weights)
        used = percent(cluster.brokers.usage[broker], limit) * weights
        column = max(MOVING, key=lambda resource: -np.inf if np.isnan(used[resource]) else used[resource])
        ratios: FloatArray = attributed(cluster, bundles)[:, column] / limit[column] * weights[column]
        return ratios
