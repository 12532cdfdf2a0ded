"""The pipeline's cycle over canned Prometheus bodies, beside numpy doing the same work.

A second process replays the bodies at next to no cost, so what is measured is ours: HTTP, parsing, the join with the
last state, averages, the history file, alignment. The reference fetches with the same client in two threads, parses
with the same tokenizer and keeps its state in arrays whose rows never change, which only a program that never restarts
could do: it is the floor, not an alternative.

    python benchmarks/pipeline_cycle.py [--size S --size L] [--runs 11] [--warm 20] [--json]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import numpy.typing as npt

from trimtab_pipeline.asking import ReadRequest, ShardRequest
from trimtab_pipeline.prometheus import Prometheus
from trimtab_pipeline.queries import BUNDLES, TRAFFIC, Table, brokers, render
from trimtab_pipeline.reading import read_shard
from trimtab_pipeline.source import PrometheusSettings, Topology, spark_sources

SIZES = {"S": (10, 1_000), "L": (100, 60_000)}
SHARDS = 2
START = 1_750_000_000.0
_VALUES = {"time": "1750000000", "limit": "4"}
_CHECKED = {"samples": "4", "resets": "0", "copies": "1", "ahead": ""}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fleet:
    """Brokers (pods) and bundles with their owners and rates; the same for the same size."""

    pods: tuple[str, ...]
    bundles: tuple[str, ...]
    owner: npt.NDArray[np.int64]
    rate: Floats

    @classmethod
    def of(cls, n: int, m: int) -> Fleet:
        rng, per = np.random.default_rng(7), 64
        step = 2**32 // per
        edge = [f"0x{k * step:08x}_0x{min((k + 1) * step, 2**32 - 1):08x}" for k in range(per)]
        names = tuple(f"tenant-{i // per % 40:02d}/namespace-{i // per:04d}/{edge[i % per]}" for i in range(m))
        return cls(tuple(f"pulsar-broker-{i}" for i in range(n)), names, rng.integers(0, n, m), rng.lognormal(2, 2, m))

    def topology(self) -> Topology:
        n, m = len(self.pods), len(self.bundles)
        return Topology(
            brokers=self.pods,
            pods=self.pods,
            declared_limit=np.full((n, 5), np.nan),
            ready=np.ones(n, bool),
            schedulable=np.ones(n, bool),
            namespaces=("all",),
            bundles=self.bundles,
            namespace=np.zeros(m, np.int64),
            owner=self.owner,
            last_unload=np.full(m, np.nan),
            pinned=np.zeros(m, bool),
            in_flight=np.zeros(m, bool),
            moving_from=np.full(m, -1, np.int64),
            moving_share=np.zeros(m),
        )

    def body(self, table: Table, column: str, pods: Sequence[str]) -> bytes:
        """What Prometheus would answer for one column of one shard."""
        if table is not BUNDLES:
            value = _CHECKED.get(column, _VALUES.get(column.rpartition("_")[2], "1.5"))
            pods = pods if value else ()
            rows = (f'{{"metric":{{"pod":"{pod}"}},"value":[{START:.3f},"{value}"]}}' for pod in pods)
        else:
            scale = 1 + table.columns.index(column)
            ours = np.flatnonzero(np.isin(self.owner, [self.pods.index(pod) for pod in pods]))
            rows = (
                f'{{"metric":{{"bundle":"{self.bundles[i]}","pod":"{self.pods[self.owner[i]]}"}},'
                f'"value":[{START:.3f},"{float(self.rate[i] * scale)!r}"]}}'
                for i in ours
            )
        return f'{{"status":"success","data":{{"resultType":"vector","result":[{",".join(rows)}]}}}}'.encode()


def key(promql: str) -> str:
    """File name of a query's body."""
    return hashlib.sha256(promql.encode()).hexdigest()


def record(fleet: Fleet, settings: PrometheusSettings, folder: Path) -> int:
    """Write every body the cycle will ask for; returns their size in bytes."""
    size = 0
    for k in range(SHARDS):
        pods = sorted(fleet.pods)[k::SHARDS]
        for table in (brokers(settings.resources), BUNDLES):
            for column, promql in render(table, settings, pods).items():
                size += (folder / key(promql)).write_bytes(fleet.body(table, column, pods))
    return size


def serve(folder: Path, listener: socket.socket) -> None:
    """Replay the bodies in `folder` for ever."""
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=replay, args=(folder, connection), daemon=True).start()


def replay(folder: Path, connection: socket.socket) -> None:
    """Answer every query of one connection."""
    with connection, connection.makefile("rb") as stream:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while stream.readline():
            length = 0
            while (line := stream.readline().lower()) not in {b"\r\n", b""}:
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            query = parse_qs(stream.read(length).decode())["query"][0]
            with (folder / key(query)).open("rb") as body:
                size = (folder / key(query)).stat().st_size
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
                connection.sendall(head.encode())
                connection.sendfile(body)


@contextmanager
def replaying(folder: Path) -> Iterator[str]:
    """URL of a server process that replays `folder`."""
    with subprocess.Popen([sys.executable, __file__, "--serve", str(folder)], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


class Reference:
    """The same cycle in numpy: fetch, tokenize, averages in arrays that keep their rows."""

    def __init__(self, settings: PrometheusSettings, fleet: Fleet) -> None:
        pods, broker_table = sorted(fleet.pods), brokers(settings.resources)
        shards = [
            ShardRequest(render(broker_table, settings, pods[k::SHARDS]), render(BUNDLES, settings, pods[k::SHARDS]))
            for k in range(SHARDS)
        ]
        self.settings = settings
        self.request = ReadRequest(settings.url, START, settings.timeout, tuple(shards))
        self.short: Floats | None = None
        self.long: Floats | None = None
        self.threads = ThreadPoolExecutor(SHARDS)
        self.last = START

    def fetch(self, shard: int, at: float) -> Floats:
        with Prometheus(self.settings.url, self.settings.timeout) as server:
            _, bundles, report = read_shard(self.request, shard, lambda promql: server.query(promql, at))
        assert json.loads(report["report"][0].as_py())["ok"]
        return np.stack([bundles.column(name).to_numpy() for name in TRAFFIC], axis=1)

    def cycle(self, at: float) -> None:
        now = np.concatenate(list(self.threads.map(lambda shard: self.fetch(shard, at), range(SHARDS))))
        short, long = (1 - np.exp((self.last - at) / tau) for tau in (self.settings.short_tau, self.settings.long_tau))
        self.short = now if self.short is None else self.short + short * (now - self.short)
        self.long = now if self.long is None else self.long + long * (now - self.long)
        self.last = at


def measure(size: str, runs: int, warm: int) -> dict[str, object]:
    """Median seconds of the cycle and of the reference."""
    fleet = Fleet.of(*SIZES[size])
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        settings = PrometheusSettings("http://unused", "pulsar", max_age=1e12)
        mega = record(fleet, settings, folder) / 1e6
        with replaying(folder) as url:
            settings = PrometheusSettings(url, "pulsar", max_age=1e12)
            run = side_by_side(fleet, settings, folder / "history", runs, warm)
    return {
        "size": size,
        "brokers": SIZES[size][0],
        "bundles": SIZES[size][1],
        "body_megabytes": round(mega, 1),
        "start_to_first_cycle": round(run.start, 2),
        "cycle": round(statistics.median(run.cycle), 3),
        "cycle_slowest": round(max(run.cycle), 3),
        "phases": {name: round(statistics.median(p[name] for p in run.phases), 4) for name in run.phases[0]},
        "numpy": round(statistics.median(run.floor), 4),
        "ratio": round(statistics.median(run.cycle) / statistics.median(run.floor), 1),
    }


@dataclass
class Run:
    """Seconds of each cycle and of each reference cycle, phases of each cycle, seconds from start to the first one."""

    start: float
    cycle: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    phases: list[Mapping[str, float]] = field(default_factory=list)


def side_by_side(fleet: Fleet, settings: PrometheusSettings, history: Path, runs: int, warm: int) -> Run:
    """Cycle and reference in turn, so that a busy machine slows both; the first `warm` turns do not count."""
    begin, topology, reference = time.perf_counter(), fleet.topology(), Reference(settings, fleet)
    sources = spark_sources(history, master=f"local[{SHARDS}]")
    try:
        sources.warm_up().result()
        source = sources.open("bench/policy", settings)
        source.observe(topology, START).result()
        run = Run(start=time.perf_counter() - begin)
        for k in range(1, warm + runs + 1):
            begin = time.perf_counter()
            observed = source.observe(topology, START + 60 * k).result()
            run.cycle.append(time.perf_counter() - begin)
            run.phases.append(observed.seconds)
            assert observed.load.brokers.trusted.all()
            assert not np.isnan(observed.load.bundles.long).any()
            begin = time.perf_counter()
            reference.cycle(START + 60 * k)
            run.floor.append(time.perf_counter() - begin)
    finally:
        sources.close()
    return Run(run.start, run.cycle[warm:], run.floor[warm:], run.phases[warm:])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", choices=SIZES, help="S, L or both (default)")
    parser.add_argument("--runs", type=int, default=11, help="measured cycles (default 11)")
    parser.add_argument("--warm", type=int, default=20, help="cycles before them (default 20)")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            print(listener.getsockname()[1], flush=True)
            serve(options.serve, listener)
    results = [measure(size, options.runs, options.warm) for size in options.size or SIZES]
    if options.json:
        print(json.dumps(results, indent=2))
        return
    for r in results:
        print(
            f"{r['size']}: {r['brokers']} brokers x {r['bundles']} bundles: cycle {r['cycle']} s "
            f"(slowest {r['cycle_slowest']}), numpy {r['numpy']} s, ratio {r['ratio']}; {r['phases']}; "
            f"start to first cycle {r['start_to_first_cycle']} s"
        )


if __name__ == "__main__":
    main()
