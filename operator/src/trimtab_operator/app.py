"""Puts the operator together: stores, the HTTP page, and what writes while we lead, in one event loop that ends as one.

Each process stands by first, with its stores filled and its engine warm, and only reads; see `leadership` for the rest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from trimtab_operator.aio import ended
from trimtab_operator.gc_tuning import leave_alone_what_is_there
from trimtab_operator.kube.broker_records import BrokerRecord, NodeRecord, broker_record, node_record, pod_record
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
from trimtab_operator.kube.lease import Elector
from trimtab_operator.kube.records import bundle_record, split_record, topic_namespace_record
from trimtab_operator.kube.store import Store
from trimtab_operator.kube.wire import NODES
from trimtab_operator.leadership import elected, kept_up, lead, stop_on_signal
from trimtab_operator.pulsar.bridge.connection import Bridge, parts
from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.pulsar.own_balancer.release import BalancerRelease
from trimtab_operator.reconcile.brokers import discover
from trimtab_operator.reconcile.hash_ring import RingStatus
from trimtab_operator.reconcile.namespaces import Examiner
from trimtab_operator.resources.urls import SERVICES_ALONE, AllowedUrls
from trimtab_operator.splits.controller import SplitController
from trimtab_operator.splits.declarative import DeclarativeSplitExecutor
from trimtab_operator.splits.pulsar import ChosenSplitExecutor
from trimtab_operator.state.cluster import ClusterState, Stores
from trimtab_operator.telemetry.http import serve
from trimtab_operator.telemetry.metrics import Metrics, watch_event_loop
from trimtab_pipeline.api import LoadSources, SourceUnavailableError

log = logging.getLogger(__name__)

DISCOVER_EVERY = 2.0
"""Seconds between two comparisons of pods and Broker objects."""

WARM_AGAIN = 30.0
"""Seconds until the engine is warmed up again after that failed."""

EXAMINE_EVERY = 2.0
"""Seconds between two looks at what topic namespaces ask for."""


@dataclass(frozen=True, slots=True)
class Where:
    """The Kubernetes namespace to look after, and the address of the HTTP page (port 0: any free one).

    urls: what policies may have asked. nodes: whether the nodes of pods are watched, as brokers on cordoned ones are
    drained.
    """

    namespace: str
    http_host: str = "127.0.0.1"
    http_port: int = 8080
    urls: AllowedUrls = SERVICES_ALONE
    nodes: bool = False


def new_context(
    api: Api, namespace: str, sources: LoadSources, metrics: Metrics, instance: str = "trimtab"
) -> ClusterState:
    """A context whose stores are not running yet. instance: who Events are from."""
    stores = Stores(
        bundles=Store(api, BUNDLES, bundle_record, namespace=namespace),
        brokers=Store(api, BROKERS, broker_record, namespace=namespace),
        pods=Store(api, PODS, pod_record, namespace=namespace),
        topic_namespaces=Store(api, TOPIC_NAMESPACES, topic_namespace_record, namespace=namespace),
        splits=Store(api, BUNDLE_SPLITS, split_record, namespace=namespace),
    )
    events = EventPoster(api, instance=instance)
    return ClusterState(api, namespace, stores, sources, metrics, events, time.time)


@asynccontextmanager
async def following(context: ClusterState) -> AsyncIterator[None]:
    """Keep the stores of `context` up to date for as long as the block runs."""
    tasks = [kept_up(f"store {store.ref.plural}", store.run) for store in context.stores.all()]
    if context.nodes is not None:
        tasks.append(asyncio.create_task(_follow_nodes(context, context.nodes), name="store nodes"))
    try:
        yield
    finally:
        await ended(*tasks)


async def _follow_nodes(context: ClusterState, nodes: Store[NodeRecord]) -> None:
    """Keep `nodes` up to date if we may; else say so once, and do without."""
    try:
        async for _ in context.api.list(NODES, "", limit=1):
            break
    except RefusedError as error:
        log.warning("cordoned nodes are not seen, give the right to list nodes or leave --watch-nodes out: %s", error)
        context.nodes = None
        return
    except ApiError as error:
        log.warning("nodes: %s", error)  # the store tries again
    nodes.subscribe(lambda _old, _new: context.wake())
    await nodes.run()


async def run_operator(
    api: Api,
    where: Where,
    sources: LoadSources,
    metrics: Metrics,
    elector: Elector,
) -> None:
    """Stand by, lead once elected, and end at SIGTERM or SIGINT. Writes under way are finished; nothing else is begun.

    api: behind the fence of `elector` (`kube.lease.candidate`). Raises `EpochsUsedUpError`, and `LeaseLostError`
    once all that led has ended.
    """
    context = new_context(api, where.namespace, sources, metrics, elector.candidacy.identity)
    context.urls = where.urls
    if where.nodes:
        context.nodes = Store(api, NODES, node_record, namespace="")
    stop = asyncio.Event()
    stop_on_signal(stop)
    tasks = [asyncio.create_task(warm_up(context), name="warm-up")]
    tasks.append(asyncio.create_task(_settle(context), name="settling"))
    tasks.append(kept_up("store gauges", lambda: _gauge_stores(context)))
    tasks.append(kept_up("watch of the event loop", lambda: watch_event_loop(metrics)))
    page = serve(where.http_host, where.http_port, metrics, lambda: readiness(context, elector))
    async with following(context), page as port:
        log.info("serving /metrics, /healthz and /readyz on %s:%d", where.http_host, port)
        try:
            if await elected(context, elector, stop):
                await lead(context, elector, stop, _writers(context, elector.fence))
        finally:
            await ended(*tasks)
            await elector.release()


def _writers(context: ClusterState, fence: Fence) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """What runs beside Kopf, and writes: only in the process that leads. fence: what writes to Pulsar pass, too."""
    bridge = Bridge(context, fence, parts)
    return {
        "bridge": bridge.run,
        "letting go": BalancerRelease(context, fence.check).run,
        "discovery": lambda: discover_brokers(context),
        "examination": lambda: examine_topic_namespaces(context),
        "splits": splits_of(context, lambda: bridge.admin).run,
    }


async def warm_up(context: ClusterState) -> None:
    """Start the engine while the stores fill, and try again until it is warm.

    Cycles wait for the first attempt alone, so that they can tell what is wrong; upkeep goes on without load meanwhile.
    """
    begun = time.monotonic()
    while context.cold is not None:
        context.cold = await _attempt(context)
        context.engine.set()
        context.wake()
        if context.cold is not None:
            await asyncio.sleep(WARM_AGAIN)
    log.info("the engine is warm after %.1f s", time.monotonic() - begun)


async def _attempt(context: ClusterState) -> str | None:
    """Warm the engine up once; why that failed, or None."""
    try:
        await asyncio.wrap_future(context.sources.warm_up())
    except SourceUnavailableError as error:
        log.error("no load can be measured: %s", error)  # noqa: TRY400  the text says it all
        return str(error)
    except Exception as error:
        log.exception("the engine did not become warm: the first cycle will tell what is wrong")
        return f"{type(error).__name__}: {error}"
    return None


async def discover_brokers(context: ClusterState) -> None:
    """Keep Broker objects in step with pods, forever."""
    while True:
        try:
            if not context.stores.stale():
                await discover_once(context)
        except ApiError as error:  # not there, or this process no longer leads and is about to end
            log.warning("discovery: %s", error)
        await asyncio.sleep(DISCOVER_EVERY)


async def discover_once(context: ClusterState) -> None:
    """Compare once. What is refused for one Broker does not keep the others from being known as lost.

    Raises `ApiUnavailableError`.
    """
    selectors = [s.pod_labels for s in context.policies.values() if s.pod_labels]
    pods, brokers = context.stores.pods.items.values(), context.stores.brokers.items
    policy_of = context.share_out().policy_of  # Kopf gives each policy's loop a copy of the context: its shares, too
    ids = _listed(context) if context.link.linked else None
    changes = discover(pods, brokers, selectors, context.now(), policy_of, forgotten=context.forgotten(), ids=ids)
    for manifest in changes.create:
        try:
            await context.api.create(BROKERS, context.namespace, manifest)
        except ConflictError:
            log.info("broker %s was created by somebody else", manifest["metadata"]["name"])
        except (RefusedError, NotFoundError) as error:
            log.warning("discovery: %s", error)
    for name, status in changes.status:
        try:
            await context.api.patch(BROKERS, context.namespace, name, {"status": status}, subresource="status")
        except (RefusedError, NotFoundError) as error:
            log.warning("discovery: %s", error)
    for broker in changes.delete:
        await _forget(context, broker)


def _listed(context: ClusterState) -> Mapping[str, str]:
    """The ids of brokers that Pulsar lists; of those that were ready, as long as it was not seen."""
    if context.link.ids is not None:
        return context.link.ids
    return {broker.name: broker.id for broker in context.stores.brokers.items.values() if broker.ready}


async def _forget(context: ClusterState, broker: BrokerRecord) -> None:
    """Delete the Broker of a pod that won't come back, unless somebody changes it at this moment."""
    try:
        await context.api.delete(BROKERS, context.namespace, broker.name, resource_version=broker.resource_version)
    except (RefusedError, NotFoundError, ConflictError) as error:
        log.warning("discovery: %s", error)
    else:
        log.info("broker %s is forgotten: its pod has been gone for long, and it owned nothing", broker.name)


async def examine_topic_namespaces(context: ClusterState) -> None:
    """Keep telling topic namespaces what is wrong with what they ask for, and with their hash rings."""
    examiner, rings = Examiner(context), RingStatus(context)
    while True:
        try:
            if not context.stores.stale():
                await examiner.examine()
                await rings.check()
        except ApiError as error:
            log.warning("examining topic namespaces: %s", error)
        await asyncio.sleep(EXAMINE_EVERY)


def splits_of(context: ClusterState, admin: Callable[[], Admin | None] = lambda: None) -> SplitController:
    """What carries out the BundleSplits of `context`. admin: the client of the linked Pulsar cluster that is open."""
    declarative = DeclarativeSplitExecutor(context.api, context.namespace, context.now)
    return SplitController(context, ChosenSplitExecutor(context, admin, declarative))


def readiness(context: ClusterState, elector: Elector) -> tuple[bool, str]:
    """Whether this process leads or could lead at once, and why not. A standby is as ready as the leader."""
    if stale := context.stores.stale():
        return False, stale
    if not context.engine.is_set():
        return False, "the engine is not warm yet"
    if context.cold:
        return False, f"the engine can't be warmed up, trying again every {WARM_AGAIN:g} s: {context.cold}"
    role = "leads" if context.leader else f"stands by for {elector.leader or 'nobody'}"
    return True, f"stores are complete and fresh; {elector.candidacy.identity} {role}"


async def _settle(context: ClusterState) -> None:
    """Once the stores are complete, spare the event loop the collector's looking at all of it."""
    for store in context.stores.all():
        await store.synced.wait()
    leave_alone_what_is_there()


async def _gauge_stores(context: ClusterState) -> None:
    for store in context.stores.all():
        await store.synced.wait()
    while True:
        for store in context.stores.all():
            context.metrics.store_objects.labels(store.ref.kind).set(len(store.items))
            context.metrics.store_age.labels(store.ref.kind).set(store.age())
        await asyncio.sleep(5.0)
