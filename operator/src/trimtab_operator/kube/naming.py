"""Names of Kubernetes objects, and Pulsar's names of bundles. No other module composes such a name.

A slug is lower case and DNS-safe. If several names could share a slug (``a-b``/``c`` and ``a``/``b-c``, capitals,
characters that DNS does not allow), a short hash of the whole name is appended. So each name has its own slug.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.client import BUNDLES, Api, NotFoundError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.resources.bundle import PARENT
from trimtab_operator.resources.common import API_VERSION

LONGEST = 253
"""Maximum number of characters of a Kubernetes object name (DNS-1123 subdomain)."""


BUDGET = "trimtab-budget"
"""Name of the ConfigMap that records what a cluster's moves have spent of disruption budgets."""

PULSAR_FOUND = "trimtab-pulsar-found"
"""Name of the ConfigMap with the settings of Pulsar's own balancer from before it was switched off."""


_RANGE = len("-0x00000000-0x00000000")

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

_BUNDLE = re.compile(r"(?P<tenant>[^/]+)/(?P<name>[^/]+)/(?P<lower>0x[0-9a-f]{8})_(?P<upper>0x[0-9a-f]{8})")


def is_object_name(text: str) -> bool:
    """Whether an object may have this name: a DNS-1123 subdomain of at most `LONGEST` characters."""
    return len(text) <= LONGEST and _SUBDOMAIN.fullmatch(text) is not None


def pulsar_bundle(tenant: str, name: str, lower: str, upper: str) -> str:
    """Pulsar's name of a bundle: ``tenant/name/0xLLLLLLLL_0xUUUUUUUU``."""
    return f"{tenant}/{name}/{lower}_{upper}"


def parse_pulsar_bundle(text: str) -> tuple[str, str, str, str]:
    """(tenant, name, lower, upper) of Pulsar's name of a bundle. Raises ValueError for anything else."""
    match = _BUNDLE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a bundle: write tenant/namespace/0x00000000_0x40000000")
    return match["tenant"], match["name"], match["lower"], match["upper"]


def object_name(bundle: str) -> str:
    """Name of the Bundle object. bundle: this name, or the name in Pulsar. Raises ValueError for anything else."""
    return bundle_name(*parse_pulsar_bundle(bundle)) if "/" in bundle else bundle


def topic_namespace_name(tenant: str, name: str, *, hashed: bool = False) -> str:
    """Name of the TopicNamespace object that Trimtab creates for ``tenant/name``.

    hashed: append a hash in any case, because another object has the plain name.
    """
    return _slug(f"{tenant}/{name}", exact="-" not in tenant and not hashed, longest=LONGEST - _RANGE)


def bundle_name(tenant: str, name: str, lower: str, upper: str) -> str:
    """Name of the Bundle object of a range: ``<tenant>-<name>-<lower>-<upper>``; lower, upper: ``0x%08x``."""
    return f"{topic_namespace_name(tenant, name)}-{lower}-{upper}"


def split_name(bundle: str, boundaries: tuple[int, ...]) -> str:
    """Name of the BundleSplit that Trimtab creates to split the Bundle object `bundle` at the hashes `boundaries`."""
    return _slug(f"{bundle}-{digest(','.join(map(str, boundaries)))}", exact=True, longest=LONGEST)


def policy_part(part: str, policy: str) -> str:
    """Name of the ConfigMap that holds one part of what the operator stores of the BalancingPolicy object `policy`.

    part: ``memory`` (the strategy state), ``proposal`` or ``decisions``.
    """
    return _slug(f"trimtab-{part}-{policy}", exact=True, longest=LONGEST)


def broker_name_of_address(address: str) -> str:
    """Name of the Broker object of a broker without a pod. address: ``host:webPort``."""
    return _slug(address, exact=True, longest=LONGEST)


def _slug(original: str, *, exact: bool, longest: int) -> str:
    """`original` as a DNS subdomain, without a hash if `exact` and only its first ``/`` or ``:`` had to change."""
    plain = re.sub(r"[/:]", "-", original, count=1) if exact else ""
    if len(plain) <= longest and is_object_name(plain):
        return plain
    words, hashed = re.sub(r"[^a-z0-9]+", "-", original.lower()).strip("-"), digest(original)
    return f"{words[: longest - len(hashed) - 1]}-{hashed}".lstrip("-")


def digest(text: str) -> str:
    """Eight hex digits that tell `text` from others, in names and ids."""
    return hashlib.blake2s(text.encode(), digest_size=4).hexdigest()


Raw = Mapping[str, Any]


def owned_by(topic_namespace: str, uid: str) -> dict[str, Any]:
    """The owner reference for objects that are deleted with a TopicNamespace object."""
    return {"apiVersion": API_VERSION, "kind": "TopicNamespace", "name": topic_namespace, "uid": uid}


def bundle_manifest(  # noqa: PLR0917  the parts of a bundle's identity, in the usual order
    name: str, topic_namespace: str, uid: str, lower: str, upper: str, spec: Raw, parent: str = ""
) -> dict[str, Any]:
    """The manifest of the Bundle for a range of a TopicNamespace. The TopicNamespace object is its controlling owner.

    lower, upper: ``0x%08x``. spec: further fields of the Bundle's spec. parent: the Bundle that is being split into
    this one; empty if none.
    """
    meta: dict[str, Any] = {"name": name, "ownerReferences": [{**owned_by(topic_namespace, uid), "controller": True}]}
    if parent:
        meta["annotations"] = {PARENT: parent}
    whole = {"topicNamespace": topic_namespace, "range": {"lower": lower, "upper": upper}, **spec}
    return {"apiVersion": API_VERSION, "kind": "Bundle", "metadata": meta, "spec": whole}


@dataclass(frozen=True, slots=True)
class BundleObjects:
    """Reads and writes the Bundle objects of one Kubernetes namespace. now: epoch seconds. Methods raise `ApiError`."""

    api: Api
    namespace: str
    now: Callable[[], float]

    async def get(self, name: str) -> Raw | None:
        """The object as the API server has it; None if it does not exist."""
        try:
            return await self.api.get(BUNDLES, self.namespace, name)
        except NotFoundError:
            return None

    async def create(self, manifest: Raw) -> Raw:
        """Create a Bundle. `ConflictError`: its name is taken."""
        return await self.api.create(BUNDLES, self.namespace, manifest)

    async def patch(self, bundle: Raw | None, body: dict[str, Any], *, subresource: str = "") -> None:
        """Merge-patch a bundle if it has not changed since it was read. `ConflictError`: it has."""
        assert bundle is not None
        meta = {**body.get("metadata", {}), "resourceVersion": bundle["metadata"]["resourceVersion"]}
        name = bundle["metadata"]["name"]
        await self.api.patch(BUNDLES, self.namespace, name, {**body, "metadata": meta}, subresource=subresource)

    async def delete(self, bundle: Raw | None, *, as_seen: bool = True) -> None:
        """Delete this object, by its uid. as_seen: raise `ConflictError` if it has changed since it was read."""
        assert bundle is not None
        meta = bundle["metadata"]
        at = meta["resourceVersion"] if as_seen else ""
        await self.api.delete(BUNDLES, self.namespace, meta["name"], uid=meta["uid"], resource_version=at)

    async def release(self, child: Raw) -> None:
        """Remove the parent's name from a child, which is an ordinary bundle from then on."""
        await self.patch(child, {"metadata": {"annotations": {PARENT: None}}})

    def assignment(self, owner: str, policy: str, epoch: int, reason: str) -> dict[str, Any]:
        """The `spec.assignment` of a bundle that `policy` assigns to `owner` now."""
        return {"owner": owner, "policy": policy, "epoch": epoch, "reason": reason, "time": timestamp(self.now())}
