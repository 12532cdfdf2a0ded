"""Leader election: a standby waits for the Lease; the leader runs what writes, and ends with the Lease.

A process leads once. When it loses the Lease it exits, and Kubernetes starts another standby. So nothing has to be
undone in a process that was away for minutes. Our tasks start before Kopf: Kopf cancels every younger task when it
ends.

A new leader takes an epoch that was never used. It is one epoch for all policies, as a bundle may pass from one policy
to another. It must be above the epoch of every bundle, or the API server refuses our writes. The stored state of
policies counts too: a leader may have had an epoch without writing a bundle.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import kopf

from trimtab_operator import handlers
from trimtab_operator.aio import ended
from trimtab_operator.kube.client import POLICIES, Api, ApiError
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.lease import Elector, LeaseLostError
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.strategy_state import PolicyStateStore

log = logging.getLogger(__name__)


END_WITHIN = 8.0
"""Seconds that a process which lost its Lease gets to end in good order. It writes nothing in them."""


BEGIN_AGAIN = 5.0
"""Seconds until a background task that ended by a defect is begun again."""


ASK_AGAIN = 0.5
"""Seconds until the API server is asked again which epochs were used, when it did not say."""


async def elected(context: ClusterState, elector: Elector, stop: asyncio.Event) -> bool:
    """Stand by until we lead; False when told to stop before. Who does not know the cluster yet does not run."""
    log.info("%s stands by", elector.candidacy.identity)
    campaign, stopped = asyncio.create_task(_campaign(context, elector)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({campaign, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if campaign.done():
            campaign.result()
        return campaign.done()
    finally:
        await ended(campaign, stopped)


async def _campaign(context: ClusterState, elector: Elector) -> None:
    for store in context.stores.all():
        await store.synced.wait()
    await elector.campaign(led_before=any(b.assigned_epoch for b in context.stores.bundles.items.values()))


async def lead(
    context: ClusterState, elector: Elector, stop: asyncio.Event, writers: Mapping[str, Callable[[], Awaitable[None]]]
) -> None:
    """Run Kopf and `writers` (by name) until `stop`, or until the Lease is lost.

    Raises `LeaseLostError`, `EpochsUsedUpError`.
    """
    keeping = asyncio.create_task(elector.keep(), name="lease")
    keeping.add_done_callback(lambda task: None if task.cancelled() else _stop_leading(stop))
    tasks: list[asyncio.Task[Any]] = [keeping]
    try:
        await _begin(context, elector)
        tasks += [kept_up(name, run) for name, run in writers.items()]
        tasks.append(asyncio.create_task(_take_signals_back(stop), name="signals again"))
        await _run_kopf(context, elector.fence, stop)
        if keeping.done():
            keeping.result()
        await take_leave(context, elector.reference)
    finally:
        context.metrics.leader.set(0)
        await ended(*tasks)


async def _begin(context: ClusterState, elector: Elector) -> None:
    """Claim an epoch, and say who leads. Raises `LeaseLostError` when that takes too long."""
    while elector.fence.left:
        try:
            context.epoch = await elector.claim(await unused_epoch(context))
        except ApiError as error:
            log.warning("which epochs were used is not known yet: %s", error)
            await asyncio.sleep(ASK_AGAIN)
        else:
            context.leader = elector.candidacy.identity
            await announce(context, elector.reference)
            return
    raise LeaseLostError("the Lease ran out before leading could begin")


def _stop_leading(stop: asyncio.Event) -> None:
    """The Lease is lost. If ending in good order takes too long, the process just ends."""
    stop.set()
    last = threading.Timer(END_WITHIN, _end_at_once)
    last.daemon = True
    last.start()


def _end_at_once() -> None:
    log.critical(
        "the Lease is lost, and no good end came of it in %g s: ending, to begin anew as a standby", END_WITHIN
    )
    os._exit(1)


def kept_up(name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    """A task that runs until it is cancelled: what ends by a defect is logged, and begun again."""

    async def keep_up() -> None:
        while True:
            try:
                await run()
            except Exception:
                log.exception("%s ended, beginning again in %.0f s", name, BEGIN_AGAIN)
            await asyncio.sleep(BEGIN_AGAIN)

    return asyncio.create_task(keep_up(), name=name)


async def _run_kopf(context: ClusterState, fence: Fence, stop: asyncio.Event) -> None:
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


def stop_on_signal(stop: asyncio.Event) -> None:
    """Set `stop` at SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


async def _take_signals_back(stop: asyncio.Event) -> None:
    """From Kopf, whose handler can't be told twice."""
    await asyncio.sleep(1.0)
    stop_on_signal(stop)


async def unused_epoch(context: ClusterState) -> int:
    """The smallest epoch above all that bundles and policies know of. Raises `ApiError`."""
    bundles = context.stores.bundles.items.values()
    highest = max((bundle.assigned_epoch for bundle in bundles), default=0)
    async for page in context.api.list(POLICIES, context.namespace):
        for policy in page.items:
            highest = max(highest, await _remembered_epoch(context, policy["metadata"]))
    return highest + 1


async def _remembered_epoch(context: ClusterState, policy: Mapping[str, Any]) -> int:
    store = PolicyStateStore(context.api, context.namespace, policy["name"], policy["uid"])
    try:
        return (await store.load()).epoch
    except UnreadableContentError as error:
        log.warning("policy %s: %s", policy["name"], error)  # its loop will tell the people, too
        return 0


async def announce(context: ClusterState, lease: Mapping[str, Any]) -> None:
    """Tell everybody that we lead: log, metric and an Event on the Lease. Conditions follow with the first cycles."""
    context.metrics.leader.set(1)
    context.metrics.epoch.set(context.epoch)
    text = f"{context.leader} leads, epoch {context.epoch}"
    log.info("%s", text)
    await context.events.post(lease, "Normal", "LeaderElected", text, action="Elect")


async def take_leave(context: ClusterState, lease: Mapping[str, Any]) -> None:
    """Tell that we end leading in good order."""
    context.metrics.leader.set(0)
    await context.events.post(lease, "Normal", "LeaderResigned", f"{context.leader} ends leading", action="Elect")
