"""One namespace after the other: read in Pulsar, compared with its objects, and both brought in step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.bridge.mirroring_brokers import host_of
from trimtab_operator.bridge.mirroring_isolation import isolation_of
from trimtab_operator.bridge.mirroring_spaces import (
    Space,
    SpaceChanges,
    reflect_absent,
    reflect_space,
    told,
)
from trimtab_operator.bridge.mirroring_writes import Writes
from trimtab_operator.bridge.reflecting import Owned, reflect_ranges
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.cluster.topic_namespaces import TopicNamespaceRecord
from trimtab_operator.control.context import Context
from trimtab_operator.control.report import shortened
from trimtab_operator.pulsar.admin import Admin
from trimtab_operator.pulsar.budget import Budget
from trimtab_operator.pulsar.errors import ExistsError, PulsarError, PulsarRefusedError, UnknownError
from trimtab_operator.resources.topic_namespace import Readiness

log = logging.getLogger(__name__)

ABSENCES = 2
"""Looks, one after the other, at which a namespace must be missing before its objects go, if no list has it."""

Policies = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Namespaces:
    """Brings one namespace at a time in step.

    isolation: Pulsar's isolation policies, None while they could not be read. cluster: the name of the Pulsar cluster.
    """

    context: Context
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
