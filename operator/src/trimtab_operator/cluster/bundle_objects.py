"""Bundle objects as they are made, and as those who divide bundles read and write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cluster.api import BUNDLES, Api, NotFoundError
from trimtab_operator.cluster.status import timestamp
from trimtab_operator.resources.bundle import PARENT
from trimtab_operator.resources.common import API_VERSION

Raw = Mapping[str, Any]


def owned_by(topic_namespace: str, uid: str) -> dict[str, Any]:
    """The owner reference of what goes when a TopicNamespace object goes."""
    return {"apiVersion": API_VERSION, "kind": "TopicNamespace", "name": topic_namespace, "uid": uid}


def bundle_manifest(  # noqa: PLR0917  what a bundle is, in the order in which one says it
    name: str, topic_namespace: str, uid: str, lower: str, upper: str, spec: Raw, parent: str = ""
) -> dict[str, Any]:
    """A Bundle to create for a range (``0x%08x``) of a TopicNamespace object, which controls it.

    spec: more of its spec. parent: the Bundle that it is being cut out of, empty none.
    """
    meta: dict[str, Any] = {"name": name, "ownerReferences": [{**owned_by(topic_namespace, uid), "controller": True}]}
    if parent:
        meta["annotations"] = {PARENT: parent}
    whole = {"topicNamespace": topic_namespace, "range": {"lower": lower, "upper": upper}, **spec}
    return {"apiVersion": API_VERSION, "kind": "Bundle", "metadata": meta, "spec": whole}


@dataclass(frozen=True, slots=True)
class BundleObjects:
    """Those of one Kubernetes namespace. now: epoch seconds. All methods raise `ApiError`."""

    api: Api
    namespace: str
    now: Callable[[], float]

    async def get(self, name: str) -> Raw | None:
        """The object as the API server has it; None: there is none."""
        try:
            return await self.api.get(BUNDLES, self.namespace, name)
        except NotFoundError:
            return None

    async def create(self, manifest: Raw) -> Raw:
        """Create it. `ConflictError`: its name is taken."""
        return await self.api.create(BUNDLES, self.namespace, manifest)

    async def patch(self, bundle: Raw | None, body: dict[str, Any], *, subresource: str = "") -> None:
        """Merge-patch a bundle if it is still as it was seen. `ConflictError`."""
        assert bundle is not None
        meta = {**body.get("metadata", {}), "resourceVersion": bundle["metadata"]["resourceVersion"]}
        name = bundle["metadata"]["name"]
        await self.api.patch(BUNDLES, self.namespace, name, {**body, "metadata": meta}, subresource=subresource)

    async def delete(self, bundle: Raw | None, *, as_seen: bool = True) -> None:
        """Delete that very object; `as_seen`: if nobody has changed it. `ConflictError`."""
        assert bundle is not None
        meta = bundle["metadata"]
        at = meta["resourceVersion"] if as_seen else ""
        await self.api.delete(BUNDLES, self.namespace, meta["name"], uid=meta["uid"], resource_version=at)

    async def release(self, child: Raw) -> None:
        """Take the parent's name off a child: from now on it is a bundle like any other."""
        await self.patch(child, {"metadata": {"annotations": {PARENT: None}}})

    def assignment(self, owner: str, policy: str, epoch: int, reason: str) -> dict[str, Any]:
        """Who gives a bundle to `owner`, and why, as of now."""
        return {"owner": owner, "policy": policy, "epoch": epoch, "reason": reason, "time": timestamp(self.now())}
