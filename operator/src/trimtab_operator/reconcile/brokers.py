"""Tells of each broker that people want empty how far that is: the condition `Drained` of its Broker object.

The moves themselves are part of the policy's plan. Here is only said what is left, and what keeps it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cluster.api import BROKERS, NotFoundError
from trimtab_operator.cluster.brokers import BrokerRecord
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.cluster.status import set_condition
from trimtab_operator.control.context import Context
from trimtab_operator.control.settings import Settings
from trimtab_operator.control.telling import Teller
from trimtab_operator.resources.policy import Mode
from trimtab_strategies.model import Reason, counted, some

DRAINED = "Drained"
"""Type of the condition."""

Told = tuple[str, str, str]
"""Status, reason and message of a condition."""


@dataclass(slots=True)
class Drainage:
    """Speaks for the brokers of one policy. Says nothing twice."""

    context: Context
    teller: Teller

    async def tell(self, settings: Settings) -> None:
        """Write the conditions that have changed, and an Event for each broker that is empty now. Raises `ApiError`."""
        departures = self.context.departures(settings.name)
        drained = departures.drained
        for name, broker in self.context.brokers_of(settings.name).items():
            if name in departures.ending:
                continue  # that its pod is replaced changes nothing about what people want
            wanted = self._told(name, settings) if name in drained else None
            if wanted != _shown(broker) or (wanted is not None and _outdated(broker)):
                await self._write(broker, wanted)

    def _told(self, broker: str, settings: Settings) -> Told:
        bundles, spaces = self.context.stores.bundles.items, self.context.stores.topic_namespaces.items
        served = sorted(self.context.served.get(broker, ()))
        own = [bundles[name] for name in served if name in bundles]
        excluded = {space.name for space in spaces.values() if not space.policy.unload}
        return told(own, excluded, settings)

    async def _write(self, broker: BrokerRecord, wanted: Told | None) -> None:
        context = self.context
        kept: list[Any] = [dict(c) for c in broker.conditions if wanted is not None or c["type"] != DRAINED]
        if wanted is not None:
            kept = set_condition(kept, DRAINED, *wanted, broker.generation, context.now())
        body = {"status": {"conditions": kept}}
        try:
            await context.api.patch(BROKERS, context.namespace, broker.name, body, subresource="status")
        except NotFoundError:
            return
        before = _shown(broker)
        if wanted is not None and wanted[0] == "True" and (before is None or before[0] != "True"):
            await self.teller.event("Normal", str(Reason.DRAINED), f"broker {broker.name} is drained: it owns nothing")


def told(own: Sequence[BundleRecord], excluded: set[str], settings: Settings) -> Told:
    """The condition of a drained broker that serves `own`; excluded: names of TopicNamespaces that are not balanced."""
    if not own:
        return "True", str(Reason.DRAINED), "it owns nothing"
    pinned = [bundle.name for bundle in own if bundle.pinned]
    left_out = [bundle.name for bundle in own if not bundle.pinned and bundle.topic_namespace in excluded]
    staying = {Reason.PINNED: pinned, Reason.EXCLUDED: left_out}
    text = counted(len(own), "bundle") + " left"
    notes = [f"{some(names)} stay: {_WHY[why]}" for why, names in staying.items() if names]
    if len(pinned) + len(left_out) == len(own):
        reason = str(Reason.PINNED if pinned else Reason.EXCLUDED)
        return "False", reason, "; ".join([text, *notes])
    reason, hint = _hindrance(settings)
    return "False", reason, "; ".join(filter(None, [text, *notes, hint]))


_WHY: Mapping[Reason, str] = {
    Reason.PINNED: "pinned",
    Reason.EXCLUDED: "their TopicNamespace has balanced: false",
}


def _hindrance(settings: Settings) -> tuple[str, str]:
    """What keeps the policy from moving the rest by itself: a reason and a hint."""
    if settings.paused:
        return str(Reason.PAUSED), f"policy {settings.name} is paused"
    if settings.mode is Mode.DRY_RUN:
        return str(Reason.DRY_RUN), f"policy {settings.name} is in mode DryRun: it only shows what would move"
    if settings.mode is Mode.APPROVE:
        return str(Reason.NOT_APPROVED), f"policy {settings.name} is in mode Approve: its proposal waits for a person"
    return "Draining", ""


def _shown(broker: BrokerRecord) -> Told | None:
    """The condition as it is in the broker's status."""
    found = next((c for c in broker.conditions if c["type"] == DRAINED), None)
    return None if found is None else (found["status"], found["reason"], found["message"])


def _outdated(broker: BrokerRecord) -> bool:
    """Whether the condition speaks of the Broker as it was before an edit; `kubectl wait` does not believe it then."""
    return any(c["type"] == DRAINED and c.get("observedGeneration", 0) < broker.generation for c in broker.conditions)
