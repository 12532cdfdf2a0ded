"""Broker objects: kept in step with the pods that policies select, and told how far a drain is.

The moves of a drain are part of the policy's plan. The condition `Drained` says what is left and what keeps it there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trimtab_operator.kube.broker_records import BrokerRecord, PodRecord
from trimtab_operator.kube.client import BROKERS, NotFoundError
from trimtab_operator.kube.conditions import set_condition, timestamp
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.conditions import BrokerCondition, ConditionReason
from trimtab_operator.resources.policy import Mode
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.policies import selects
from trimtab_operator.state.settings import Settings
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import Reason, counted, some


@dataclass(slots=True)
class Changes:
    """Broker objects to create, then merge-patches for the status of those and of others, and Brokers to delete."""

    create: list[dict[str, Any]] = field(default_factory=list)
    status: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    delete: list[BrokerRecord] = field(default_factory=list)


def discover(
    pods: Iterable[PodRecord],
    brokers: Mapping[str, BrokerRecord],
    selectors: Iterable[Mapping[str, str]],
    now: float,
    policy_of: Mapping[str, str] = MappingProxyType({}),
    *,
    forgotten: Collection[str] = (),
    ids: Mapping[str, str] | None = None,
) -> Changes:
    """What to change so that every pod matching a selector has a Broker, and every Broker knows whether it is ready.

    policy_of: by name of a broker the policy that looks after it, which its status is to tell. forgotten: names of
    brokers whose pod has been gone for so long that it won't come back, and that have nothing to do. ids: where a
    Pulsar cluster stands behind them, that of each broker it lists as active; one that it does not list is not ready.

    A Broker is named after its pod. One whose pod is gone stays (its settings, such as `schedulable`, outlive a
    restart) and is not ready. Once it is forgotten it is deleted, if discovery made it and no person has set anything:
    a cluster that was scaled down would else seem to have lost brokers for ever. One that names no pod was declared by
    a person, who vouches for it: it is ready.
    """
    by_name = {pod.name: pod for pod in pods}
    wanted = {pod.name for pod in by_name.values() if any(selects(labels, pod) for labels in selectors)}
    known = {broker.pod for broker in brokers.values() if broker.pod}
    missing = [name for name in sorted(wanted - known) if name not in brokers]
    changes = Changes(create=[_manifest(name) for name in missing])
    changes.status += [(name, {"ready": True}) for name in missing if by_name[name].ready]
    changes.delete = [b for b in brokers.values() if b.name in forgotten and b.discovered and b.pod not in by_name]
    for broker in brokers.values():
        if broker in changes.delete:
            continue
        policy = policy_of.get(broker.name, broker.policy)
        if status := _status(broker, by_name.get(broker.pod), ids, policy, now):
            changes.status.append((broker.name, status))
    return changes


def _status(
    broker: BrokerRecord, pod: PodRecord | None, ids: Mapping[str, str] | None, policy: str, now: float
) -> dict[str, Any]:
    """What is to be merged into the status of a Broker; empty when it says so already."""
    status: dict[str, Any] = {}
    if ids is not None and (found := ids.get(broker.name, broker.id)) != broker.id:
        status["id"] = found
    if (ready := _ready(broker, pod, ids)) != broker.ready:
        status |= _readiness(ready, now)
    if policy != broker.policy:
        status["policy"] = policy
    if broker.generation != broker.observed_generation:  # kstatus waits for that: Helm's --wait, Flux
        status["observedGeneration"] = broker.generation
    return status


def _ready(broker: BrokerRecord, pod: PodRecord | None, ids: Mapping[str, str] | None) -> bool:
    if ids is not None:
        return broker.name in ids and (pod is None or pod.ready)
    return pod.ready if pod is not None else not broker.pod


def _manifest(pod: str) -> dict[str, Any]:
    meta = {"name": pod, "labels": {DISCOVERED: "true"}}
    return {"apiVersion": API_VERSION, "kind": "Broker", "metadata": meta, "spec": {"pod": pod}}


def _readiness(ready: bool, now: float) -> dict[str, Any]:  # noqa: FBT001  it is the fact itself
    return {"ready": ready} if ready else {"ready": False, "lastSeen": timestamp(now)}


Told = tuple[str, str, str]
"""Status, reason and message of a condition."""


@dataclass(slots=True)
class DrainReporter:
    """Speaks for the brokers of one policy. Says nothing twice."""

    context: ClusterState
    publisher: StatusPublisher

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
        kept: list[Any] = [
            dict(c) for c in broker.conditions if wanted is not None or c["type"] != BrokerCondition.DRAINED
        ]
        if wanted is not None:
            kept = set_condition(kept, BrokerCondition.DRAINED, *wanted, broker.generation, context.now())
        body = {"status": {"conditions": kept}}
        try:
            await context.api.patch(BROKERS, context.namespace, broker.name, body, subresource="status")
        except NotFoundError:
            return
        before = _shown(broker)
        if wanted is not None and wanted[0] == "True" and (before is None or before[0] != "True"):
            await self.publisher.event(
                "Normal", str(Reason.DRAINED), f"broker {broker.name} is drained: it owns nothing"
            )


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
    return str(ConditionReason.DRAINING), ""


def _shown(broker: BrokerRecord) -> Told | None:
    """The condition as it is in the broker's status."""
    found = next((c for c in broker.conditions if c["type"] == BrokerCondition.DRAINED), None)
    return None if found is None else (found["status"], found["reason"], found["message"])


def _outdated(broker: BrokerRecord) -> bool:
    """Whether the condition speaks of the Broker as it was before an edit; `kubectl wait` does not believe it then."""
    return any(
        c["type"] == BrokerCondition.DRAINED and c.get("observedGeneration", 0) < broker.generation
        for c in broker.conditions
    )
