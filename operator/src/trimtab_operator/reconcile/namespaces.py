"""Reconciles TopicNamespaces: creates the first bundles at Pulsar's default boundaries, and sets the condition `Valid`.

The CRD can't validate isolation and zones, which depend on the brokers and on regular expressions. So the condition
reports their faults, even while no policy runs. Cycles still run, and list a namespace with a fault as held back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trimtab_operator.actuators import WRITERS
from trimtab_operator.aio import at_most
from trimtab_operator.kube.client import (
    BUNDLES,
    TOPIC_NAMESPACES,
    ApiUnavailableError,
    ConflictError,
    NotFoundError,
    RefusedError,
)
from trimtab_operator.kube.conditions import Condition, condition_of, set_condition
from trimtab_operator.kube.naming import bundle_manifest, bundle_name
from trimtab_operator.kube.records import TopicNamespaceRecord
from trimtab_operator.observe.topology import policies, traits
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.conditions import ConditionReason, TopicNamespaceCondition
from trimtab_operator.resources.topic_namespace import BROKEN_RING, MIRRORED, Readiness, TopicNamespaceSpec
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.status.conditions import shortened
from trimtab_strategies.filters import isolation_problems
from trimtab_strategies.hash_ring import default_boundaries
from trimtab_strategies.model import NamespacePolicy, Reason


def first_bundles(name: str, uid: str, spec: TopicNamespaceSpec) -> list[Mapping[str, Any]]:
    """Manifests of the first bundles of the TopicNamespace `name`. It owns them, so they are deleted with it."""
    edges = [f"0x{edge:08x}" for edge in default_boundaries(spec.bundles)]
    return [
        bundle_manifest(bundle_name(spec.tenant, spec.name, lower, upper), name, uid, lower, upper, {})
        for lower, upper in pairwise(edges)
    ]


async def cut(cluster: ClusterState, topic_namespace: Mapping[str, Any]) -> bool:
    """Create the first bundles of a TopicNamespace object, and write its status. False if another object has them.

    This happens once for each namespace. Later only splits change the bundles. After an interruption, the next call
    creates the missing bundles. If another object names the same namespace and has its bundles, none are created. With
    a linked Pulsar cluster there is nothing to do: Pulsar creates the bundles. Raises `ApiError`, after which Kopf
    tries again.
    """
    meta, status = topic_namespace["metadata"], topic_namespace.get("status") or {}
    if _settled(meta, status):
        return True
    if not await cluster.link_settled():
        raise ApiUnavailableError(f"{meta['name']}: a policy with spec.pulsar does not run yet: Pulsar may have it")
    if cluster.link.linked:
        return True
    spec = TopicNamespaceSpec.model_validate(topic_namespace["spec"])
    bundles = first_bundles(meta["name"], meta["uid"], spec)
    if first := await _first_of(cluster, meta["name"], f"{spec.tenant}/{spec.name}"):
        holders = {first}
    else:
        holders = set(await at_most(WRITERS, lambda manifest: _holder(cluster, meta["namespace"], manifest), bundles))
    if others := sorted(holders - {meta["name"]}):
        ready = (
            "False",
            str(Readiness.ALREADY_CUT),
            f"its bundles belong to the TopicNamespace {', '.join(others)}: delete one of the two",
        )
    else:
        ready = ("True", str(Readiness.CUT), f"cut into {len(bundles)} bundles")
    before, generation = status.get("conditions") or [], meta["generation"]
    body = {
        "bundles": 0 if others else len(bundles),
        "observedGeneration": generation,
        "conditions": set_condition(before, TopicNamespaceCondition.READY, *ready, generation, cluster.now()),
    }
    if {**status, **body} != status:
        patch = {"status": body}
        await cluster.api.patch(TOPIC_NAMESPACES, meta["namespace"], meta["name"], patch, subresource="status")
    return not others


def _settled(meta: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether a TopicNamespace has its first bundles, or follows a namespace that Pulsar has or had."""
    ready = [c for c in status.get("conditions") or [] if c["type"] == TopicNamespaceCondition.READY]
    mirrored = any(c["reason"] in MIRRORED for c in ready) or (meta.get("labels") or {}).get(DISCOVERED) == "true"
    return mirrored or any(c["status"] == "True" or c["reason"] in BROKEN_RING for c in ready)


async def _first_of(cluster: ClusterState, name: str, full: str) -> str:
    """Another TopicNamespace object that has or is getting the bundles of `full` (``tenant/name``); empty if none has.

    The bundles of the two objects need not have equal names: the objects may request different numbers of bundles, or
    bundles may have been split.
    """
    for record in list(cluster.stores.topic_namespaces.items.values()):
        there = record.has_bundles or cluster.rings.members(record.name)
        if record.full_name == full and record.name != name and there and await _names(cluster, record.name, full):
            return record.name
    while (first := cluster.cut_by.setdefault(full, name)) != name:  # the stores do not show what is being created
        if await _names(cluster, first, full):
            return first
        if cluster.cut_by.get(full) == first:
            del cluster.cut_by[full]
    return ""


async def _names(cluster: ClusterState, topic_namespace: str, full: str) -> bool:
    """Whether this TopicNamespace object exists and names `full`. A recreated object may name another namespace."""
    try:
        found = await cluster.api.get(TOPIC_NAMESPACES, cluster.namespace, topic_namespace)
    except NotFoundError:
        return False
    return f"{found['spec']['tenant']}/{found['spec']['name']}" == full


async def _holder(cluster: ClusterState, namespace: str, manifest: Mapping[str, Any]) -> str:
    """Create a Bundle, unless it exists; returns the TopicNamespace object that it belongs to."""
    try:
        found = await cluster.api.create(BUNDLES, namespace, manifest)
    except ConflictError:  # an earlier attempt created it, or two objects name one namespace
        found = await cluster.api.get(BUNDLES, namespace, manifest["metadata"]["name"])
    return str(found["spec"]["topicNamespace"])


log = logging.getLogger(__name__)


def examined(record: TopicNamespaceRecord, problem: str, now: float) -> list[Condition] | None:
    """The conditions that a TopicNamespace with `problem` (empty for none) should have; None if it has them already.

    A namespace that never had a problem gets no condition. now: epoch seconds.
    """
    before = condition_of(record.conditions, TopicNamespaceCondition.VALID)
    if not any(before) and not problem:
        return None
    values = (
        ("False", str(Reason.INVALID_POLICY), shortened(problem))
        if problem
        else ("True", str(ConditionReason.VALID), "")
    )
    if before == (*values, record.generation):
        return None
    return set_condition(record.conditions, TopicNamespaceCondition.VALID, *values, record.generation, now)


@dataclass(slots=True)
class Examiner:
    """Validates isolation and zone of one Kubernetes namespace's TopicNamespaces, when they or the brokers change."""

    cluster: ClusterState
    _seen: tuple[tuple[str, ...], dict[str, NamespacePolicy]] | None = None
    _problems: Mapping[str, str] = field(default_factory=dict)

    async def examine(self) -> None:
        """Validate once, and write what has changed. Raises `ApiError`."""
        records = list(self.cluster.stores.topic_namespaces.items.values())
        await self._look(records)
        zones = self._zones() if any(record.policy.zone for record in records) else None
        for record in records:
            isolated = self._problems.get(record.full_name, "") if record.policy.isolation else ""
            problem = "; ".join(filter(None, (isolated, _zone_problem(record.policy.zone, zones))))
            if (conditions := examined(record, problem, self.cluster.now())) is not None:
                await write_conditions(self.cluster, record, conditions)

    def _zones(self) -> frozenset[str] | None:
        """The zones of the brokers; None while a pod is missing that may be the only one of its zone."""
        brokers, pods = self.cluster.stores.brokers.items.values(), self.cluster.stores.pods.items
        if not brokers or any(b.pod and b.pod not in pods and not b.failure_domain for b in brokers):
            return None
        return frozenset(found.failure_domain for found in traits(brokers, pods).values()) - {""}

    async def _look(self, records: list[TopicNamespaceRecord]) -> None:
        seen = (tuple(sorted(self.cluster.stores.brokers.items)), policies(records))
        if seen != self._seen:
            found = await asyncio.to_thread(isolation_problems, *seen)
            self._seen, self._problems = seen, {held.subject: held.detail for held in found}


def _zone_problem(zone: str, zones: frozenset[str] | None) -> str:
    """What is wrong with a namespace's zone. zones: those of the brokers, None if unknown."""
    if not zone or zones is None or zone in zones:
        return ""
    others = ", ".join(sorted(zones)) or "none: label their pods, or set failureDomain of the Brokers"
    return f"no broker is in zone {zone!r}; the zones of the brokers are {others}"


async def write_conditions(cluster: ClusterState, record: TopicNamespaceRecord, conditions: list[Condition]) -> bool:
    """Write `conditions`. False if the object has changed or the write is refused. The next round then tries again.

    Raises `ApiUnavailableError`.
    """
    body = {"metadata": {"resourceVersion": record.resource_version}, "status": {"conditions": conditions}}
    try:
        await cluster.api.patch(TOPIC_NAMESPACES, cluster.namespace, record.name, body, subresource="status")
    except (ConflictError, NotFoundError) as error:
        log.info("topic namespace %s changed before its condition was written: %s", record.name, error)
    except RefusedError as error:  # concerns this object only
        log.warning("topic namespace %s: its condition can't be written: %s", record.name, error)
    else:
        return True
    return False
