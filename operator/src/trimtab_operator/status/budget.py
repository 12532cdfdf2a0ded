"""What was spent of disruption budgets, as statuses, metrics and Events show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.kube.client import TOPIC_NAMESPACES, NotFoundError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.records import TopicNamespaceRecord
from trimtab_operator.resources.budget import BudgetStatus, BudgetUse
from trimtab_operator.state.budget_left import recalled, rules_of, tally_of
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.budget import DAY, HOUR, NO_BUDGET, BudgetLimit, BudgetTally, Charge, DisruptionBudget
from trimtab_strategies.model import counted, some

OVERRIDDEN = "BudgetOverridden"
"""Reason of the Event about moves that went beyond a budget."""


@dataclass(frozen=True, slots=True)
class BudgetView:
    """A budget, and what counts to it. clients: percent cut. spaces: ``tenant/name``. bundles: object names."""

    budget: DisruptionBudget
    tally: BudgetTally
    clients: float
    charges: Sequence[Charge]
    spaces: Collection[str]
    bundles: Collection[str]

    def status(self, pace: int | None = None) -> BudgetStatus:
        """The budget as a status shows it. pace: of the slowest broker, None if it has none."""
        over = sum(charge.over for charge in self.charges)
        return BudgetStatus(limits=list(self._uses()), overridden=over, pace=pace)

    def _uses(self) -> Iterator[BudgetUse]:
        found = {
            BudgetLimit.CONNECTIONS: self._clients,
            BudgetLimit.PUBLISH_GAP: self._gaps,
            BudgetLimit.BUNDLE_MOVES: self._moves,
            BudgetLimit.IN_FLIGHT: self._pending,
        }
        for limit, of in found.items():
            if (bound := self.budget.bound(limit)) is None:
                continue
            spent, subject, frees_at = of()
            yield BudgetUse(
                limit=str(limit),
                bound=bound,
                spent=round(spent, 2),
                left=round(max(0.0, bound - spent), 2),
                subject=subject,
                frees_at=None if frees_at is None or not spent else timestamp(frees_at + 1),
            )

    def _clients(self) -> tuple[float, str, float | None]:
        return self.clients, "", _oldest(self.charges)

    def _gaps(self) -> tuple[float, str, float | None]:
        space = max(self.spaces, key=lambda space: (self.tally.gaps_of(space), space), default="")
        return self.tally.gaps_of(space), space, _oldest([c for c in self.charges if c.namespace == space])

    def _moves(self) -> tuple[float, str, float | None]:
        days = self.tally.ledger.days
        bundle = max(self.bundles, key=lambda bundle: (len(days[bundle]), bundle), default="")
        moves = days.get(bundle, ())
        return float(len(moves)), bundle, min((at for at, _ in moves), default=-DAY) + DAY

    def _pending(self) -> tuple[float, str, float | None]:
        space = max(self.spaces, key=lambda space: (len(self.tally.pending_of(space)), space), default="")
        return float(len(self.tally.pending_of(space))), space, None


def _oldest(charges: Sequence[Charge]) -> float | None:
    """When the oldest of `charges` no longer counts; None: there is none."""
    return min((charge.at + HOUR for charge in charges), default=None)


def budget_uses(cluster: ClusterState, settings: Settings) -> BudgetStatus | None:
    """What the policy's own budget has left now; None: it has none."""
    if settings.budget is None:
        return None
    tally, name = tally_of(cluster, rules_of(cluster, settings)), settings.name
    charges = [charge for charge in tally.ledger.charges if charge.policy == name]
    spaces = sorted({charge.namespace for charge in charges} | set(tally.in_flight))
    bundles = [bundle for bundle in tally.ledger.days if cluster.cares(name, bundle)]
    windows = cluster.budget.pace.windows.values()
    view = BudgetView(settings.budget.bounds, tally, tally.clients_of_policy(), charges, spaces, bundles)
    return view.status(int(min(windows)) if settings.budget.adaptive_pace and windows else None)


def namespace_uses(tally: BudgetTally, cluster: ClusterState, space: TopicNamespaceRecord) -> BudgetStatus:
    """What the budget of a topic namespace has left by `tally`."""
    full, records = space.full_name, cluster.stores.bundles.items
    charges = [charge for charge in tally.ledger.charges if charge.namespace == full]
    bundles = [name for name in tally.ledger.days if name in records and records[name].topic_namespace == space.name]
    return BudgetView(space.budget, tally, tally.clients_of(full), charges, [full], bundles).status()


@dataclass(slots=True)
class BudgetReporter:
    """Reports overrides of one policy, and what the budgets of topic namespaces have left.

    The oldest policy reports the namespaces: policies share them.
    """

    cluster: ClusterState
    publisher: StatusPublisher
    _shown: dict[str, dict[str, Any]] = field(default_factory=dict)
    _gauged: dict[str, set[str]] = field(default_factory=dict)

    async def publish(self, settings: Settings) -> None:
        """Post Events about overrides, and write the statuses that have changed. Raises `ApiError`."""
        await self._overrides(settings.name)
        if (speaker := self.cluster.speaker()) is None or speaker.name != settings.name:
            return
        spaces = [s for s in self.cluster.stores.topic_namespaces.items.values() if s.budget != NO_BUDGET or s.spends]
        if not spaces:
            return
        rules = rules_of(self.cluster, settings)
        if rules.over_time:
            await recalled(self.cluster)
        tally = tally_of(self.cluster, rules)
        for space in spaces:
            await self._write(space, tally)

    async def _overrides(self, policy: str) -> None:
        found = self.cluster.budget.taken(policy)
        for reason, count in Counter(override.reason for override in found).items():
            self.cluster.metrics.budget_overrides.labels(policy, str(reason)).inc(count)
            of = [override for override in found if override.reason is reason]
            shown = some([override.bundle for override in of])
            text = f"{counted(count, 'move')} beyond a budget, because of {reason}: {shown}; {of[-1].text}"
            await self.publisher.event("Normal", OVERRIDDEN, text)

    async def _write(self, space: TopicNamespaceRecord, tally: BudgetTally) -> None:
        """Write what is left, if it changed; remove it where there is no budget any more."""
        if space.budget == NO_BUDGET:
            self._show(space.full_name, None)
            await self._patch(space.name, None)
            return
        uses = namespace_uses(tally, self.cluster, space)
        self._show(space.full_name, uses)
        made = uses.model_dump(by_alias=True, mode="json")
        if self._shown.get(space.name) != made:
            await self._patch(space.name, made)
            self._shown[space.name] = made

    def _show(self, namespace: str, uses: BudgetStatus | None) -> None:
        gauge, now = self.cluster.metrics.namespace_budget_spent, set[str]()
        for use in () if uses is None else uses.limits:
            gauge.labels(namespace, use.limit).set(use.spent / use.bound)
            now.add(use.limit)
        for limit in self._gauged.get(namespace, set()) - now:
            gauge.remove(namespace, limit)
        self._gauged[namespace] = now

    async def _patch(self, name: str, made: dict[str, Any] | None) -> None:
        body = {"status": {"budget": made}}
        try:
            await self.cluster.api.patch(TOPIC_NAMESPACES, self.cluster.namespace, name, body, subresource="status")
        except NotFoundError:
            self._shown.pop(name, None)
