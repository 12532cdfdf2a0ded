"""Writes what the mirror found into objects: each write for itself, against the object as it was when it was compared.

Whoever was faster wins: what was changed, or deleted, meanwhile is compared anew at the next look.
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
from trimtab_operator.pulsar.bridge.sync.diff import Birth
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes to the objects of `context`. All methods raise `ApiUnavailableError`, and what else they name."""

    context: ClusterState

    async def brokers(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Create Broker objects; one that is refused does not keep the others away."""
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

    async def births(self, births: Sequence[Birth]) -> None:
        """Create bundles, each with its status. Raises `RefusedError`: then not all of them exist."""
        await at_most(WRITERS, self._bear, births)

    async def _bear(self, birth: Birth) -> None:
        try:
            made = await self._create(BUNDLES, birth.manifest)
        except ConflictError:
            return  # it exists: the sweep of owners sees to its status
        await self._status(BUNDLES, birth.name, made["metadata"]["resourceVersion"], birth.status)

    async def ends(self, bundles: Sequence[BundleRecord]) -> bool:
        """Delete bundles that nobody has changed since; whether that was so of all."""

        async def one(bundle: BundleRecord) -> bool:
            return await self._delete(BUNDLES, bundle.name, resource_version=bundle.resource_version)

        return all(await at_most(WRITERS, one, bundles))

    async def space(self, manifest: Mapping[str, Any]) -> TopicNamespaceRecord | None:
        """Create a discovered TopicNamespace; None when its name is taken. Raises `RefusedError`."""
        try:
            return topic_namespace_record(await self._create(TOPIC_NAMESPACES, manifest))
        except ConflictError as error:
            log.info("topic namespace: %s", error)
            return None

    async def space_spec(self, record: TopicNamespaceRecord, spec: Mapping[str, Any]) -> bool:
        """Let a discovered TopicNamespace follow; whether nobody was faster. Raises `RefusedError`."""
        body = {"metadata": {"resourceVersion": record.resource_version}, "spec": spec}
        try:
            await self.context.api.patch(TOPIC_NAMESPACES, self.context.namespace, record.name, body)
        except (ConflictError, NotFoundError) as error:
            log.info("topic namespace %s changed meanwhile: %s", record.name, error)
            return False
        self._count(TOPIC_NAMESPACES, "patch")
        return True

    async def space_status(self, record: TopicNamespaceRecord, status: Mapping[str, Any]) -> bool:
        """Tell a TopicNamespace how it is; whether nobody was faster, such as Kopf, which marks what it has seen."""
        return await self._status(TOPIC_NAMESPACES, record.name, record.resource_version, status)

    async def end_of_space(self, record: TopicNamespaceRecord) -> None:
        """Delete a discovered TopicNamespace."""
        await self._delete(TOPIC_NAMESPACES, record.name, resource_version=record.resource_version)

    async def _create(self, ref: ResourceRef, manifest: Mapping[str, Any]) -> dict[str, Any]:
        made = await self.context.api.create(ref, self.context.namespace, manifest)
        self._count(ref, "create")
        return made

    async def _status(self, ref: ResourceRef, name: str, version: str, status: Mapping[str, Any]) -> bool:
        body = {"metadata": {"resourceVersion": version}, "status": status}
        try:
            await self.context.api.patch(ref, self.context.namespace, name, body, subresource="status")
        except (ConflictError, NotFoundError) as error:
            log.debug("%s %s changed meanwhile: %s", ref.kind, name, error)
            return False
        except RefusedError as error:  # its own trouble, and not that of the others
            log.warning("%s %s: %s", ref.kind, name, error)
            return True
        self._count(ref, "patch")
        return True

    async def _delete(self, ref: ResourceRef, name: str, *, resource_version: str) -> bool:
        try:
            await self.context.api.delete(ref, self.context.namespace, name, resource_version=resource_version)
        except NotFoundError:
            return True  # it is gone, as it should be
        except ConflictError as error:
            log.info("%s %s changed meanwhile: %s", ref.kind, name, error)
            return False
        self._count(ref, "delete")
        return True

    def _count(self, ref: ResourceRef, verb: str) -> None:
        self.context.metrics.mirror_writes.labels(ref.kind, verb).inc()
