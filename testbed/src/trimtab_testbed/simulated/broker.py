"""A simulated broker: a `/metrics` page on a port of 127.0.0.1, and the bundles that it owns in the API server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from aiohttp import web
from kubernetes.aio import client

from trimtab_testbed.servers.processes import HOST, free_ports
from trimtab_testbed.simulated.load import BrokerShape, BundleLoad, SimulatedBrokerLoad
from trimtab_testbed.simulated.metrics_page import CONTENT_TYPE, page
from trimtab_testbed.simulated.ownership import Ownership

ServingListener = Callable[[str, str, bool], None]
"""Called at each start or end of serving: broker, bundle in Pulsar's spelling, whether it is served from now on."""


class SimulatedBroker:
    """One broker. Call its methods only in the event loop in which it was started.

    spellings: name of a Bundle object -> the bundle's name in Pulsar.
    catalogue: a bundle's name in Pulsar -> its load.
    on_serving: called at each start and end of serving.
    """

    def __init__(
        self,
        shape: BrokerShape,
        catalogue: Mapping[str, BundleLoad],
        spellings: Mapping[str, str],
        api: client.CustomObjectsApi,
        namespace: str,
        *,
        on_serving: ServingListener | None = None,
    ) -> None:
        self.shape, self.port = shape, free_ports(1)[0]
        self._on_serving = on_serving
        self._catalogue, self._spellings, self._api, self._namespace = catalogue, spellings, api, namespace
        self._load = SimulatedBrokerLoad(shape, catalogue, time.time())
        self._runner: web.AppRunner | None = None
        self._following: asyncio.Task[None] | None = None
        self._ownership = self._new_ownership()

    @property
    def address(self) -> str:
        """``host:port`` of its `/metrics`; the same after a restart."""
        return f"{HOST}:{self.port}"

    @property
    def serving(self) -> frozenset[str]:
        """Bundles that it serves now, in Pulsar's spelling."""
        return self._load.serving

    @property
    def cpu(self) -> float:
        """CPU usage in percent of its limit, exact and not measured."""
        return 100 * self._load.cpu(time.time()) / self.shape.cores

    async def start(self) -> None:
        """Start like a new process: counters at 0, serving the bundles that it owns in the API server. Idempotent."""
        if self._following is not None:
            return
        self._load = SimulatedBrokerLoad(self.shape, self._catalogue, time.time())
        self._ownership = self._new_ownership()
        self._following = asyncio.create_task(self._ownership.run(), name=f"bundles of {self.shape.name}")
        await self.open_metrics()

    async def stop(self) -> None:
        """Stop as if it had crashed: it no longer serves or confirms anything."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
        self._following = None
        served, self._load = self.serving, SimulatedBrokerLoad(self.shape, self._catalogue, time.time())
        self._report(served, serves=False)
        await self.close_metrics()

    async def open_metrics(self) -> None:
        """Serve `/metrics` (again)."""
        if self._runner is not None:
            return
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self.port, reuse_address=True).start()

    async def close_metrics(self) -> None:
        """Close `/metrics` and its open connections. Everything else goes on."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def rehouse(self, strength: float) -> None:
        """Change the speed of its cores: from now on each does the work of `strength` ordinary ones."""
        self.shape = replace(self.shape, strength=strength)
        self._load.rehouse(self.shape, time.time())

    async def hear(self, *, deaf: bool) -> None:
        """If `deaf`, ignore desired owners from now on, otherwise follow them again. A stopped broker does neither."""
        if self._following is not None:
            await self._ownership.hear(deaf=deaf)

    def serve(self, bundle: str) -> None:
        """Called by its `Ownership`: serve the bundle of this Bundle object."""
        before = self.serving
        self._load.serve(self._spelling(bundle), time.time())
        self._report(self.serving - before, serves=True)

    def release(self, bundle: str) -> None:
        """Called by its `Ownership`: stop serving the bundle."""
        before = self.serving
        self._load.release(self._spelling(bundle), time.time())
        self._report(before - self.serving, serves=False)

    def count(self) -> None:
        """Bring the counters up to date. Call this before the load of a bundle changes."""
        self._load.advance(time.time())

    def _report(self, bundles: frozenset[str], *, serves: bool) -> None:
        if self._on_serving is not None:
            for bundle in bundles:
                self._on_serving(self.shape.name, bundle, serves)

    def _spelling(self, bundle: str) -> str:
        return self._spellings.get(bundle, bundle)

    def _new_ownership(self) -> Ownership:
        return Ownership(self._api, self._namespace, self.shape.name, self)

    async def _metrics(self, _: web.Request) -> web.Response:
        text = page(self._load, self._namespace, time.time())
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})
