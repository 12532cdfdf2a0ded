"""A recorded stream of changes, and a server of our own that replays it faster than the real one could make it.

Recorded are the bytes of the real API server: all pages of each list, and the events of a watch on the bundles. They
are replayed over and over; each event gets a resourceVersion that has not been there, nothing else is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from scale_cluster import path
from scale_parts import Bare

KINDS = ("bundles", "brokers", "topicnamespaces", "bundlesplits")
PAGE = 2000
TICK = 0.01
"""Seconds between two writes to a watch."""

_VERSION = re.compile(rb'("resourceVersion":")(\d+)(")')


def record(kubeconfig: str, folder: str, done: Any) -> int:
    """Write lists and events into `folder` until `done` is set; how many events there were."""
    asyncio.run(_record(kubeconfig, Path(folder), done))
    return (Path(folder) / "events").read_bytes().count(b"\n")


async def _record(kubeconfig: str, folder: Path, done: Any) -> None:
    async with Bare.connect(kubeconfig) as bare:
        for kind in KINDS:
            version = await _record_list(bare.session, kind, folder)
            if kind == "bundles":
                since = version
        watch = asyncio.create_task(_record_watch(bare.session, since, folder / "events"))
        await asyncio.to_thread(done.wait)
        await asyncio.sleep(2.0)  # what is on its way
        watch.cancel()


async def _record_list(session: aiohttp.ClientSession, kind: str, folder: Path) -> str:
    token, version = "", ""
    for page in count():
        async with session.get(path(kind), params={"limit": str(PAGE), "continue": token}) as answer:
            body = await answer.read()
        (folder / f"{kind}-{page}").write_bytes(body)
        meta = json.loads(body)["metadata"]
        version, token = version or meta["resourceVersion"], meta.get("continue", "")
        if not token:
            return version
    raise AssertionError


async def _record_watch(session: aiohttp.ClientSession, since: str, file: Path) -> None:
    within = aiohttp.ClientTimeout(total=None)
    with file.open("wb") as out:
        query = {"watch": "1", "resourceVersion": since}
        async with session.get(path("bundles"), params=query, timeout=within) as answer:
            async for chunk in answer.content.iter_any():
                out.write(chunk)
                out.flush()


def serve(folder: str, rate: int, ports: Any, done: Any) -> None:
    """Serve what is in `folder`, `rate` events a second on each watch of the bundles, until `done` is set."""
    asyncio.run(_serve(Replay(Path(folder), rate), ports, done))


async def _serve(replay: Replay, ports: Any, done: Any) -> None:
    async with replay.running() as port:
        ports.put(port)
        await asyncio.to_thread(done.wait)


class Replay:
    """What was recorded in `folder`."""

    def __init__(self, folder: Path, rate: int) -> None:
        self._folder, self._rate = folder, rate
        lines = (folder / "events").read_bytes().split(b"\n")[:-1]
        self._parts = [_VERSION.split(line, maxsplit=1) for line in lines if line.startswith(b'{"type":"MODIFIED"')]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        """Its port, while it serves."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        if "watch" in request.query:
            return await self._watch(request, kind)
        if kind not in KINDS:
            return web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})
        return web.Response(body=self._page(kind, request), content_type="application/json")

    def _page(self, kind: str, request: web.Request) -> bytes:
        """The page after the one whose token is given: pages are told apart by where a token was first seen."""
        wanted = request.query.get("continue", "")
        for page in count():
            body = (self._folder / f"{kind}-{page}").read_bytes()
            if not wanted or (page and wanted == str(page)):
                break
        return re.sub(rb'"continue":"[^"]+"', f'"continue":"{page + 1}"'.encode(), body, count=1)

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # its client has gone, as it does at the end of a run
            await self._replay(request, response, self._events() if kind == "bundles" else iter(()))
        return response

    async def _replay(self, request: web.Request, response: web.StreamResponse, events: Iterator[bytes]) -> None:
        """Write `events`, so many a second, for as long as the client is there."""
        begun, sent = time.monotonic(), 0
        while request.transport is not None:
            await asyncio.sleep(TICK)
            due = int((time.monotonic() - begun) * self._rate) - sent
            if lines := b"".join(islice(events, due)):
                await response.write(lines)
            sent += due

    def _events(self) -> Iterator[bytes]:
        version = count(10_000_000)
        while True:
            for before, opening, _, closing, *rest in self._parts:
                yield b"".join((before, opening, b"%d" % next(version), closing, *rest, b"\n"))
