"""The HTTP server: ``/metrics``, ``/healthz`` (the event loop runs), ``/readyz`` (the process leads or could lead)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from trimtab_operator.telemetry import AddressInUseError
from trimtab_operator.telemetry.metrics import CONTENT_TYPE, Metrics

Readiness = Callable[[], tuple[bool, str]]
"""Whether the process is ready, and a text that says why."""


@asynccontextmanager
async def serve(host: str, port: int, metrics: Metrics, ready: Readiness) -> AsyncIterator[int]:
    """Serve while the block runs. Yields the port, which the system chooses if `port` is 0.

    Raises `AddressInUseError`.
    """
    runner = web.AppRunner(_app(metrics, ready), access_log=None)
    await runner.setup()
    try:
        await _listen(runner, host, port)
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise AddressInUseError(
            f"can't serve /metrics on {host}:{port}: {error.strerror}; choose another --http-port (0: any free one)"
        ) from error


def _app(metrics: Metrics, ready: Readiness) -> web.Application:
    async def show_metrics(_request: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        ok, text = ready()
        return web.Response(text=f"{text}\n", status=200 if ok else 503)

    app = web.Application()
    app.add_routes([web.get("/metrics", show_metrics), web.get("/healthz", healthz), web.get("/readyz", readyz)])
    return app
