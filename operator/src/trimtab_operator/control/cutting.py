"""Cuts a new TopicNamespace into its first bundles, at Pulsar's default boundaries."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from trimtab_operator.cluster.api import BUNDLES, TOPIC_NAMESPACES, ConflictError
from trimtab_operator.cluster.bundle_objects import bundle_manifest
from trimtab_operator.cluster.naming import bundle_name
from trimtab_operator.cluster.status import set_condition
from trimtab_operator.control.context import Context
from trimtab_operator.control.cycle import WRITERS, at_most
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.topic_namespace import MIRRORED, Readiness, TopicNamespaceSpec
from trimtab_strategies.topics import default_boundaries


def first_bundles(name: str, uid: str, spec: TopicNamespaceSpec) -> list[Mapping[str, Any]]:
    """Manifests of the bundles of the TopicNamespace object `name`, owned by it (so they go when it goes)."""
    edges = [f"0x{edge:08x}" for edge in default_boundaries(spec.bundles)]
    return [
        bundle_manifest(bundle_name(spec.tenant, spec.name, lower, upper), name, uid, lower, upper, {})
        for lower, upper in pairwise(edges)
    ]


async def cut(context: Context, topic_namespace: Mapping[str, Any]) -> None:
    """Create the bundles of a TopicNamespace object and say so in its status.

    Done once: bundles are only split later, so a namespace that was cut before is never cut again, and a cut that was
    interrupted goes on with the bundles that are missing. Where another object speaks of the same namespace, its
    bundles are left alone. A Pulsar cluster cuts its namespaces by itself: then there is nothing to do here. Raises
    `ApiError` (Kopf then tries again).
    """
    meta, status = topic_namespace["metadata"], topic_namespace.get("status") or {}
    if context.link.linked or _settled(meta, status):
        return
    bundles = first_bundles(meta["name"], meta["uid"], TopicNamespaceSpec.model_validate(topic_namespace["spec"]))
    holders = set(await at_most(WRITERS, lambda manifest: _holder(context, meta["namespace"], manifest), bundles))
    if others := sorted(holders - {meta["name"]}):
        ready = (
            "False",
            str(Readiness.ALREADY_CUT),
            f"its bundles belong to the TopicNamespace {', '.join(others)}: delete one",
        )
    else:
        ready = ("True", str(Readiness.CUT), f"cut into {len(bundles)} bundles")
    before, generation = status.get("conditions") or [], meta["generation"]
    body = {
        "bundles": 0 if others else len(bundles),
        "observedGeneration": generation,
        "conditions": set_condition(before, "Ready", *ready, generation, context.now()),
    }
    await context.api.patch(TOPIC_NAMESPACES, meta["namespace"], meta["name"], {"status": body}, subresource="status")


def _settled(meta: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Whether it was cut before, or follows a namespace that Pulsar has or had."""
    ready = [c for c in status.get("conditions") or [] if c["type"] == "Ready"]
    mirrored = any(c["reason"] in MIRRORED for c in ready) or (meta.get("labels") or {}).get(DISCOVERED) == "true"
    return mirrored or any(c["status"] == "True" for c in ready)


async def _holder(context: Context, namespace: str, manifest: Mapping[str, Any]) -> str:
    """Create a Bundle, unless it exists; the TopicNamespace object that it belongs to."""
    try:
        found = await context.api.create(BUNDLES, namespace, manifest)
    except ConflictError:  # an earlier attempt came this far, or two objects speak of one namespace
        found = await context.api.get(BUNDLES, namespace, manifest["metadata"]["name"])
    return str(found["spec"]["topicNamespace"])
