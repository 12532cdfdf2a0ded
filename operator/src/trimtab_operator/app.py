"""Puts the operator together: stores, the HTTP page, the Lease, discovery and Kopf, in one event loop that ends as one.

Each process stands by first, with its stores filled and its engine warm; that reads only. Once it holds the Lease it
leads: discovery, the examination of topic namespaces and Kopf start, which are all that writes. It leads once: when it
loses the Lease it ends, and whoever runs it (Kubernetes) starts another standby.

Order matters: our own tasks start before Kopf, because Kopf cancels every task younger than itself when it ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import kopf

from trimtab_operator import handlers
from trimtab_operator.actuators.dividing import DeclarativeDivider
from trimtab_operator.cluster.api import (
    BROKERS,
    BUNDLE_SPLITS,
    BUNDLES,
    PODS,
    TOPIC_NAMESPACES,
    Api,
    ApiError,
    ApiUnavailableError,
    ConflictError,
    NotFoundError,
    RefusedError,
)
from trimtab_operator.cluster.brokers import broker_record, pod_record
from trimtab_operator.cluster.bundles import bundle_record
from trimtab_operator.cluster.events import EventPoster
from trimtab_operator.cluster.fence import Fence
from trimtab_operator.cluster.lease import Elector
from trimtab_operator.cluster.splits import split_record
from trimtab_operator.cluster.store import Store
from trimtab_operator.cluster.topic_namespaces import topic_namespace_record
from trimtab_operator.control.context import Context, Stores
from trimtab_operator.control.discovery import discover
from trimtab_operator.control.examining import Examiner
from trimtab_operator.control.leading import announce, take_leave, unused_epoch
from trimtab_operator.control.splitting import Splits
from trimtab_operator.resources.urls import SERVICES_ALONE, AllowedUrls
from trimtab_operator.telemetry.http import serve
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.source import LoadSources, SourceUnavailableError

log = logging.getLogger(__name__)

DISCOVER_EVERY = 2.0
"""Seconds between two comparisons of pods and Broker objects."""

EXAMINE_EVERY = 2.0
"""Seconds between two looks at what topic namespaces ask for."""

END_WITHIN = 8.0
"""Seconds that a process which lost its Lease gets to end in good order. It writes nothing in them."""

BEGIN_AGAIN = 5.0
"""Seconds until a background task that ended by a defect is begun again."""


@dataclass(frozen=True, slots=True)
class Where:
    """The Kubernetes namespace to look after, and the address of the HTTP page (port 0: any free one).

    urls: what policies may have asked.
    """

    namespace: str
    http_host: str = "127.0.0.1"
    http_port: int = 8080
    urls: AllowedUrls = SERVICES_ALONE


def new_context(api: Api, namespace: str, sources: LoadSources, metrics: Metrics, instance: str = "trimtab") -> Context:
    """A context whose stores are not running yet. instance: who Events are from."""
    stores = Stores(
        bundles=Store(api, BUNDLES, bundle_record, namespace=namespace),
        brokers=Store(api, BROKERS, broker_record, namespace=namespace),
        pods=Store(api, PODS, pod_record, namespace=namespace),
        topic_namespaces=Store(api, TOPIC_NAMESPACES, topic_namespace_record, namespace=namespace),
        splits=Store(api, BUNDLE_SPLITS, split_record, namespace=namespace),
    )
    events = EventPoster(api, instance=instance)
    return Context(api, namespace, stores, sources, metrics, events, time.time)


@asynccontextmanager
async def following(context: Context) -> AsyncIterator[None]:
    """Keep the stores of `context` up to date for as long as the block runs."""
    tasks = [_kept_up(f"store {store.ref.plural}", store.run) for store in context.stores.all()]
    try:
        yield
    finally:
        await _end(tasks)


async def run_operator(
    api: Api,
    where: Where,
    sources: LoadSources,
    metrics: Metrics,
    elector: Elector,
) -> None:
    """Stand by, lead once elected, and end at SIGTERM or SIGINT. Writes under way are finished; nothing else is begun.

    api: behind the fence of `elector` (`cluster.lease.candidate`). Raises `EpochsUsedUpError`, and `LeaseLostError`
    once all that led has ended.
    """
    context = new_context(api, where.namespace, sources, metrics, elector.candidacy.identity)
    context.urls = where.urls
    stop = asyncio.Event()
    tasks = [asyncio.create_task(_stop_on_signal(stop), name="signals")]
    tasks.append(asyncio.create_task(_warm_up(context), name="warm-up"))
    tasks.append(_kept_up("store gauges", lambda: _gauge_stores(context)))
    page = serve(where.http_host, where.http_port, metrics, lambda: readiness(context, elector))
    async with following(context), page as port:
        log.info("serving /metrics, /healthz and /readyz on %s:%d", where.http_host, port)
        try:
            if await _elected(context, elector, stop):
                await _lead(context, elector, stop)
        finally:
            await _end(tasks)
            await elector.release()


async def _elected(context: Context, elector: Elector, stop: asyncio.Event) -> bool:
    """Stand by until we lead; False when told to stop before. Who does not know the cluster yet does not run."""
    log.info("%s stands by", elector.candidacy.identity)
    campaign, stopped = asyncio.create_task(_campaign(context, elector)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({campaign, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return campaign.done()
    finally:
        await _end([campaign, stopped])


async def _campaign(context: Context, elector: Elector) -> None:
    for store in context.stores.all():
        await store.synced.wait()
    await elector.campaign()


async def _lead(context: Context, elector: Elector, stop: asyncio.Event) -> None:
    """Lead until `stop`, or until the Lease is lost. Only here anything is written. Raises `LeaseLostError`."""
    keeping = asyncio.create_task(elector.keep(), name="lease")
    keeping.add_done_callback(lambda _: _stop_leading(stop))
    tasks: list[asyncio.Task[Any]] = [keeping]
    try:
        context.epoch = await elector.claim(await unused_epoch(context))
        context.leader = elector.candidacy.identity
        await announce(context, elector.reference)
        tasks.append(_kept_up("discovery", lambda: discover_brokers(context)))
        tasks.append(_kept_up("examination", lambda: examine_topic_namespaces(context)))
        tasks.append(_kept_up("splits", splits_of(context).run))
        tasks.append(asyncio.create_task(_take_signals_back(stop), name="signals again"))
        await _run_kopf(context, elector.fence, stop)
        if not keeping.done():
            await take_leave(context, elector.reference)
    finally:
        context.metrics.leader.set(0)
        lost = keeping.done()
        await _end(tasks)
    if lost:
        keeping.result()


def _stop_leading(stop: asyncio.Event) -> None:
    """Told when the Lease is not kept any more. If ending in good order takes too long, the process just ends."""
    stop.set()
    last = threading.Timer(END_WITHIN, os._exit, (1,))
    last.daemon = True
    last.start()


def _kept_up(name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """A task that runs until it is cancelled: what ends by a defect is logged, and begun again."""

    async def keep_up() -> None:
        while True:
            try:
                await run()
            except Exception:
                log.exception("%s ended, beginning again in %.0f s", name, BEGIN_AGAIN)
            await asyncio.sleep(BEGIN_AGAIN)

    return asyncio.create_task(keep_up(), name=name)


async def _warm_up(context: Context) -> None:
    """Start the engine while the stores fill. Cycles wait for it; upkeep goes on without load meanwhile."""
    begun = time.monotonic()
    try:
        await asyncio.wrap_future(context.sources.warm_up())
    except SourceUnavailableError as error:
        log.error("no load can be measured: %s", error)  # noqa: TRY400  the text says it all
    except Exception:
        log.exception("the engine did not become warm: the first cycle will tell what is wrong")
    else:
        log.info("the engine is warm after %.1f s", time.monotonic() - begun)
    finally:
        context.engine.set()
        context.wake()


async def _run_kopf(context: Context, fence: Fence, stop: asyncio.Event) -> None:
    registry = handlers.registry()
    kopf.on.login(registry=registry)(_login(context.api, fence))
    await kopf.operator(
        registry=registry,
        settings=handlers.operator_settings(),
        memo=context,
        standalone=True,
        namespaces=[context.namespace],
        stop_flag=stop,
    )


def _login(api: Api, fence: Fence) -> Callable[..., Awaitable[kopf.AiohttpSession]]:
    async def login(**_: object) -> kopf.AiohttpSession:
        """The credentials that the rest of the operator uses, read afresh (tokens rotate), and behind the same fence.

        Kopf closes the session.
        """
        info = kopf.ConnectionInfo(**await api.credentials())
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers=info.as_http_headers(),
            proxy=info.proxy_url,
            request_class=fence.requests(),
        )
        return kopf.AiohttpSession(server=info.server, aiohttp_session=session)

    return login


async def _stop_on_signal(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


async def _take_signals_back(stop: asyncio.Event) -> None:
    """From Kopf, whose handler can't be told twice."""
    await asyncio.sleep(1.0)
    await _stop_on_signal(stop)


async def discover_brokers(context: Context) -> None:
    """Keep Broker objects in step with pods, forever."""
    while True:
        try:
            if not context.stores.stale():
                await discover_once(context)
        except ApiUnavailableError as error:
            log.warning("discovery: %s", error)
        await asyncio.sleep(DISCOVER_EVERY)


async def discover_once(context: Context) -> None:
    """Compare once. What is refused for one Broker does not keep the others from being known as lost.

    Raises `ApiUnavailableError`.
    """
    selectors = [s.pod_labels for s in context.policies.values() if s.pod_labels]
    pods, brokers = context.stores.pods.items.values(), context.stores.brokers.items
    changes = discover(pods, brokers, selectors, context.now(), context.shares.policy_of)
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


async def examine_topic_namespaces(context: Context) -> None:
    """Keep telling topic namespaces whether what they ask for can be had, forever."""
    examiner = Examiner(context)
    while True:
        try:
            if not context.stores.stale():
                await examiner.examine()
        except ApiError as error:
            log.warning("examining topic namespaces: %s", error)
        await asyncio.sleep(EXAMINE_EVERY)


def splits_of(context: Context) -> Splits:
    """What carries out the BundleSplits of `context`."""
    return Splits(context, DeclarativeDivider(context.api, context.namespace, context.now))


def readiness(context: Context, elector: Elector) -> tuple[bool, str]:
    """Whether this process leads or could lead at once, and why not. A standby is as ready as the leader."""
    if stale := context.stores.stale():
        return False, stale
    if not context.engine.is_set():
        return False, "the engine is not warm yet"
    role = "leads" if context.leader else f"stands by for {elector.leader or 'nobody'}"
    return True, f"stores are complete and fresh; {elector.candidacy.identity} {role}"


async def _gauge_stores(context: Context) -> None:
    for store in context.stores.all():
        await store.synced.wait()
    while True:
        for store in context.stores.all():
            context.metrics.store_objects.labels(store.ref.kind).set(len(store.items))
            context.metrics.store_age.labels(store.ref.kind).set(store.age())
        await asyncio.sleep(5.0)


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
