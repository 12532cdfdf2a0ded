"""How long one decision takes: `python benchmarks/decision.py [--json FILE] [--calls N]`.

The cluster is the one on which the Java classes were measured (`data/java-speed.json`): of each broker's bundles,
h = ((i * 600 + j) * 2654435761) mod 2^32 and x = h / 2^32 for bundle j of broker i; message rate in = out = 20 + 80 x,
throughput = 1024 x rate, CPU = 40 + i mod 7 percent. In ``hot`` every tenth broker has CPU 95 % and four times the
rates, in ``balanced`` none. Rows are in random order.

`shed` is ThresholdShedder alone, which is what was measured in Java; `decide` adds the guard, a placement for every
bundle with its prediction, and the plan, here without caps; `reference` is the same shedding written plainly with masks
over all bundles.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from trimtab_strategies import registry
from trimtab_strategies.balancer import decide
from trimtab_strategies.constraints import Limits
from trimtab_strategies.model import Brokers, Bundles, ClusterLoad, Memory
from trimtab_strategies.topics import bundle_names, default_boundaries

JAVA = Path(__file__).parent / "data" / "java-speed.json"
PER_BROKER = 600
UNCAPPED = Limits(max_moves_per_cycle=10**9, max_moves_per_broker=10**9, max_moves_per_hour=10**9)


class Size(NamedTuple):
    """A cluster size: its name, brokers, and bundles per broker."""

    name: str
    brokers: int
    per_broker: int


SIZES = (Size("S", 10, 100), Size("S, Java's", 10, PER_BROKER), Size("L", 100, PER_BROKER))


def workload(size: Size, *, hot: bool) -> ClusterLoad:
    """The cluster described above."""
    n, per = size.brokers, size.per_broker
    i, j = np.divmod(np.random.default_rng(0).permutation(n * per), per)
    x = (((i * PER_BROKER + j) * 2654435761) & 0xFFFFFFFF) / 2**32
    burning = hot & (np.arange(n) % 10 == 0)
    rate = (20 + 80 * x) * np.where(burning, 4, 1)[i]
    short = np.stack([rate, rate, rate * 1024, rate * 1024], axis=1)
    m, everyone, nobody = n * per, np.ones(n, dtype=bool), np.zeros(n * per, dtype=bool)
    usage = np.zeros((n, 5))
    usage[:, 0] = np.where(burning, 95, 40 + np.arange(n) % 7)
    brokers = Brokers(
        names=tuple(f"broker-{k:04d}:8080" for k in range(n)),
        usage=usage,
        limit=np.where(np.arange(5) == 0, 100.0, -1.0) * np.ones((n, 1)),
        traffic=np.stack([np.bincount(i, weights=column) for column in short.T], axis=1),
        age=np.zeros(n),
        ready=everyone,
        schedulable=everyone,
        trusted=everyone,
    )
    ranges = [bundle_names(f"t/n{k}", default_boundaries(per)) for k in range(n)]
    bundles = Bundles(
        names=tuple(ranges[broker][k] for broker, k in zip(i.tolist(), j.tolist(), strict=True)),
        namespace=i,
        owner=i,
        short=short,
        long=short,
        topics=np.ones(m),
        sessions=np.ones(m),
        last_unload=np.full(m, np.nan),
        pinned=nobody,
        in_flight=nobody,
        moving_from=np.full(m, -1),
        moving_share=np.zeros(m),
    )
    return ClusterLoad(brokers, bundles, tuple(f"t/n{k}" for k in range(n)), now=0.0)


def reference(cluster: ClusterLoad) -> dict[int, list[int]]:
    """The first round of ThresholdShedder with defaults, plainly: broker row to bundle rows."""
    usage = (cluster.brokers.usage[:, 0].astype(np.float32) / np.float32(100) * np.float32(100)).astype(float) / 100
    average = usage.mean()
    unloads = {}
    for broker in np.flatnonzero(usage >= average + 0.1).tolist():
        wanted = cluster.brokers.traffic[broker, 2:].sum() * (usage[broker] - average - 0.1 + 0.05)
        throughput = np.where(cluster.bundles.owner == broker, cluster.bundles.short[:, 2:].sum(axis=1), -1.0)
        marked, chosen = 0.0, []
        for row in np.argsort(-throughput, kind="stable").tolist():
            if throughput[row] < 0 or marked >= wanted:
                break
            marked += throughput[row]
            chosen.append(row)
        if wanted >= 10 * 1048576:
            unloads[broker] = chosen
    return unloads


def fresh(cluster: ClusterLoad) -> ClusterLoad:
    """The same cluster without anything computed from it before: each cycle brings a new picture."""
    return replace(cluster, bundles=replace(cluster.bundles))


def timed(call: Callable[[ClusterLoad], int], cluster: ClusterLoad, calls: int) -> dict[str, float]:
    """Milliseconds of a call on a fresh cluster, after one to warm up, and its number of decisions."""
    decisions, spent, busy = call(fresh(cluster)), [], []
    for _ in range(calls):
        picture = fresh(cluster)
        wall, processor = time.perf_counter(), time.thread_time()
        call(picture)
        spent.append((time.perf_counter() - wall) * 1000)
        busy.append((time.thread_time() - processor) * 1000)
    return {"median_ms": median(spent), "min_ms": min(spent), "cpu_median_ms": median(busy), "decisions": decisions}


def subjects() -> dict[str, Callable[[ClusterLoad], int]]:
    """What is measured: a name, and a function from a cluster to its number of decisions."""
    modular = registry.pair("ThresholdShedder", {}, "LeastResourceUsageWithWeight", {})
    extensible = registry.pair("ThresholdShedder", {}, "ExtensibleLeastResourceUsageWithWeight", {})

    def shed(cluster: ClusterLoad) -> int:
        sheddable = np.ones(len(cluster.bundles), dtype=bool)
        return sum(len(unload.bundles) for unload in modular.shedder.shed(cluster, sheddable, {}).unloads)

    def whole(pair: Any) -> Callable[[ClusterLoad], int]:
        return lambda cluster: len(decide(cluster, pair, UNCAPPED, Memory(), np.random.default_rng(1)).plan.moves)

    return {
        "shed": shed,
        "decide": whole(modular),
        "decide (extensible)": whole(extensible),
        "reference": lambda cluster: sum(map(len, reference(cluster).values())),
    }


def java(size: Size, kind: str) -> dict[str, float] | None:
    """What was recorded for the same cluster in Java, in milliseconds."""
    for found in json.loads(JAVA.read_text())["results"]:
        same = found["brokers"] == size.brokers and found["bundles"] == size.brokers * size.per_broker
        if found["algorithm"] == "modular.ThresholdShedder" and found["workload"] == kind and same:
            columns = ("median", "min", "cpu_median")
            figures = {f"{column}_ms": found[f"{column}_us"] / 1000 for column in columns}
            return {**figures, "decisions": found["decisions"]}
    return None


def measure(calls: int) -> list[dict[str, Any]]:
    """Every subject on every size and workload."""
    rows = []
    for size in SIZES:
        for kind in ("balanced", "hot"):
            cluster = workload(size, hot=kind == "hot")
            results = {name: timed(call, cluster, calls) for name, call in subjects().items()}
            recorded = java(size, kind)
            if recorded is not None:
                results["java (recorded)"] = recorded
            head = {"size": size.name, "brokers": size.brokers, "bundles": len(cluster.bundles), "workload": kind}
            rows += [{**head, "subject": name, **figures} for name, figures in results.items()]
    return rows


def main() -> None:
    """Print the table, and write it as JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--calls", type=int, default=9, help="timed calls of each subject (default 9)")
    options = parser.parse_args()
    rows = measure(options.calls)
    head = f"{'size':10} {'brokers':>7} {'bundles':>8} {'workload':9} {'subject':20}"
    print(f"{head} {'median ms':>10} {'min':>9} {'moves':>6}")
    for row in rows:
        print(
            f"{row['size']:10} {row['brokers']:7} {row['bundles']:8,} {row['workload']:9} {row['subject']:20}"
            f" {row['median_ms']:10.3f} {row['min_ms']:9.3f} {row['decisions']:6}"
        )
    if options.json:
        about = {"python": sys.version.split()[0], "numpy": np.__version__}
        options.json.write_text(json.dumps({**about, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
