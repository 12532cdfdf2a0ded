"""Reports what was spent of disruption budgets, in statuses, metrics and Events."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from trimtab_operator.budget.left import recalled, rules_of, tally_of
from trimtab_operator.kube.client import TOPIC_NAMESPACES, ConflictError, NotFoundError, RefusedError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.records import TopicNamespaceRecord
from trimtab_operator.resources.budget import BudgetStatus, BudgetUse
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.budget import HOUR, NO_BUDGET, BudgetLimit, BudgetTally, Charge, DisruptionBudget
from trimtab_strategies.model import counted, some

log = logging.getLogger(__name__)

OVERRIDDEN = "BudgetOverridden"
"""Reason of the Event about moves that exceeded a budget."""


@dataclass(frozen=True, slots=True)
class BudgetView:
    """A budget, and what counts against it.

    clients: percent of the clients that were disconnected. spaces: ``tenant/name``.
    """

    budget: DisruptionBudget
    tally: BudgetTally
    clients: float
    charges: Sequence[Charge]
    spaces: Collection[str]

    def status(self) -> BudgetStatus:
        """The budget as a status shows it."""
        return BudgetStatus(limits=list(self._uses()), overridden=sum(charge.over for charge in self.charges))

    def _uses(self) -> Iterator[BudgetUse]:
        found = {
            BudgetLimit.CONNECTIONS: self._clients,
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
    return BudgetView(settings.budget.bounds, tally, tally.clients_of_policy(), charges, spaces).status()


@dataclass(frozen=True, slots=True)
class NamespaceUses:
    """What the budgets of topic namespaces have left, according to `tally`. charges: ``tenant/name`` -> its charges."""

    tally: BudgetTally
    charges: Mapping[str, Sequence[Charge]]

    @classmethod
    def of(cls, tally: BudgetTally) -> Self:
        """Group all charges in one pass, because there may be many namespaces."""
        charges = dict[str, list[Charge]]()
        for charge in tally.ledger.charges:
            charges.setdefault(charge.namespace, []).append(charge)
        return cls(tally, charges)

    def status(self, space: TopicNamespaceRecord) -> BudgetStatus:
        """The budget of one namespace."""
        full, tally = space.full_name, self.tally
        return BudgetView(space.budget, tally, tally.clients_of(full), self.charges.get(full, ()), [full]).status()


@dataclass(slots=True)
class BudgetReporter:
    """Reports overrides of one policy, and what the budgets of topic namespaces have left.

    An override is a move that exceeded a budget. Only the oldest policy reports the namespaces, because policies share
    them.

    _shown: uid of a TopicNamespace -> the budget in its status. _gauged: ``tenant/name`` -> the limits that its gauge
    shows.
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
        self._forget_others(spaces)
        if not spaces:
            return
        rules = rules_of(self.cluster, settings)
        if rules.over_time:
            await recalled(self.cluster)
        uses = NamespaceUses.of(tally_of(self.cluster, rules))
        for space in spaces:
            try:
                await self._write(space, uses)
            except (ConflictError, RefusedError) as error:
                log.warning("TopicNamespace %s: its budget can't be shown: %s", space.name, error)

    def _forget_others(self, spaces: Sequence[TopicNamespaceRecord]) -> None:
        """Forget TopicNamespaces that are gone, or that have no budget and show none."""
        for uid in self._shown.keys() - {space.uid for space in spaces}:
            del self._shown[uid]
        for namespace in self._gauged.keys() - {space.full_name for space in spaces}:
            self._show(namespace, None)

    async def _overrides(self, policy: str) -> None:
        found = self.cluster.budget.taken(policy)
        for reason, count in Counter(override.reason for override in found).items():
            self.cluster.metrics.budget_overrides.labels(policy, str(reason)).inc(count)
            of = [override for override in found if override.reason is reason]
            shown = some([override.bundle for override in of])
            text = f"{counted(count, 'move')} exceeded a budget, because of {reason}: {shown}; {of[-1].text}"
            await self.publisher.event("Normal", OVERRIDDEN, text)

    async def _write(self, space: TopicNamespaceRecord, found: NamespaceUses) -> None:
        """Write what is left, if it changed; remove it where there is no budget any more."""
        if space.budget == NO_BUDGET:
            self._show(space.full_name, None)
            self._shown.pop(space.uid, None)
            await self._patch(space.name, None)
            return
        uses = found.status(space)
        self._show(space.full_name, uses)
        made = uses.model_dump(by_alias=True, mode="json")
        if self._shown.get(space.uid) != made:
            await self._patch(space.name, made)
            self._shown[space.uid] = made

    def _show(self, namespace: str, uses: BudgetStatus | None) -> None:
        gauge, now = self.cluster.metrics.namespace_budget_spent, set[str]()
        for use in () if uses is None else uses.limits:
            gauge.labels(namespace, use.limit).set(use.spent / use.bound)
            now.add(use.limit)
        for limit in self._gauged.get(namespace, set()) - now:
            gauge.remove(namespace, limit)
        if now:
            self._gauged[namespace] = now
        else:
            self._gauged.pop(namespace, None)

    async def _patch(self, name: str, made: dict[str, Any] | None) -> None:
        body = {"status": {"budget": made}}
        try:
            await self.cluster.api.patch(TOPIC_NAMESPACES, self.cluster.namespace, name, body, subresource="status")
        except NotFoundError:
            log.debug("TopicNamespace %s is gone", name)
