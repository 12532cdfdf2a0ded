"""The command line of `benchmarks/operator.py`: runs the parts one after the other and prints their figures."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import scale_brokers
import scale_parts
import scale_replay
from large_cluster import Size
from scale_cluster import Cluster, broker_names, cluster
from trimtab_testbed.programs import build

Figures = dict[str, float]
INFORMER = Path(__file__).parent / "client_go" / "informer.go"
PAIRS = 3
"""Times that the stores and client-go's informer take turns."""

SECONDS = 10.0
"""For which a stream of events is watched."""

RATE = 1000
"""Events a second of that stream."""

_SPAWN = multiprocessing.get_context("spawn")


def alone(part: Callable[..., Any], *arguments: Any) -> Any:
    """What `part` returns, run in a fresh process."""
    with beside(part, *arguments) as outcome:
        return outcome.result()


@contextmanager
def beside(part: Callable[..., Any], *arguments: Any) -> Iterator[Future[Any]]:
    """`part` in a fresh process while the block runs, which waits for it in the end."""
    with ProcessPoolExecutor(1, mp_context=_SPAWN) as pool:
        yield pool.submit(part, *arguments)


def store(on: Cluster) -> Figures:
    """List of everything until all stores are synced, and once more after 410; in turn with client-go's informer."""
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
    """The program to compare with, built of the modules that Kubernetes itself is built of."""
    target = build.cache_dir("client-go", build.module_dir()) / "informer"
    with build.build_lock(target.parent):
        if not target.exists() or target.stat().st_mtime < INFORMER.stat().st_mtime:
            build.build(build.module_dir(), str(INFORMER), target)
    return str(target)


def idle(on: Cluster) -> Figures:
    """Requests and processor time of a turn of upkeep, a glance and a cycle where nothing has to be done."""
    return dict(alone(scale_parts.idle, on.kubeconfig, on.size))


def writing(on: Cluster) -> Figures:
    """Moves written a second, in turn with a bare HTTP client."""
    return dict(alone(scale_parts.writing, on.kubeconfig))


def moving(on: Cluster) -> Figures:
    """One cycle of some 1,700 moves, carried out by 100 simulated brokers in one process; and 1,000 events a second.

    The events are those of the moves, recorded meanwhile.
    """
    figures: Figures = {}
    with _SPAWN.Manager() as manager, tempfile.TemporaryDirectory(prefix="trimtab-stream-") as folder:
        ready, done, ports = manager.Event(), manager.Event(), manager.Queue()
        names = broker_names(on.size)
        with (
            beside(scale_replay.record, on.kubeconfig, folder, done) as recorded,
            beside(scale_brokers.run, on.kubeconfig, names, on.bundles, ready, done) as brokers,
        ):
            try:
                _wait(ready, brokers)
                figures |= alone(scale_parts.moving, on.kubeconfig, on.size)
            finally:
                done.set()
        figures |= {f"brokers_{name}": value for name, value in brokers.result().items()}
        figures["recorded"] = recorded.result()
        done.clear()
        with beside(scale_replay.serve, folder, RATE, ports, done):
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
            raise RuntimeError(f"the brokers did not get ready: {brokers}")


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
        prog="benchmarks/operator.py",
        description=f"The operator at scale, on a real API server.\n\nparts:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bundles", type=int, default=60_000, help="of 100 brokers together (default: %(default)s)")
    parser.add_argument("--only", action="append", choices=PARTS, help="run this part alone; may be repeated")
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
