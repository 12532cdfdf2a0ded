"""Time and memory of Trim's decisions on large clusters: `python benchmarks/trim.py [--sizes 100x600] [--json FILE]`.

A third of the brokers is at 75 % CPU, the others at 35 %. The load of each bundle jitters by 10 %. There is one cycle a
minute. Trim decides in each cycle, and each plan has landed by the next one. The ring of samples is full after 24
cycles, and `--cycles` more follow.

The output has milliseconds of processor time:

    ring     adding the newest samples of all bundles: median of the cycles with a full ring
    dearest  Trim's whole decision (brokers' models, replay, causes, plan): the slowest cycle
    plan     the whole decision: median of the cycles with a plan
    quiet    the whole decision: median of the cycles with a full ring and without a plan

Each size is measured in a process of its own. Its memory is shown as the peak before the first cycle (`MB before`) and
the peak at the end (`MB`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from decide import peak_mb
from large_cluster import Size, workload
from trimtab_strategies.model import CPU, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.trim.samples import MINUTES, SampleRing
from trimtab_strategies.shedding.trim.shedder import Trim, TrimParams

SIZES = (Size(10, 600), Size(100, 600), Size(300, 600))
BUSY, CALM = 0.75, 0.35
CORES = 16.0
JITTER = 0.1


class Cost(NamedTuple):
    """Seconds of processor time of one cycle, and the moves of its plan."""

    ring: float
    shed: float
    moves: int


@dataclass
class Run:
    """Trim on a large cluster, minute by minute."""

    cluster: ClusterLoad
    ring: SampleRing = field(default_factory=SampleRing)
    memory: Mapping[str, Any] = field(default_factory=dict)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    @classmethod
    def of(cls, size: Size, wanted: FloatArray | None = None) -> Run:
        """A cluster of `size` before its first minute. wanted: (n,) load of each broker, on any scale."""
        cluster = workload(size, hot=False)
        carried = np.bincount(cluster.bundles.owner, weights=cluster.bundles.short.sum(axis=1))
        if wanted is None:
            wanted = np.where(np.arange(size.brokers) % 3 == 0, BUSY, CALM)
        load = cluster.bundles.short * (wanted / carried * carried.mean())[cluster.bundles.owner, np.newaxis]
        return cls(replace(cluster, bundles=replace(cluster.bundles, short=load, long=load)))

    def minute(self) -> Cost:
        """Run one cycle."""
        seen = self._seen()
        start = time.process_time()
        seen = self.ring.add(seen)
        added = time.process_time()
        found = Trim(TrimParams()).shed(seen, np.ones(len(seen.bundles), dtype=bool), self.memory)
        cost = Cost(added - start, time.process_time() - added, sum(len(unload.bundles) for unload in found.unloads))
        self.memory = found.memory
        self._land(found)
        return cost

    def _seen(self) -> ClusterLoad:
        """The snapshot of the current minute, with jitter in the load of each bundle."""
        cluster, n = self.cluster, len(self.cluster.brokers)
        newest = cluster.bundles.short * self.random.normal(1, JITTER, (len(cluster.bundles), 1)).clip(0.5, 2)
        traffic = np.stack([np.bincount(cluster.bundles.owner, weights=c, minlength=n) for c in newest.T], axis=1)
        usage, limit = np.zeros((n, 5)), np.full((n, 5), -1.0)
        limit[:, CPU], usage[:, CPU] = CORES, CORES * self._ratio(traffic)
        brokers = replace(cluster.brokers, usage=usage, limit=limit, traffic=traffic)
        return replace(cluster, brokers=brokers, bundles=replace(cluster.bundles, newest=newest))

    def _ratio(self, traffic: FloatArray) -> FloatArray:
        """CPU of brokers that carry `traffic`, ratio 0-1. A broker with mean traffic has the cluster's mean CPU."""
        mean = (BUSY + 2 * CALM) / 3
        ratio: FloatArray = traffic[:, 2:].sum(axis=1) / self.cluster.bundles.short[:, 2:].sum() * len(traffic) * mean
        return ratio

    def _land(self, found: Shedding) -> None:
        bundles = self.cluster.bundles
        owner, unloaded = bundles.owner.copy(), bundles.last_unload.copy()
        for unload in found.unloads:
            owner[unload.bundles], owner[unload.returned] = unload.destination, unload.broker
            unloaded[[*unload.bundles.tolist(), *unload.returned.tolist()]] = self.cluster.now
        now = self.cluster.now + 60
        self.cluster = replace(self.cluster, now=now, bundles=replace(bundles, owner=owner, last_unload=unloaded))


def measured(size: Size, cycles: int) -> dict[str, Any]:
    """The figures of `size`: milliseconds of processor time, moves, and MB of this process."""
    run = Run.of(size)
    before = peak_mb()
    costs = [run.minute() for _ in range(MINUTES + cycles)]
    planned, quiet = [c for c in costs if c.moves], [c for c in costs[MINUTES:] if not c.moves]
    return {
        "size": str(size),
        "ring_ms": 1000 * median(cost.ring for cost in costs[MINUTES:]),
        "dearest_ms": 1000 * max(cost.shed for cost in costs),
        "plan_ms": _median_ms(planned),
        "quiet_ms": _median_ms(quiet),
        "plans": len(planned),
        "moves": sum(cost.moves for cost in costs),
        "before_mb": before,
        "peak_mb": peak_mb(),
    }


def _median_ms(costs: Sequence[Cost]) -> float:
    return 1000 * median(cost.shed for cost in costs) if costs else float("nan")


def main() -> None:
    """Print a line for each size, each measured in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=Size.parse, nargs="+", default=list(SIZES), help="such as 10x600 100x600")
    parser.add_argument("--cycles", type=int, default=20, help="cycles after the ring is full (default 20)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--one", type=Size.parse, help="measure only this size, in this process; print JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one, options.cycles)))
        return
    columns = ("ring", "dearest", "plan", "quiet")
    print(f"{'size':8}" + "".join(f"{column + ' ms':>12}" for column in columns) + "  plans  moves  MB before   MB")
    rows = []
    for size in options.sizes:
        command = [sys.executable, __file__, "--one", str(size), "--cycles", str(options.cycles)]
        row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        rows.append(row)
        times = "".join(f"{row[column + '_ms']:12.1f}" for column in columns)
        print(f"{size!s:8}{times} {row['plans']:6} {row['moves']:6} {row['before_mb']:10.0f} {row['peak_mb']:4.0f}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
