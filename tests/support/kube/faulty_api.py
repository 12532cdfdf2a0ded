"""A proxy in front of a real API server that injects faults. It lives in the test's event loop.

Use ``async with FaultyApi(plane) as proxy:``, then connect to ``proxy.kubeconfig``.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web

from trimtab_testbed.servers.kube import ControlPlane

Answer = Callable[[web.Request], web.Response]


def status(code: int, reason: str = "", **headers: str) -> Answer:
    """Answer with a Kubernetes `Status` object instead of asking the server."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": f"injected {code}"}
    return lambda _request: web.json_response(body, status=code, headers=headers)


def expired_watch(_request: web.Request) -> web.Response:
    """Accept a watch, then report in the stream that its resourceVersion is too old, as the API server does."""
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    return web.Response(text=json.dumps({"type": "ERROR", "object": gone}) + "\n")


class FaultyApi:
    """Forwards requests, unless a fault is queued for their kind: ``watch`` or ``request``.

    faults:   answers instead of the server's, one per request.
    refusing: close every connection without an answer.
    hanging:  accept requests and never answer them.
    told:     called with method and path of each request before it is forwarded.
    seen:     (method, path and query) of each request, in order.
    busiest:  the largest number of requests so far, without watches, that were under way at the same time.
    """

    def __init__(self, plane: ControlPlane, folder: Path, user: str = "") -> None:
        """user: the user of all requests in the API server's audit log; the admin by default."""
        self.faults: dict[str, list[Answer]] = {"watch": [], "request": []}
        self.refusing = False
        self.hanging = False
        self.seen: list[tuple[str, str]] = []
        self.busiest = self._busy = 0
        self.agents: set[str] = set()
        self.kubeconfig = folder / "through-proxy.kubeconfig"
        self._plane = plane
        self.told: Callable[[str, str], None] | None = None
        self._config = json.loads(
            (plane.user_kubeconfig(user, "system:masters") if user else plane.kubeconfig).read_text()
        )
        self._streams: set[asyncio.Transport] = set()

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=str(self._plane.ca))
        [user] = self._config["users"]
        if "client-certificate" in user["user"]:  # the proxy presents it; a token is in a forwarded header
            context.load_cert_chain(user["user"]["client-certificate"], user["user"]["client-key"])
            user["user"] = {}
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), auto_decompress=False)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        config = dict(self._config)
        config["clusters"] = [{"name": "testbed", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}]
        self.kubeconfig.write_text(json.dumps(config))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        await self._session.close()
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The proxy's port."""
        return int(self._runner.addresses[0][1])

    def cut(self) -> None:
        """Break all open watches."""
        for transport in self._streams:
            transport.abort()
        self._streams.clear()

    def watches(self) -> int:
        """Number of watch requests so far."""
        return sum("watch=1" in path for _, path in self.seen)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        counts = "watch" not in request.query
        self._busy += counts
        self.busiest = max(self.busiest, self._busy)
        try:
            return await self._answer(request)
        finally:
            self._busy -= counts

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path_qs))
        self.agents.add(request.headers.get("User-Agent", ""))
        if self.refusing:
            return _broken_off(request)
        if self.told is not None:
            self.told(request.method, request.path)
        while self.hanging:  # noqa: ASYNC110  (a test can set it at any time)
            await asyncio.sleep(0.02)
        watch = "watch" in request.query
        if faults := self.faults["watch" if watch else "request"]:
            return faults.pop(0)(request)
        try:
            return await self._pass_on(request, stream=watch)
        except aiohttp.ClientError:  # the server is down or closed the connection: close this one, too
            return _broken_off(request)

    async def _pass_on(self, request: web.Request, *, stream: bool) -> web.StreamResponse:
        kept = {k: v for k, v in request.headers.items() if k.lower() not in ("host", "content-length")}
        body = await request.read()
        url = self._plane.url + request.path_qs
        async with self._session.request(request.method, url, headers=kept, data=body or None) as answer:
            if not stream:
                return web.Response(body=await answer.read(), status=answer.status, content_type="application/json")
            return await self._stream(request, answer)

    async def _stream(self, request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status)
        await response.prepare(request)
        transport: Any = request.transport
        self._streams.add(transport)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        self._streams.discard(transport)
        return response


def _broken_off(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def until(what: str, probe: Callable[[], object], within: float = 15.0) -> None:
    """Wait until `probe` returns something true; fail naming `what` after `within` seconds."""
    try:
        async with asyncio.timeout(within):
            while not probe():  # noqa: ASYNC110  (another process makes it true)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {within:.0f} s: {what}") from None
