"""Connections to the API server: an operator for all namespaces holds a watch for each kind in each of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from trimtab_operator.kube.client import BUNDLES, Api

WATCHES = 600
"""Those of about a hundred namespaces."""


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[str]:
    """A server whose watches stay silent and whose objects are empty. Yields the path of its kubeconfig."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"name": "one"}})
        response = web.StreamResponse()
        await response.prepare(request)
        await asyncio.sleep(600)
        return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config = {
        "clusters": [{"name": "one", "cluster": {"server": url}}],
        "users": [{"name": "one", "user": {"token": "secret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    try:
        yield str(file)
    finally:
        await runner.cleanup()


def test_requests_do_not_wait_for_the_watches_of_many_namespaces(tmp_path: Path) -> None:
    async def watch(api: Api, number: int, opened: asyncio.Semaphore) -> None:
        async for _ in api.watch(BUNDLES, f"namespace-{number}", "1", opened=opened.release):
            raise AssertionError("the watch is silent")

    async def scenario() -> None:
        async with server(tmp_path) as kubeconfig, Api.connect(kubeconfig) as api:
            opened = asyncio.Semaphore(0)
            watches = [asyncio.create_task(watch(api, number, opened)) for number in range(WATCHES)]
            async with asyncio.timeout(60):
                for _ in watches:
                    await opened.acquire()
                assert (await api.get(BUNDLES, "namespace-0", "one"))["metadata"]["name"] == "one"
            for one in watches:
                one.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    asyncio.run(scenario())
