"""Times of decisions, here and in Java: `python benchmarks/decide.py [--java live|recorded] [--json FILE]`.

It times every strategy of the registry except Trim (see `trim.py`) on the clusters of `large_cluster`, whose workloads
are ``hot`` and ``balanced``. In the same run it times the Java class of each strategy. Hit counts are set so that every
call of ``hot`` decides something.

    shed, place, split  one call of the strategy alone, as timed in Java; a placement places one bundle
    decide              guard, shedding, a placement and a prediction for each move, and the plan, without caps
    reference           ThresholdShedder's rule written plainly with masks over all bundles

The output is the median of processor time, because machines are shared. `ratio` is Java's time divided by Trimtab's:
above 1, Trimtab is faster. --json also has the wall-clock times. With --peak only the memory of one size is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from large_cluster import Size, an_hour_later, reference, workload
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Memory
from trimtab_strategies.planner.decide import decide

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from conformance.pulsar_clusters import params

RECORDED = Path(__file__).parent / "data" / "java-speed.json"
PROGRAM = Path(__file__).parents[1] / ".trimtab" / "oracle" / "run"


class Call(NamedTuple):
    """A timed call of a Java class."""

    original: str
    method: str
    size: Size
    workload: str


Figures = Mapping[Call, Mapping[str, Any]]


def java_live(sizes: Sequence[Size], seconds: float) -> Figures:
    """Measure the Java classes now, each call for `seconds` and at least three times."""
    if not PROGRAM.is_file():
        raise SystemExit(f"the oracle is not in {PROGRAM.parent}: `make oracle` builds it, or use --java recorded")
    done = subprocess.run(
        [PROGRAM, "--bench", str(seconds), *map(str, sizes)],
        env={**os.environ, "ORACLE_JAVA_OPTS": "-Xmx4g"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        text=True,
    )
    return _figures([json.loads(line) for line in done.stdout.splitlines()])


def java_recorded() -> Figures:
    """The committed figures of the Java classes."""
    return _figures(json.loads(RECORDED.read_text())["results"])


def record_java(figures: Figures, about: Mapping[str, Any]) -> None:
    """Replace the committed figures of the Java classes."""
    results = [
        {"original": call.original, "method": call.method, "size": str(call.size), "workload": call.workload, **found}
        for call, found in figures.items()
    ]
    lines = ",\n".join(f"  {json.dumps(result)}" for result in results)
    RECORDED.write_text(f'{{\n "about": {json.dumps(about)},\n "results": [\n{lines}\n ]\n}}\n')


def _figures(results: Sequence[Mapping[str, Any]]) -> Figures:
    figures = {}
    for result in results:
        size = Size.parse(result.get("size") or f"{result['brokers']}x{result['per_broker']}")
        call = Call(result["original"], result["method"], size, result["workload"])
        milliseconds = {key: float(f"{value:.4g}") for key, value in result.items() if key.endswith("_ms")}
        figures[call] = {**milliseconds, "calls": result["calls"], "decisions": result["decisions"]}
    return figures


SIZES = (Size(10, 100), Size(10, 600), Size(100, 600), Size(300, 600))
LARGE = Size(100, 600)
WORKLOADS = ("hot", "balanced")
SETTINGS = {
    "loadBalancerAvgShedderHitCountLowThreshold": 1,
    "loadBalancerAvgShedderHitCountHighThreshold": 1,
    "loadBalancerSheddingConditionHitCountThreshold": 0,
    "loadBalancerNamespaceBundleSplitConditionHitCountThreshold": 0,
    "loadBalancerNamespaceBundleMaxMsgRate": 400,
    "loadBalancerNamespaceMaximumBundles": 100_000,
}
"""Keys of Pulsar whose values differ from the defaults, here and in Java."""

PAIRS = (
    ("ThresholdShedder", "LeastResourceUsageWithWeight"),
    ("ThresholdShedder", "ExtensibleLeastResourceUsageWithWeight"),
    ("AvgShedder", "AvgShedder"),
    ("TransferShedder", "ExtensibleLeastResourceUsageWithWeight"),
)
UNCAPPED = MoveLimits(max_moves_per_cycle=10**9, max_moves_per_broker=10**9, max_moves_per_hour=10**9)


class Subject(NamedTuple):
    """A timed call, on a cluster and a strategy's memory. It returns the number of decisions and the next memory.

    warm: calls share cached data about the cluster, as the placements of one decision do.
    """

    name: str
    method: str
    original: str
    call: Callable[[ClusterLoad, Any], tuple[int, Any]]
    warm: bool = False


def strategies() -> Iterator[Subject]:
    """Every strategy of the registry that decides on averages. `trim.py` measures Trim, which uses recent samples."""
    for name, row in registry.SHEDDERS.items():
        if name == "Trim":
            continue
        yield Subject(name, "shed", row.original, _shed(row.build(params(row.params, SETTINGS))))
    for name, placement in registry.PLACEMENTS.items():
        built = placement.build(params(placement.params, SETTINGS))
        yield Subject(name, "place", placement.original, _place(built), warm=True)
    for name, splitter in registry.SPLITTERS.items():
        if name == "Trim":
            continue
        yield Subject(name, "split", splitter.original, _split(splitter.build(params(splitter.params, SETTINGS))))


def _shed(shedder: Any) -> Callable[[ClusterLoad, Any], tuple[int, Any]]:
    def call(cluster: ClusterLoad, memory: Any) -> tuple[int, Any]:
        found = shedder.shed(cluster, np.ones(len(cluster.bundles), dtype=bool), memory or {})
        return sum(len(unload.bundles) + len(unload.returned) for unload in found.unloads), found.memory

    return call


def _place(placement: Any) -> Callable[[ClusterLoad, Any], tuple[int, Any]]:
    def call(cluster: ClusterLoad, memory: Any) -> tuple[int, Any]:
        found = placement.best(cluster, 0, np.arange(len(cluster.brokers)), memory or {})
        return min(len(found.brokers), 1), found.memory

    return call


def _split(splitter: Any) -> Callable[[ClusterLoad, Any], tuple[int, Any]]:
    def call(cluster: ClusterLoad, memory: Any) -> tuple[int, Any]:
        found = splitter.split(cluster, np.ones(len(cluster.bundles), dtype=bool), memory or {})
        return len(found.proposed), found.memory

    return call


def whole_decisions() -> Iterator[Subject]:
    """Whole decisions, and the plain reference; Java has no counterpart."""
    for shedder, placement in PAIRS:
        if shedder in registry.SHEDDERS and placement in registry.PLACEMENTS:
            rows = (registry.SHEDDERS[shedder].params, registry.PLACEMENTS[placement].params)
            pair = registry.pair(shedder, params(rows[0], SETTINGS), placement, params(rows[1], SETTINGS))
            yield Subject(f"{shedder} + {placement}", "decide", "", _decide(pair))
    yield Subject("ThresholdShedder", "reference", "", lambda c, _: (sum(map(len, reference(c).values())), None))


def _decide(pair: registry.Pair) -> Callable[[ClusterLoad, Any], tuple[int, Any]]:
    def call(cluster: ClusterLoad, memory: Any) -> tuple[int, Any]:
        found = decide(cluster, pair, UNCAPPED, memory or Memory(), np.random.default_rng(1))
        return len(found.plan.moves), found.memory

    return call


def timed(subject: Subject, cluster: ClusterLoad, seconds: float) -> dict[str, float]:
    """Milliseconds of one call, after a first call that warms up and gives the memory."""
    decisions, memory = subject.call(cluster, None)
    snapshot = an_hour_later(cluster)
    if subject.warm:
        _, memory = subject.call(snapshot, memory)
    spent: list[float] = []
    busy: list[float] = []
    end = time.perf_counter() + seconds
    while len(spent) < 3 or (time.perf_counter() < end and len(spent) < 200):
        snapshot = snapshot if subject.warm else an_hour_later(cluster)
        wall, processor = time.perf_counter(), time.thread_time()
        decisions, _ = subject.call(snapshot, memory)
        busy.append((time.thread_time() - processor) * 1000)
        spent.append((time.perf_counter() - wall) * 1000)
    return {"median_ms": median(spent), "min_ms": min(spent), "cpu_median_ms": median(busy), "decisions": decisions}


def measure(sizes: list[Size], java: Figures, seconds: float) -> Iterator[dict[str, Any]]:
    """Figures of every strategy and its Java class by size and workload, and of whole decisions at `LARGE`."""
    for size in sizes:
        for kind in WORKLOADS:
            cluster = workload(size, hot=kind == "hot")
            for subject in [*strategies(), *(whole_decisions() if size == LARGE else ())]:
                ours = timed(subject, cluster, seconds)
                head = {"size": str(size), "workload": kind, "strategy": subject.name, "method": subject.method}
                theirs = java.get(Call(subject.original, subject.method, size, kind))
                beside = {f"java_{key}": value for key, value in theirs.items()} if theirs else {}
                ratio = {"ratio": theirs["cpu_median_ms"] / ours["cpu_median_ms"]} if theirs else {}
                yield {**head, **ours, **beside, **ratio}


def show(row: Mapping[str, Any]) -> str:
    """A line of the table."""
    java = f"{row['java_cpu_median_ms']:11.4f} {row['ratio']:8.2f} {row['java_decisions']:7}" if "ratio" in row else ""
    name = f"{row['method']:9} {row['strategy']:55}"
    return (
        f"{row['size']:8} {row['workload']:9} {name} {row['cpu_median_ms']:9.3f} {row['decisions']:7} {java}".rstrip()
    )


def peak(size: Size) -> dict[str, float]:
    """Peak memory (MB) of this process: with everything imported, then with the cluster, then after every call."""
    found = {"imported": peak_mb()}
    cluster = workload(size, hot=True)
    found["cluster"] = peak_mb()
    for subject in strategies():
        subject.call(cluster, None)
    return {**found, "every strategy": peak_mb()}


def peak_mb() -> float:
    """Peak memory of this process so far, in MB: from /proc, because ru_maxrss is inherited from the parent process."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def peaks(sizes: list[Size]) -> dict[str, Any]:
    """The memory of each size, each measured in a process of its own."""
    command = [sys.executable, __file__, "--peak"]
    return {
        str(size): json.loads(subprocess.run([*command, str(size)], capture_output=True, check=True).stdout)
        for size in sizes
    }


def main() -> None:
    """Print the table, and write it as JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--java", choices=("live", "recorded", "record"), default="live", help="which Java figures")
    parser.add_argument("--sizes", type=Size.parse, nargs="+", default=list(SIZES), help="such as 10x600 100x600")
    parser.add_argument("--seconds", type=float, default=0.4, help="time for each line, here and in Java (default 0.4)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--peak", type=Size.parse, help="measure only the memory of this size")
    options = parser.parse_args()
    if options.peak:
        print(json.dumps(peak(options.peak)))
        return
    about = {"python": platform.python_version(), "numpy": np.__version__, "cores": len(os.sched_getaffinity(0))}
    java = java_recorded() if options.java == "recorded" else java_live(options.sizes, options.seconds)
    if options.java == "record":
        record_java(java, {"pulsar": "4.2.4", "cores": about["cores"]})
    print(f"{'size':8} {'workload':9} {'':9} {'strategy':55} {'ms':>9} {'moves':>7} {'Java ms':>11} {'ratio':>8} moves")
    rows = []
    for row in measure(options.sizes, java, options.seconds):
        rows.append(row)
        print(show(row), flush=True)
    memory = peaks([size for size in options.sizes if size.brokers >= LARGE.brokers])
    for size, found in memory.items():
        print(f"memory at {size}, MB: " + ", ".join(f"{what} {value:.0f}" for what, value in found.items()))
    if options.json:
        options.json.write_text(json.dumps({**about, "results": rows, "memory_mb": memory}, indent=1) + "\n")


if __name__ == "__main__":
    main()
