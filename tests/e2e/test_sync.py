"""Objects agree with real brokers after splits, new namespaces and deaths that the operator did not cause."""

from __future__ import annotations

from typing import Any

from real_pulsar.clients import topics_of
from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import RealPulsarCluster, only
from small_cluster import API, until
from trimtab_operator.kube.naming import bundle_name, parse_pulsar_bundle, topic_namespace_name

PLACEMENT = {"type": "LeastLongTermMessageRate"}


def named(truth: dict[str, str]) -> dict[str, str]:
    """The same by name of the Bundle object."""
    return {bundle_name(*parse_pulsar_bundle(bundle)): broker for bundle, broker in truth.items()}


def served(stage: RealPulsarCluster, namespace: str) -> dict[str, str]:
    """Owner of each served bundle of a namespace, by the objects."""
    prefix = namespace.replace("/", "-") + "-0x"
    return {name: owner for name, owner in stage.owners().items() if name.startswith(prefix) and owner}


def space(stage: RealPulsarCluster, name: str) -> Any:
    items = stage.rest.get(f"{API}/topicnamespaces")["items"]
    return next((item for item in items if item["metadata"]["name"] == name), {})


def ready(stage: RealPulsarCluster, name: str) -> tuple[str, str]:
    conditions = space(stage, name).get("status", {}).get("conditions", [])
    return next(((c["status"], c["reason"]) for c in conditions if c["type"] == "Ready"), ("", ""))


def in_step(stage: RealPulsarCluster, namespace: str) -> bool:
    """Whether the objects of a namespace agree with the brokers."""
    return served(stage, namespace) == named(stage.truth(namespace + "/"))


def spread(stage: RealPulsarCluster, namespace: str) -> None:
    """Have each bundle served by a broker, in turn."""
    for i, bundle in enumerate(stage.admin.bundles(namespace)):
        stage.put(bundle, stage.names[i % len(stage.names)])


def test_what_there_is_when_the_policy_comes_is_mirrored_with_its_owners(stage: RealPulsarCluster) -> None:
    namespace = stage.new_namespace(6, "old")
    spread(stage, namespace)
    unowned = stage.new_namespace(3, "idle")

    stage.apply_policy(placement=PLACEMENT)

    name = namespace.replace("/", "-")
    until("the namespace is there", lambda: ready(stage, name) == ("True", "Found"))
    until("its owners are the true ones", lambda: in_step(stage, namespace))
    assert len(served(stage, namespace)) == 6
    until("the idle one too", lambda: ready(stage, unowned.replace("/", "-")) == ("True", "Found"))
    assert served(stage, unowned) == named(stage.truth(unowned + "/"))
    assert not any(owner for bundle, owner in stage.owners().items() if bundle not in named(stage.truth()))
    statuses = [stage.broker_status(broker) for broker in stage.names]
    assert [(status.get("id"), status.get("ready")) for status in statuses] == [(i, True) for i in stage.cluster.ids]
    assert not [n for n in (s["metadata"]["name"] for s in spaces(stage)) if n.startswith(("pulsar-", "sla-"))]


def spaces(stage: RealPulsarCluster) -> list[Any]:
    items: list[Any] = stage.rest.get(f"{API}/topicnamespaces")["items"]
    return items


def test_a_split_and_a_namespace_that_others_made_appear(stage: RealPulsarCluster) -> None:
    namespace = stage.new_namespace(2, "split")
    spread(stage, namespace)
    stage.apply_policy(placement=PLACEMENT)
    until("it is mirrored", lambda: len(served(stage, namespace)) == 2)
    parent = stage.admin.bundles(namespace)[0]
    for topic in topics_of(parent, 2):
        stage.admin.lookup(topic)

    stage.admin.send("PUT", f"/admin/v2/namespaces/{parent}/split")
    later = stage.new_namespace(2, "later")
    spread(stage, later)

    until("the halves are there, and their parent is not", lambda: len(served(stage, namespace)) == 3)
    until("objects and brokers agree on them", lambda: in_step(stage, namespace))
    until("the new namespace is there", lambda: in_step(stage, later) and len(served(stage, later)) == 2)


@only(LoadManagerKind.MODULAR)
def test_a_namespace_that_a_person_applies_is_created_and_stays_when_the_object_goes(stage: RealPulsarCluster) -> None:
    stage.apply_policy(placement=PLACEMENT)
    spec = {"tenant": "e2e-applied", "name": "orders", "bundles": 5, "antiAffinityGroup": "apart"}
    body = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "TopicNamespace", "metadata": {"name": "orders"}}
    stage.rest.create(f"{API}/topicnamespaces", {**body, "spec": spec})
    try:
        until("it is ready", lambda: ready(stage, "orders") == ("True", "Created"))
        until("its bundles are there", lambda: space(stage, "orders")["status"]["bundles"] == 5)
        assert len(stage.admin.bundles("e2e-applied/orders")) == 5
        until("it has its group", lambda: group(stage, "e2e-applied/orders") == "apart")

        stage.rest.delete(f"{API}/topicnamespaces/orders")
        name = topic_namespace_name("e2e-applied", "orders")
        until("it comes back as a discovered one", lambda: ready(stage, name) == ("True", "Found"))
        assert len(stage.admin.bundles("e2e-applied/orders")) == 5
    finally:
        stage.admin.send("DELETE", "/admin/v2/namespaces/e2e-applied/orders?force=true")


def group(stage: RealPulsarCluster, namespace: str) -> Any:
    """Its anti-affinity group in Pulsar."""
    return stage.admin.get(f"/admin/v2/namespaces/{namespace}/antiAffinity")
