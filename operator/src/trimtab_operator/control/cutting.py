"""Cuts a new TopicNamespace into its first bundles, at Pulsar's default boundaries."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from trimtab_operator.cluster.api import BUNDLES, TOPIC_NAMESPACES, ConflictError
from trimtab_operator.cluster.naming import bundle_name
from trimtab_operator.cluster.status import set_condition
from trimtab_operator.control.context import Context
from trimtab_operator.control.cycle import WRITERS, at_most
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.topic_namespace import TopicNamespaceSpec
from trimtab_strategies.topics import default_boundaries


def first_bundles(name: str, uid: str, spec: TopicNamespaceSpec) -> list[Mapping[str, Any]]:
    """Manifests of the bundles of the TopicNamespace object `name`, owned by it (so they go when it goes)."""
    edges = [f"0x{edge:08x}" for edge in default_boundaries(spec.bundles)]
    owner = {"apiVersion": API_VERSION, "kind": "TopicNamespace", "name": name, "uid": uid, "controller": True}
    return [
        {
            "apiVersion": API_VERSION,
            "kind": "Bundle",
            "metadata": {"name": bundle_name(spec.tenant, spec.name, lower, upper), "ownerReferences": [owner]},
            "spec": {"topicNamespace": name, "range": {"lower": lower, "upper": upper}},
        }
        for lower, upper in pairwise(edges)
    ]


async def cut(context: Context, topic_namespace: Mapping[str, Any]) -> None:
    """Create the bundles of a TopicNamespace object and say so in its status.

    Done once: bundles are only split later, so a namespace that was cut before is never cut again, and a cut that was
    interrupted goes on with the bundles that are missing. Where another object speaks of the same namespace, its
    bundles are left alone. Raises `ApiError` (Kopf then tries again).
    """
    meta, status = topic_namespace["metadata"], topic_namespace.get("status") or {}
    if any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or []):
        return
    bundles = first_bundles(meta["name"], meta["uid"], TopicNamespaceSpec.model_validate(topic_namespace["spec"]))
    holders = set(await at_most(WRITERS, lambda manifest: _holder(context, meta["namespace"], manifest), bundles))
    if others := sorted(holders - {meta["name"]}):
        ready = ("False", "AlreadyCut", f"its bundles belong to the TopicNamespace {', '.join(others)}: delete one")
    else:
        ready = ("True", "Cut", f"cut into {len(bundles)} bundles")
    before, generation = status.get("conditions") or [], meta["generation"]
    body = {
        "bundles": 0 if others else len(bundles),
        "observedGeneration": generation,
        "conditions": set_condition(before, "Ready", *ready, generation, context.now()),
    }
    await context.api.patch(TOPIC_NAMESPACES, meta["namespace"], meta["name"], {"status": body}, subresource="status")


async def _holder(context: Context, namespace: str, manifest: Mapping[str, Any]) -> str:
    """Create a Bundle, unless it exists; the TopicNamespace object that it belongs to."""
    try:
        found = await context.api.create(BUNDLES, namespace, manifest)
    except ConflictError:  # an earlier attempt came this far, or two objects speak of one namespace
        found = await context.api.get(BUNDLES, namespace, manifest["metadata"]["name"])
    return str(found["spec"]["topicNamespace"])
