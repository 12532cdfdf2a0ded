"""What both pipelines are made of: their face, and the filters they share.

A filter is a mask over the brokers that are still in; what it takes out carries its reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from trimtab_strategies.constraints import Verdict
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.load import BoolArray, IntArray
from trimtab_strategies.protocols import NOTHING, Choice, Placement
from trimtab_strategies.selection.counting import Counts
from trimtab_strategies.selection.isolation import IsolationRules
from trimtab_strategies.selection.params import SelectionParams
from trimtab_strategies.selection.versions import latest

_NO_DOMAIN = "default"

Rule = Callable[[IntArray], BoolArray]
"""Which of the given brokers (rows, k) stay in: a mask (k,)."""


def narrowed(verdict: Verdict, brokers: IntArray, rule: Rule, reason: Reason) -> Verdict:
    """The verdict after `rule` was applied to the brokers still in; what is empty is left alone."""
    within = verdict.allowed
    rows = brokers[within]
    kept = rule(rows) if len(rows) else within[:0]
    if kept.all():
        return verdict
    out = within.copy()
    out[within] = ~kept
    return verdict.rule_out(out, reason)


def within(brokers: IntArray, verdict: Verdict, barred: IntArray) -> IntArray:
    """The brokers (rows) that pass the verdict on them, without the `barred` ones."""
    rows = brokers[verdict.allowed]
    return rows[~np.isin(rows, barred)] if len(barred) else rows


class Selecting(ABC):
    """One selection under way: what depends on the picture alone is found once, and planned moves are followed."""

    def __init__(self, cluster: ClusterLoad, params: SelectionParams, for_excluded: Placement | None) -> None:
        """Select on `cluster`. for_excluded: the placement of excluded namespaces, None: the usual one."""
        self.cluster, self.params, self.for_excluded = cluster, params, for_excluded
        self.counts = Counts(cluster)
        self.isolation = IsolationRules(cluster.brokers.names, cluster.policies)

    @abstractmethod
    def candidates(self, bundle: int, brokers: IntArray) -> Verdict:
        """Which of `brokers` (rows, k) may get `bundle` (row): a verdict on each of them, (k,) in their order."""

    @abstractmethod
    def choose(
        self,
        bundle: int,
        brokers: IntArray,
        placement: Placement,
        memory: Mapping[str, Any],
        *,
        predicted: ClusterLoad | None = None,
        barred: IntArray = NOTHING,
    ) -> Choice:
        """Ask `placement` among the candidates out of `brokers` (rows); no broker at all when there is none.

        memory: the placement's. predicted: the cluster with the load as it will be after the moves planned so far.
        barred: of `brokers`, those that take nothing more now, but count as available to the policies (caps are full):
        else a full primary broker would open the secondary ones.
        """

    def kind(self, bundle: int) -> tuple[int, bool]:
        """What the candidates for `bundle` (row) hang on: they are the same for all bundles of one kind.

        That is its namespace (row), and whether a non-persistent topic is known in it.
        """
        return int(self.cluster.bundles.namespace[bundle]), bundle in self._with_non_persistent

    def moved(self, bundle: int, destination: int) -> None:
        """Count `bundle` (row) with `destination` (row) from now on."""
        self.counts.moved(bundle, destination)

    def problems(self) -> tuple[HeldBack, ...]:
        """What is wrong with the isolation policies, as entries for a plan."""
        return self.isolation.problems()

    def may_leave(self, bundle: int, brokers: IntArray) -> Reason | None:
        """Why `bundle` (row) has to stay with its owner, as far as policies are concerned; None if it may leave.

        It stays when no other of `brokers` (rows) is allowed, or its group is spread as evenly as can be.
        """
        allowed = brokers[self.by_policy(bundle)(brokers)]
        owner = int(self.cluster.bundles.owner[bundle])
        if not (allowed != owner).any():
            return Reason.ISOLATION
        return None if self.group_may_leave(bundle, allowed) else Reason.ANTI_AFFINITY

    def group_may_leave(self, bundle: int, candidates: IntArray) -> bool:
        """Whether a bundle of an anti-affinity group may leave its owner: not if all `candidates` (rows) have as many.

        That holds also when the owner has more than they and is none of them, as in Pulsar.
        """
        group = self._group(bundle)
        counts = self.counts.of_group(group, by_bundle=self._group_by_bundle) if group else None
        if counts is None or not counts.any() or not len(candidates):
            return True
        among = counts[candidates]
        return bool(among.min() == 0 or (among != among.min()).any())

    def by_policy(self, bundle: int) -> Rule:
        """The rule of namespace isolation, or, without a policy, of shared brokers that serve such topics."""
        hosts = self.isolation.of(self._namespace(bundle))
        if hosts is None:
            shared = self.isolation.shared & self._serving(bundle)
            return lambda rows: shared[rows]

        def isolated(rows: IntArray) -> BoolArray:
            available = np.zeros(len(self.cluster.brokers), dtype=bool)
            available[rows] = True
            return hosts.allowed(available)[rows]

        return isolated

    _group_by_bundle: bool
    """Whether an anti-affinity group is counted by bundles or by namespaces."""

    def _namespace(self, bundle: int) -> str:
        return self.cluster.namespaces[int(self.cluster.bundles.namespace[bundle])]

    def _group(self, bundle: int) -> str:
        return self.cluster.policy_of(bundle).anti_affinity_group.lower() if self.cluster.policies else ""

    def _serving(self, bundle: int) -> BoolArray:
        """Brokers (mask, n) that serve the bundle's kind of topics."""
        if not self.cluster.traits:
            return np.ones(len(self.cluster.brokers), dtype=bool)
        persistent, non_persistent = self._kinds
        return non_persistent if bundle in self._with_non_persistent else persistent

    @cached_property
    def _kinds(self) -> tuple[BoolArray, BoolArray]:
        traits = [self.cluster.traits_of(row) for row in range(len(self.cluster.brokers))]
        persistent, non_persistent = ([getattr(t, kind) for t in traits] for kind in ("persistent", "non_persistent"))
        return np.array(persistent, dtype=bool), np.array(non_persistent, dtype=bool)

    @cached_property
    def _with_non_persistent(self) -> frozenset[int]:
        """Bundles known to have a non-persistent topic."""
        topics = zip(self.cluster.topics.names, self.cluster.topics.bundle.tolist(), strict=True)
        return frozenset(bundle for name, bundle in topics if name.startswith("non-persistent://"))

    def _apart(self, bundle: int) -> Rule:
        """The rule of anti-affinity: least of the group by failure domain, then by broker."""
        counts = self.counts.of_group(self._group(bundle), by_bundle=self._group_by_bundle)

        def apart(rows: IntArray) -> BoolArray:
            among = counts[rows]
            kept = self._least_by_domain(rows, among) if self.params.failure_domains else np.ones(len(rows), dtype=bool)
            least: BoolArray = kept & (among == among[kept].min())
            return least

        return apart

    def _least_by_domain(self, rows: IntArray, counts: IntArray) -> BoolArray:
        names = [self.cluster.traits_of(row).failure_domain for row in rows.tolist()]
        if not any(names):
            return np.ones(len(rows), dtype=bool)
        _, domain = np.unique([name or _NO_DOMAIN for name in names], return_inverse=True)
        total = np.bincount(domain, weights=counts)
        least: BoolArray = total[domain] == total.min()
        return least

    def _same_load_manager(self, rows: IntArray) -> BoolArray:
        """A broker of which nothing is known passes; one that names no load manager does not."""
        names, traits = self.cluster.brokers.names, self.cluster.traits
        found = [traits.get(names[row]) for row in rows.tolist()]
        return np.array([t is None or t.load_manager == self.params.load_manager for t in found], dtype=bool)

    def _latest(self, rows: IntArray) -> BoolArray:
        return latest([self.cluster.traits_of(row).version for row in rows.tolist()])
