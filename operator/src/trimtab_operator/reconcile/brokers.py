"""Reconciles Broker objects with the pods that policies select, and reports readiness and drains.

The moves of a drain are part of the policy's plan. The condition `Drained` says which bundles are left, and why.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trimtab_operator.kube.broker_records import BrokerRecord, PodRecord
from trimtab_operator.kube.client import BROKERS, ConflictError, NotFoundError, RefusedError
from trimtab_operator.kube.conditions import CLOCKS_DIFFER, epoch, set_condition, timestamp
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.observe.departures import departures_of
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.conditions import BrokerCondition, ConditionReason
from trimtab_operator.resources.policy import Mode
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.policies import selects
from trimtab_operator.state.settings import Settings
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import Reason, counted, some

log = logging.getLogger(__name__)

ConditionValues = tuple[str, str, str]
"""Status, reason and message of a condition."""

LISTED = "Pulsar lists it"
"""Part of the message of `Ready`."""


@dataclass(slots=True)
class Changes:
    """What to do, in order: Brokers to create, merge-patches for the status of Brokers by name, Brokers to delete."""

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
    """The changes after which every pod that matches a selector has a Broker, and each Broker's readiness is current.

    policy_of: broker -> the policy that selects it, for its status. forgotten: names of brokers without bundles
    whose pod has been gone for so long that it won't return. ids: if Pulsar is linked, broker -> its id, for the
    brokers that Pulsar lists as active. A broker that it does not list is not ready.

    A Broker is named after its pod. A Broker whose pod is gone is not ready, but stays, so that its settings, such as
    `schedulable`, survive a restart. Once forgotten it is deleted, if discovery created it and no person has changed
    it. If it stayed, a cluster that was scaled down would seem to have lost brokers forever. A Broker that names no pod
    was declared by a person, or created for a broker that Pulsar lists. Without a linked Pulsar it is always ready.
    """
    by_name = {pod.name: pod for pod in pods}
    wanted = {pod.name for pod in by_name.values() if any(selects(labels, pod) for labels in selectors)}
    known = {broker.pod for broker in brokers.values() if broker.pod}
    missing = [name for name in sorted(wanted - known) if name not in brokers]
    changes = Changes(create=[_manifest(name) for name in missing])
    serving = [name for name in missing if by_name[name].ready and (ids is None or name in ids)]
    changes.status += [(name, _first_status(by_name[name], now, listed=ids is not None)) for name in serving]
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
    """The merge-patch for the status of a Broker; empty when the status is current."""
    status: dict[str, Any] = {}
    if ids is not None and (found := ids.get(broker.name, broker.id)) != broker.id:
        status["id"] = found
    wanted = _readiness(broker, pod, ids)
    if (ready := wanted[0] == "True") != broker.ready:
        status |= {"ready": True} if ready else {"ready": False, "lastSeen": timestamp(now)}
    if wanted != _shown(broker, BrokerCondition.READY) or _outdated(broker, BrokerCondition.READY):
        status["conditions"] = set_condition(broker.conditions, BrokerCondition.READY, *wanted, broker.generation, now)
    if policy != broker.policy:
        status["policy"] = policy
    if broker.generation != broker.observed_generation:  # kstatus waits for this (Helm's --wait, Flux)
        status["observedGeneration"] = broker.generation
    return status


def _readiness(broker: BrokerRecord, pod: PodRecord | None, ids: Mapping[str, str] | None) -> ConditionValues:
    """The condition `Ready` of a Broker. If no Pulsar is linked (`ids` is None), its pod alone decides."""
    listed = ids is not None and broker.name in ids
    if pod is None and broker.pod and not listed:
        return _not_ready(f"pod {broker.pod} does not exist")
    if pod is not None and not pod.ready:
        return _not_ready(f"pod {pod.name} is not ready")
    if ids is not None and not listed:
        return _not_ready("Pulsar does not list it as an active broker")
    found = [f"pod {pod.name} is ready"] if pod is not None else []
    return _serving([*found, *([LISTED] if listed else [])])


LOOKS_BACK = 600.0
"""Seconds before an owner changed within which its broker may have been away. An owner may be read that late."""


def left_behind(cluster: ClusterState, bundle: BundleRecord, owner: str) -> bool:
    """Whether `owner`, the broker that served `bundle` before, was away when the bundle left it.

    It is away without a Broker object, and while it is not ready. It was away before its object was created, before it
    became ready, and before its pod or a container started. So an absence between two looks counts, too. It does not
    count if the bundle was assigned to the broker after it.
    """
    broker, now = cluster.stores.brokers.items.get(owner), cluster.now()
    pod = cluster.stores.pods.items.get(broker.pod) if broker is not None else None
    ids = cluster.link.ids if cluster.link.linked else None
    if broker is None or not broker.ready or _readiness(broker, pod, ids)[0] != "True":
        return True
    left = min(now, bundle.since)  # NaN gives now
    assigned = bundle.assigned_at if bundle.assigned_owner == owner else -math.inf
    ready = (c.get("lastTransitionTime") for c in broker.conditions if c["type"] == BrokerCondition.READY)
    returned = [broker.created, *map(epoch, ready)]
    if pod is not None:
        returned += [pod.since, math.nan if pod.started is None else pod.started]
    return any(left - LOOKS_BACK <= at <= now + CLOCKS_DIFFER and not at <= assigned for at in returned)


def _serving(found: Sequence[str]) -> ConditionValues:
    return "True", str(ConditionReason.SERVING), "; ".join(found) or "it was declared without a pod"


def _not_ready(text: str) -> ConditionValues:
    return "False", str(Reason.NOT_READY), text


def _first_status(pod: PodRecord, now: float, *, listed: bool) -> dict[str, Any]:
    """The status of a new Broker that is ready. Without it, the Broker would count as lost at first.

    listed: whether Pulsar lists it.
    """
    values = _serving([f"pod {pod.name} is ready", *([LISTED] if listed else [])])
    return {"ready": True, "conditions": set_condition([], BrokerCondition.READY, *values, 1, now)}


def _manifest(pod: str) -> dict[str, Any]:
    meta = {"name": pod, "labels": {DISCOVERED: "true"}}
    return {"apiVersion": API_VERSION, "kind": "Broker", "metadata": meta, "spec": {"pod": pod}}


@dataclass(slots=True)
class DrainReporter:
    """Writes the condition `Drained` of one policy's brokers, when it changes."""

    cluster: ClusterState
    publisher: StatusPublisher

    async def publish(self, settings: Settings) -> None:
        """Write the conditions that have changed, and an Event for each broker that became empty. Raises `ApiError`."""
        departures = departures_of(self.cluster, settings.name)
        drained = departures.drained
        for name, broker in self.cluster.brokers_of(settings.name).items():
            if name in departures.ending:
                continue  # a pod that terminates does not end the drain that a person requested
            wanted = self._condition(name, settings) if name in drained else None
            shown, outdated = _shown(broker, BrokerCondition.DRAINED), _outdated(broker, BrokerCondition.DRAINED)
            if wanted != shown or (wanted is not None and outdated):
                await self._write(broker, wanted)

    def _condition(self, broker: str, settings: Settings) -> ConditionValues:
        bundles, spaces = self.cluster.stores.bundles.items, self.cluster.stores.topic_namespaces.items
        served = sorted(self.cluster.served.get(broker, ()))
        own = [bundles[name] for name in served if name in bundles]
        excluded = {space.name for space in spaces.values() if not space.policy.unload}
        moves = self.cluster.pending_moves.open.values()
        coming = sum(move.destination == broker != move.source for move in moves)
        return drain_condition(own, excluded, settings, coming)

    async def _write(self, broker: BrokerRecord, wanted: ConditionValues | None) -> None:
        cluster = self.cluster
        kept: list[Any] = [
            dict(c) for c in broker.conditions if wanted is not None or c["type"] != BrokerCondition.DRAINED
        ]
        if wanted is not None:
            kept = set_condition(kept, BrokerCondition.DRAINED, *wanted, broker.generation, cluster.now())
        body = {"status": {"conditions": kept}}
        try:
            await cluster.api.patch(BROKERS, cluster.namespace, broker.name, body, subresource="status")
        except NotFoundError:
            return
        except (ConflictError, RefusedError) as error:
            log.warning("broker %s: the condition Drained can't be written: %s", broker.name, error)
            return
        before = _shown(broker, BrokerCondition.DRAINED)
        if wanted is not None and wanted[0] == "True" and (before is None or before[0] != "True"):
            await self.publisher.event(
                "Normal", str(Reason.DRAINED), f"broker {broker.name} is drained: it owns nothing"
            )


def drain_condition(
    own: Sequence[BundleRecord], excluded: set[str], settings: Settings, coming: int = 0
) -> ConditionValues:
    """The condition of a drained broker that serves the bundles `own`. excluded: TopicNamespaces with balanced: false.

    coming: number of pending moves to the broker.
    """
    if not own and coming:
        text = f"it owns nothing, but {counted(coming, 'bundle')} may still arrive"
        return "False", str(ConditionReason.DRAINING), text
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
    """Why the policy does not move the remaining bundles: a reason and a hint."""
    if settings.paused:
        return str(Reason.PAUSED), f"policy {settings.name} is paused"
    if settings.mode is Mode.DRY_RUN:
        return str(Reason.DRY_RUN), f"policy {settings.name} is in mode DryRun: it only shows what would move"
    if settings.mode is Mode.APPROVE:
        return str(Reason.NOT_APPROVED), f"policy {settings.name} is in mode Approve: its proposal waits for approval"
    return str(ConditionReason.DRAINING), ""


def _shown(broker: BrokerRecord, which: BrokerCondition) -> ConditionValues | None:
    """The condition in the broker's status; None if there is none."""
    found = next((c for c in broker.conditions if c["type"] == which), None)
    return None if found is None else (found["status"], found["reason"], found["message"])


def _outdated(broker: BrokerRecord, which: BrokerCondition) -> bool:
    """Whether the condition is of an older generation of the Broker. `kubectl wait` ignores such a condition."""
    return any(c["type"] == which and c.get("observedGeneration", 0) < broker.generation for c in broker.conditions)
