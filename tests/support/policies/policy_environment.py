"""One policy's loop on a real API server, run step by step: the load is generated, brokers act when a test says so."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from faulty_api import until
from manifests import broker, bundle, eager_strategies, policy, topic_namespace
from static_sources import StaticSource, StaticSources
from strategy_testing.clusters import NOW
from trimtab_operator.app import new_cluster
from trimtab_operator.kube.client import Api
from trimtab_operator.kube.conditions import micro_timestamp
from trimtab_operator.kube.events import EventPoster
from trimtab_operator.kube.leader_election import LEASE
from trimtab_operator.kube.naming import bundle_name, parse_pulsar_bundle
from trimtab_operator.loop.policy_loop import PolicyLoop
from trimtab_operator.state.cluster import ClusterState, LostBrokers
from trimtab_operator.state.clusters import Clusters
from trimtab_operator.state.pending_moves import PendingMoves
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_operator.watched_namespaces import following
from trimtab_pipeline.api import LoadSource, Observation, Topology
from trimtab_strategies.model import ClusterLoad
from trimtab_testbed.servers.kube import ControlPlane

WINDOW = 60.0
"""Seconds over which rates are computed: a policy's default."""


def eager(**limits: Any) -> dict[str, Any]:
    """The spec of a policy that acts on the current load, without averages and minima."""
    return {"mode": "Auto", **eager_strategies(), "limits": limits}


def refit(cluster: ClusterState, **tools: Any) -> None:
    """Replace tools of a cluster's state in place. The state is frozen: only a test does that."""
    for name, tool in tools.items():
        object.__setattr__(cluster, name, tool)


def clusters_of(cluster: ClusterState) -> Clusters:
    """What a process shares that manages only `cluster`."""
    found = Clusters(cluster.process, cluster.metrics, cluster.events, cluster.engine)
    found.by_namespace[cluster.namespace] = cluster
    found.listed.set()
    return found


class PromptEvents(EventPoster):
    """Posts each Event before the test continues, so that `PolicyEnvironment.events` shows it."""

    async def post(self, *event: Any, **fields: Any) -> None:
        """Post one Event."""
        await super().post(*event, **fields)
        await self.flush()


class PolicyEnvironment:
    """The objects of `load` in a namespace of their own, and a cluster state with one policy `main`.

    `clock` (seconds) stands still unless a test moves it; the wall clock shows it plus `wall_step`.
    """

    def __init__(self, plane: ControlPlane, namespace: str, load: ClusterLoad) -> None:
        self.rest, self.namespace, self.load = plane.rest, namespace, load
        self.kubeconfig = str(plane.kubeconfig)
        self.clock, self.wall_step = NOW, 0.0
        self.source: LoadSource = StaticSource(load)
        self.requests = Counter[str]()
        self.names = {full: bundle_name(*parse_pulsar_bundle(full)) for full in load.bundles.names}

    def path(self, plural: str, name: str = "", sub: str = "") -> str:
        root = f"/apis/trimtab.dev/v1alpha1/namespaces/{self.namespace}/{plural}"
        return "/".join(filter(None, (root, name, sub)))

    def build(self) -> None:
        """Create the objects: every broker ready, every bundle served by its desired owner."""
        load = self.load
        for name in load.brokers.names:
            self.rest.create(self.path("brokers"), broker(name))
            self.rest.patch(self.path("brokers", name, "status"), {"status": {"ready": True}})
        for space in load.namespaces:
            tenant, name = space.split("/")
            manifest = topic_namespace(f"{tenant}-{name}", tenant=tenant, name=name)
            self.rest.create(self.path("topicnamespaces"), manifest)
        for full, owner in zip(load.bundles.names, load.bundles.owner.tolist(), strict=True):
            self.add_bundle(full, load.brokers.names[owner] if owner >= 0 else "")

    def add_bundle(self, full: str, owner: str) -> None:
        tenant, name, lower, upper = parse_pulsar_bundle(full)
        manifest = bundle(self.names[full], lower, upper, topicNamespace=f"{tenant}-{name}", owner=owner)
        self.rest.create(self.path("bundles"), manifest)
        if owner:
            status = {"owner": owner, "state": "Owned", "observedGeneration": 1}
            self.rest.patch(self.path("bundles", self.names[full], "status"), {"status": status})

    def create_policy(self, name: str = "main", **spec: Any) -> Any:
        base = {**eager(), "source": {"prometheus": {"url": "http://prometheus:9090"}}}
        return self.rest.create(self.path("balancingpolicies"), policy(name, **{**base, **spec}))

    def add_policy(self, name: str = "main", **spec: Any) -> PolicyLoop:
        """Create a policy and the loop that would run it."""
        made = self.create_policy(name, **spec)
        return PolicyLoop(name, made["metadata"]["uid"], self.cluster, lambda: self.policy(name))

    async def run_policy(
        self, scenario: Callable[[PolicyEnvironment], Awaitable[None]], spec: Mapping[str, Any]
    ) -> None:
        """Run `scenario` while the stores follow the API server."""
        self.build()
        async with Api.connect(self.kubeconfig, observe=self._count) as api:
            clocks = {"now": lambda: self.clock + self.wall_step, "clock": lambda: self.clock, "chance": lambda: 0.0}
            self.cluster = new_cluster(api, self.namespace, StaticSources(self), Metrics(), **clocks)
            refit(self.cluster, events=PromptEvents(api))
            self.cluster.engine.set()
            self.loop = self.add_policy(**spec)
            async with following(self.cluster):
                for store in self.cluster.stores.all():
                    await store.synced.wait()
                await scenario(self)
        await asyncio.sleep(0.05)  # for the shutdown of TLS connections, for which aiohttp does not wait

    def _count(self, verb: str, _code: str, _seconds: float) -> None:
        self.requests[verb] += 1

    # -- the source that the policy has opened --

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """What the current `source` measures."""
        return self.source.observe(topology, at)

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """What the current `source` measures of the brokers alone."""
        return self.source.observe_brokers(topology, at)

    # -- what happens --

    async def reconcile(self, *, after: float = 0.0) -> None:
        """Run one turn of the loop, `after` seconds later, on up-to-date stores."""
        self.clock += after
        await self.seen()
        await self.loop.reconcile()
        await self.seen()

    def restart(self) -> None:
        """Restart the operator: it then knows only what is on the API server."""
        self.loop = PolicyLoop("main", self.loop.uid, self.cluster, self.loop.read)
        refit(self.cluster, pending_moves=PendingMoves(), lost_brokers=LostBrokers())

    async def whole_turn(self, *, after: float = 0.0) -> None:
        """Run a turn as the running loop does, which survives errors."""
        self.clock += after
        await self.seen()
        stopped = asyncio.Event()
        running = asyncio.create_task(self.loop.run(stopped))
        await asyncio.sleep(0.05)
        stopped.set()
        await running
        await self.seen()

    async def cycle(self) -> None:
        """Run a turn in which a cycle is due."""
        await self.reconcile(after=WINDOW)

    async def seen(self) -> None:
        """Wait until the stores show what the API server has."""
        stores = self.cluster.stores
        kinds: tuple[tuple[str, Any], ...] = (
            ("bundles", stores.bundles),
            ("brokers", stores.brokers),
            ("bundlesplits", stores.splits),
        )
        for plural, store in kinds:
            versions = self.versions(plural)

            def shown(items: Any = store.items, versions: Mapping[str, str] = versions) -> bool:
                return {name: record.resource_version for name, record in items.items()} == versions

            await until(f"the store shows the {plural}", shown)

    async def land(self) -> None:
        """Let every broker confirm the bundles that it should serve, and wait until the stores have seen that."""
        self.confirm()
        await self.seen()

    def confirm(self) -> None:
        """Let every broker confirm the bundles that it should serve."""
        for name, found in self.bundles().items():
            generation, status = found["metadata"]["generation"], found.get("status", {})
            if found["spec"].get("owner") and generation > status.get("observedGeneration", 0):
                body = {"owner": found["spec"]["owner"], "state": "Owned", "observedGeneration": generation}
                self.rest.patch(self.path("bundles", name, "status"), {"status": body})

    def give(self, name: str, owner: str) -> None:
        """Set a bundle's desired owner, as a person does with kubectl."""
        self.rest.patch(self.path("bundles", name), {"spec": {"owner": owner}})

    def edit(self, **spec: Any) -> None:
        self.rest.patch(self.path("balancingpolicies", "main"), {"spec": spec})

    def hold_lease(self) -> None:
        """Create a Lease that an operator holds for the next hour."""
        spec = {
            "holderIdentity": "trimtab-1",
            "renewTime": micro_timestamp(time.time()),
            "leaseDurationSeconds": 3600,
        }
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}, "spec": spec}
        self.rest.create(f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases", body)

    # -- what there is --

    def policy(self, name: str = "main") -> Any:
        return self.rest.get(self.path("balancingpolicies", name))

    def status(self, name: str = "main") -> Any:
        return self.policy(name).get("status", {})

    def condition(self, kind: str, name: str = "main") -> tuple[str, str]:
        found = {c["type"]: (c["status"], c["reason"]) for c in self.status(name).get("conditions", [])}
        return found.get(kind, ("", ""))

    def message(self, kind: str, name: str = "main") -> str:
        """The message of the policy's condition of this kind."""
        (found,) = (c["message"] for c in self.status(name)["conditions"] if c["type"] == kind)
        return str(found)

    def held_back(self) -> dict[str, int]:
        """How often the last cycle held something back, by reason."""
        found: dict[str, int] = self.status()["lastCycle"]["heldBack"]
        return found

    def bundles(self) -> dict[str, Any]:
        return {item["metadata"]["name"]: item for item in self.rest.get(self.path("bundles"))["items"]}

    def desired_owners(self) -> dict[str, str]:
        return {name: found["spec"].get("owner", "") for name, found in self.bundles().items()}

    def owners(self) -> dict[str, str]:
        return {name: found.get("status", {}).get("owner", "") for name, found in self.bundles().items()}

    def versions(self, plural: str) -> dict[str, str]:
        items = self.rest.get(self.path(plural))["items"]
        return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}

    def events(self) -> list[tuple[str, str]]:
        """(reason, note) of each Event, a repetition as often as it was counted."""
        found = self.rest.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")["items"]
        return [(e["reason"], e["note"]) for e in found for _ in range(e.get("series", {}).get("count", 1))]

    def memory(self, name: str = "trimtab-memory-main") -> Any:
        found = self.rest.get(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}")
        return json.loads(found["data"]["memory.json"])


Scenario = Callable[[PolicyEnvironment], Awaitable[None]]


class RunPolicy(Protocol):
    """Runs a scenario on a cluster with the given load and policy."""

    def __call__(self, load: ClusterLoad, scenario: Scenario, /, **spec: Any) -> None: ...


def run_scenario(plane: ControlPlane, namespace: str, load: ClusterLoad, scenario: Scenario, **spec: Any) -> None:
    """Run `scenario` to its end in an environment of `load`, with a policy of `spec`."""

    async def whole() -> None:
        async with asyncio.timeout(60):
            await PolicyEnvironment(plane, namespace, load).run_policy(scenario, spec)

    asyncio.run(whole())
