"""`Prices`: what a move of each bundle would interrupt, by the last measured load. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trimtab_operator.kube.move_costs import MoveCosts
from trimtab_strategies.budget import Price
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.shedding.trim.plan import USUAL_GAP


@dataclass(frozen=True)
class Prices:
    """Prices of the m bundles of one policy, in rows of the load that they were made from.

    rows: row by Pulsar's spelling. namespace: (m,) rows of `namespaces`. of_policy, of_namespace: (m,) percent of the
    clients, NaN where they were not measured. gaps: seconds by namespace; NaN where nothing measures moves.
    """

    rows: Mapping[str, int]
    namespaces: tuple[str, ...]
    namespace: IntArray
    of_policy: FloatArray
    of_namespace: FloatArray
    gaps: Mapping[str, float]

    @classmethod
    def of(cls, load: ClusterLoad, costs: Mapping[str, MoveCosts] | None) -> Prices:
        """The prices by `load`. costs: measured costs of moves by namespace; None where nothing measures moves."""
        bundles = load.bundles
        sessions, spaces = bundles.sessions, len(load.namespaces)
        known = np.nan_to_num(sessions, nan=0.0)
        totals = np.asarray(np.bincount(bundles.namespace, weights=known, minlength=spaces), dtype=np.float64)
        return cls(
            bundles.index,
            load.namespaces,
            bundles.namespace,
            _percent(sessions, np.full(len(bundles), known.sum())),
            _percent(sessions, totals[bundles.namespace]),
            {space: publish_gap(costs, space) for space in load.namespaces},
        )

    def price(self, bundle: str) -> Price:
        """The price of a move of `bundle` (Pulsar's spelling)."""
        if (row := self.rows.get(bundle)) is None:
            return UNKNOWN_PRICE
        gap = self.gaps[self.namespaces[self.namespace[row]]]
        return Price(float(self.of_policy[row]), float(self.of_namespace[row]), gap)


UNKNOWN_PRICE = Price(float("nan"), float("nan"), float("nan"))
"""Price of a bundle that was not measured."""


def _percent(sessions: FloatArray, total: FloatArray) -> FloatArray:
    """100 * sessions / total; 0 without clients, NaN where the sessions are unknown."""
    found: FloatArray = 100 * sessions / np.maximum(total, 1e-9)
    return found


def publish_gap(costs: Mapping[str, MoveCosts] | None, namespace: str) -> float:
    """Seconds for which the next move of a namespace's bundle is expected to cut publishers off.

    The mean of the latest measured moves, as gaps are summed; a move without publishers cost none. Before the first
    measured move, the usual gap. costs: None where nothing measures moves, which gives NaN.
    """
    if costs is None:
        return float("nan")
    latest = costs[namespace].latest if namespace in costs else ()
    if not latest:
        return USUAL_GAP
    return sum(cost.publish_gap or 0.0 for cost in latest) / len(latest)
