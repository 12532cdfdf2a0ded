"""Choosing: which brokers a bundle may go to, and which of those the placement prefers.

The one way from a bundle to a destination, for what is shed, for what nobody owns and for the children of a split. With
a selection the brokers are filtered first (isolation, anti-affinity, topic limit and so on); without one every
broker that may receive is a candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab_strategies.filters import BrokerSelection, Selecting
from trimtab_strategies.guard import Verdict
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.planner.prediction import PredictedLoad
from trimtab_strategies.protocols import NOTHING, Choice, Placement, RemembersChoices


def selecting_on(cluster: ClusterLoad, selection: BrokerSelection | None) -> Selecting | None:
    """The selection under way on `cluster`. What namespaces ask for is kept to also when no selection was chosen."""
    if selection is None and cluster.policies:
        selection = BrokerSelection()
    return None if selection is None else selection.on(cluster)


@dataclass(frozen=True)
class Choosing:
    """Chooses among `brokers` (rows, ascending). placement: None, every broker is as good as any other."""

    placement: Placement | None
    brokers: IntArray
    selecting: Selecting | None = None

    def best(self, bundle: int, cluster: ClusterLoad, memory: Mapping[str, Any], barred: IntArray = NOTHING) -> Choice:
        """The equally good brokers for `bundle` (row) on the predicted `cluster`; none when no broker may get it.

        barred: rows that take nothing more in this decision.
        """
        placement = self.placement or _ANYBODY
        if self.selecting is not None:
            return self.selecting.choose(bundle, self.brokers, placement, memory, predicted=cluster, barred=barred)
        rows = self.brokers[~np.isin(self.brokers, barred)] if len(barred) else self.brokers
        return placement.best(cluster, bundle, rows, memory) if len(rows) else Choice(NOTHING, memory)

    def allows(self, bundle: int, broker: int) -> bool:
        """Whether `broker` may get `bundle` (rows)."""
        return broker in self.candidates(bundle)

    def candidates(self, bundle: int) -> IntArray:
        """The brokers (rows) that may get `bundle` (row)."""
        if self.selecting is None:
            return self.brokers
        rows: IntArray = self.brokers[self.selecting.candidates(bundle, self.brokers).allowed]
        return rows

    def verdict(self, bundle: int) -> Verdict | None:
        """Which of `brokers` may get `bundle` (row), with the reason of each other; None: nothing selects."""
        return None if self.selecting is None else self.selecting.candidates(bundle, self.brokers)

    def may_leave(self, bundle: int) -> Reason | None:
        """Why a bundle (row) has to stay with its owner; None if it may leave."""
        return None if self.selecting is None else self.selecting.may_leave(bundle, self.brokers)

    def why_none(self, bundle: int) -> Reason:
        """Why no broker may get `bundle` (row): what keeps most of them from it."""
        counts = {} if self.selecting is None else self.selecting.candidates(bundle, self.brokers).counts()
        return max(counts, key=lambda reason: (counts[reason], reason)) if counts else Reason.NO_CANDIDATE

    def problems(self) -> tuple[HeldBack, ...]:
        """What is wrong with what namespaces ask for, an entry for each that asks the impossible."""
        return () if self.selecting is None else self.selecting.problems()

    def chosen(self, bundle: int, broker: int, cluster: ClusterLoad, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The placement's memory once `bundle` went to `broker` (rows); what is chosen later counts it there."""
        if self.selecting is not None:
            self.selecting.moved(bundle, broker)
        if isinstance(self.placement, RemembersChoices):
            return self.placement.chosen(cluster, bundle, broker, memory)
        return memory


class _Anybody:
    """A placement to which all candidates are alike."""

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - so it looks at nothing
        """All candidates."""
        return Choice(candidates, memory)


@dataclass(frozen=True)
class LeastLoaded:
    """A placement that takes the least used broker of a prediction; one of which nothing is known counts as idle."""

    predicted: PredictedLoad

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - the load says it all
        """The least used, and those that are used as little."""
        usage = np.nan_to_num(self.predicted.pressure(candidates))
        return Choice(candidates[usage <= usage.min() + _ALIKE], memory)


_ALIKE = 1e-9
"""Ratio of usage below which two brokers are used alike."""

_ANYBODY = _Anybody()
