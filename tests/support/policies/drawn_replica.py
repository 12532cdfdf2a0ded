"""`trimtab run` with a generated load: no Spark, no Prometheus, and always something to move.

Run as ``python drawn_replica.py run OPTION...``.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future
from typing import Any

import numpy as np

from static_sources import StaticSources
from trimtab_operator.cli import main
from trimtab_operator.cli.commands import run
from trimtab_pipeline.api import Observation, Topology
from trimtab_strategies.model import RESOURCES, TRAFFIC, Brokers, ClusterLoad

_HOT, _COOL = 0.95, 0.1
"""Ratio of its limit that the hot broker uses, and that the others use."""


class ShiftingSource:
    """A source in which the broker with most bundles is hot, and its bundles share the load equally.

    So half of these bundles must move, and then another broker is hot.
    """

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """The hot broker at `at`."""
        outcome: Future[Observation] = Future()
        outcome.set_result(Observation(_drawn(topology, at), {"drawn": 0.0}))
        return outcome

    observe_brokers = observe


def _drawn(topology: Topology, at: float) -> ClusterLoad:
    n, m = len(topology.brokers), len(topology.bundles)
    used = np.full(n, _COOL)
    held = np.bincount(topology.owner[topology.owner >= 0], minlength=n)
    used[held.argmax()] = _HOT
    share = np.where(topology.owner >= 0, (used / np.maximum(held, 1))[topology.owner], 0.0)
    traffic = np.repeat(share[:, None] * 1e8, len(TRAFFIC), axis=1)
    brokers = Brokers(
        names=topology.brokers,
        usage=np.repeat(used[:, None], len(RESOURCES), axis=1),
        limit=np.ones((n, len(RESOURCES))),
        traffic=np.repeat(used[:, None] * 1e8, len(TRAFFIC), axis=1),
        age=np.zeros(n),
        ready=topology.ready,
        schedulable=topology.schedulable,
        trusted=np.ones(n, dtype=bool),
    )
    bundles = topology.carrying(short=traffic, long=traffic, topics=np.ones(m), sessions=np.ones(m))
    return ClusterLoad(brokers, bundles, topology.namespaces, at)


def _drawn_sources(*_: Any) -> StaticSources:
    return StaticSources(ShiftingSource())


if __name__ == "__main__":
    run.load_sources = _drawn_sources
    sys.exit(main())
