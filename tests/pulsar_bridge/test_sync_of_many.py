"""2,000 bundles of 20 brokers: nothing is written when nothing changes, and just what changed when something does."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from faulty_api import until
from manifests import topic_namespace
from many_bundles import make_bundles
from policy_environment import PolicyEnvironment, refit
from pulsar_in_memory import InMemoryPulsar
from strategy_testing.clusters import cluster
from trimtab_operator.aio import ended
from trimtab_operator.kube.naming import broker_name_of_address
from trimtab_operator.kube.records import topic_namespace_record
from trimtab_operator.pulsar.bridge.sync.diff import bundle_changes
from trimtab_operator.pulsar.bridge.sync.loop import ClusterSync, SyncIntervals
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

IDS = [f"10.0.0.{n}:8080" for n in range(1, 21)]
SPACES = [f"t/ns-{n}" for n in range(4)]
RATE, MOVED = 40, 60
QUICK = SyncIntervals(brokers=0.5, owners=0.5, namespaces=1.0)


class Crowd(PolicyEnvironment):
    """The objects that the cluster sync made some time ago, and a policy."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(plane, namespace, cluster(bundles=1, a=0.0))
        self._plane, self.pulsar = plane, InMemoryPulsar(list(IDS), extensible=True)

    def build(self) -> None:
        new_bundles: list[Any] = []
        for space in SPACES:
            self.pulsar.add(space, 500, *IDS)
            owned = {b: broker_name_of_address(i) for b, i in self.pulsar.owners.items()}
            spec = {"tenant": "t", "name": space.partition("/")[2], "bundles": 500}
            manifest = topic_namespace(space.replace("/", "-"), **spec)
            manifest["metadata"]["labels"] = {"trimtab.dev/discovered": "true"}
            record = topic_namespace_record(self.rest.create(self.path("topicnamespaces"), manifest))
            new_bundles += bundle_changes(self.pulsar.spaces[space], record, (), owned, 0).create
        make_bundles(self._plane, self.namespace, [new.manifest for new in new_bundles])

    def writes(self) -> int:
        return sum(self.requests[verb] for verb in ("create", "patch", "delete"))

    async def rounds(self, count: int) -> None:
        """Wait until all brokers, and all namespaces, were asked so often."""
        asked = self.pulsar.asked
        asked.clear()
        await until("brokers were asked", lambda: asked["owned"] >= count * len(IDS), within=30)
        await until("namespaces were asked", lambda: asked["policies"] >= len(SPACES), within=30)


async def scenario(env: Crowd) -> None:
    loop = asyncio.get_running_loop()
    refit(env.cluster, clock=loop.time)
    env.cluster.link.spec = PulsarSpec(admin_url="http://pulsar.messaging.svc:8080", requests_per_second=RATE)
    running = asyncio.create_task(ClusterSync(env.cluster, cast("Admin", env.pulsar), QUICK).run())
    try:
        spaces = env.cluster.stores.topic_namespaces.items
        await until("all is in step", lambda: all(r.bundles == 500 for r in spaces.values()), within=30)
        brokers = {broker_name_of_address(broker) for broker in IDS}
        await until("brokers are there", lambda: brokers <= env.cluster.stores.brokers.items.keys(), within=30)
        env.requests.clear()
        begun = loop.time()

        await env.rounds(3)

        assert env.writes() == 0
        asked = sum(env.pulsar.asked.values()) + env.pulsar.asked["policies"]  # which are two requests each
        assert asked <= RATE * (loop.time() - begun + 1), "the budget holds, with a second's worth at once"

        moved = env.pulsar.bundles(SPACES[0])[:MOVED]
        env.pulsar.owners |= dict.fromkeys(moved, IDS[0])
        changed = sum(i % len(IDS) != 0 for i in range(MOVED))
        await until("what moved is told", lambda: env.requests["patch"] >= changed, within=30)
        await env.rounds(2)
        assert env.writes() == changed
    finally:
        await ended(running)


def test_a_large_cluster_costs_writes_only_where_it_changes(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    async def whole() -> None:
        async with asyncio.timeout(120):
            env = Crowd(trimtab_crds, kube_namespace)
            await env.run_policy(cast("Any", scenario), {})

    asyncio.run(whole())
