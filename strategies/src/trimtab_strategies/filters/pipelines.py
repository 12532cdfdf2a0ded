"""The two pipelines of Pulsar's load managers, Extensible and Modular, and the filters that they share.

Each filter is a mask over the remaining brokers. Each broker that it removes gets the filter's reason. After the
filters, both pipelines apply the namespace's preferences (`zone` and `spread`).

Modular applies isolation policies, topic limit (if none is left: keep all), anti-affinity, even distribution, load
manager and version. When no broker is left, or a version can't be read, all brokers that the policies allow are
candidates. If the chosen broker is overloaded, the placement chooses once more among all that the policies allow.

Extensible applies load manager, topic limit, version (skipped if one can't be read), anti-affinity and isolation
policies. An empty result stays empty, and the placement chooses once.

Source. Pulsar 4.2.4 `...loadbalance.impl.ModularLoadManagerImpl.selectBroker` and
`...loadbalance.extensions.ExtensibleLoadManagerImpl` with its filters. Pulsar differs in three points. Here pending and
planned moves count as landed. Among brokers that tie, those that are not overloaded come first, so the choice is
repeated only if all of them are overloaded. An isolation pattern that is not a regular expression is reported, and
matches no broker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from trimtab_strategies.filters.counts import BundlesPerBroker, NamespacePreferences
from trimtab_strategies.filters.isolation import IsolationRules
from trimtab_strategies.filters.params import Manager, SelectionParams
from trimtab_strategies.filters.versions import UnknownVersionError, latest
from trimtab_strategies.guard import Verdict
from trimtab_strategies.model import NO_POLICY, ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, IntArray
from trimtab_strategies.protocols import NOTHING, Choice, Placement
from trimtab_strategies.usage import overloaded

SYSTEM_NAMESPACE = "pulsar/system"
"""Namespace of Pulsar's own topics; the modular manager always spreads its bundles evenly."""


class ActiveSelection(ABC):
    """A selection on one snapshot. It computes once what depends on the snapshot, and then counts planned moves."""

    def __init__(self, cluster: ClusterLoad, params: SelectionParams, for_excluded: Placement | None) -> None:
        """Select brokers of `cluster`. for_excluded: the placement for excluded namespaces; None: the usual one."""
        self.cluster, self.params, self.for_excluded = cluster, params, for_excluded
        self.counts = BundlesPerBroker(cluster)
        self.isolation = IsolationRules(cluster.brokers.names, cluster.policies)
        crowded = overloaded(cluster, np.arange(len(cluster.brokers)), params.weights, params.overload_threshold)
        self.preferences: NamespacePreferences | None = NamespacePreferences(cluster, self.counts, crowded)

    @abstractmethod
    def candidates(self, bundle: int, brokers: IntArray) -> Verdict:
        """Which of `brokers` (rows, k) may get `bundle` (row): a verdict (k,) in their order."""

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
        """The choice of `placement` among the candidates in `brokers` (rows); empty without a candidate.

        memory: that of the placement. predicted: the cluster with the load after the moves planned so far. barred:
        those of `brokers` that receive nothing more now, because their cap is reached. Isolation policies still count
        them as available. Otherwise bundles would go to secondary brokers once the primary ones have reached their cap.
        """

    def kinds(self) -> IntArray:
        """A number (m,) for each bundle: bundles with the same number have the same candidates.

        The number depends on the namespace, on whether the bundle has a known non-persistent topic, and on the owner if
        the namespace is spread.
        """
        kinds: IntArray = 2 * self.cluster.bundles.namespace
        kinds[list(self._with_non_persistent)] += 1
        spread = [self.cluster.policies.get(space, NO_POLICY).spread for space in self.cluster.namespaces]
        if not any(spread):
            return kinds
        owner = np.where(np.array(spread)[self.cluster.bundles.namespace], self.cluster.bundles.owner + 1, 0)
        return kinds * (len(self.cluster.brokers) + 1) + owner

    def moved(self, bundle: int, destination: int) -> None:
        """Count `bundle` (row) on `destination` (row) from now on."""
        self.counts.moved(bundle, destination)

    def added(self, bundle: int, broker: int) -> None:
        """Count a child of `bundle` (row) on `broker` (row) from now on."""
        self.counts.added(bundle, broker)

    def problems(self) -> tuple[HeldBack, ...]:
        """The problems of the isolation policies, as entries for a plan."""
        return self.isolation.problems()

    def preferred(self, verdict: Verdict, bundle: int, brokers: IntArray) -> Verdict:
        """`verdict` on `brokers` (rows), narrowed to those that the namespace of `bundle` (row) prefers."""
        if self.preferences is None or not self.cluster.policies:
            return verdict
        policy, preferences = self.cluster.policy_of(bundle), self.preferences
        if policy.zone:
            verdict = narrowed(verdict, brokers, lambda rows: preferences.near(bundle, rows), Reason.ZONE)
        if policy.spread:
            verdict = narrowed(verdict, brokers, lambda rows: preferences.even(bundle, rows), Reason.UNEVEN)
        return verdict

    def strict(self) -> Self:
        """This selection without preferences. Both share their counts."""
        without = copy(self)
        without.preferences = None
        return without

    def may_leave(self, bundle: int, brokers: IntArray) -> Reason | None:
        """Why policies keep `bundle` (row) with its owner; None if it may leave.

        It stays when the policies allow none of the other `brokers` (rows), or when its group is spread as evenly as
        possible.
        """
        allowed = brokers[self.by_policy(bundle)(brokers)]
        owner = int(self.cluster.bundles.owner[bundle])
        if not (allowed != owner).any():
            return Reason.ISOLATION
        return None if self.group_may_leave(bundle, allowed) else Reason.ANTI_AFFINITY

    def group_may_leave(self, bundle: int, candidates: IntArray) -> bool:
        """Whether the bundle's anti-affinity group lets it leave its owner.

        It stays if all `candidates` (rows) have the same number of the group's namespaces or bundles, and this number
        is above 0. As in Pulsar, it then stays even if the owner has more than the candidates and is not one of them.
        """
        group = self._group(bundle)
        counts = self.counts.of_group(group, by_bundle=self._group_by_bundle) if group else None
        if counts is None or not counts.any() or not len(candidates):
            return True
        among = counts[candidates]
        return bool(among.min() == 0 or (among != among.min()).any())

    def by_policy(self, bundle: int) -> Rule:
        """The rule of the namespace's isolation; without one: shared brokers that serve the bundle's kind of topics."""
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
        """Anti-affinity: the brokers with the fewest namespaces, or bundles, of the group.

        With `failure_domains`, they are chosen among the brokers of the failure domains with the fewest.
        """
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
        """The brokers with the configured load manager.

        Brokers without traits pass. Those whose load manager has an empty name don't.
        """
        names, traits = self.cluster.brokers.names, self.cluster.traits
        found = [traits.get(names[row]) for row in rows.tolist()]
        return np.array([t is None or t.load_manager == self.params.load_manager for t in found], dtype=bool)

    def _latest(self, rows: IntArray) -> BoolArray:
        return latest([self.cluster.traits_of(row).version for row in rows.tolist()])


class _Modular(ActiveSelection):
    """The modular manager's pipeline, as at the top of this module."""

    _group_by_bundle = False

    def candidates(self, bundle: int, brokers: IntArray) -> Verdict:
        return self._filtered(bundle, brokers, self._allowed(bundle, brokers))

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
        """See `ActiveSelection.choose`. The placement for excluded namespaces keeps its memory under ``excluded``."""
        other = self.for_excluded
        if other is None or self._namespace(bundle) not in self.params.excluded_namespaces:
            return self._choose(bundle, (brokers, barred), placement, memory, predicted or self.cluster)
        of_other = memory.get("excluded", {})
        choice = self._choose(bundle, (brokers, barred), other, of_other, predicted or self.cluster)
        return Choice(choice.brokers, {**memory, "excluded": choice.memory})

    def _choose(
        self,
        bundle: int,
        offered: tuple[IntArray, IntArray],
        placement: Placement,
        memory: Mapping[str, Any],
        cluster: ClusterLoad,
    ) -> Choice:
        brokers, barred = offered
        allowed = self._allowed(bundle, brokers)
        rows = within(brokers, self._filtered(bundle, brokers, allowed), barred)
        if not len(rows):
            return Choice(NOTHING, memory)
        choice = placement.best(cluster, bundle, rows, memory)
        limit = self.params.overload_threshold
        fine = choice.brokers[~overloaded(cluster, choice.brokers, self.params.weights, limit)]
        if len(fine) or not len(choice.brokers):
            return Choice(fine, choice.memory)
        again = placement.best(cluster, bundle, within(brokers, allowed, barred), choice.memory)
        return again if len(again.brokers) else choice

    def _allowed(self, bundle: int, brokers: IntArray) -> Verdict:
        """The brokers that the policies allow."""
        return narrowed(Verdict(len(brokers)), brokers, self.by_policy(bundle), Reason.ISOLATION)

    def _filtered(self, bundle: int, brokers: IntArray, allowed: Verdict) -> Verdict:
        """The brokers of `allowed` that pass the other filters.

        All of `allowed` if none passes, or if a version can't be read.
        """
        verdict = narrowed(allowed, brokers, self._within_topic_limit, Reason.TOPIC_LIMIT)
        if self._group(bundle):
            verdict = narrowed(verdict, brokers, self._apart(bundle), Reason.ANTI_AFFINITY)
        if self.params.distribute_evenly or self._namespace(bundle) == SYSTEM_NAMESPACE:
            verdict = narrowed(verdict, brokers, self._even(bundle), Reason.UNEVEN)
        if self.params.load_manager:
            verdict = narrowed(verdict, brokers, self._same_load_manager, Reason.LOAD_MANAGER)
        if self.params.prefer_later_versions:
            try:
                verdict = narrowed(verdict, brokers, self._latest, Reason.VERSION)
            except UnknownVersionError:
                return self.preferred(allowed, bundle, brokers)
        return self.preferred(verdict if verdict.allowed.any() else allowed, bundle, brokers)

    def _within_topic_limit(self, rows: IntArray) -> BoolArray:
        """Brokers with at most the allowed number of topics; all brokers if each has more."""
        within: BoolArray = self.counts.topics[rows] <= self.params.max_topics
        return within if within.any() else ~within

    def _even(self, bundle: int) -> Rule:
        """The rule of even distribution: the fewest bundles of the namespace."""
        counts = self.counts.bundles_of(int(self.cluster.bundles.namespace[bundle]))

        def even(rows: IntArray) -> BoolArray:
            among = counts[rows]
            least: BoolArray = among == among.min()
            return least

        return even


class _Extensible(ActiveSelection):
    """The extensible manager's pipeline, as at the top of this module."""

    _group_by_bundle = True

    def candidates(self, bundle: int, brokers: IntArray) -> Verdict:
        verdict = Verdict(len(brokers))
        if self.params.load_manager:
            verdict = narrowed(verdict, brokers, self._same_load_manager, Reason.LOAD_MANAGER)
        verdict = narrowed(verdict, brokers, self._below_topic_limit, Reason.TOPIC_LIMIT)
        if self.params.prefer_later_versions:
            verdict = self._by_version(verdict, brokers)
        if self._group(bundle):
            verdict = narrowed(verdict, brokers, self._apart(bundle), Reason.ANTI_AFFINITY)
        verdict = narrowed(verdict, brokers, self.by_policy(bundle), Reason.ISOLATION)
        return self.preferred(verdict, bundle, brokers)

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
        rows = within(brokers, self.candidates(bundle, brokers), barred)
        return placement.best(predicted or self.cluster, bundle, rows, memory) if len(rows) else Choice(NOTHING, memory)

    def _by_version(self, verdict: Verdict, brokers: IntArray) -> Verdict:
        try:
            return narrowed(verdict, brokers, self._latest, Reason.VERSION)
        except UnknownVersionError:
            return verdict

    def _below_topic_limit(self, rows: IntArray) -> BoolArray:
        below: BoolArray = self.counts.topics[rows] < self.params.max_topics
        return below


@dataclass(frozen=True)
class BrokerSelection:
    """A pipeline and its parameters.

    for_excluded: the placement of bundles in `SelectionParams.excluded_namespaces` (Pulsar: round robin); None: they
    have the same placement as all other bundles.
    """

    manager: Manager = Manager.EXTENSIBLE
    params: SelectionParams = field(default_factory=SelectionParams)
    for_excluded: Placement | None = None

    def on(self, cluster: ClusterLoad) -> ActiveSelection:
        """The selection on one snapshot of the cluster."""
        return _PIPELINES[self.manager](cluster, self.params, self.for_excluded)


_PIPELINES: Mapping[Manager, type[ActiveSelection]] = {Manager.MODULAR: _Modular, Manager.EXTENSIBLE: _Extensible}


_NO_DOMAIN = "default"


Rule = Callable[[IntArray], BoolArray]
"""Which of the given brokers (rows, k) remain: a mask (k,)."""


def narrowed(verdict: Verdict, brokers: IntArray, rule: Rule, reason: Reason) -> Verdict:
    """The verdict after `rule` was applied to the brokers that are still allowed; unchanged if there are none."""
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
