"""An object that an older CRD allowed is told by a condition or an Event, and disturbs nothing else."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from faulty_api import until
from manifests import broker, bundle, bundle_split, policy, topic_namespace
from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_operator.app import discover_once
from trimtab_operator.kube.store import Store
from trimtab_operator.loop.policy_loop import PolicyLoop
from trimtab_operator.pulsar.own_balancer.restore import has_it_off
from trimtab_operator.reconcile.namespaces import TRY_AGAIN, Cutter
from trimtab_operator.reconcile.unreadable import UnreadableObjects
from trimtab_operator.resources import crd
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError, KubeRest

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=1, a=0.5, b=0.5)


def of_older_crd() -> list[tuple[str, dict[str, Any]]]:
    """Objects that today's CRDs refuse, by plural."""
    split, space, ring = bundle_split("old"), topic_namespace("old"), bundle("old")
    split["spec"] = {"bundle": 7}
    del space["spec"]["tenant"], ring["spec"]["range"]
    return [
        ("brokers", broker("old", pod="old-0", capacity={"cpu": "lots"})),
        ("topicnamespaces", space),
        ("topicnamespaces", topic_namespace("old-cut", tenant="t", name="old", bundles=0)),
        ("bundles", ring),
        ("bundlesplits", split),
        ("balancingpolicies", policy("old", mode="Auto", interval=[7])),
    ]


@pytest.fixture
def store(trimtab_crds: ControlPlane) -> Iterator[Callable[[PolicyEnvironment], None]]:
    """Stores the objects under CRDs that allow any spec, and puts the real CRDs back."""
    rest, real = trimtab_crds.rest, list(crd.manifests().values())

    def stored(env: PolicyEnvironment) -> None:
        rest.apply_crds([_lenient(each) for each in real])
        for plural, manifest in of_older_crd():
            _repeat(rest, env.path(plural), manifest, until_status=201)
        rest.apply_crds(real)
        for plural, manifest in of_older_crd():
            manifest["metadata"]["name"] = "probe"
            _repeat(rest, env.path(plural), manifest, until_status=422)

    yield stored
    rest.apply_crds(real)


def _lenient(manifest: Mapping[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(dict(manifest))
    for version in changed["spec"]["versions"]:
        version.pop("selectableFields", None)  # they name fields of the schema
        free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"spec": free, "status": free}}
    return changed


def _repeat(rest: KubeRest, path: str, manifest: dict[str, Any], until_status: int) -> None:
    """Create an object again and again until the server, which takes a moment to use new CRDs, answers so."""
    deadline = time.monotonic() + 20
    while True:
        try:
            rest.create(path, manifest)
        except KubeApiError as error:
            status = error.status
        else:
            status = 201
        if status == until_status:
            return
        assert time.monotonic() < deadline, f"{path}: {status}"
        if status == 201:
            rest.delete(f"{path}/{manifest['metadata']['name']}")
        time.sleep(0.1)


def test_each_is_told_once_and_disturbs_nothing_else(
    run_policy: RunPolicy, store: Callable[[PolicyEnvironment], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await asyncio.to_thread(store, env)
        cluster, cutter, unreadable = env.cluster, Cutter(env.cluster), UnreadableObjects(env.cluster)
        env.rest.create(env.path("topicnamespaces"), topic_namespace("t-new", tenant="t", name="new", bundles=2))
        await until("the stores know them", lambda: "t-new" in cluster.stores.topic_namespaces.items)
        await until("the stores know them", lambda: all(s.unreadable for s in with_specs(env)))
        old = PolicyLoop("old", env.policy("old")["metadata"]["uid"], cluster, lambda: env.policy("old"))
        stop = asyncio.Event()
        running = asyncio.create_task(old.run(stop))
        for _ in range(3):
            await discover_once(cluster)
            await cutter.cut()
            await unreadable.report()
            env.clock += TRY_AGAIN
        await env.loop.reconcile()
        stop.set()
        await running

        said = told(env)
        assert {kind: field for kind, field in FIELDS.items() if field not in said.get(kind, "")} == {}, said
        assert (ready(env, "t-new"), ready(env, "old-cut")) == ("Cut", "InvalidSpec")
        before = len(env.events())
        await unreadable.report()
        assert len(env.events()) == before, "each is told once"

        env.rest.patch(env.path("brokers", "old"), {"spec": {"capacity": {"cpu": "4"}}})
        brokers = cluster.stores.brokers
        await until("it can be read", lambda: "old" in brokers.items and not brokers.unreadable)

    run_policy(LEVEL, scenario)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_a_policy_whose_pulsar_is_no_object_switches_nothing_off() -> None:
    assert not has_it_off(policy("old", mode="Auto", pulsar="http://pulsar.svc"))


def with_specs(env: PolicyEnvironment) -> list[Store[Any]]:
    stores = env.cluster.stores
    return [stores.bundles, stores.brokers, stores.topic_namespaces, stores.splits]


def ready(env: PolicyEnvironment, name: str) -> str:
    conditions = env.rest.get(env.path("topicnamespaces", name)).get("status", {}).get("conditions", [])
    return next((str(c["reason"]) for c in conditions if c["type"] == "Ready"), "")


def told(env: PolicyEnvironment) -> dict[str, str]:
    """What a person reads about each object `old`, by kind: a condition or an Event."""
    found = {}
    for kind, plural in KINDS.items():
        conditions = env.rest.get(env.path(plural, "old")).get("status", {}).get("conditions", [])
        if messages := [c["message"] for c in conditions if c["reason"] in {"InvalidSpec", "InvalidPolicy"}]:
            found[kind] = messages[0]
    events = env.rest.get(f"/apis/events.k8s.io/v1/namespaces/{env.namespace}/events")["items"]
    return found | {e["regarding"]["kind"]: e["note"] for e in events if e["regarding"]["name"] == "old"}


FIELDS = {
    "BalancingPolicy": "spec.interval: ",
    "Broker": "spec.capacity.cpu: ",
    "Bundle": "spec.range: ",
    "BundleSplit": "spec.bundle: ",
    "TopicNamespace": "spec.tenant: ",
}
"""What the report of each object names."""

KINDS = {
    "BalancingPolicy": "balancingpolicies",
    "Broker": "brokers",
    "Bundle": "bundles",
    "BundleSplit": "bundlesplits",
    "TopicNamespace": "topicnamespaces",
}
