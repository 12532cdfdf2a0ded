"""Cycles of the pipeline, compared in one run with numpy doing the same work: `python benchmarks/pipeline.py`.

A second process replays the answers of Prometheus at almost no cost. So the benchmark measures Trimtab's own work:
HTTP, parsing, the join with the last state, averages, the history files, alignment. Each line of the output is measured
in a program of its own. That program runs a dry cycle, a first real cycle, some cycles to warm up, and the measured
cycles. Before each measured cycle, a third process runs the lower bound, `numpy_cycle`. A fourth one fetches the
bodies and finds their numbers, without Trimtab's code (`bare_fetch`). So a busy machine slows all of them.

    S   10 brokers,  1,000 bundles        start         from process start to the end of the first real cycle
    L  100 brokers, 60,000 bundles        prometheus    seconds in the slower of two tasks: HTTP, parsing, pivoting
    T  as L, but with the metrics of      compute       the rest of the job
       1,000,000 topics instead           memory        MB: this program, the JVM, the JVM's Python workers (PSS)
                                          refresh       a broker refresh
                                          stall         ms that an event loop in this program is late, at most

    --on connect   only on a Spark Connect server that already runs in its own process (--on embedded: only without one)
    --on worker    only on a standalone cluster with a worker of one core, and the driver in the program; --on workers:
                   with two workers. On one machine, driver and workers share its cores
    --on none      only without Spark: threads of the program measure
    --soak N       then N cycles without lower bounds: p50, p95, mean processor time, and memory at the start, in the
                   middle, at the end
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bare_fetch import BareFetch
from canned_prometheus import SHARDS, SIZES, START, Fleet, replaying
from numpy_cycle import Reference
from stalls import Heart, heartbeat_beside
from trimtab_operator.aio import collect_seldom
from trimtab_operator.cli.common import NO_SPARK
from trimtab_pipeline.api import LoadSource, Observation, Topology
from trimtab_pipeline.factory import direct_sources, spark_sources
from trimtab_testbed.servers.processes import children, descendants, processor_seconds

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support" / "prometheus"))

from spark_servers import ConnectServer, SparkCluster

FloatArray = npt.NDArray[np.float64]
_MEGA = 1024  # kB in a MB, as /proc counts


def memory(roots: Sequence[int] = ()) -> dict[str, int]:
    """MB: resident size of this process and of the JVMs, and proportional size of their Python workers.

    roots: other processes whose JVMs work for this one: a Connect server, or the workers of a cluster.
    """
    below = [pid for pids in _engines(roots) for pid in pids]
    return {
        "driver": _size(os.getpid(), "status", "VmRSS") // _MEGA,
        "jvm": sum(_size(pid, "status", "VmRSS") for pid in below if _is_java(pid)) // _MEGA,
        "workers": sum(_size(pid, "smaps_rollup", "Pss") for pid in below if not _is_java(pid)) // _MEGA,
    }


def processor_times(roots: Sequence[int] = ()) -> FloatArray:
    """Processor seconds of this process with its JVM, and of each root; with their children, including exited ones."""
    own, *others = (sum(map(processor_seconds, pids)) for pids in _engines(roots))
    return np.array([time.process_time() + own, *others])


def processor_time(roots: Sequence[int] = ()) -> float:
    """The sum of `processor_times`."""
    return float(processor_times(roots).sum())


def _engines(roots: Sequence[int]) -> list[list[int]]:
    """Process ids: a list for the JVM of this process, then one for each root; each list includes the descendants.

    `memory` says what roots are.
    """
    tree = children()
    own = [pid for pid in descendants(os.getpid(), tree) if _is_java(pid)][:1]
    tops = [own, *([root] for root in roots)]
    return [[pid for top in each for pid in (top, *descendants(top, tree))] for each in tops]


def _is_java(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name == "java"
    return False


def _size(pid: int, file: str, field: str) -> int:
    """A size in kilobytes; 0 if the process has exited."""
    with suppress(OSError):
        found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


WORKERS = {"worker": 1, "workers": 2}
"""Engines on a standalone cluster -> number of its workers."""
ENGINES = ("embedded", NO_SPARK, "connect", *WORKERS)
DEFAULT = (("S", "embedded"), ("L", "embedded"), ("L", "connect"), ("T", "embedded"))
CYCLES = {"S": (20, 11), "L": (20, 11), "T": (8, 5)}
"""Number of cycles to warm up, and of measured cycles."""
STEP = 60.0
"""Seconds between the evaluation times of two cycles. Each cycle begins when the previous one has ended."""


@dataclass(frozen=True)
class Job:
    """The task of one program. bodies: names of the responses at `url`. started: epoch seconds of its start.

    roots: as in `memory`.
    """

    size: str
    master: str
    url: str
    bodies: list[str]
    history: str
    warm: int
    runs: int
    soak: int
    started: float = 0.0
    roots: list[int] = field(default_factory=list)


@dataclass
class Run:
    """Wall-clock and processor seconds of each cycle here, in numpy and in the bare fetch, and phases of each cycle.

    cycle: also the *critical* processor seconds: those of the program, plus those of the busiest root.
    """

    cycle: list[tuple[float, float, float]] = field(default_factory=list)
    floor: list[tuple[float, float]] = field(default_factory=list)
    bare: list[tuple[float, float]] = field(default_factory=list)
    phases: list[Mapping[str, float]] = field(default_factory=list)


class Program:
    """The measured program, which has one policy."""

    def __init__(self, job: Job, source: LoadSource, topology: Topology) -> None:
        self._job, self._source, self._topology = job, source, topology
        self._count = 0

    def cycle(self) -> tuple[float, Observation]:
        """Run the next cycle; returns its seconds and its observation."""
        begin = time.perf_counter()
        observed = self._source.observe(self._topology, self.at).result()
        took = time.perf_counter() - begin
        self._count += 1
        assert observed.load.brokers.trusted.all()
        assert not np.isnan(observed.load.bundles.long).any()
        return took, observed

    @property
    def at(self) -> float:
        """Evaluation time of the next cycle."""
        return START + STEP * self._count

    def beside(self, reference: Reference, bare: BareFetch, heart: Heart) -> Run:
        """Run cycles and both lower bounds in turn. The results of warm-up cycles are dropped.

        heart: counts the delays during the measured cycles.
        """
        run = Run()
        for number in range(self._job.warm + self._job.runs):
            run.floor.append(reference.run(self.at))
            run.bare.append(bare.run())
            before = processor_times(self._job.roots)
            heart.awake = number >= self._job.warm
            took, observed = self.cycle()
            heart.awake = False
            used = processor_times(self._job.roots) - before
            run.cycle.append((took, float(used.sum()), float(used[0] + used[1:].max(initial=0))))
            run.phases.append(observed.seconds)
        warm = self._job.warm
        return Run(run.cycle[warm:], run.floor[warm:], run.bare[warm:], run.phases[warm:])

    def refresh(self, brokers: Topology) -> tuple[float, float]:
        """Run a broker refresh, as between two cycles; returns wall-clock and processor seconds."""
        begin, used = time.perf_counter(), processor_time(self._job.roots)
        observed = self._source.observe_brokers(brokers, self.at).result()
        assert observed.load.brokers.trusted.all()
        return time.perf_counter() - begin, processor_time(self._job.roots) - used

    def soak(self) -> dict[str, Any]:
        """Run many cycles one after the other; returns their figures."""
        took, held, used = [], [memory(self._job.roots)], processor_time(self._job.roots)
        for half in (self._job.soak // 2, self._job.soak - self._job.soak // 2):
            took += [self.cycle()[0] for _ in range(half)]
            held.append(memory(self._job.roots))
        p50, p95 = np.percentile(took, [50, 95]).round(3).tolist()
        used = round((processor_time(self._job.roots) - used) / len(took), 3)
        figures = {"p50": p50, "p95": p95, "max": round(max(took), 3), "processor_time": used}
        return {"cycles": len(took), **figures, "memory": held}


def measured(job: Job) -> dict[str, Any]:
    """All figures of one program, measured inside it."""
    ready = time.time()
    collect_seldom()
    fleet = Fleet.of(SIZES[job.size])
    topology, settings = fleet.topology(), fleet.settings(job.url)
    made = time.time()
    history = Path(job.history)
    if job.master == NO_SPARK:
        sources = direct_sources(history)
    else:
        sources = spark_sources(history, master=job.master, deadline=300)
    try:
        sources.warm_up().result()
        warm = time.time()
        program = Program(job, sources.open("bench/policy", settings), topology)
        first, _ = program.cycle()
        start = {"load": ready - job.started, "spark_and_dry_cycles": warm - made, "first_cycle": first}
        used = processor_time(job.roots)
        reference, bare = Reference(SIZES[job.size], job.url), BareFetch(job.url, job.bodies)
        with closing(reference), closing(bare), heartbeat_beside() as heart:
            run = program.beside(reference, bare, heart)
        brokers = fleet.brokers_alone.topology()
        refreshes = [program.refresh(brokers) for _ in range(15)][4:]
        held = memory(job.roots)
        soaked = program.soak() if job.soak else None
    finally:
        sources.close()
    return _figures(run) | {
        "start": _rounded(start | {"all": sum(start.values()), "processor_time": used}),
        "refresh": np.median(refreshes, axis=0).round(3).tolist(),
        "memory": held,
        "stall": _rounded(heart.worst()),
        "soak": soaked,
    }


def _figures(run: Run) -> dict[str, Any]:
    cycle, floor, bare = (np.median(each, axis=0) for each in (run.cycle, run.floor, run.bare))
    phases = {name: statistics.median(phase[name] for phase in run.phases) for name in run.phases[0]}
    return {
        "cycle": round(float(cycle[0]), 3),
        "slowest": round(max(took for took, *_ in run.cycle), 3),
        "phases": _rounded(phases),
        "numpy": round(float(floor[0]), 3),
        "ratio": round(float(cycle[0] / floor[0]), 1),
        "bare": round(float(bare[0]), 3),
        "ratio_to_bare": round(float(cycle[0] / bare[0]), 1),
        "processor_time": {
            "cycle": round(float(cycle[1]), 3),
            "critical": round(float(cycle[2]), 3),
            "numpy": round(float(floor[1]), 3),
            "ratio": round(float(cycle[1] / floor[1]), 1),
            "bare": round(float(bare[1]), 3),
            "ratio_to_bare": round(float(cycle[1] / bare[1]), 1),
        },
    }


def _rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in seconds.items()}


def in_a_program(job: Job) -> dict[str, Any]:
    """The figures of one program, which runs in a new process."""
    command = [sys.executable, __file__, "--job", json.dumps(asdict(job) | {"started": time.time()})]
    environment = {"PYSPARK_PYTHON": sys.executable, **os.environ}  # for the executors of a cluster
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


@contextmanager
def engine(name: str, folder: Path) -> Iterator[tuple[str, list[int]]]:
    """The master for the program, and the processes that work for it, as in `memory`."""
    if name == NO_SPARK:
        yield NO_SPARK, []
    elif name == "embedded":
        yield f"local[{SHARDS}]", []
    elif name == "connect":
        with ConnectServer(folder, memory="700m", lasting=True) as server:
            yield server.url, [server.pid]
    else:
        with SparkCluster(folder, workers=WORKERS[name]) as cluster:
            yield cluster.url, [worker.pid for worker in cluster.workers]


def measure(size: str, on: str, soak: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Figures of one size on one engine."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bodies, log = folder / "bodies", folder / "server"
        bodies.mkdir()
        log.mkdir()
        say(f"{size} on {on}: writing the bodies")
        mega = Fleet.of(SIZES[size]).record(bodies) / 1e6
        with replaying(bodies) as url, engine(on, log) as (master, roots):
            say(f"{size} on {on}: {mega:.0f} MB of bodies; measuring")
            warm, runs = CYCLES[size]
            history = str(folder / "history")
            names = sorted(body.name for body in bodies.iterdir())
            figures = in_a_program(Job(size, master, url, names, history, warm, runs, soak, roots=roots))
    loads = [round(load, 1) for load in os.getloadavg()[:2]]
    return {"size": size, "on": on, "body_megabytes": round(mega, 1), **figures, "load_average": loads}


def told(figures: Mapping[str, Any]) -> str:
    """Figures as text."""
    (refresh, used), start = figures["refresh"], figures["start"]
    phases = ", ".join(f"{name} {value}" for name, value in figures["phases"].items())
    held = ", ".join(f"{name} {value} MB" for name, value in figures["memory"].items())
    cycle = f"cycle {figures['cycle']} s (slowest {figures['slowest']}; {phases})"
    floors = f"numpy {figures['numpy']} s, ratio {figures['ratio']}"
    floors += f"; bare fetch {figures['bare']} s, ratio {figures['ratio_to_bare']}"
    lines = [
        f"{figures['size']} on {figures['on']}: {cycle}, {floors}",
        f"    processor time, cycle: {figures['processor_time']}; broker refresh {refresh} s (processor time {used})",
        f"    start {start['all']} s: {start}; memory: {held}; load average {figures['load_average']}",
        f"    stall: {figures['stall']}",
    ]
    if soaked := figures["soak"]:
        lines.append(f"    soak {soaked}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", action="append", choices=SIZES, help="only this size; may be repeated")
    parser.add_argument("--on", action="append", choices=ENGINES, help="only this engine; may be repeated")
    parser.add_argument("--soak", type=int, default=0, metavar="N", help="cycles of the soak (default 0)")
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(measured(Job(**json.loads(options.job)))))
        return
    results = []
    for size, on in _wanted(options.size, options.on):
        results.append(measure(size, on, options.soak, lambda text: print(text, file=sys.stderr, flush=True)))
        if not options.json:
            print(told(results[-1]), flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


def _wanted(sizes: list[str] | None, engines: list[str] | None) -> list[tuple[str, str]]:
    if not sizes and not engines:
        return list(DEFAULT)
    return [(size, on) for size in sizes or SIZES for on in engines or ("embedded",)]


if __name__ == "__main__":
    main()
