"""Which Kubernetes namespaces are watched, and the tasks that keep their stores up to date.

The list is fixed, or contains all namespaces with a BalancingPolicy. A standby watches the same namespaces as the
leader, so that it can take over immediately.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from trimtab_operator.aio import ended, kept_running
from trimtab_operator.kube.broker_records import NodeRecord
from trimtab_operator.kube.client import POLICIES, Api, ApiError, RefusedError
from trimtab_operator.kube.store import Store
from trimtab_operator.kube.wire import NODES
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.clusters import Clusters

log = logging.getLogger(__name__)

LOOK_EVERY = 5.0
"""Seconds between two checks for namespaces with policies."""

LEAVE_AFTER = 300.0
"""Seconds without a policy after which a namespace is no longer watched. In this time, what the last policy changed in
Pulsar is restored."""

GAUGE_EVERY = 5.0


@asynccontextmanager
async def following(cluster: ClusterState) -> AsyncIterator[None]:
    """Keep the stores of `cluster` up to date for as long as the block runs."""
    tasks = [kept_running(f"store {store.ref.plural}", store.run) for store in cluster.stores.all()]
    if (nodes := cluster.stores.nodes) is not None:
        tasks.append(asyncio.create_task(_follow_nodes(cluster, nodes), name="store nodes"))
    try:
        yield
    finally:
        await ended(*tasks)


async def _follow_nodes(cluster: ClusterState, nodes: Store[NodeRecord]) -> None:
    """Keep `nodes` up to date. Without the permission to list nodes, log that once, and return."""
    try:
        async for _ in cluster.api.list(NODES, "", limit=1):
            break
    except RefusedError as error:
        log.warning(
            "can't watch nodes, so cordons are ignored; grant the permission to list nodes, or omit --watch-nodes: %s",
            error,
        )
        cluster.stores.nodes = None
        return
    except ApiError as error:
        log.warning("nodes: %s", error)  # the store tries again
    nodes.subscribe(lambda _old, _new: cluster.wake())
    await nodes.run()


async def gauge_stores(cluster: ClusterState) -> None:
    """Show the size and age of the stores in the metrics. Never returns."""
    for store in cluster.stores.all():
        await store.synced.wait()
    while True:
        for store in cluster.stores.all():
            cluster.metrics.store_objects.labels(store.ref.kind).set(len(store.items))
            cluster.metrics.store_age.labels(store.ref.kind).set(store.age())
        await asyncio.sleep(GAUGE_EVERY)


@asynccontextmanager
async def watching(
    api: Api, clusters: Clusters, namespaces: Iterable[str], make: Callable[[str], ClusterState]
) -> AsyncIterator[None]:
    """Keep `clusters` and their stores up to date while the block runs. make: makes the state of a namespace's cluster.

    namespaces: the fixed list; ignored if `clusters` has all namespaces.
    """
    watched = _Watched(api, clusters, make)
    looking = []
    if clusters.everywhere:
        looking.append(kept_running("namespaces with policies", watched.look))
    else:
        for namespace in namespaces:
            watched.add(namespace)
        clusters.listed.set()
    try:
        yield
    finally:
        await ended(*looking)
        await ended(*watched.tasks.values())


@dataclass(slots=True)
class _Watched:
    """The watched namespaces. tasks: the task of each. last: when each last had a policy (monotonic seconds)."""

    api: Api
    clusters: Clusters
    make: Callable[[str], ClusterState]
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)

    def add(self, namespace: str) -> None:
        cluster = self.make(namespace)
        self.clusters.by_namespace[namespace] = cluster
        self.tasks[namespace] = kept_running(f"stores of {namespace}", lambda: _keep(cluster))

    async def look(self) -> None:
        """Watch namespaces that have policies, and drop those that no longer have any. Never returns."""
        while True:
            try:
                with_policies = await self._with_policies()
            except ApiError as error:
                log.warning("can't find out which namespaces have policies: %s", error)
            else:
                await self._follow(with_policies, time.monotonic())
            await asyncio.sleep(LOOK_EVERY)

    async def _with_policies(self) -> set[str]:
        return {item["metadata"]["namespace"] async for page in self.api.list(POLICIES, "") for item in page.items}

    async def _follow(self, with_policies: set[str], now: float) -> None:
        self.last.update(dict.fromkeys(with_policies, now))
        for namespace in sorted(with_policies - self.tasks.keys()):
            log.info("namespace %s has a policy: watching it", namespace)
            self.add(namespace)
        self.clusters.listed.set()
        for namespace in [space for space, seen in self.last.items() if now - seen > LEAVE_AFTER]:
            log.info("namespace %s has had no policy for %.0f s: no longer watching it", namespace, LEAVE_AFTER)
            await self._leave(namespace)

    async def _leave(self, namespace: str) -> None:
        del self.clusters.by_namespace[namespace], self.last[namespace]
        self.clusters.metrics.forget_namespace(namespace)
        await ended(self.tasks.pop(namespace))


async def _keep(cluster: ClusterState) -> None:
    async with following(cluster):
        await gauge_stores(cluster)
