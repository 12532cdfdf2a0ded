"""An operator for all namespaces: it takes on those with a policy, and leaves those without."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from faulty_api import until
from manifests import policy
from static_sources import StaticSource, StaticSources
from strategy_testing.clusters import cluster
from trimtab_operator import watched_namespaces
from trimtab_operator.app import new_cluster
from trimtab_operator.kube.client import POLICIES, Api
from trimtab_operator.kube.events import EventPoster
from trimtab_operator.state.cluster import ClusterState, ProcessState
from trimtab_operator.state.clusters import Clusters
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

SOURCES = StaticSources(StaticSource(cluster(bundles=1, a=0.5)))


def test_a_namespace_is_watched_from_its_first_policy_until_some_time_after_its_last(
    trimtab_crds: ControlPlane, kube_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_namespaces, "LOOK_EVERY", 0.1)
    monkeypatch.setattr(watched_namespaces, "LEAVE_AFTER", 1.0)
    name = f"p-{uuid.uuid4().hex[:8]}"

    async def scenario() -> None:
        async with Api.connect(str(trimtab_crds.kubeconfig)) as api:
            metrics = Metrics()
            clusters = Clusters(
                ProcessState(), metrics, EventPoster(api, instance="x"), asyncio.Event(), everywhere=True
            )

            def make(namespace: str) -> ClusterState:
                return new_cluster(api, namespace, SOURCES, metrics.of_namespace(namespace))

            async with watched_namespaces.watching(api, clusters, (), make):
                await asyncio.wait_for(clusters.listed.wait(), 10)
                assert kube_namespace not in clusters.by_namespace

                await api.create(POLICIES, kube_namespace, {**policy(), "metadata": {"name": name}})
                await until("it is watched", lambda: kube_namespace in clusters.by_namespace)
                await asyncio.wait_for(clusters.synced(), 20)
                assert not clusters.stale()
                page = f'namespace="{kube_namespace}"'.encode()
                await until("it is in the metrics", lambda: page in metrics.text())

                await api.delete(POLICIES, kube_namespace, name)
                await until("it is left", lambda: kube_namespace not in clusters.by_namespace)
                assert page not in metrics.text()

    asyncio.run(scenario())
