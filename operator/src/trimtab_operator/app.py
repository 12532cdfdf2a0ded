"""Runs the operator: its stores, the HTTP server and, while it leads, the tasks that write, in one event loop.

Each process first stands by: it fills its stores, warms up the engine (Spark), and only reads. `leadership` describes
what follows.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.aio import ended, freeze_heap, kept_running, measure_delay
from trimtab_operator.kube.broker_records import BrokerRecord, broker_record, node_record, pod_record
from trimtab_operator.kube.client import (
    BROKERS,
    BUNDLE_SPLITS,
    BUNDLES,
    PODS,
    TOPIC_NAMESPACES,
    Api,
    ApiError,
    ConflictError,
    NotFoundError,
    RefusedError,
)
from trimtab_operator.kube.events import EventPoster
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.leader_election import Elector
from trimtab_operator.kube.records import bundle_record, split_record, topic_namespace_record
from trimtab_operator.kube.store import Store
from trimtab_operator.kube.wire import NODES
from trimtab_operator.leadership import elected, lead, stop_on_signal
from trimtab_operator.loop.policy_tasks import PolicyTasks
from trimtab_operator.pulsar.bridge.connection import Bridge, parts
from trimtab_operator.pulsar.own_balancer.restore import BalancerRelease
from trimtab_operator.reconcile.brokers import discover, left_behind
from trimtab_operator.reconcile.hash_ring import RingStatus
from trimtab_operator.reconcile.namespaces import Cutter, Examiner
from trimtab_operator.reconcile.unreadable import UnreadableObjects
from trimtab_operator.resources.urls import SERVICES_ALONE, AllowedUrls
from trimtab_operator.splits.controller import SplitController
from trimtab_operator.splits.declarative import DeclarativeSplitExecutor
from trimtab_operator.splits.pulsar import ChosenSplitExecutor
from trimtab_operator.state.cluster import ClusterState, ProcessState, Stores
from trimtab_operator.state.clusters import Clusters
from trimtab_operator.state.ownership_changes import OwnershipChanges
from trimtab_operator.telemetry.http import serve
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_operator.watched_namespaces import watching
from trimtab_pipeline.api import LoadSources, SourceUnavailableError

log = logging.getLogger(__name__)

DISCOVER_EVERY = 2.0
"""Seconds between two comparisons of pods and Broker objects."""

WARM_AGAIN = 30.0
"""Seconds until the next attempt to warm the engine up."""

EXAMINE_EVERY = 2.0
"""Seconds between two examinations of the TopicNamespaces."""


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """Options of the operator.

    namespaces: those of the messaging clusters (empty: all). http_port: 0 means any free one. urls: the URLs that
    policies may name. nodes: whether nodes are watched, so that brokers on cordoned nodes are drained.
    """

    namespaces: tuple[str, ...]
    http_host: str = "127.0.0.1"
    http_port: int = 8080
    urls: AllowedUrls = SERVICES_ALONE
    nodes: bool = False

    def others_than(self, namespace: str) -> bool:
        """Whether the operator manages other namespaces than `namespace`, its own."""
        return self.namespaces != (namespace,)


def new_cluster(
    api: Api, namespace: str, sources: LoadSources, metrics: Metrics, instance: str = "trimtab", **tools: Any
) -> ClusterState:
    """The state of a cluster, with stores that do not run yet.

    instance: the reporter of Events. tools: other arguments of `ClusterState`, such as `urls`.
    """
    stores = Stores(
        bundles=Store(api, BUNDLES, bundle_record, namespace=namespace),
        brokers=Store(api, BROKERS, broker_record, namespace=namespace),
        pods=Store(api, PODS, pod_record, namespace=namespace),
        topic_namespaces=Store(api, TOPIC_NAMESPACES, topic_namespace_record, namespace=namespace),
        splits=Store(api, BUNDLE_SPLITS, split_record, namespace=namespace),
    )

    changes = OwnershipChanges(lambda bundle, owner: left_behind(cluster, bundle, owner))
    events = EventPoster(api, instance=instance)
    cluster = ClusterState(api, namespace, stores, sources, metrics, events, changes, **tools)
    cluster.subscribe()
    return cluster


async def run_operator(
    api: Api, options: OperatorOptions, sources: LoadSources, metrics: Metrics, elector: Elector
) -> None:
    """Stand by, lead once elected, and return after SIGTERM or SIGINT. Started writes finish, and no new one starts.

    api: its writes pass the fence of `elector` (`kube.leader_election.candidate`). Raises `LeaseLostError` once
    all tasks of the leader have ended.
    """
    instance = elector.candidacy.identity
    events, everywhere = EventPoster(api, instance=instance), not options.namespaces
    clusters = Clusters(ProcessState(), metrics, events, asyncio.Event(), everywhere=everywhere)
    labelled = options.others_than(elector.namespace)  # else Prometheus adds the pod's namespace as a label

    def make(namespace: str) -> ClusterState:
        own = metrics.of_namespace(namespace) if labelled else metrics
        shared = {"process": clusters.process, "engine": clusters.engine, "urls": options.urls}
        cluster = new_cluster(api, namespace, sources, own, instance, **shared)
        if options.nodes:
            cluster.stores.nodes = Store(api, NODES, node_record, namespace="")
        return cluster

    stop = asyncio.Event()
    stop_on_signal(stop)
    tasks = [asyncio.create_task(warm_up(clusters, sources), name="warm-up")]
    tasks.append(asyncio.create_task(_settle(clusters), name="settling"))
    tasks.append(kept_running("watch of the event loop", lambda: measure_delay(metrics.loop_delay.observe)))
    page = serve(options.http_host, options.http_port, metrics, lambda: readiness(clusters, elector))
    try:
        async with watching(api, clusters, options.namespaces, make), page as port:
            log.info("serving /metrics, /healthz and /readyz on %s:%d", options.http_host, port)
            try:
                if await elected(clusters, elector, stop):
                    await lead(api, clusters, elector, stop, lambda cluster: _writers(clusters, cluster, elector.fence))
            finally:
                await elector.release()
    finally:
        await ended(*tasks)


def _writers(clusters: Clusters, cluster: ClusterState, fence: Fence) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """The tasks of the leader that write in one of the `clusters`. fence: it also checks writes to Pulsar."""
    bridge = Bridge(cluster, fence, parts)
    declarative = DeclarativeSplitExecutor(cluster.api, cluster.namespace, cluster.now)
    splits = SplitController(cluster, ChosenSplitExecutor(cluster, lambda: bridge.admin, declarative))
    return {
        "policies": PolicyTasks(cluster, clusters.policies[cluster.namespace]).run,
        "bridge": bridge.run,
        "release": BalancerRelease(cluster, fence.check).run,
        "discovery": lambda: discover_brokers(cluster),
        "examination": lambda: examine_topic_namespaces(cluster),
        "splits": splits.run,
    }


async def warm_up(clusters: Clusters, sources: LoadSources) -> None:
    """Warm the engine up while the stores fill, and try again until that succeeds.

    Cycles wait for the first attempt only, so that they can report why it failed. Repairs of bundles do not wait.
    """
    begun, process = time.monotonic(), clusters.process
    while process.cold is not None:
        process.cold = await _attempt(sources)
        clusters.engine.set()
        clusters.wake()
        if process.cold is not None:
            await asyncio.sleep(WARM_AGAIN)
    log.info("the engine is warm after %.1f s", time.monotonic() - begun)


async def _attempt(sources: LoadSources) -> str | None:
    """Warm the engine up once. Returns why that failed, or None."""
    try:
        await asyncio.wrap_future(sources.warm_up())
    except SourceUnavailableError as error:
        log.error("no load can be measured: %s", error)  # noqa: TRY400  the text is enough
        return str(error)
    except Exception as error:
        log.exception("the engine can't be warmed up; the first cycle will report why")
        return f"{type(error).__name__}: {error}"
    return None


async def discover_brokers(cluster: ClusterState) -> None:
    """Keep the Broker objects consistent with the pods."""
    while True:
        try:
            if not cluster.stores.stale():
                await discover_once(cluster)
        except ApiError as error:  # no answer, or this process no longer leads and is about to exit
            log.warning("discovery: %s", error)
        await asyncio.sleep(DISCOVER_EVERY)


async def discover_once(cluster: ClusterState) -> None:
    """Update the Broker objects once. If the write of one is refused, the others are still updated.

    Raises `ApiUnavailableError`.
    """
    selectors = [s.pod_labels for s in cluster.policies.settings.values() if s.pod_labels]
    pods, brokers = cluster.stores.pods.items.values(), cluster.stores.brokers.items
    policy_of = cluster.share_out().policy_of
    ids = _listed(cluster) if cluster.link.linked else None
    changes = discover(pods, brokers, selectors, cluster.now(), policy_of, forgotten=cluster.forgotten(), ids=ids)
    for manifest in [m for m in changes.create if m["metadata"]["name"] not in cluster.stores.brokers.unreadable]:
        try:
            await cluster.api.create(BROKERS, cluster.namespace, manifest)
        except ConflictError:
            log.info("broker %s was created by another client", manifest["metadata"]["name"])
        except (RefusedError, NotFoundError) as error:
            log.warning("discovery: %s", error)
    for name, status in changes.status:
        body = _unless_changed(cluster, name, status)
        try:
            await cluster.api.patch(BROKERS, cluster.namespace, name, body, subresource="status")
        except ConflictError:
            log.debug("discovery: broker %s has changed meanwhile; it is compared again", name)
        except (RefusedError, NotFoundError) as error:
            log.warning("discovery: %s", error)
    for broker in changes.delete:
        await _forget(cluster, broker)


def _unless_changed(cluster: ClusterState, name: str, status: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch of a status. One that contains conditions fails if the Broker has changed.

    The reason is that a merge patch replaces the whole list of conditions.
    """
    known = cluster.stores.brokers.items.get(name)
    if known is None or "conditions" not in status:
        return {"status": status}
    return {"metadata": {"resourceVersion": known.resource_version}, "status": status}


def _listed(cluster: ClusterState) -> Mapping[str, str]:
    """The ids of the brokers that Pulsar lists. Until it has answered: the ids of the ready Brokers."""
    if cluster.link.ids is not None:
        return cluster.link.ids
    return {broker.name: broker.id for broker in cluster.stores.brokers.items.values() if broker.ready}


async def _forget(cluster: ClusterState, broker: BrokerRecord) -> None:
    """Delete the Broker of a pod that won't come back, unless the Broker has changed."""
    try:
        await cluster.api.delete(BROKERS, cluster.namespace, broker.name, resource_version=broker.resource_version)
    except (RefusedError, NotFoundError, ConflictError) as error:
        log.warning("discovery: %s", error)
    else:
        log.info("broker %s is deleted: its pod has long been gone, and it owned no bundle", broker.name)


async def examine_topic_namespaces(cluster: ClusterState) -> None:
    """Cut TopicNamespaces into bundles, and update their conditions: those on their spec and on their hash ring.

    Also report objects that can't be read.
    """
    cutter, examiner, rings = Cutter(cluster), Examiner(cluster), RingStatus(cluster)
    unreadable = UnreadableObjects(cluster)
    while True:
        try:
            if not cluster.stores.stale():
                await examiner.examine()
                await rings.check()
                await cutter.cut()
                await unreadable.report()
        except ApiError as error:
            log.warning("examining topic namespaces: %s", error)
        await asyncio.sleep(EXAMINE_EVERY)


def readiness(clusters: Clusters, elector: Elector) -> tuple[bool, str]:
    """Whether this process leads or could lead immediately, and a text that says why. A standby can be ready, too.

    A process may lead before Spark has started: bundles get owners and moves land, and only cycles wait. If Spark fails
    to start, the process is not ready, so a roll-out of pods without a usable Spark stops there.
    """
    if stale := clusters.stale():
        return False, stale
    if clusters.process.cold:
        return False, f"the engine can't be warmed up, trying again every {WARM_AGAIN:g} s: {clusters.process.cold}"
    role = "leads" if clusters.process.leader else f"stands by for {elector.leader or 'an unknown leader'}"
    spark = "" if clusters.engine.is_set() else "; Spark is starting, and cycles wait for it"
    return True, f"stores are complete and fresh; {elector.candidacy.identity} {role}{spark}"


async def _settle(clusters: Clusters) -> None:
    """Exempt the complete stores from garbage collection."""
    await clusters.synced()
    freeze_heap()
