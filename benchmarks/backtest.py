"""Time and memory of backtests: `python benchmarks/backtest.py [--sizes 10x100 100x600] [--policies 20] [--json FILE]`.

The benchmark first writes a history: a cycle every 30 s, hours merged as the operator merges them. The brokers are at
45 % CPU, but one in ten of a small cluster and one in fifty of a large one are at 55 %. No bundle moves. The load of
each bundle follows a day's course and jitters by 10 %. Then `--policies` variants of Trim are replayed over the
history. A size is the number of brokers x the number of bundles of each broker.

    read      a cycle of the history, as strategies get it
    learn     what a bundle would cost on each broker
    policy    one policy's cycle: usage with the policy's owners, decision, moves, figures

The output is the processor time of this process, in milliseconds per cycle, and its peak memory. `--spark local[1]
local[2]` replays on one and on two cores instead, each in a JVM of its own. It prints the wall-clock seconds of each
replay and of each session's start, and the efficiency without that start. `--cluster` also replays on one and on two
executors of a standalone cluster; see `backtest_cluster.py`.

`--interval 60 --cycles 20160 --spark local[2]` replays two weeks with a cycle each minute.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import backtest_cluster
from backtest_cluster import Played
from decide import peak_mb
from large_cluster import Size
from trim import Run
from trimtab_lab.backtest.replay import HistoryReplay, LiveReplay, PolicyReplay, play, recorded_cycles
from trimtab_lab.backtest.tasks import play_all, tasks, windows
from trimtab_lab.simulation.deciders import UnderTrimtab
from trimtab_operator.state.settings import Settings
from trimtab_pipeline.factory import task_pool
from trimtab_pipeline.history.housekeeping import compact
from trimtab_pipeline.history.recording import Recording
from trimtab_pipeline.history.snapshot_tables import Bounds
from trimtab_pipeline.history.snapshot_writer import SnapshotWriter
from trimtab_strategies.model import ClusterLoad

SIZES = (Size(10, 100), Size(10, 1000), Size(100, 600))
POLICY = "messaging/main"
INTERVAL = 30.0
BEGIN = 1_700_000_000.0 // 3600 * 3600
_SOURCE = {"prometheus": {"url": "http://prometheus:9090"}}


def write(root: Path, size: Size, cycles: int, interval: float = INTERVAL) -> None:
    """Write a history of `cycles` cycles of a cluster of `size`, one each `interval` seconds."""
    random = np.random.default_rng(2)
    few = 10 if size.brokers < 50 else 50
    wanted = np.where(np.arange(size.brokers) % few == 0, 0.55, random.normal(0.45, 0.01, size.brokers))
    run, history = Run.of(size, wanted), SnapshotWriter(str(root), POLICY, Bounds(60.0, 120.0, 3600.0))
    run.cluster = replace(run.cluster, now=BEGIN)
    for number in range(cycles):
        load = run._seen()  # noqa: SLF001 - the same cluster, without decisions
        at = BEGIN + number * interval
        course = 1 + 0.3 * np.sin(2 * np.pi * number * interval / 86_400)
        bundles = replace(load.bundles, newest=load.bundles.newest * course)
        history.cycle(replace(load, now=at, bundles=bundles, brokers=_scaled(load, course)))
        if (number + 1) % round(3600 / interval) == 0:
            compact(str(root), POLICY, at + 7200)


def _scaled(load: ClusterLoad, factor: float) -> Any:
    brokers = load.brokers
    return replace(brokers, usage=brokers.usage * factor, traffic=brokers.traffic * factor)


def variants(count: int, interval: float = INTERVAL) -> list[PolicyReplay]:
    """Policies of Trim that differ in the parameter `worth`, and decide each `interval` seconds."""
    replays = []
    for number in range(count):
        trim = {"worth": 100 + 50 * number}
        spec = {"source": _SOURCE, "interval": f"{interval:g}s", "shedder": {"type": "Trim", "trim": trim}}
        settings = Settings.of({"metadata": {"name": f"v{number}", "namespace": "messaging"}, "spec": spec})
        replays.append(PolicyReplay(f"v{number}", UnderTrimtab(settings.pair, settings.limits), settings.interval))
    return replays


class _Stopwatch:
    """Adds up the processor time that an iterator takes for its values."""

    def __init__(self) -> None:
        self.seconds, self.count = 0.0, 0

    def each(self, values: Iterator[Any]) -> Iterator[Any]:
        while True:
            begin = time.process_time()
            value = next(values, None)
            self.seconds += time.process_time() - begin
            if value is None:
                return
            self.count += 1
            yield value


def measured(root: Path, replays: Sequence[PolicyReplay]) -> dict[str, Any]:
    """The figures of replays over the history below `root`."""
    read, learn = _Stopwatch(), _Stopwatch()
    begin = time.process_time()
    cycles = recorded_cycles(read.each(Recording(str(root), POLICY).cycles(0, 1e12)))
    play(learn.each(cycles), [*replays, LiveReplay()], BEGIN)
    total, count = time.process_time() - begin, learn.count
    return {
        "cycles": count,
        "read_ms": 1000 * read.seconds / count,
        "learn_ms": 1000 * (learn.seconds - read.seconds) / count,
        "policy_ms": 1000 * (total - learn.seconds) / count / len(replays),
        "moves": [len(one.trace.changes) for one in replays],
        "peak_mb": peak_mb(),
    }


def on_spark(root: Path, policies: Sequence[PolicyReplay], master: str) -> dict[str, float]:
    """Wall-clock seconds of replays on Spark, and of the start of the Spark session."""
    replays: list[HistoryReplay] = [*policies, LiveReplay()]
    begin = time.monotonic()
    pool = task_pool(master)
    try:
        cores = pool.parallelism()
        started = time.monotonic()
        recording = Recording(str(root), POLICY).summary
        work = tasks(str(root), POLICY, windows(recording.begin, recording.end), replays, cores)
        error = play_all(work, replays, pool, lambda _: None)
        if error:
            raise RuntimeError(error)
        return {"cores": cores, "start_s": started - begin, "play_s": time.monotonic() - started}
    finally:
        pool.close()


def main() -> None:
    """Print a line for each size, each measured in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=Size.parse, nargs="+", default=list(SIZES), help="such as 10x100 100x600")
    parser.add_argument("--cycles", type=int, default=480, help="cycles of the history (default 480, four hours)")
    parser.add_argument("--policies", type=int, default=5, help="variants of Trim (default 5)")
    parser.add_argument(
        "--interval", type=float, default=INTERVAL, help="seconds from a cycle to the next (default 30)"
    )
    parser.add_argument("--spark", nargs="+", default=[], help="replay on these instead, such as local[1] local[2]")
    parser.add_argument("--cluster", action="store_true", help="also replay on one and two executors of a cluster")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--one", type=Path, help="measure only this history, in this process; print JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one, variants(options.policies, options.interval))))
        return
    found = [_of_size(size, options) for size in options.sizes]
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def _of_size(size: Size, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), size, options.cycles, options.interval)
        made = partial(variants, options.policies, options.interval)
        found = {"size": str(size), **(_spark(Path(folder), made, options) or _alone(Path(folder), size, options))}
        if options.cluster:
            end = BEGIN + options.cycles * options.interval
            found["cluster"] = cluster = backtest_cluster.compared(Played(Path(folder), POLICY, BEGIN, end, made))
            print(backtest_cluster.told(cluster), flush=True)
        return found


def _alone(folder: Path, size: Size, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a process of its own."""
    policies = ["--policies", str(options.policies), "--interval", str(options.interval)]
    command = [sys.executable, __file__, "--one", str(folder), *policies]
    one: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    parts = "  ".join(f"{name} {one[f'{name}_ms']:6.2f}" for name in ("read", "learn", "policy"))
    print(
        f"{size!s:>8}  {one['cycles']} cycles  {parts} ms  {one['peak_mb']:.0f} MB  moves {one['moves'][0]}",
        flush=True,
    )
    return one


def _spark(folder: Path, made: Callable[[], list[PolicyReplay]], options: argparse.Namespace) -> dict[str, Any]:
    """The figures of the masters that were given; empty if none was."""
    found: dict[str, Any] = {}
    for master in options.spark:
        found[master] = run = on_spark(folder, made(), master)
        first = found[options.spark[0]]
        efficiency = first["play_s"] * first["cores"] / (run["play_s"] * run["cores"])
        print(f"{master}: {run['play_s']:.1f} s, efficiency {efficiency:.0%}; start {run['start_s']:.1f} s", flush=True)
    return found


if __name__ == "__main__":
    main()
