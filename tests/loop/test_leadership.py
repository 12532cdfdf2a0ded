"""Standing by, leading, and ending: what the process does around the Lease; on a real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from faulty_api import FaultyApi, status
from policy_environment import clusters_of
from static_sources import StaticSource, StaticSources
from strategy_testing.clusters import cluster
from trimtab_operator import leadership
from trimtab_operator.app import new_cluster
from trimtab_operator.kube.client import Api, FencedError
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.leader_election import Candidacy, Elector, LeaseLostError
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

SOURCES = StaticSources(StaticSource(cluster(bundles=1, a=0.5)))


def test_what_kopf_writes_passes_the_same_fence(control_plane: ControlPlane, kube_namespace: str) -> None:
    async def scenario() -> None:
        fence = Fence()
        async with Api.connect(str(control_plane.kubeconfig), fence=fence) as api:
            login = await leadership._login(api, fence, 2)()
            url = f"{login.server}/api/v1/namespaces/{kube_namespace}/configmaps"
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
            async with login.aiohttp_session as session:
                with pytest.raises(FencedError):
                    await session.post(url, json=body)
                async with session.get(url) as listed:
                    assert "x" not in [item["metadata"]["name"] for item in (await listed.json())["items"]]

                fence.extend(fence.clock() + 60)
                async with session.post(url, json=body) as created:
                    assert created.status == 201

    asyncio.run(scenario())


def test_a_leader_that_learns_no_epoch_before_its_deadline_ends_without_a_write(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "END_WITHIN", 3600)  # the process that it would end is that of the tests
    begun = []

    async def writer() -> None:
        begun.append(1)

    async def scenario() -> None:
        fence = Fence()
        rules = Candidacy(identity="x", duration=3, deadline=1, retry=0.2)
        async with (
            FaultyApi(trimtab_crds, tmp_path) as proxy,
            Api.connect(str(proxy.kubeconfig), patience=0.1, fence=fence) as api,
            Api.connect(str(trimtab_crds.kubeconfig), patience=0) as direct,
        ):
            elector = Elector(direct, kube_namespace, rules, fence)
            context = new_cluster(api, kube_namespace, SOURCES, Metrics())
            await elector.campaign()
            proxy.faults["request"] = [status(503)] * 1000
            elector.api = api  # the Lease is as far away as the rest
            with pytest.raises(LeaseLostError):
                await leadership.lead(api, clusters_of(context), elector, asyncio.Event(), lambda _: {"writer": writer})
            assert not context.process.leader
            assert {method for method, _ in proxy.seen if method != "GET"} <= {"PATCH"}  # of the Lease

    asyncio.run(scenario())
    assert not begun


def test_a_standby_asked_to_stop_ends_without_having_led(control_plane: ControlPlane, kube_namespace: str) -> None:
    async def scenario() -> None:
        stop = asyncio.Event()
        fence = Fence()
        async with (
            Api.connect(str(control_plane.kubeconfig), patience=0, fence=fence) as api,
            Api.connect(str(control_plane.kubeconfig), patience=0) as direct,
        ):
            elector = Elector(direct, kube_namespace, Candidacy(identity="x"), fence)
            context = new_cluster(api, kube_namespace, SOURCES, Metrics())  # nothing fills its stores
            asyncio.get_running_loop().call_later(0.1, stop.set)

            assert not await asyncio.wait_for(leadership.elected(clusters_of(context), elector, stop), 5)
            await elector.release()

    asyncio.run(scenario())
    leases = control_plane.rest.get(f"/apis/coordination.k8s.io/v1/namespaces/{kube_namespace}/leases")
    assert not leases["items"]
