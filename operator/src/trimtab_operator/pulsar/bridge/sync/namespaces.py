"""Reads one namespace after the other in Pulsar, and brings it and its objects in step.

Isolation policies: Pulsar's patterns match hosts of brokers, ours the names of Broker objects. So each list becomes
the names of the brokers whose hosts match (``pulsar-broker-0|pulsar-broker-1``). Where no known host matches, Pulsar's
own patterns are kept. Then the condition `Valid` of the TopicNamespace says that they match no broker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord
from trimtab_operator.pulsar.bridge.sync.brokers import host_of
from trimtab_operator.pulsar.bridge.sync.diff import (
    Owned,
    Space,
    SpaceChanges,
    reflect_absent,
    reflect_ranges,
    reflect_space,
    told,
)
from trimtab_operator.pulsar.bridge.sync.writer import Writes
from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.pulsar.client.errors import ExistsError, PulsarError, PulsarRefusedError, UnknownError
from trimtab_operator.pulsar.client.transport import Budget
from trimtab_operator.resources.topic_namespace import Readiness
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.status.conditions import shortened
from trimtab_strategies.filters.patterns import compiled
from trimtab_strategies.model import Isolation

LONGEST = 253
"""Characters of one pattern."""

MOST = 64
"""Patterns in one list."""

MOST_AVAILABLE = 1000


_SPECIAL = str.maketrans({".": r"\."})


def isolation_of(
    namespace: str, policies: Mapping[str, Mapping[str, Any]], hosts: Mapping[str, str]
) -> Isolation | None:
    """What is asked for `namespace` (``tenant/name``) by the first policy that is about it; None when none is.

    policies: as Pulsar has them, in its order. hosts: name of a Broker object -> host by which Pulsar knows it.
    """
    for policy in policies.values():
        if any(_matches(pattern, namespace) for pattern in policy.get("namespaces") or ()):
            return _isolation(policy, hosts)
    return None


def _isolation(policy: Mapping[str, Any], hosts: Mapping[str, str]) -> Isolation | None:
    primary = _names(policy.get("primary") or (), hosts)
    secondary = [name for name in _names(policy.get("secondary") or (), hosts) if name not in primary]
    first = _patterns(primary, policy.get("primary") or ())
    second = [p for p in _patterns(secondary, policy.get("secondary") or ()) if p not in first]
    if not first and not second:
        return None
    return Isolation(tuple(first), tuple(second), _min_available(policy))


def _names(patterns: Iterable[str], hosts: Mapping[str, str]) -> list[str]:
    patterns = list(patterns)
    return sorted(name for name, host in hosts.items() if any(_matches(pattern, host) for pattern in patterns))


def _matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches, as Java's `String.matches`; never by a pattern that has a `problem`."""
    known = compiled(pattern)
    return known is not None and known.fullmatch(text)


def _patterns(names: Sequence[str], asked: Iterable[str]) -> list[str]:
    if not names:
        return [pattern[:LONGEST] for pattern in asked if pattern][:MOST]
    packed: list[str] = []
    for name in (name.translate(_SPECIAL) for name in names):
        if packed and len(packed[-1]) + 1 + len(name) <= LONGEST:
            packed[-1] = f"{packed[-1]}|{name}"
        else:
            packed.append(name)
    return packed[:MOST]


def _min_available(policy: Mapping[str, Any]) -> int:
    """`min_limit` of Pulsar's fail-over policy, which is text there; 1 where it says nothing that can be read."""
    asked = str(((policy.get("auto_failover_policy") or {}).get("parameters") or {}).get("min_limit", "1"))
    return min(int(asked), MOST_AVAILABLE) if asked.isdecimal() else 1


log = logging.getLogger(__name__)


ABSENCES = 2
"""Looks, one after the other, at which a namespace must be missing before its objects go, if no list has it."""


Policies = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Namespaces:
    """Brings one namespace at a time in step.

    isolation: Pulsar's isolation policies, None while they could not be read. cluster: the name of the Pulsar cluster.
    """

    context: ClusterState
    admin: Admin
    budget: Budget
    isolation: Policies | None = None
    cluster: str = ""
    _lacking: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _missing: dict[str, int] = field(default_factory=dict)

    async def look(self, namespace: str, owned: Owned) -> bool:
        """Look at one namespace; whether it is in step, as far as is known: if not, look again soon.

        Raises `PulsarError` and `ApiError`; nothing is undone then, and the next look goes on.
        """
        bundles = self._bundles(namespace)  # before Pulsar is asked: an object made meanwhile is newer than the answer
        try:
            space = await self._read(namespace)
        except UnknownError:
            return await self._absent(namespace)
        self._missing.pop(namespace, None)
        return await self._present(space, bundles, owned)

    async def _read(self, namespace: str) -> Space:
        for _ in range(2):  # Pulsar keeps the anti-affinity group apart
            await self.budget.wait()
        policies = await self.admin.policies(namespace)
        edges = tuple(int(edge, 16) for edge in policies["bundles"]["boundaries"])
        isolation = isolation_of(namespace, self.isolation or {}, self._hosts())
        group = str(policies.get("anti_affinity_group") or "")
        return Space(namespace, edges, group, isolation, asked=self.isolation is not None)

    def _hosts(self) -> dict[str, str]:
        """Hosts by which Pulsar knows, or knew, the brokers."""
        known = {b.name: b.id for b in self.context.stores.brokers.items.values() if b.id}
        return {name: host_of(broker) for name, broker in {**known, **(self.context.link.ids or {})}.items()}

    def _records(self, namespace: str) -> list[TopicNamespaceRecord]:
        return [r for r in self.context.stores.topic_namespaces.items.values() if r.full_name == namespace]

    def _bundles(self, namespace: str) -> list[BundleRecord]:
        names = {record.name for record in self._records(namespace)}
        return [b for b in self.context.stores.bundles.items.values() if b.topic_namespace in names] if names else []

    async def _present(self, space: Space, bundles: Sequence[BundleRecord], owned: Owned) -> bool:
        records, writes, now = self._records(space.name), Writes(self.context), self.context.now()
        changes = reflect_space(space, records, self.context.stores.topic_namespaces.items, now)
        held = changes.held
        if changes.create is not None:
            held = await writes.space(changes.create)
            if held is not None:
                changes = reflect_space(space, [held], (), now)
        if held is None:
            return False
        sure = self._lacking.pop(space.name, None) == space.boundaries
        ranges = reflect_ranges(space.boundaries, held, bundles, owned.by_bundle, now, sure=sure)
        if ranges.doubtful:
            self._lacking[space.name] = space.boundaries
            return False
        await writes.births(ranges.create)
        done = await writes.ends(ranges.delete)
        return await self._carry_out(changes, held, space) and done

    async def _carry_out(self, changes: SpaceChanges, held: TopicNamespaceRecord, space: Space) -> bool:
        """Whether nobody changed an object meanwhile."""
        writes, done = Writes(self.context), True
        if changes.group:
            await self.admin.set_anti_affinity(space.name, changes.group)
        if changes.spec:
            done = await writes.space_spec(held, changes.spec)
        for record, status in changes.status:
            done = await writes.space_status(record, status) and done
        for record in changes.delete:
            await writes.end_of_space(record)
        return done

    async def _absent(self, namespace: str) -> bool:
        """Pulsar does not have it: its objects go, or it is created."""
        changes = reflect_absent(self._records(namespace), self.context.now())
        if changes.found is not None:
            return await self._create(changes.found)
        seen = self._missing[namespace] = self._missing.get(namespace, 0) + 1
        if seen < ABSENCES:
            return changes.empty
        for _ in range(2):
            await self.budget.wait()
        if await listed(self.admin, namespace):
            text = f"namespace {namespace} is answered with a 404, and yet its tenant lists it: that is not believed"
            raise PulsarError(text)
        writes, names = Writes(self.context), {r.name for r in self._records(namespace)}
        old = [b for b in self.context.stores.bundles.items.values() if b.topic_namespace in names and b.made]
        done = await writes.ends(old)
        for record, status in changes.status:
            done = await writes.space_status(record, status) and done
        for record in changes.delete:
            log.info("namespace %s was deleted in Pulsar: so is the TopicNamespace %s", namespace, record.name)
            await writes.end_of_space(record)
        return done

    async def _create(self, record: TopicNamespaceRecord) -> bool:
        """Create the namespace of `record` in Pulsar, its tenant too if there is none, and say so."""
        writes, now, tenant = Writes(self.context), self.context.now(), record.full_name.partition("/")[0]
        try:
            if tenant not in await self.admin.tenants() and self.cluster:
                await self._create_tenant(tenant)
            await self.admin.create_namespace(record.full_name, record.asked)
        except ExistsError:
            return False
        except PulsarRefusedError as error:
            ready = ("False", Readiness.REFUSED, shortened(f"Pulsar does not create it: {error}"))
            if not any(c.get("message") == ready[2] for c in record.conditions):
                await writes.space_status(record, told(record, ready, 0, now))
            return True
        log.info("created namespace %s in Pulsar, with %d bundles", record.full_name, record.asked)
        await writes.space_status(record, told(record, ("True", Readiness.CREATED, "created in Pulsar"), 0, now))
        return False

    async def _create_tenant(self, tenant: str) -> None:
        try:
            await self.admin.create_tenant(tenant, [self.cluster])
        except ExistsError:
            return
        log.info("created tenant %s in Pulsar, for cluster %s", tenant, self.cluster)


async def listed(admin: Admin, namespace: str) -> bool:
    """Whether Pulsar lists a namespace that was answered with a 404: that may be an ingress's, whose brokers restart.

    Raises `PulsarError` when the lists can't be read either.
    """
    tenant = namespace.partition("/")[0]
    return tenant in await admin.tenants() and namespace in await admin.namespaces(tenant)


async def cluster_name(admin: Admin, brokers: Iterable[str]) -> str:
    """The name under which the cluster knows itself.

    The only one that there is; where it knows others, as geo-replication makes it, the one that the first of `brokers`
    (ids) to answer runs with. Raises `PulsarError`.
    """
    known, problem = await admin.clusters(), "none of its brokers says which it is"
    if len(known) == 1:
        return known[0]
    for broker in brokers:
        try:
            if name := (await admin.runtime(broker)).get("clusterName"):
                return name
        except PulsarError as error:
            problem = str(error)
    raise PulsarError(f"Pulsar knows the clusters {', '.join(sorted(known)) or '(none)'}: {problem}")
