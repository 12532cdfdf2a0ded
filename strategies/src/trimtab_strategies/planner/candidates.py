"""The brokers that a bundle may go to, and which of them the placement prefers.

Shed bundles, unowned bundles and the children of a split all get their destination here. A selection filters the
brokers first (isolation, anti-affinity, topic limit and so on); without one, every broker that may receive is a
candidate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab_strategies.filters import ActiveSelection, BrokerSelection
from trimtab_strategies.guard import Verdict
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.planner.prediction import PredictedLoad
from trimtab_strategies.protocols import NOTHING, Choice, Destinations, Placement, RemembersChoices


def selection_on(cluster: ClusterLoad, selection: BrokerSelection | None) -> ActiveSelection | None:
    """The selection applied to `cluster`. Without a selection, the policies of namespaces still apply."""
    if selection is None and cluster.policies:
        selection = BrokerSelection()
    return None if selection is None else selection.on(cluster)


@dataclass(frozen=True)
class DestinationChoice:
    """A choice among `brokers` (rows, ascending). placement: None means that all brokers are equally good."""

    placement: Placement | None
    brokers: IntArray
    selecting: ActiveSelection | None = None

    def best(self, bundle: int, cluster: ClusterLoad, memory: Mapping[str, Any], barred: IntArray = NOTHING) -> Choice:
        """The best brokers for `bundle` (row) on the predicted `cluster`.

        There are several if they are equally good, and none if no broker may get the bundle.
        barred: brokers (rows) that receive nothing more in this decision.
        """
        placement = self.placement or _ANY_BROKER
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

    def without_preferences(self) -> DestinationChoice:
        """The same choice without namespaces' preferences. Their rules still apply."""
        return self if self.selecting is None else replace(self, selecting=self.selecting.strict())

    def destinations(self, cluster: ClusterLoad) -> Destinations | None:
        """The brokers that each bundle may go to; None without a selection: then each may go to all of `brokers`.

        Bundles with the same number in `ActiveSelection.kinds` share one row. The moves of the plan change what
        anti-affinity allows. So each move is checked again.
        """
        if self.selecting is None:
            return None
        _, first, group = np.unique(self.selecting.kinds(), return_index=True, return_inverse=True)
        allowed = np.zeros((len(first), len(cluster.brokers)), dtype=bool)
        for place, bundle in enumerate(first.tolist()):
            allowed[place, self.candidates(bundle)] = True
        return Destinations(group, allowed)

    def verdict(self, bundle: int) -> Verdict | None:
        """Which of `brokers` may get `bundle` (row), with a reason for each that may not; None without a selection."""
        return None if self.selecting is None else self.selecting.candidates(bundle, self.brokers)

    def may_leave(self, bundle: int) -> Reason | None:
        """Why a bundle (row) has to stay with its owner; None if it may leave."""
        return None if self.selecting is None else self.selecting.may_leave(bundle, self.brokers)

    def why_none(self, bundle: int) -> Reason:
        """Why no broker may get `bundle` (row): the reason that rules out most of them."""
        counts = {} if self.selecting is None else self.selecting.candidates(bundle, self.brokers).counts()
        return max(counts, key=lambda reason: (counts[reason], reason)) if counts else Reason.NO_CANDIDATE

    def problems(self) -> tuple[HeldBack, ...]:
        """The namespace policies that can't be met, one entry per namespace."""
        return () if self.selecting is None else self.selecting.problems()

    def chosen(self, bundle: int, broker: int, cluster: ClusterLoad, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The placement's memory after `bundle` goes to `broker` (rows). Later choices count the bundle there."""
        if self.selecting is not None:
            self.selecting.moved(bundle, broker)
        if isinstance(self.placement, RemembersChoices):
            return self.placement.chosen(cluster, bundle, broker, memory)
        return memory

    def child_placed(self, bundle: int, broker: int) -> None:
        """Make later choices count a child of `bundle` on `broker` (rows)."""
        if self.selecting is not None:
            self.selecting.added(bundle, broker)


class _AnyBroker:
    """A placement that ranks all candidates equally."""

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - it needs none of them
        """All candidates."""
        return Choice(candidates, memory)


@dataclass(frozen=True)
class LeastLoaded:
    """A placement that takes the least used broker of a prediction. A broker without data counts as idle."""

    predicted: PredictedLoad

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - the load decides
        """The least used broker, and those that are used equally little."""
        usage = np.nan_to_num(self.predicted.pressure(candidates))
        return Choice(candidates[usage <= usage.min() + _ALIKE], memory)


_ALIKE = 1e-9
"""Two brokers whose usage (ratio) differs by less than this count as equally used."""

_ANY_BROKER = _AnyBroker()
