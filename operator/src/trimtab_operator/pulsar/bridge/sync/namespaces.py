"""Synchronizes one namespace at a time between Pulsar and the TopicNamespace and Bundle objects.

Isolation policies: Pulsar's patterns match hosts of brokers, and Trimtab's match the names of Broker objects. So each
of a policy's two lists (primary, secondary) is replaced by a pattern with the names of the brokers whose hosts match
(``pulsar-broker-0|pulsar-broker-1``). A long pattern is cut into several. If no known host matches, Pulsar's own
patterns stay for people to see, marked as patterns of hosts (``host:(?:pulsar-broker-0)``), so that none matches the
name of an object. The condition `Valid` of the TopicNamespace then says that they match no broker.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord
from trimtab_operator.pulsar.bridge.sync.diff import (
    NamespaceChanges,
    ObservedOwners,
    PulsarNamespace,
    absent_namespace_changes,
    bundle_changes,
    namespace_changes,
    ready_status,
)
from trimtab_operator.pulsar.bridge.sync.writer import ObjectWriter
from trimtab_operator.pulsar.client.api import boundaries
from trimtab_operator.pulsar.client.errors import ExistsError, PulsarError, PulsarRefusedError, UnknownError
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.pulsar.client.transport import Budget
from trimtab_operator.resources.topic_namespace import Readiness
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.status.conditions import shortened
from trimtab_strategies.filters.patterns import matches, problem
from trimtab_strategies.model import Isolation

LONGEST = 253
"""Maximum number of characters of a pattern."""

MOST = 64
"""Maximum number of patterns in a list."""

MOST_AVAILABLE = 1000
_DIGITS = 100  # maximum number of digits to convert: Python refuses to convert thousands


_SPECIAL = str.maketrans({".": r"\."})

_HOST = "host:"
"""Marks a pattern of hosts. No name of an object has a colon."""


def host_of(broker: str) -> str:
    """The host of a broker id (``host:webPort``)."""
    return broker.rpartition(":")[0]


def isolation_of(
    namespace: str, policies: Mapping[str, Mapping[str, Any]], hosts: Mapping[str, str]
) -> Isolation | None:
    """The isolation of `namespace` (``tenant/name``) by the first policy that matches it; None if none does.

    policies: as Pulsar has them, in its order. hosts: name of a Broker object -> host in Pulsar's broker id.
    """
    for policy in policies.values():
        if any(matches(pattern, namespace) for pattern in policy.get("namespaces") or ()):
            return _isolation(policy, hosts)
    return None


def _isolation(policy: Mapping[str, Any], hosts: Mapping[str, str]) -> Isolation | None:
    primary, secondary = (_names(policy.get(kind) or (), hosts) for kind in ("primary", "secondary"))
    first = _packed(primary) or _unmatched(policy.get("primary") or ())
    second = _packed([name for name in secondary if name not in primary])
    if not secondary:
        second = [pattern for pattern in _unmatched(policy.get("secondary") or ()) if pattern not in first]
    if not first and not second:
        return None
    return Isolation(tuple(first), tuple(second), _min_available(policy))


def _names(patterns: Iterable[str], hosts: Mapping[str, str]) -> list[str]:
    patterns = list(patterns)
    return sorted(name for name, host in hosts.items() if any(matches(pattern, host) for pattern in patterns))


def _unmatched(asked: Iterable[str]) -> list[str]:
    """Patterns that no host matches, in a form that no name of an object matches."""
    marked = []
    for pattern in filter(None, asked):
        whole = f"{_HOST}(?:{pattern})"
        if len(whole) > LONGEST or problem(pattern) or problem(whole):  # the last: flags must come first
            whole = (_HOST + re.sub(r"(\W)", r"\\\1", pattern))[:LONGEST].rstrip("\\")
        marked.append(whole)
    return marked[:MOST]


def _packed(names: Sequence[str]) -> list[str]:
    """Patterns for names of objects."""
    packed: list[str] = []
    for name in (name.translate(_SPECIAL) for name in names):
        if packed and len(packed[-1]) + 1 + len(name) <= LONGEST:
            packed[-1] = f"{packed[-1]}|{name}"
        else:
            packed.append(name)
    return packed[:MOST]


def _min_available(policy: Mapping[str, Any]) -> int:
    """`min_limit`, which is a string in Pulsar's fail-over policy, as a number; 1 if it is absent or not a number."""
    asked = str(((policy.get("auto_failover_policy") or {}).get("parameters") or {}).get("min_limit", "1"))
    return min(int(asked[:_DIGITS]), MOST_AVAILABLE) if asked.isdecimal() else 1


log = logging.getLogger(__name__)


MISSING_READS = 2
"""Number of reads in a row that must lack a namespace before its objects are deleted."""


Policies = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class NamespaceSync:
    """Synchronizes namespaces.

    isolation: Pulsar's isolation policies, None if they could not be read. pulsar_cluster: name of the cluster.
    """

    cluster: ClusterState
    admin: Admin
    budget: Budget
    isolation: Policies | None = None
    pulsar_cluster: str = ""
    _lacking: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _missing: dict[str, int] = field(default_factory=dict)

    async def sync(self, namespace: str, owned: ObservedOwners) -> bool:
        """Synchronize one namespace; False if it must be synchronized again soon.

        Raises `PulsarError` and `ApiError`. Changes made so far stay, and the next call continues.
        """
        bundles = self._bundles(
            namespace
        )  # read before Pulsar is asked: Bundles created meanwhile must not be compared with an older answer
        try:
            found = await self._read(namespace)
        except UnknownError:
            return await self._absent(namespace)
        self._missing.pop(namespace, None)
        return await self._present(found, bundles, owned)

    async def _read(self, namespace: str) -> PulsarNamespace:
        for _ in range(2):  # the anti-affinity group takes a separate request
            await self.budget.wait()
        policies = await self.admin.policies(namespace)
        edges = boundaries(policies.get("bundles"))
        isolation = isolation_of(namespace, self.isolation or {}, self._hosts())
        group = str(policies.get("anti_affinity_group") or "")
        return PulsarNamespace(namespace, edges, group, isolation, complete=self.isolation is not None)

    def _hosts(self) -> dict[str, str]:
        """Host of each broker by object name, from the broker's id in Pulsar. Includes inactive brokers."""
        known = {b.name: b.id for b in self.cluster.stores.brokers.items.values() if b.id}
        return {name: host_of(broker) for name, broker in {**known, **(self.cluster.link.ids or {})}.items()}

    def _records(self, namespace: str) -> list[TopicNamespaceRecord]:
        return [r for r in self.cluster.stores.topic_namespaces.items.values() if r.full_name == namespace]

    def _bundles(self, namespace: str) -> list[BundleRecord]:
        names = {record.name for record in self._records(namespace)}
        return [b for b in self.cluster.stores.bundles.items.values() if b.topic_namespace in names] if names else []

    async def _present(self, found: PulsarNamespace, bundles: Sequence[BundleRecord], owned: ObservedOwners) -> bool:
        records, writes, now = self._records(found.name), ObjectWriter(self.cluster), self.cluster.now()
        changes = namespace_changes(found, records, self.cluster.stores.topic_namespaces.items, now)
        primary = changes.primary
        if changes.create is not None:
            primary = await writes.create_namespace(changes.create)
            if primary is not None:
                changes = namespace_changes(found, [primary], (), now)
        if primary is None:
            return False
        sure = self._lacking.pop(found.name, None) == found.boundaries
        ranges = bundle_changes(found.boundaries, primary, bundles, owned.by_bundle, now, sure=sure)
        if ranges.doubtful:
            self._lacking[found.name] = found.boundaries
            return False
        await writes.create_bundles(ranges.create)
        done = await writes.delete_bundles(ranges.delete)
        return await self._apply(changes, primary, found) and done

    async def _apply(self, changes: NamespaceChanges, primary: TopicNamespaceRecord, found: PulsarNamespace) -> bool:
        """Write the changes; False if an object has changed since it was read."""
        writes, done = ObjectWriter(self.cluster), True
        if changes.group:
            await self.admin.set_anti_affinity(found.name, changes.group)
        if changes.spec:
            done = await writes.namespace_spec(primary, changes.spec)
        for record, status in changes.status:
            done = await writes.namespace_status(record, status) and done
        for record in changes.delete:
            await writes.delete_namespace(record)
        return done

    async def _absent(self, namespace: str) -> bool:
        """Synchronize a namespace that Pulsar does not have: delete its objects, or create it in Pulsar."""
        changes = absent_namespace_changes(self._records(namespace), self.cluster.now())
        if changes.create_in_pulsar is not None:
            return await self._create(changes.create_in_pulsar)
        reads = self._missing[namespace] = self._missing.get(namespace, 0) + 1
        if reads < MISSING_READS:
            return changes.empty
        for _ in range(2):
            await self.budget.wait()
        if await listed(self.admin, namespace):
            text = f"namespace {namespace} is answered with a 404, but its tenant lists it: the 404 is ignored"
            raise PulsarError(text)
        writes, names = ObjectWriter(self.cluster), {r.name for r in self._records(namespace)}
        old = [b for b in self.cluster.stores.bundles.items.values() if b.topic_namespace in names and b.made]
        done = await writes.delete_bundles(old)
        for record, status in changes.status:
            done = await writes.namespace_status(record, status) and done
        for record in changes.delete:
            log.info("namespace %s was deleted in Pulsar: deleting the TopicNamespace %s", namespace, record.name)
            await writes.delete_namespace(record)
        return done

    async def _create(self, record: TopicNamespaceRecord) -> bool:
        """Create the namespace of `record` in Pulsar, with its tenant if Pulsar lacks it, and update the status."""
        writes, now, tenant = ObjectWriter(self.cluster), self.cluster.now(), record.full_name.partition("/")[0]
        try:
            if tenant not in await self.admin.tenants() and self.pulsar_cluster:
                await self._create_tenant(tenant)
            await self.admin.create_namespace(record.full_name, record.asked)
        except ExistsError:
            return False
        except PulsarRefusedError as error:
            ready = ("False", Readiness.REFUSED, shortened(f"Pulsar does not create it: {error}"))
            if not any(c.get("message") == ready[2] for c in record.conditions):
                await writes.namespace_status(record, ready_status(record, ready, 0, now))
            return True
        log.info("created namespace %s in Pulsar, with %d bundles", record.full_name, record.asked)
        await writes.namespace_status(
            record, ready_status(record, ("True", Readiness.CREATED, "created in Pulsar"), 0, now)
        )
        return False

    async def _create_tenant(self, tenant: str) -> None:
        try:
            await self.admin.create_tenant(tenant, [self.pulsar_cluster])
        except ExistsError:
            return
        log.info("created tenant %s in Pulsar, for cluster %s", tenant, self.pulsar_cluster)


async def listed(admin: Admin, namespace: str) -> bool:
    """Whether Pulsar lists a namespace. A 404 alone proves nothing: an ingress may send it while the brokers restart.

    Raises `PulsarError` if the lists can't be read.
    """
    tenant = namespace.partition("/")[0]
    return tenant in await admin.tenants() and namespace in await admin.namespaces(tenant)


async def cluster_name(admin: Admin, brokers: Iterable[str]) -> str:
    """The cluster's own name.

    With geo-replication, Pulsar lists several clusters. The right name is in the configuration of the `brokers` (ids).
    The first broker that answers decides. Raises `PulsarError`.
    """
    known, problem = await admin.clusters(), "no broker says to which of them it belongs"
    if len(known) == 1:
        return known[0]
    for broker in brokers:
        try:
            if name := (await admin.runtime(broker)).get("clusterName"):
                return name
        except PulsarError as error:
            problem = str(error)
    raise PulsarError(f"Pulsar lists the clusters {', '.join(sorted(known)) or '(none)'}: {problem}")
