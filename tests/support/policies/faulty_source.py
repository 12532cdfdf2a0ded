"""Four brokers on a real Prometheus behind a faulty proxy, and the moves that a policy would make."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from faulty_proxy import FaultyProxy
from metrics_exporter import Exporter
from pipeline_clusters import topology
from trimtab_pipeline.api import LoadSource, PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Memory, Move
from trimtab_strategies.planner.decide import decide
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

SCRAPE, WINDOW, MAX_AGE = 0.5, 4.0, 3.0
CORES = {"pulsar-0": 3.6, "pulsar-1": 0.4, "pulsar-2": 0.4, "pulsar-3": 0.4}
HOT, RATE = "pulsar-0", 5_000.0
_EDGES = [f"0x{k * 2**28:08x}" for k in range(16)] + ["0xffffffff"]
BUNDLES = {f"t/n/{_EDGES[k]}_{_EDGES[k + 1]}": list(CORES)[k // 4] for k in range(16)}
"""Owner of each bundle. All carry `RATE` msg/s, so that only CPU distinguishes the hot broker."""
WORLD = topology({pod: pod for pod in CORES}, BUNDLES)


@dataclass
class FaultySource:
    """The brokers and their proxy; `source` is the source of one policy, with a history of its own."""

    exporters: dict[str, Exporter]
    server: PrometheusServer
    proxy: FaultyProxy
    policy: str = ""
    sources: PolicySources = field(init=False)
    source: LoadSource = field(init=False)

    def enter(self, sources: PolicySources, policy: str, **settings: float) -> None:
        """Open the source of `policy` in `sources`, without averages of earlier cycles."""
        bounds = {"window": WINDOW, "max_age": MAX_AGE, "timeout": 2.0} | settings
        self.sources, self.policy = sources, policy
        self.source = sources.open(policy, PrometheusSettings(self.proxy.url, "pulsar", **bounds))

    def files(self) -> dict[str, int]:
        """The size of every file of the policy's history and state."""
        root, key = Path(self.sources.history_dir), self.policy.replace("/", ".", 1)
        found = [*root.glob(f"history/*/policy={key}/*/*/*.parquet"), *root.glob(f"state/{self.policy}/*/*.parquet")]
        return {str(path.relative_to(root)): path.stat().st_size for path in sorted(found)}

    def look(self, at: float | None = None) -> ClusterLoad:
        """Measure now, or as of `at`. Raises `SourceUnavailableError`."""
        return self.source.observe(WORLD, time.time() if at is None else at).result(timeout=120).load

    def until(self, holds: Callable[[ClusterLoad], bool], seconds: float = 40.0) -> ClusterLoad:
        """The first snapshot for which `holds` is true; failed cycles are skipped."""
        end, seen = time.monotonic() + seconds, ""
        while time.monotonic() < end:
            try:
                load = self.look()
            except SourceUnavailableError as error:
                seen = str(error)
            else:
                if holds(load):
                    return load
                seen = str((load.brokers, load.quality))
            time.sleep(0.25)
        raise AssertionError(f"not within {seconds} s; at last: {seen}")

    def healthy(self) -> ClusterLoad:
        """A snapshot in which every broker is trusted."""
        return self.until(lambda load: bool(load.brokers.trusted.all()))

    def scrape(self, *pods: str) -> None:
        """Have Prometheus scrape exactly these pods."""
        self.server.set_targets(
            Target(self.exporters[pod].address, {"namespace": "pulsar", "pod": pod}) for pod in pods
        )


@contextmanager
def faulty_source(program: Path, folder: Path) -> Iterator[FaultySource]:
    """Start the brokers and Prometheus (`program`) in `folder`."""
    with ExitStack() as running:
        exporters = {pod: running.enter_context(_exporter(pod)) for pod in CORES}
        server = running.enter_context(PrometheusServer(program, folder, scrape_interval=SCRAPE))
        env = FaultySource(exporters, server, running.enter_context(FaultyProxy(server.url)))
        env.scrape(*CORES)
        yield env


def _exporter(pod: str) -> Exporter:
    bundles = {bundle: RATE for bundle, owner in BUNDLES.items() if owner == pod}
    per_message = {"rate_in": 1, "rate_out": 2, "throughput_in": 1e3, "throughput_out": 2e3}
    totals = {name: value * RATE * len(bundles) for name, value in per_message.items()}
    return Exporter(pod, CORES[pod], bundles, totals)


def moves(load: ClusterLoad) -> tuple[Move, ...]:
    """Moves of a policy with Pulsar's defaults: in a healthy cluster, bundles of the hot broker."""
    pair = registry.pair("ThresholdShedder", {}, "LeastResourceUsageWithWeight", {})
    return decide(load, pair, MoveLimits(), Memory(), np.random.default_rng(1)).plan.moves
