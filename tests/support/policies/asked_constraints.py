"""Constraints that people write into TopicNamespaces and Brokers, and their effects, on a `PolicyEnvironment`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from faulty_api import until
from policy_environment import PolicyEnvironment
from strategy_testing.clusters import cluster
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.reconcile.namespaces import Examiner

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.0)
"""The bundles of `public/a` are all on the busiest broker."""


async def ask(env: PolicyEnvironment, space: str, **spec: Any) -> None:
    """Edit a TopicNamespace as a person does, and wait until the operator has seen it."""
    found = env.rest.patch(env.path("topicnamespaces", space), {"spec": spec})
    await shown(env.cluster.stores.topic_namespaces.items, space, found)


async def describe(env: PolicyEnvironment, name: str, **spec: Any) -> None:
    """Edit a Broker as a person does, and wait until the operator has seen it."""
    found = env.rest.patch(env.path("brokers", name), {"spec": spec})
    await shown(env.cluster.stores.brokers.items, name, found)


async def start_pod(env: PolicyEnvironment, name: str, at: float) -> None:
    """A broker's pod that is ready and started at `at` (epoch seconds); the operator has seen it."""
    pods = f"/api/v1/namespaces/{env.namespace}/pods"
    spec = {"containers": [{"name": "broker", "image": "none"}]}
    env.rest.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": timestamp(at)}
    env.rest.patch(f"{pods}/{name}/status", {"status": {"startTime": timestamp(at), "conditions": [ready]}})
    items = env.cluster.stores.pods.items
    await until(f"pod {name} is seen", lambda: name in items and items[name].started is not None)


async def shown(items: Any, name: str, found: Any) -> None:
    version = found["metadata"]["resourceVersion"]
    await until(f"the store shows {name}", lambda: items[name].resource_version == version)


async def examine(env: PolicyEnvironment) -> None:
    """Let the operator check the constraints, and wait until its stores show what it wrote."""
    await Examiner(env.cluster).examine()
    versions = env.versions("topicnamespaces")
    items = env.cluster.stores.topic_namespaces.items
    await until("the store shows them", lambda: {n: r.resource_version for n, r in items.items()} == versions)


def where(env: PolicyEnvironment, space: str) -> Counter[str]:
    """Number of bundles of a namespace by desired owner."""
    found = env.bundles().values()
    return Counter(b["spec"].get("owner", "") for b in found if b["spec"]["topicNamespace"] == space)


def valid(env: PolicyEnvironment, space: str) -> tuple[str, str, str]:
    conditions = env.rest.get(env.path("topicnamespaces", space)).get("status", {}).get("conditions", [])
    return next(((c["status"], c["reason"], c["message"]) for c in conditions if c["type"] == "Valid"), ("", "", ""))
