"""Writes what the cluster sync found into objects.

Each patch and deletion carries the resourceVersion that the object had when the sync compared it with Pulsar. If the
object has changed since, the write is dropped, and the next sync compares again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab_operator.actuators import WRITERS
from trimtab_operator.aio import at_most
from trimtab_operator.kube.client import (
    BROKERS,
    BUNDLES,
    TOPIC_NAMESPACES,
    ConflictError,
    NotFoundError,
    RefusedError,
    ResourceRef,
)
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord, topic_namespace_record
from trimtab_operator.pulsar.bridge.sync.diff import NewBundle
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ObjectWriter:
    """Writes objects of the cluster's Kubernetes namespace. All methods raise `ApiUnavailableError`."""

    cluster: ClusterState

    async def brokers(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Create Broker objects. A refused one does not stop the others."""
        for manifest in manifests:
            try:
                await self._create(BROKERS, manifest)
            except (ConflictError, RefusedError) as error:
                log.warning("broker %s: %s", manifest["metadata"]["name"], error)

    async def statuses(self, changes: Sequence[tuple[BundleRecord, Mapping[str, Any]]]) -> None:
        """Patch the status of bundles."""

        async def one(change: tuple[BundleRecord, Mapping[str, Any]]) -> None:
            bundle, status = change
            await self._status(BUNDLES, bundle.name, bundle.resource_version, status)

        await at_most(WRITERS, one, changes)

    async def create_bundles(self, bundles: Sequence[NewBundle]) -> None:
        """Create bundles, each with its status. Raises `RefusedError`; then some of them do not exist."""
        await at_most(WRITERS, self._create_bundle, bundles)

    async def _create_bundle(self, bundle: NewBundle) -> None:
        try:
            made = await self._create(BUNDLES, bundle.manifest)
        except ConflictError:
            return  # it exists: the owner sync updates its status
        await self._status(BUNDLES, bundle.name, made["metadata"]["resourceVersion"], bundle.status)

    async def delete_bundles(self, bundles: Sequence[BundleRecord]) -> bool:
        """Delete bundles that have not changed since they were read. Returns whether all are deleted."""

        async def one(bundle: BundleRecord) -> bool:
            return await self._delete(BUNDLES, bundle.name, resource_version=bundle.resource_version)

        return all(await at_most(WRITERS, one, bundles))

    async def create_namespace(self, manifest: Mapping[str, Any]) -> TopicNamespaceRecord | None:
        """Create a discovered TopicNamespace; None when its name is taken. Raises `RefusedError`."""
        try:
            return topic_namespace_record(await self._create(TOPIC_NAMESPACES, manifest))
        except ConflictError as error:
            log.info("topic namespace: %s", error)
            return None

    async def namespace_spec(self, record: TopicNamespaceRecord, spec: Mapping[str, Any]) -> bool:
        """Patch the spec of a discovered TopicNamespace; False if it has changed since. Raises `RefusedError`."""
        body = {"metadata": {"resourceVersion": record.resource_version}, "spec": spec}
        try:
            await self.cluster.api.patch(TOPIC_NAMESPACES, self.cluster.namespace, record.name, body)
        except (ConflictError, NotFoundError) as error:
            log.info("topic namespace %s has changed since: %s", record.name, error)
            return False
        self._count(TOPIC_NAMESPACES, "patch")
        return True

    async def namespace_status(self, record: TopicNamespaceRecord, status: Mapping[str, Any]) -> bool:
        """Patch the status of a TopicNamespace; False if it has changed since."""
        return await self._status(TOPIC_NAMESPACES, record.name, record.resource_version, status)

    async def delete_namespace(self, record: TopicNamespaceRecord) -> None:
        """Delete a discovered TopicNamespace."""
        await self._delete(TOPIC_NAMESPACES, record.name, resource_version=record.resource_version)

    async def _create(self, ref: ResourceRef, manifest: Mapping[str, Any]) -> dict[str, Any]:
        made = await self.cluster.api.create(ref, self.cluster.namespace, manifest)
        self._count(ref, "create")
        return made

    async def _status(self, ref: ResourceRef, name: str, version: str, status: Mapping[str, Any]) -> bool:
        body = {"metadata": {"resourceVersion": version}, "status": status}
        try:
            await self.cluster.api.patch(ref, self.cluster.namespace, name, body, subresource="status")
        except (ConflictError, NotFoundError) as error:
            log.debug("%s %s has changed since: %s", ref.kind, name, error)
            return False
        except RefusedError as error:  # does not stop the other writes
            log.warning("%s %s: %s", ref.kind, name, error)
            return True
        self._count(ref, "patch")
        return True

    async def _delete(self, ref: ResourceRef, name: str, *, resource_version: str) -> bool:
        try:
            await self.cluster.api.delete(ref, self.cluster.namespace, name, resource_version=resource_version)
        except NotFoundError:
            return True  # already deleted
        except ConflictError as error:
            log.info("%s %s has changed since: %s", ref.kind, name, error)
            return False
        self._count(ref, "delete")
        return True

    def _count(self, ref: ResourceRef, verb: str) -> None:
        self.cluster.metrics.mirror_writes.labels(ref.kind, verb).inc()
