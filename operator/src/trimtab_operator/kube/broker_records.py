"""`BrokerRecord`, `PodRecord`, `NodeRecord`: what the operator keeps in memory about Brokers, their pods and nodes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import MappingProxyType
from typing import Any

from trimtab_operator.kube.conditions import epoch
from trimtab_operator.kube.pod_limits import ContainerRecord, amounts, containers_of
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_strategies.params import quantity

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """One Broker at one resourceVersion.

    pod, address: the pod and the address that it represents; one may be empty.
    capacity:     only declared limits: cpu (cores), memory (bytes), networkIn and networkOut (bytes/s).
    failure_domain, version, load_manager: from its spec; empty if not set there.
    load:         usage by resource, in percent of its limits, as last written to its status.
    weight:       how much load it should carry relative to the others, from its spec; None if not set there.
    target_weight, score: as last written to its status; None if never written.
    policy:       the policy that selects it, as last written to its status; empty if never written.
    discovered:   whether Trimtab created it for a pod or broker, and no person has set a field of its spec since.
    conditions:   those of its status.
    observed_generation: the generation that its status is about; 0 before its first status.
    id:           ``host:webPort`` by which Pulsar lists it, as last written to its status; empty if never written.
    created:      epoch seconds; NaN if unknown.
    """

    name: str
    pod: str
    address: str
    schedulable: bool
    capacity: Mapping[str, float]
    failure_domain: str
    version: str
    load_manager: str
    generation: int
    resource_version: str
    ready: bool
    bundles: int
    load: Mapping[str, float]
    weight: float | None = None
    target_weight: float | None = None
    score: float | None = None
    policy: str = ""
    discovered: bool = False
    conditions: tuple[Mapping[str, Any], ...] = ()
    id: str = ""
    observed_generation: int = 0
    created: float = field(default=float("nan"), compare=False)


@dataclass(frozen=True, slots=True)
class PodRecord:
    """One pod. ready: whether its condition Ready is True. deleted: whether it is being terminated.

    node: the node that it runs on; empty until it is scheduled. created: epoch seconds. since: the latest of its
    creation, its deletionTimestamp and the last transition of Ready (epoch seconds); NaN if unknown. started: epoch
    seconds at which its newest container started, or else the pod itself; None if unknown. containers: of the pod, the
    one that is probably the broker's first. addresses: its IP addresses; of a pod on the host's network, those of the
    node. shares_host: whether it is on the host's network.
    """

    name: str
    labels: Mapping[str, str]
    ready: bool
    deleted: bool
    uid: str
    node: str = ""
    created: float = field(default=float("nan"), compare=False)
    since: float = field(default=float("nan"), compare=False)
    started: float | None = None
    containers: tuple[ContainerRecord, ...] = ()
    addresses: tuple[str, ...] = ()
    shares_host: bool = False


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node. cordoned: whether it takes no new pods (``kubectl cordon``). allocatable: cores and bytes for pods."""

    name: str
    cordoned: bool
    allocatable: Mapping[str, float] = field(default_factory=dict)


def node_record(raw: Mapping[str, Any]) -> NodeRecord:
    """The record of a Node as the API server returns it."""
    cordoned = bool(raw.get("spec", _NOTHING).get("unschedulable"))
    allocatable = amounts((raw.get("status") or _NOTHING).get("allocatable"))
    return NodeRecord(raw["metadata"]["name"], cordoned, allocatable)


def broker_record(raw: Mapping[str, Any]) -> BrokerRecord:
    """The record of a Broker object as the API server returns it."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or _NOTHING
    return BrokerRecord(
        name=meta["name"],
        pod=spec.get("pod") or "",
        address=spec.get("address") or "",
        schedulable=spec.get("schedulable", True),
        capacity={key: quantity(str(value)) for key, value in (spec.get("capacity") or {}).items()},
        failure_domain=spec.get("failureDomain") or "",
        version=spec.get("version") or "",
        load_manager=spec.get("loadManager") or "",
        generation=meta["generation"],
        resource_version=meta["resourceVersion"],
        ready=bool(status.get("ready")),
        bundles=status.get("bundles") or 0,
        load=_known(status.get("load")),
        weight=spec.get("weight"),
        target_weight=status.get("targetWeight"),
        score=status.get("score"),
        policy=status.get("policy") or "",
        discovered=(meta.get("labels") or _NOTHING).get(DISCOVERED) == "true" and _untouched(spec),
        conditions=tuple(status.get("conditions") or ()),
        id=status.get("id") or "",
        observed_generation=status.get("observedGeneration") or 0,
        created=epoch(meta.get("creationTimestamp")),
    )


def _untouched(spec: Mapping[str, Any]) -> bool:
    """Whether a Broker's spec has only its pod's name or its address, apart from the API server's defaults."""
    added = {"schedulable": True, "failureDomain": "", "version": "", "loadManager": ""}
    said = [key for key, value in spec.items() if key not in added or value != added[key]]
    return said in (["pod"], ["address"])


def pod_record(raw: Mapping[str, Any]) -> PodRecord:
    """The record of a Pod as the API server returns it. A pod that is being terminated is not ready."""
    meta, status = raw["metadata"], raw.get("status") or _NOTHING
    deleted = "deletionTimestamp" in meta
    ready = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), _NOTHING)
    created = epoch(meta.get("creationTimestamp"))
    times = (created, epoch(meta.get("deletionTimestamp")), epoch(ready.get("lastTransitionTime")))
    spec = raw.get("spec") or _NOTHING
    ips = [status.get("podIP"), *(one.get("ip") for one in status.get("podIPs") or ()), status.get("hostIP")]
    shares_host = bool(spec.get("hostNetwork"))
    return PodRecord(
        name=meta["name"],
        labels=meta.get("labels") or {},
        ready=not deleted and ready.get("status") == "True",
        deleted=deleted,
        uid=meta.get("uid") or "",
        node=spec.get("nodeName") or "",
        created=created,
        since=max(filter(math.isfinite, times), default=created),
        started=_started(status),
        containers=containers_of(raw),
        addresses=tuple(dict.fromkeys(filter(None, ips if shares_host else ips[:-1]))),
        shares_host=shares_host,
    )


def _started(status: Mapping[str, Any]) -> float | None:
    """When a pod's newest running container started, or else the pod itself; epoch seconds, None if unknown."""
    states = [container.get("state") or _NOTHING for container in status.get("containerStatuses") or ()]
    starts = [epoch((state.get("running") or _NOTHING).get("startedAt")) for state in states]
    known = max(filter(math.isfinite, starts), default=epoch(status.get("startTime")))
    return known if math.isfinite(known) else None


def _known(values: Mapping[str, float | None] | None) -> Mapping[str, float]:
    return {key: float(value) for key, value in (values or {}).items() if value is not None}


def pods_of(brokers: Iterable[BrokerRecord], pods: Mapping[str, PodRecord]) -> dict[str, PodRecord]:
    """Broker -> its pod: the one that it names, or that is at its address. Brokers without a pod are absent."""
    named = {broker.name: broker.pod or pod_at(broker.address, pods) for broker in brokers}
    return {name: pods[pod] for name, pod in named.items() if pod in pods}


def pod_at(address: str, pods: Mapping[str, PodRecord], likely: Collection[str] = ()) -> str:
    """Name of the pod at ``host:port``; empty if there is none, or several.

    The host is an IP address of the pod, or a name whose first label is the pod's, as with a StatefulSet. Several pods
    may be on the network of one host. Then one of those with a name in `likely` counts, if it is the only one.
    """
    host = address.rpartition(":")[0].strip("[]")
    wanted = _ip(host)
    if wanted is None:
        name = host.partition(".")[0]
        return name if name in pods else ""
    found = [pod.name for pod in pods.values() if not pod.deleted and any(_ip(one) == wanted for one in pod.addresses)]
    found = [name for name in found if name in likely] or found
    return found[0] if len(found) == 1 else ""


def _ip(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
