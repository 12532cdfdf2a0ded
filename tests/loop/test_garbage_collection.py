"""What belongs to an object goes with it: shown with the controller that does it in every real cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from faulty_api import until
from manifests import topic_namespace
from plan_clusters import LEVEL
from policy_environment import PolicyEnvironment
from static_sources import StaticSources
from trimtab_operator.aio import ended
from trimtab_operator.app import examine_topic_namespaces, new_cluster
from trimtab_operator.kube.client import Api
from trimtab_operator.kube.records import topic_namespace_record
from trimtab_operator.reconcile.namespaces import cut
from trimtab_operator.resources import crd
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_operator.watched_namespaces import following
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.controllers


@pytest.fixture
def collected(full_control_plane: ControlPlane) -> PolicyEnvironment:
    """An environment in a namespace of a control plane whose garbage is collected."""
    full_control_plane.rest.apply_crds(crd.manifests().values())
    namespace = f"collected-{os.getpid()}-{next(_numbers)}"
    full_control_plane.rest.create_namespace(namespace)
    return PolicyEnvironment(full_control_plane, namespace, LEVEL)


_numbers = iter(range(1000))


def test_deleting_a_topic_namespace_removes_its_bundles_and_no_others(collected: PolicyEnvironment) -> None:
    rest, path = collected.rest, collected.path
    gone = rest.create(path("topicnamespaces"), topic_namespace("gone", tenant="t", name="gone", bundles=8))
    kept = rest.create(path("topicnamespaces"), topic_namespace("kept", tenant="t", name="kept", bundles=2))

    async def scenario() -> None:
        async with Api.connect(collected.kubeconfig) as api:
            context = new_cluster(api, collected.namespace, StaticSources(collected), Metrics())
            await cut(context, topic_namespace_record(gone))
            await cut(context, topic_namespace_record(kept))
            assert len(collected.bundles()) == 10

            rest.delete(path("topicnamespaces", "gone"))

            await until("the bundles of the deleted namespace are gone", lambda: len(collected.bundles()) == 2, 40)

    asyncio.run(scenario())
    assert {found["spec"]["topicNamespace"] for found in collected.bundles().values()} == {"kept"}


def test_a_topic_namespace_that_is_replaced_gets_bundles_that_stay(collected: PolicyEnvironment) -> None:
    rest, path = collected.rest, collected.path
    manifest = topic_namespace("replaced", tenant="t", name="replaced", bundles=64)
    first = rest.create(path("topicnamespaces"), manifest)

    def owners() -> list[str]:
        return [b["metadata"]["ownerReferences"][0]["uid"] for b in collected.bundles().values()]

    async def scenario() -> None:
        async with Api.connect(collected.kubeconfig) as api:
            cluster = new_cluster(api, collected.namespace, StaticSources(collected), Metrics())
            async with following(cluster):
                examining = asyncio.create_task(examine_topic_namespaces(cluster))
                await until("it is cut", lambda: owners() == [first["metadata"]["uid"]] * 64, 40)

                rest.delete(path("topicnamespaces", "replaced"))  # as `kubectl replace --force`: without a pause
                again = rest.create(path("topicnamespaces"), manifest)

                def ready() -> list[tuple[str, str]]:
                    found = rest.get(path("topicnamespaces", "replaced")).get("status", {}).get("conditions", ())
                    return [(condition["status"], condition["reason"]) for condition in found]

                await until("the new one is cut", lambda: ready() == [("True", "Cut")], 60)
                await ended(examining)
                assert owners() == [again["metadata"]["uid"]] * 64

    asyncio.run(scenario())


def test_deleting_a_policy_removes_what_it_remembers(collected: PolicyEnvironment) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert env.memory()["epoch"] == 1

        env.rest.delete(env.path("balancingpolicies", "main"))

        def names() -> list[str]:
            items = env.rest.get(f"/api/v1/namespaces/{env.namespace}/configmaps")["items"]
            return [item["metadata"]["name"] for item in items]

        await until("the memory is gone", lambda: "trimtab-memory-main" not in names(), 40)

    asyncio.run(_within(60, lambda: collected.run_policy(scenario, {})))


async def _within(seconds: float, what: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(seconds):
        await what()
