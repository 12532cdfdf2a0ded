"""`trimtab run` with a load that is read from a file instead of measured: no Spark, no Prometheus, and exact values.

Run as ``python chaos_replica.py FILE run OPTION...``. The file has the load of each part of a namespace's ring
(`Ground`), or says that the load is unknown. It is read again for every observation.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trimtab_operator.cli import main
from trimtab_operator.cli.commands import run
from trimtab_pipeline.api import Observation, SourceUnavailableError, Topology
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import RESOURCES, TRAFFIC, Brokers, ClusterLoad

sys.path.append(str(Path(__file__).parents[1] / "policies"))  # this file is run as a program

from static_sources import StaticSources

CELLS = 64
"""Number of equal cells of a ring, each with its own load: so the loads of a bundle's parts add up to its load."""

_RING, _IDLE, _BYTES = 2**32, 0.03, 1e8


@dataclass
class Ground:
    """The load of each cell (ratio 0-1 of a broker) by namespace (``tenant/name``). known: whether load is known."""

    cells: dict[str, list[float]] = field(default_factory=dict)
    known: bool = True

    def write(self, file: Path) -> None:
        """Write the file atomically."""
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(self)))
        partial.replace(file)

    def load(self, bundle: str) -> float:
        """Load of a bundle in Pulsar's spelling, as a ratio of what a broker can carry."""
        namespace, lower, upper = parse_bundle(bundle)
        edges = np.linspace(0, _RING, CELLS + 1)
        inside = np.clip(np.minimum(edges[1:], upper) - np.maximum(edges[:-1], lower), 0, None)
        return float(np.dot(inside * CELLS / _RING, self.cells.get(namespace, [0.0] * CELLS)))


@dataclass(frozen=True)
class GroundSource:
    """A `LoadSource` that reads `file`."""

    file: Path

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """The current load of the bundles, and the brokers that own them."""
        ground, outcome = Ground(**json.loads(self.file.read_text())), Future[Observation]()
        if ground.known:
            outcome.set_result(Observation(_seen(ground, topology, at), {"drawn": 0.0}))
        else:
            outcome.set_exception(SourceUnavailableError(f"{self.file} says that the load is unknown"))
        return outcome

    observe_brokers = observe


def _seen(ground: Ground, topology: Topology, at: float) -> ClusterLoad:
    n, m = len(topology.brokers), len(topology.bundles)
    share = np.array([ground.load(bundle) for bundle in topology.bundles])
    owned = topology.owner >= 0
    used = np.minimum(1.0, _IDLE + np.bincount(topology.owner[owned], weights=share[owned], minlength=n))
    traffic = np.repeat(share[:, None] * _BYTES, len(TRAFFIC), axis=1)
    brokers = Brokers(
        names=topology.brokers,
        usage=np.repeat(used[:, None], len(RESOURCES), axis=1),
        limit=np.ones((n, len(RESOURCES))),
        traffic=np.repeat(used[:, None] * _BYTES, len(TRAFFIC), axis=1),
        age=np.where(topology.ready, 0.0, np.inf),
        ready=topology.ready,
        schedulable=topology.schedulable,
        trusted=topology.ready.copy(),
    )
    bundles = topology.carrying(short=traffic, long=traffic, topics=np.ones(m) * 8, sessions=np.ones(m))
    return ClusterLoad(brokers, bundles, topology.namespaces, at)


def _sources(file: Path) -> Any:
    return lambda *_: StaticSources(GroundSource(file))


if __name__ == "__main__":
    run.load_sources = _sources(Path(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
