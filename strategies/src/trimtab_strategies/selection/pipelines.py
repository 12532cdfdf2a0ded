"""The two pipelines. Each filter is a mask over the brokers that are still in; what it takes out carries its reason.

Modular: policies, topic limit (none left: keep all), anti-affinity, even distribution, load manager, version. When
nothing is left, or a version can't be read, the brokers that the policies allow come back. If the chosen broker is
overloaded, the placement is asked once more among all that the policies allow: not among those with room.

Extensible: load manager, topic limit, version (left out if one can't be read), anti-affinity, policies. What is empty
stays empty, and nothing is asked twice.

Source. Pulsar 4.2.4 `...loadbalance.impl.ModularLoadManagerImpl.selectBroker` and
`...loadbalance.extensions.ExtensibleLoadManagerImpl` with its filters. Differences: moves in flight and moves planned
count as landed; where several brokers tie, those not overloaded are preferred instead of asking again for an unlucky
pick; an isolation policy with a pattern that is no regular expression is reported and matches nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab_strategies.constraints import Verdict
from trimtab_strategies.model import ClusterLoad, Reason
from trimtab_strategies.model.load import BoolArray, IntArray
from trimtab_strategies.protocols import NOTHING, Choice, Placement
from trimtab_strategies.selection.params import Manager, SelectionParams
from trimtab_strategies.selection.selecting import Rule, Selecting, narrowed, within
from trimtab_strategies.selection.versions import UnknownVersionError
from trimtab_strategies.usage import MODULAR_COLUMNS, percent, weighted_maximum

SYSTEM_NAMESPACE = "pulsar/system"
"""Where Pulsar keeps its own topics; the modular manager always spreads its bundles evenly."""


class _Modular(Selecting):
    """The modular manager's pipeline, see the module."""

    _group_by_bundle = False

    def candidates(self, bundle: int, brokers: IntArray) -> Verdict:
        """See `Selecting.candidates`."""
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
        """See `Selecting.choose`. The memory of the placement for excluded namespaces stands below ``excluded``."""
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
        fine = choice.brokers[~self._overloaded(cluster, choice.brokers)]
        if len(fine) or not len(choice.brokers):
            return Choice(fine, choice.memory)
        again = placement.best(cluster, bundle, within(brokers, allowed, barred), choice.memory)
        return again if len(again.brokers) else choice

    def _allowed(self, bundle: int, brokers: IntArray) -> Verdict:
        """What the policies allow."""
        return narrowed(Verdict(len(brokers)), brokers, self.by_policy(bundle), Reason.ISOLATION)

    def _filtered(self, bundle: int, brokers: IntArray, allowed: Verdict) -> Verdict:
        """What the other filters leave of `allowed`, or all of it when they leave nothing or one of them fails."""
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
                return allowed
        return verdict if verdict.allowed.any() else allowed

    def _within_topic_limit(self, rows: IntArray) -> BoolArray:
        """Brokers with at most the limit; when there is none, all."""
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

    def _overloaded(self, cluster: ClusterLoad, rows: IntArray) -> BoolArray:
        """Brokers whose weighted usage is above the threshold now."""
        percents = percent(cluster.brokers.usage[rows], cluster.brokers.limit[rows])
        usage = weighted_maximum(percents, self.params.weights, MODULAR_COLUMNS)
        above: BoolArray = usage > self.params.overload_threshold / 100
        return above


class _Extensible(Selecting):
    """The extensible manager's pipeline, see the module."""

    _group_by_bundle = True

    def candidates(self, bundle: int, brokers: IntArray) -> Verdict:
        """See `Selecting.candidates`."""
        verdict = Verdict(len(brokers))
        if self.params.load_manager:
            verdict = narrowed(verdict, brokers, self._same_load_manager, Reason.LOAD_MANAGER)
        verdict = narrowed(verdict, brokers, self._below_topic_limit, Reason.TOPIC_LIMIT)
        if self.params.prefer_later_versions:
            verdict = self._by_version(verdict, brokers)
        if self._group(bundle):
            verdict = narrowed(verdict, brokers, self._apart(bundle), Reason.ANTI_AFFINITY)
        return narrowed(verdict, brokers, self.by_policy(bundle), Reason.ISOLATION)

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
        """See `Selecting.choose`."""
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
class Selection:
    """A pipeline and its parameters.

    for_excluded: the placement of bundles of `SelectionParams.excluded_namespaces` (Pulsar: round robin); None: the
    same as for the others.
    """

    manager: Manager = Manager.EXTENSIBLE
    params: SelectionParams = field(default_factory=SelectionParams)
    for_excluded: Placement | None = None

    def on(self, cluster: ClusterLoad) -> Selecting:
        """Begin to select on one picture of the cluster."""
        return _PIPELINES[self.manager](cluster, self.params, self.for_excluded)


_PIPELINES: Mapping[Manager, type[Selecting]] = {Manager.MODULAR: _Modular, Manager.EXTENSIBLE: _Extensible}
