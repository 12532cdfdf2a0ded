"""Keeps Broker objects in step with the pods a policy selects. Pure: what to create, and which status to write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trimtab_operator.cluster.brokers import BrokerRecord, PodRecord
from trimtab_operator.cluster.status import timestamp
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.common import API_VERSION


@dataclass(slots=True)
class Changes:
    """Broker objects to create, then merge-patches for the status of those and of others, and Brokers to delete."""

    create: list[dict[str, Any]] = field(default_factory=list)
    status: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    delete: list[BrokerRecord] = field(default_factory=list)


def selects(labels: Mapping[str, str], pod: PodRecord) -> bool:
    """Whether `pod` carries all of `labels`."""
    return all(pod.labels.get(key) == value for key, value in labels.items())


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
        if ids is not None and (found := ids.get(broker.name, broker.id)) != broker.id:
            changes.status.append((broker.name, {"id": found}))
        if (ready := _ready(broker, by_name.get(broker.pod), ids)) != broker.ready:
            changes.status.append((broker.name, _readiness(ready, now)))
        if (policy := policy_of.get(broker.name, broker.policy)) != broker.policy:
            changes.status.append((broker.name, {"policy": policy}))
    return changes


def _ready(broker: BrokerRecord, pod: PodRecord | None, ids: Mapping[str, str] | None) -> bool:
    if ids is not None:
        return broker.name in ids and (pod is None or pod.ready)
    return pod.ready if pod is not None else not broker.pod


def _manifest(pod: str) -> dict[str, Any]:
    meta = {"name": pod, "labels": {DISCOVERED: "true"}}
    return {"apiVersion": API_VERSION, "kind": "Broker", "metadata": meta, "spec": {"pod": pod}}


def _readiness(ready: bool, now: float) -> dict[str, Any]:  # noqa: FBT001  it is the fact itself
    return {"ready": ready} if ready else {"ready": False, "lastSeen": timestamp(now)}
