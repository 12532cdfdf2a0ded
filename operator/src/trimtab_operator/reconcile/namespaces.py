"""Reconciles TopicNamespaces: creates the first bundles at Pulsar's default boundaries, and sets the condition `Valid`.

Bundles of a deleted TopicNamespace are never taken over by a new one of its name, because Kubernetes removes them soon.
The new one gets bundles of its own then. So does one whose bundles are all gone.

The CRD can't validate isolation and zones, which depend on the brokers and on regular expressions. So the condition
reports their faults, even while no policy runs. Cycles still run, and list a namespace with a fault as held back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from pydantic import ValidationError

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
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord, bundle_record
from trimtab_operator.observe.topology import policies, traits
from trimtab_operator.resources.common import problems_of
from trimtab_operator.resources.conditions import ConditionReason, TopicNamespaceCondition
from trimtab_operator.resources.topic_namespace import MIRRORED, Readiness, TopicNamespaceSpec
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.hash_rings import examine
from trimtab_operator.status.conditions import shortened
from trimtab_strategies.filters import isolation_problems
from trimtab_strategies.hash_ring import default_boundaries
from trimtab_strategies.model import NamespacePolicy, Reason, some

log = logging.getLogger(__name__)

TRY_AGAIN, LOOK_AGAIN = 5.0, 60.0
"""Seconds until a TopicNamespace is tried again: after a failure, or while old bundles are being removed; and while
another TopicNamespace has its bundles."""


def first_bundles(name: str, uid: str, spec: TopicNamespaceSpec) -> list[Mapping[str, Any]]:
    """Manifests of the first bundles of the TopicNamespace `name`. It owns them, so they are deleted with it."""
    edges = [f"0x{edge:08x}" for edge in default_boundaries(spec.bundles)]
    return [
        bundle_manifest(bundle_name(spec.tenant, spec.name, lower, upper), name, uid, lower, upper, {})
        for lower, upper in pairwise(edges)
    ]


@dataclass(slots=True)
class Cutter:
    """Cuts the TopicNamespaces of one Kubernetes namespace that have no bundles, one after the other.

    _not_before: uid -> when a TopicNamespace that was not cut is tried again (seconds of the cluster's clock).
    """

    cluster: ClusterState
    _not_before: dict[str, float] = field(default_factory=dict)

    async def cut(self) -> None:
        """Try each once, unless it was tried lately. Raises `ApiUnavailableError`."""
        cluster = self.cluster
        waiting = [
            r for r in cluster.stores.topic_namespaces.items.values() if not r.going and not _settled(cluster, r)
        ]
        self._not_before = {r.uid: at for r in waiting if (at := self._not_before.get(r.uid, 0.0)) > cluster.clock()}
        for record in [r for r in waiting if r.uid not in self._not_before]:
            self._not_before[record.uid] = cluster.clock() + TRY_AGAIN
            try:
                if await cut(cluster, record) == Readiness.ALREADY_CUT:
                    self._not_before[record.uid] = cluster.clock() + LOOK_AGAIN
            except (RefusedError, ConflictError, NotFoundError) as error:  # concerns this object only
                log.warning("topic namespace %s is not cut into bundles yet: %s", record.name, error)


async def cut(cluster: ClusterState, record: TopicNamespaceRecord) -> str:
    """Create the first bundles of a TopicNamespace, and write its status. Returns the reason of its condition `Ready`.

    Later only splits change the bundles. After an interruption, the next call creates the missing bundles. None are
    created if another object names the same namespace and has its bundles, or while bundles of a deleted TopicNamespace
    of the same name exist: Kubernetes removes these. With a linked Pulsar cluster there is nothing to do: Pulsar
    creates the bundles. Raises `ApiError`.
    """
    if _settled(cluster, record):
        return Readiness.CUT
    if not await cluster.link_settled():
        raise ApiUnavailableError(f"{record.name}: a policy with spec.pulsar does not run yet: Pulsar may have it")
    if cluster.link.linked:
        return Readiness.FOUND
    ready = await _made(cluster, record)
    if ready != condition_of(record.conditions, TopicNamespaceCondition.READY)[:3]:
        count = record.asked if ready[1] == Readiness.CUT else 0
        await write_ready(cluster, record, ready, bundles=count, observedGeneration=record.generation)
    return ready[1]


async def _made(cluster: ClusterState, record: TopicNamespaceRecord) -> tuple[str, str, str]:
    """Create the bundles, if possible. Returns status, reason and message of the condition `Ready`."""
    tenant, _, name = record.full_name.partition("/")
    try:
        spec = TopicNamespaceSpec(tenant=tenant, name=name, bundles=record.asked)
    except ValidationError as error:  # an older CRD allowed it
        told = f"{problems_of(error)}; delete it, and create it with a valid spec"
        return "False", str(ConditionReason.INVALID_SPEC), shortened(told)
    bundles = first_bundles(record.name, record.uid, spec)
    others, old = await _holders(cluster, record, bundles)
    if others:
        told = f"its bundles belong to the TopicNamespace {', '.join(others)}: delete one of the two"
        return "False", str(Readiness.ALREADY_CUT), told
    if old:
        told = f"{some(old, 3)} belong to a TopicNamespace of this name that was deleted"
        return "False", str(Readiness.OLD_BUNDLES), f"{told}: waits until Kubernetes has removed them"
    return "True", str(Readiness.CUT), f"cut into {len(bundles)} bundles"


def _settled(cluster: ClusterState, record: TopicNamespaceRecord) -> bool:
    """Whether a TopicNamespace has bundles, or follows a namespace that Pulsar has or had."""
    if record.discovered or record.ready[1] in MIRRORED:
        return True
    return record.has_bundles and (record.ready[1] != Readiness.GAP or bool(cluster.rings.members(record.name)))


async def _holders(
    cluster: ClusterState, record: TopicNamespaceRecord, bundles: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Create `bundles`, unless others are in their place.

    Returns the names of other TopicNamespaces that have them, and of bundles whose TopicNamespace is gone.
    """
    if first := await _first_of(cluster, record.name, record.full_name):
        return [first], []
    if old := [b.name for b in cluster.rings.members(record.name).values() if b.controller not in {"", record.uid}]:
        return [], sorted(old)
    if examine(cluster.rings.members(record.name)).whole:  # such as bundles that outlived their namespace on purpose
        return [], []
    found = await at_most(WRITERS, lambda manifest: _existing(cluster, manifest), bundles)
    foreign = [b for b in found if b.controller != record.uid and (b.controller or b.topic_namespace != record.name)]
    spaces = cluster.stores.topic_namespaces.items
    kept = [b for b in foreign if (s := spaces.get(b.topic_namespace)) and b.controller in {"", s.uid} and s != record]
    return sorted({b.topic_namespace for b in kept}), sorted(b.name for b in foreign if b not in kept)


async def _existing(cluster: ClusterState, manifest: Mapping[str, Any]) -> BundleRecord:
    """Create a Bundle, unless one of its name exists; returns what exists then."""
    try:
        found = await cluster.api.create(BUNDLES, cluster.namespace, manifest)
    except ConflictError:  # an earlier attempt created it, or two objects name one namespace
        found = await cluster.api.get(BUNDLES, cluster.namespace, manifest["metadata"]["name"])
    return bundle_record(found)


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


async def write_conditions(
    cluster: ClusterState, record: TopicNamespaceRecord, conditions: list[Condition], **status: Any
) -> bool:
    """Write `conditions`, and other fields of the status.

    False if the object has changed or the write is refused. The next round then tries again. Raises
    `ApiUnavailableError`.
    """
    meta = {"resourceVersion": record.resource_version}
    body = {"metadata": meta, "status": {**status, "conditions": conditions}}
    try:
        await cluster.api.patch(TOPIC_NAMESPACES, cluster.namespace, record.name, body, subresource="status")
    except (ConflictError, NotFoundError) as error:
        log.info("topic namespace %s changed before its condition was written: %s", record.name, error)
    except RefusedError as error:  # concerns this object only
        log.warning("topic namespace %s: its condition can't be written: %s", record.name, error)
    else:
        return True
    return False


async def write_ready(
    cluster: ClusterState, record: TopicNamespaceRecord, ready: tuple[str, str, str], **status: Any
) -> bool:
    """Write the condition `Ready` (status, reason, message), as `write_conditions` does."""
    at = (record.generation, cluster.now())
    conditions = set_condition(record.conditions, TopicNamespaceCondition.READY, *ready, *at)
    return await write_conditions(cluster, record, conditions, **status)
