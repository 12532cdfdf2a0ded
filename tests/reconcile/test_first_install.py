"""Many TopicNamespaces at once, as at a first installation: their bundles are created a few at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from faulty_api import FaultyApi
from manifests import topic_namespace
from static_sources import StaticSource, StaticSources
from strategy_testing.clusters import cluster as load
from trimtab_operator import leadership
from trimtab_operator.app import new_cluster
from trimtab_operator.kube.client import AT_ONCE, Api
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.records import topic_namespace_record
from trimtab_operator.reconcile.namespaces import cut
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

SPACES, BUNDLES = 12, 64
SOURCES = StaticSources(StaticSource(load(bundles=1, a=0.5)))


def test_the_bundles_of_many_namespaces_share_one_bound_of_requests(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path
) -> None:
    path = f"/apis/trimtab.dev/v1alpha1/namespaces/{kube_namespace}"
    spaces = [
        trimtab_crds.rest.create(
            f"{path}/topicnamespaces", topic_namespace(f"t-{i}", tenant="t", name=f"{i}", bundles=BUNDLES)
        )
        for i in range(SPACES)
    ]

    async def scenario() -> int:
        async with FaultyApi(trimtab_crds, tmp_path) as proxy, Api.connect(str(proxy.kubeconfig)) as api:
            context = new_cluster(api, kube_namespace, SOURCES, Metrics())
            await asyncio.gather(*(cut(context, topic_namespace_record(space)) for space in spaces))
            return proxy.busiest

    busiest = asyncio.run(scenario())

    assert 1 < busiest <= AT_ONCE
    made = trimtab_crds.rest.get(f"{path}/bundles")["items"]
    assert len(made) == SPACES * BUNDLES


def test_the_writes_of_kopf_share_a_bound(control_plane: ControlPlane, kube_namespace: str, tmp_path: Path) -> None:
    async def scenario() -> int:
        fence = Fence()
        fence.extend(fence.clock() + 60)
        async with FaultyApi(control_plane, tmp_path) as proxy, Api.connect(str(proxy.kubeconfig), fence=fence) as api:
            login = await leadership._login(api, fence, 5)()
            url = f"{login.server}/api/v1/namespaces/{kube_namespace}/configmaps"

            async def create(session: Any, number: int) -> None:
                body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"x{number}"}}
                async with session.post(url, json=body) as answer:
                    assert answer.status == 201

            async with login.aiohttp_session as session:
                await asyncio.gather(*(create(session, number) for number in range(40)))
            return proxy.busiest

    assert 1 < asyncio.run(scenario()) <= 5
