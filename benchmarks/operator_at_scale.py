"""The operator with 100 brokers and 60,000 bundles, as in Pulsar's largest published test; see docs/benchmarks.md.

kube-apiserver, etcd and the operator with its event loop are real. The load is generated, and the brokers that carry
out moves are simulated. The cluster is created once and kept in the cache folder. Each part runs in a process of its
own. `writing` is the last part, because it leaves moves that no broker takes.

The part `moving` also replays a recorded stream of changes faster than the real API server could produce it. The
recording has the bytes of all pages of each list, and the events of a watch on the bundles. Each replayed event gets a
new resourceVersion, and each page a new `continue` token. Nothing else is changed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
from aiohttp import web

import scale_parts
from large_cluster import Size
from scale_cluster import Cluster, broker_names, cluster, path
from trimtab_testbed.programs import build

KINDS = ("bundles", "brokers", "topicnamespaces", "bundlesplits")
PAGE = 2000
TICK = 0.01
"""Seconds between two writes to a watch."""

_VERSION = re.compile(rb'("resourceVersion":")(\d+)(")')


def record_changes(kubeconfig: str, folder: str, done: Any) -> int:
    """Write lists and events into `folder` until `done` is set; returns the number of events."""
    asyncio.run(_record(kubeconfig, Path(folder), done))
    return (Path(folder) / "events").read_bytes().count(b"\n")


async def _record(kubeconfig: str, folder: Path, done: Any) -> None:
    async with scale_parts.Bare.connect(kubeconfig) as bare:
        for kind in KINDS:
            version = await _record_list(bare.session, kind, folder)
            if kind == "bundles":
                since = version
        watch = asyncio.create_task(_record_watch(bare.session, since, folder / "events"))
        await asyncio.to_thread(done.wait)
        await asyncio.sleep(2.0)  # for events that are under way
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


def serve_changes(folder: str, rate: int, ports: Any, done: Any) -> None:
    """Serve the recording in `folder`, with `rate` events a second on each watch of bundles, until `done` is set."""
    asyncio.run(_serve(Replay(Path(folder), rate), ports, done))


async def _serve(replay: Replay, ports: Any, done: Any) -> None:
    async with replay.running() as port:
        ports.put(port)
        await asyncio.to_thread(done.wait)


class Replay:
    """A server that replays the recording in `folder`."""

    def __init__(self, folder: Path, rate: int) -> None:
        self._folder, self._rate = folder, rate
        lines = (folder / "events").read_bytes().split(b"\n")[:-1]
        self._parts = [_VERSION.split(line, maxsplit=1) for line in lines if line.startswith(b'{"type":"MODIFIED"')]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[int]:
        """Serve while the block runs; yields the port."""
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
        """The requested page. Its `continue` token is replaced by the number of the next page."""
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
        with contextlib.suppress(ConnectionResetError):  # the client disconnects at the end of a run
            await self._replay(request, response, self._events() if kind == "bundles" else iter(()))
        return response

    async def _replay(self, request: web.Request, response: web.StreamResponse, events: Iterator[bytes]) -> None:
        """Write `events` at the given rate until the client disconnects."""
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


Figures = dict[str, float]
INFORMER = Path(__file__).parent / "client_go" / "informer.go"
PAIRS = 3
"""How often the stores and client-go's informer are measured in turn."""

SECONDS = 10.0
"""Seconds for which a stream of events is watched."""

RATE = 1000
"""Events a second of that stream."""

_SPAWN = multiprocessing.get_context("spawn")


def alone(part: Callable[..., Any], *arguments: Any) -> Any:
    """Run `part` in a new process; returns its result."""
    with beside(part, *arguments) as outcome:
        return outcome.result()


@contextmanager
def beside(part: Callable[..., Any], *arguments: Any) -> Iterator[Future[Any]]:
    """Run `part` in a new process while the block runs; wait for it at the end."""
    with ProcessPoolExecutor(1, mp_context=_SPAWN) as pool:
        yield pool.submit(part, *arguments)


def store(on: Cluster) -> Figures:
    """The first sync of all stores, and the next one after a 410; in turn with client-go's informer."""
    program = _client_go()
    ours, theirs = [], []
    for _ in range(PAIRS):
        ours.append(alone(scale_parts.store, on.kubeconfig))
        theirs.append(json.loads(subprocess.check_output([program, on.kubeconfig])))
    middle = _medians(ours) | {f"client_go_{name}": value for name, value in _medians(theirs).items()}
    ratios = {name: [a[name] / b[name] for a, b in zip(ours, theirs, strict=True)] for name in theirs[0]}
    return middle | {f"ratio_{name}": median(ratios[name]) for name in ("synced_s", "synced_cpu_s", "mb")}


def _medians(rounds: Sequence[Figures]) -> Figures:
    return {name: median([one[name] for one in rounds]) for name in rounds[0]}


def _client_go() -> str:
    """The path of the program to compare with, built from the modules of Kubernetes itself."""
    target = build.cache_dir("client-go", build.module_dir()) / "informer"
    with build.build_lock(target.parent):
        if not target.exists() or target.stat().st_mtime < INFORMER.stat().st_mtime:
            build.build(build.module_dir(), str(INFORMER), target)
    return str(target)


def idle(on: Cluster) -> Figures:
    """Requests and processor time of a reconcile, a broker refresh and a cycle where nothing has to be done."""
    return dict(alone(scale_parts.idle, on.kubeconfig, on.size))


def writing(on: Cluster) -> Figures:
    """Moves written a second, in turn with a bare HTTP client."""
    return dict(alone(scale_parts.writing, on.kubeconfig))


def moving(on: Cluster) -> Figures:
    """One cycle of about 1,700 moves, carried out by 100 simulated brokers; then its events again, 1,000 a second.

    The brokers run in one process. The events are recorded while the brokers carry out the moves.
    """
    figures: Figures = {}
    with _SPAWN.Manager() as manager, tempfile.TemporaryDirectory(prefix="trimtab-stream-") as folder:
        ready, done, ports = manager.Event(), manager.Event(), manager.Queue()
        names = broker_names(on.size)
        with (
            beside(record_changes, on.kubeconfig, folder, done) as recorded,
            beside(scale_parts.brokers, on.kubeconfig, names, on.bundles, ready, done) as brokers,
        ):
            try:
                _wait(ready, brokers)
                figures |= alone(scale_parts.moving, on.kubeconfig, on.size)
            finally:
                done.set()
        figures |= {f"brokers_{name}": value for name, value in brokers.result().items()}
        figures["recorded"] = recorded.result()
        done.clear()
        with beside(serve_changes, folder, RATE, ports, done):
            try:
                config = _kubeconfig(Path(folder), ports.get(timeout=60))
                watched = alone(scale_parts.watching, str(config), SECONDS)
            finally:
                done.set()
    return figures | {f"stream_{name}": value for name, value in watched.items()}


def _wait(ready: Any, brokers: Future[Any]) -> None:
    deadline = time.monotonic() + 300
    while not ready.wait(0.5):
        if brokers.done() or time.monotonic() > deadline:
            raise RuntimeError(f"the brokers did not become ready: {brokers}")


def _kubeconfig(folder: Path, port: int) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "replay",
        "clusters": [{"name": "replay", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "replay", "user": {"token": "none"}}],
        "contexts": [{"name": "replay", "context": {"cluster": "replay", "user": "replay"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return file


PARTS: dict[str, Callable[[Cluster], Figures]] = {"store": store, "idle": idle, "moving": moving, "writing": writing}


def main() -> None:
    """Print the figures, and write them as JSON when asked to."""
    lines = "\n".join(f"  {name:8} {(part.__doc__ or '').splitlines()[0]}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="benchmarks/operator_at_scale.py",
        description=f"The operator at scale, on a real API server.\n\nparts:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bundles", type=int, default=60_000, help="bundles of all 100 brokers (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=PARTS, help="run only this part; may be repeated")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    size = Size(100, max(1, options.bundles // 100))
    results: dict[str, Figures] = {}
    with cluster(size) as on:
        for name in options.only or PARTS:
            load = os.getloadavg()[0]
            results[name] = {**PARTS[name](on), "load_before": load}
            _show(name, results[name])
    if options.json:
        about = {"python": sys.version.split()[0], "size": size}
        options.json.write_text(json.dumps({**about, **results}, indent=1) + "\n")


def _show(name: str, figures: Figures) -> None:
    print(name)
    for key, value in figures.items():
        print(f"  {key:32} {value:12,.2f}", flush=True)


if __name__ == "__main__":
    main()
