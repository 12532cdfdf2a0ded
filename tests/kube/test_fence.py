"""The fence itself, on a server in this process: what is sent while it is open, closed, or closing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import chain, repeat

import aiohttp
import pytest
from aiohttp import web

from trimtab_operator.kube.errors import FencedError
from trimtab_operator.kube.fence import Fence

Ask = Callable[[str], Awaitable[int]]
"""Sends a request of a method; returns the status of the answer."""


def received(fence: Fence, scenario: Callable[[Ask], Awaitable[None]]) -> list[str]:
    """The methods of the requests that reach the server while `scenario` sends some through `fence`."""
    seen = list[str]()

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.method)
        return web.Response()

    async def whole() -> None:
        app = web.Application()
        app.router.add_route("*", "/", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"

        async def ask(method: str) -> int:
            async with session.request(method, url, data=None if method == "GET" else b"{}") as found:
                return found.status

        try:
            async with aiohttp.ClientSession(request_class=fence.requests()) as session:
                await scenario(ask)
        finally:
            await runner.cleanup()

    asyncio.run(whole())
    return seen


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_write_passes_an_open_fence_only_and_a_read_passes_any(method: str) -> None:
    fence = Fence(lambda: 100.0)

    async def scenario(ask: Ask) -> None:
        for until in (None, 99.0, 100.0):  # never opened, closed a second ago, closed just now
            if until is not None:
                fence.extend(until)
            with pytest.raises(FencedError, match=f"{method} / was not sent: this process does not lead"):
                await ask(method)
        assert await ask("GET") == 200
        fence.extend(100.5)
        assert await ask(method) == 200
        fence.close()
        with pytest.raises(FencedError):
            await ask(method)

    assert received(fence, scenario) == ["GET", method]


def test_a_fence_that_closes_once_the_connection_is_open_still_stops_the_write() -> None:
    readings: Iterator[float] = chain([100.0], repeat(200.0))  # open at the first look, closed at the second
    fence = Fence(lambda: next(readings))
    fence.extend(150.0)

    async def scenario(ask: Ask) -> None:
        with pytest.raises(FencedError):
            await ask("POST")

    assert received(fence, scenario) == []
