"""The lab's part of `calibration.py`: the messages that clients send in each minute, and the trace of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab_lab.simulation import Decider, Orders, Scenario, World, build, contender, run
from trimtab_operator.resources.common import API_VERSION
from trimtab_strategies.model import CPU, ClusterLoad

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "trim": {},
    "avg": {
        "shedder": {"type": "AvgShedder", "avgShedder": {"minRate": 50, "minThroughput": "10Ki", "hitCountLow": 3}},
        "placement": {"type": "AvgShedder"},
    },
}
"""Name of a policy -> its strategy. The policies are played on real brokers. `trim` sets no parameter. `avg` sets
lower minimums, because AvgShedder's default of 1,000 messages/s is above the load of this cluster."""


def manifest(name: str, strategy: Mapping[str, Any], admin_url: str, prometheus_url: str) -> dict[str, Any]:
    """A policy in mode Auto that sets only its strategy and two addresses."""
    spec = {
        "mode": "Auto",
        "pulsar": {"adminUrl": admin_url},
        "source": {"prometheus": {"url": prometheus_url}},
        **strategy,
    }
    return {"apiVersion": API_VERSION, "kind": "BalancingPolicy", "metadata": {"name": name}, "spec": spec}


Array = npt.NDArray[np.float64]

SCENARIO = Path(__file__).with_name("calibration.yaml")
SEED = 0
POLICY_SHEDDER = "Trim"
"""The shedder of a policy that names none."""


def sent(world: World) -> Array:
    """Messages/s (rounds, m) that the clients of each bundle send."""
    coming = world.real * world.noise * world.share_in
    messages: Array = coming / world.message
    return messages


def grown(world: World) -> dict[str, float]:
    """The bundle (row) whose rate grows most, and its messages/s in the first and the last round."""
    messages = world.real * world.share_in / world.message
    row = int(np.argmax(messages[-1] / messages[0]))
    return {"bundle": row, "before": round(float(messages[0, row]), 1), "after": round(float(messages[-1, row]), 1)}


@dataclass
class Recorder:
    """A decider that records the snapshots that it gets and the decisions of another decider.

    cpu: measured percent by round and broker. rates: received messages/s by round and broker. moves: see `lab_trace`.
    """

    inner: Decider
    cpu: list[list[float]] = field(default_factory=list)
    rates: list[list[float]] = field(default_factory=list)
    moves: list[Mapping[str, Any]] = field(default_factory=list)

    def decide(self, cluster: ClusterLoad, rng: np.random.Generator) -> Orders:
        """See `Decider`."""
        orders, names = self.inner.decide(cluster, rng), cluster.brokers.names
        used = 100 * cluster.brokers.usage[:, CPU] / cluster.brokers.limit[:, CPU]
        self.cpu.append([round(float(value), 1) for value in used])
        self.rates.append([round(float(value), 1) for value in cluster.brokers.traffic[:, 0]])
        for move in orders.moves:
            row = cluster.bundles.index[move.bundle]
            ends = {"source": names.index(move.source), "target": names.index(move.destination)}
            rate = round(float(cluster.bundles.newest[row, 0]), 1)
            self.moves.append({"at": 60.0 * len(self.cpu), "bundle": row, **ends, "rate": rate})
        return orders

    def forget(self) -> None:
        """See `Decider`."""
        self.inner.forget()


def lab_trace(scenario: Scenario) -> dict[str, Any]:
    """The run of the default shedder: CPU (percent) and messages/s by minute and broker, and the moves.

    A move has its time (seconds; the end of its minute), row of the bundle, rows of both brokers, and messages/s.
    """
    world = build(scenario, np.random.default_rng(SEED))
    recorder = Recorder(contender(POLICY_SHEDDER).decider(world))
    record = run(world, recorder, np.random.default_rng(SEED))
    assert int(record.moves.sum()) <= len(recorder.moves), "every move was decided"
    return {"cpu": recorder.cpu, "rates": recorder.rates, "moves": recorder.moves}
