"""`Prices`: what a move of each bundle would cost by the last measured load, and which moves cost too much. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_strategies.budget import TINY, BudgetLimit, BudgetTally, Price
from trimtab_strategies.model import ClusterLoad, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.planner.drain import EVACUATIONS

UNRESTRAINED = EVACUATIONS | {Reason.BROKER_LOST, Reason.ADMIN}
"""Reasons of moves that no budget holds back."""


@dataclass(frozen=True)
class Prices:
    """Prices of moves of the m bundles of one policy. The rows are those of the load that the prices were made from.

    rows: row of each bundle (Pulsar's spelling). namespace: (m,) rows of `namespaces`. of_policy, of_namespace: (m,)
    percent of the policy's and of the namespace's clients that the bundle has, NaN where they were not measured.
    """

    rows: Mapping[str, int]
    namespaces: tuple[str, ...]
    namespace: IntArray
    of_policy: FloatArray
    of_namespace: FloatArray

    @classmethod
    def of(cls, load: ClusterLoad) -> Prices:
        """The prices from `load`."""
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
        )

    def price(self, bundle: str) -> Price:
        """The price of a move of `bundle` (Pulsar's spelling)."""
        if (row := self.rows.get(bundle)) is None:
            return UNKNOWN_PRICE
        return Price(float(self.of_policy[row]), float(self.of_namespace[row]))


UNKNOWN_PRICE = Price(float("nan"), float("nan"))
"""Price of a bundle that was not measured."""


def _percent(sessions: FloatArray, total: FloatArray) -> FloatArray:
    """100 * sessions / total; 0 without clients, NaN where the sessions are unknown."""
    found: FloatArray = 100 * sessions / np.maximum(total, 1e-9)
    return found


def too_dear(tally: BudgetTally, prices: Prices) -> set[str]:
    """The bundles (Pulsar's spelling) that a budget keeps from moving now."""
    spellings = tuple(prices.rows)
    return {spellings[row] for row in np.flatnonzero(_held(tally, prices)).tolist()}


def _held(tally: BudgetTally, prices: Prices) -> BoolArray:
    """(m,) mask of the bundles that cost more than is left, or whose namespace may have no further pending move."""
    rules, spaces = tally.rules, prices.namespaces
    left, pending = np.full(len(spaces), np.inf), np.zeros(len(spaces), dtype=bool)
    for row, space in enumerate(spaces):
        holder = rules.spaces.get(space)
        if holder is not None and holder.budget.connections is not None:
            left[row] = holder.budget.connections - tally.clients_of(space)
        flights = rules.stricter(space, BudgetLimit.IN_FLIGHT)
        pending[row] = flights is not None and len(tally.pending_of(space)) >= flights[0]
    bounded = np.isfinite(left)[prices.namespace]
    held: BoolArray = pending[prices.namespace] | (bounded & ~(prices.of_namespace <= left[prices.namespace] + TINY))
    if (own := rules.own.budget.connections) is not None:
        held = held | ~(prices.of_policy <= own - tally.clients_of_policy() + TINY)
    return held


def together(ways: Sequence[tuple[str, str]]) -> list[list[int]]:
    """Groups of rows of `ways` to admit together: moves between two brokers that exchange bundles, else one row.

    ways: source and destination of each move; the source is empty if no broker has the bundle.
    """
    units = dict[object, list[int]]()
    found = {(source, destination) for source, destination in ways if source != destination}
    for row, (source, destination) in enumerate(ways):
        exchanged = source and (destination, source) in found
        units.setdefault(frozenset({source, destination}) if exchanged else row, []).append(row)
    return list(units.values())
