"""Runs the operator as a standby until it is elected, then as the leader. Only the leader runs tasks that write.

A process leads once. When it loses the Lease it exits, and Kubernetes starts another standby. So a process that was
suspended for minutes has nothing to undo. Kopf, when it stops, cancels every task that started after it, so the tasks
that write end before that: their started writes finish.

A new leader takes an epoch that was never used. All policies share the epoch, because a bundle may pass from one policy
to another. The epoch must be above that of every bundle, or the API server refuses our writes. It must also be above
the epochs in the stored state of policies, because an earlier leader may have stored state without a write to a bundle.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import aiohttp

from trimtab_operator.aio import ended, kept_running
from trimtab_operator.kube.client import AT_ONCE, Api, ApiError
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.leader_election import Elector, LeaseLostError
from trimtab_operator.namespace_admission import NamespaceAdmission, Writers, counted_epoch, policies_of
from trimtab_operator.state.clusters import Clusters
from trimtab_operator.state.other_leaders import active

if TYPE_CHECKING:
    import kopf

log = logging.getLogger(__name__)


END_WITHIN = 8.0
"""Seconds that a process has to exit by itself after it lost its Lease. It writes nothing meanwhile."""


_WATCHES = 4
"""Connections that Kopf's watches of one namespace may occupy: two, and as many that are being replaced."""

ASK_AGAIN = 0.5
"""Seconds until the next attempt to read which epochs were used."""


async def elected(clusters: Clusters, elector: Elector, stop: asyncio.Event) -> bool:
    """Stand by until we lead. Returns False if `stop` is set first. A process with incomplete stores can't lead."""
    log.info("%s stands by", elector.candidacy.identity)
    campaign, stopped = asyncio.create_task(_campaign(clusters, elector)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({campaign, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if campaign.done():
            campaign.result()
        return campaign.done()
    finally:
        await ended(campaign, stopped)


async def _campaign(clusters: Clusters, elector: Elector) -> None:
    await clusters.synced()
    bundles = (bundle for cluster in clusters.all() for bundle in cluster.stores.bundles.items.values())
    await elector.campaign(led_before=any(bundle.assigned_epoch for bundle in bundles))


async def lead(api: Api, clusters: Clusters, elector: Elector, stop: asyncio.Event, writers: Writers) -> None:
    """Run Kopf, and the `writers` of each cluster, until `stop`, or until the Lease is lost or this leader is deposed.

    Raises `LeaseLostError`, also for a deposed leader.
    """
    keeping = asyncio.create_task(elector.keep(), name="lease")
    keeping.add_done_callback(lambda task: None if task.cancelled() else _stop_leading(clusters, stop))
    tasks: list[asyncio.Task[Any]] = [keeping]
    admission = NamespaceAdmission(clusters, elector, stop, writers)
    try:
        admission.counted |= await _begin(clusters, elector)
        await admission.look()
        tasks.append(admitting := kept_running("admission", admission.run))
        tasks.append(asyncio.create_task(_take_signals_back(stop), name="signals again"))
        watching = asyncio.create_task(_run_kopf(clusters, api, elector.fence, stop), name="kopf")
        tasks += [watching, stopped := asyncio.create_task(stop.wait())]
        await asyncio.wait({watching, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await ended(admitting)
        await admission.end()  # while we still lead
        await watching
        if keeping.done():
            keeping.result()
        await take_leave(clusters, elector.reference)
        if clusters.process.deposed:
            raise LeaseLostError(clusters.process.deposed)
    finally:
        clusters.metrics.leader.set(0)
        await ended(*tasks)
        await admission.end()


async def _begin(clusters: Clusters, elector: Elector) -> set[str]:
    """Claim an epoch, and announce the leader. Raises `LeaseLostError` if that takes too long.

    Returns the namespaces whose epochs are all below the claimed one.
    """
    clusters.process.lease = f"{elector.namespace}/{elector.candidacy.name}"
    while elector.fence.left:
        try:
            unused = {}
            for cluster in clusters.all():
                if active(await policies_of(cluster), clusters.process.lease, cluster.now()) is None:
                    unused[cluster.namespace] = await counted_epoch(cluster, elector)
            clusters.process.epoch = await elector.claim(max(unused.values(), default=1))
        except ApiError as error:
            log.warning("can't read yet which epochs were used: %s", error)
            await asyncio.sleep(ASK_AGAIN)
        else:
            clusters.process.leader = elector.candidacy.identity
            await announce(clusters, elector.reference)
            return set(unused)
    raise LeaseLostError("the Lease ran out before leading could begin")


def _stop_leading(clusters: Clusters, stop: asyncio.Event) -> None:
    """Stop, because the Lease is lost, and kill the process if that takes too long."""
    clusters.metrics.leader.set(0)  # now, not seconds later, because another process leads
    stop.set()
    last = threading.Timer(END_WITHIN, _end_at_once)
    last.daemon = True
    last.start()


def _end_at_once() -> None:
    log.critical(
        "the Lease is lost, and the process did not stop within %g s: exiting, to restart as a standby", END_WITHIN
    )
    os._exit(1)


async def _run_kopf(clusters: Clusters, api: Api, fence: Fence, stop: asyncio.Event) -> None:
    import kopf  # noqa: PLC0415  (commands that only read do not load it)

    from trimtab_operator import handlers  # noqa: PLC0415  (as above)

    registry = handlers.registry()
    watched = 1 if clusters.everywhere else len(clusters.by_namespace)
    kopf.on.login(registry=registry)(_login(api, fence, AT_ONCE + _WATCHES * watched))
    await kopf.operator(
        registry=registry,
        settings=handlers.operator_settings(),
        memo=clusters,
        standalone=True,
        clusterwide=clusters.everywhere,
        namespaces=() if clusters.everywhere else list(clusters.by_namespace),
        stop_flag=stop,
    )


def _login(api: Api, fence: Fence, connections: int) -> Callable[..., Awaitable[kopf.AiohttpSession]]:
    import kopf  # noqa: PLC0415  (as above)

    async def login(**_: object) -> kopf.AiohttpSession:
        """A session with the operator's own credentials and fence, and at most `connections`. Kopf closes it.

        Each login reads the credentials again, because tokens rotate.
        """
        info = kopf.ConnectionInfo(**await api.credentials())
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=connections, ssl=info.as_ssl_context()),
            headers=[*info.as_http_headers().items(), *api.impersonation],
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
    """Replace the signal handlers of Kopf, which reacts to the first signal only."""
    await asyncio.sleep(1.0)
    stop_on_signal(stop)


async def announce(clusters: Clusters, lease: Mapping[str, Any]) -> None:
    """Announce that we lead: log, metric and an Event on the Lease. Conditions follow with the first cycles."""
    clusters.metrics.leader.set(1)
    clusters.metrics.epoch.set(clusters.process.epoch)
    text = f"{clusters.process.leader} leads, epoch {clusters.process.epoch}"
    log.info("%s", text)
    await clusters.events.post(lease, "Normal", "LeaderElected", text, action="Elect")


async def take_leave(clusters: Clusters, lease: Mapping[str, Any]) -> None:
    """Announce that we stop leading."""
    clusters.metrics.leader.set(0)
    await clusters.events.post(
        lease, "Normal", "LeaderResigned", f"{clusters.process.leader} no longer leads", action="Elect"
    )
    posters = {clusters.events, *(cluster.events for cluster in clusters.all())}
    await asyncio.gather(*(poster.flush() for poster in posters))
