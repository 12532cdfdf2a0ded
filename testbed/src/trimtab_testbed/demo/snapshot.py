"""Takes snapshots of the demo's cluster from the API server and Prometheus, never from the operator or simulation."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab_strategies.model import Reason
from trimtab_testbed.demo.cluster import NAMESPACE, WINDOW, DemoCluster
from trimtab_testbed.simulated.cluster import landed
from trimtab_testbed.simulated.metrics_page import CONTAINER

NIC = 1.25e9
"""Bytes/s that the table shows as 100 % of the network: the policy's default."""

_NOT_BEGUN = (Reason.NO_BROKERS, Reason.STORE_NOT_SYNCED)
"""Outcomes that the operator reports before it has seen the cluster."""

_POD = f'namespace="{NAMESPACE}"'
_BOX = f'{_POD},container="{CONTAINER}"'


def _of_limit(usage: str, resource: str) -> str:
    limit = f'max by (pod) (kube_pod_container_resource_limits{{{_BOX},resource="{resource}"}})'
    return f"100 * max by (pod) ({usage}) / {limit}"


_QUERIES = {
    "cpu": _of_limit(f"rate(container_cpu_usage_seconds_total{{{_BOX}}}[{WINDOW}s])", "cpu"),
    "memory": _of_limit(f"container_memory_working_set_bytes{{{_BOX}}}", "memory"),
    "network_in": f"100 / {NIC} * max by (pod) (rate(container_network_receive_bytes_total{{{_POD}}}[{WINDOW}s]))",
    "network_out": f"100 / {NIC} * max by (pod) (rate(container_network_transmit_bytes_total{{{_POD}}}[{WINDOW}s]))",
}


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker's row: percent of its limits (None: not measured) and number of bundles."""

    name: str
    cpu: float | None
    memory: float | None
    network_in: float | None
    network_out: float | None
    bundles: int


@dataclass(slots=True)
class SeenMove:
    """A bundle that got another owner. at: seconds since the first snapshot. landed: whether that owner has it."""

    bundle: str
    source: str
    destination: str
    reason: str
    at: float
    landed: bool = False


@dataclass(frozen=True, slots=True)
class ObservedCycle:
    """One cycle as in the policy's status. total: seconds of the whole cycle. seconds: phase -> its duration."""

    time: str
    outcome: str
    moved: int
    total: float
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DemoSnapshot:
    """The cluster at one moment. at: seconds since the first snapshot.

    unconfirmed: number of bundles that are not with their desired owner.
    """

    at: float
    brokers: tuple[BrokerRow, ...]
    moves: tuple[SeenMove, ...]
    cycles: tuple[ObservedCycle, ...]
    unconfirmed: int
    balanced: str

    @property
    def cpu_range(self) -> float | None:
        """Highest minus lowest CPU in percentage points; None until all brokers are measured."""
        cpu = [row.cpu for row in self.brokers if row.cpu is not None]
        return max(cpu) - min(cpu) if cpu and len(cpu) == len(self.brokers) else None


@dataclass
class ClusterObserver:
    """Takes snapshots and collects moves and cycles. Without a snapshot in each interval, cycles are missed."""

    stage: DemoCluster
    moves: list[SeenMove] = field(default_factory=list)
    cycles: list[ObservedCycle] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = time.monotonic()
        self._owners: dict[str, str] = {}

    def snapshot(self, *, policy: bool = True) -> DemoSnapshot:
        """Take a snapshot. policy: whether the policy exists already."""
        at = time.monotonic() - self._began
        bundles = self.stage.world.bundles()
        self._note_moves(bundles, at)
        status = self.stage.policy().get("status", {}) if policy else {}
        self._note_cycle(status.get("lastCycle"))
        unconfirmed = sum(not landed(bundle) for bundle in bundles.values())
        rows = self._rows(bundles)
        return DemoSnapshot(at, rows, tuple(self.moves), tuple(self.cycles), unconfirmed, _balanced(status))

    def _note_moves(self, bundles: Mapping[str, Any], at: float) -> None:
        for name, bundle in bundles.items():
            owner = bundle["spec"].get("owner", "")
            before = self._owners.setdefault(name, owner)
            if owner != before:
                self.moves.append(SeenMove(name, before, owner, _reason(bundle["spec"]), at))
                self._owners[name] = owner
        for move in self.moves:
            move.landed = move.landed or landed(bundles[move.bundle])

    def _note_cycle(self, last: Mapping[str, Any] | None) -> None:
        if not last or (not self.cycles and last["outcome"] in _NOT_BEGUN):
            return
        if not self.cycles or self.cycles[-1].time != last["time"]:
            phases = dict(last.get("phases", {}))
            self.cycles.append(
                ObservedCycle(last["time"], last["outcome"], last.get("moved", 0), last["seconds"], phases)
            )

    def _rows(self, bundles: Mapping[str, Any]) -> tuple[BrokerRow, ...]:
        measured = {name: self._query(promql) for name, promql in _QUERIES.items()}
        owned = [bundle.get("status", {}).get("owner", "") for bundle in bundles.values()]
        return tuple(
            BrokerRow(
                broker, **{name: values.get(broker) for name, values in measured.items()}, bundles=owned.count(broker)
            )
            for broker in self.stage.world.brokers
        )

    def _query(self, promql: str) -> dict[str, float]:
        """Value by pod; empty when Prometheus does not answer."""
        url = f"{self.stage.prometheus.url}/api/v1/query?{urllib.parse.urlencode({'query': promql})}"
        try:
            with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - our own server
                result = json.load(response)["data"]["result"]
        except OSError:
            return {}
        return {sample["metric"]["pod"]: float(sample["value"][1]) for sample in result}


def _reason(spec: Mapping[str, Any]) -> str:
    """Why the bundle has its owner. If the assignment names another owner, a user has changed the owner since then."""
    assignment = spec.get("assignment", {})
    return str(assignment["reason"]) if assignment.get("owner") == spec["owner"] else str(Reason.ADMIN)


def _balanced(status: Mapping[str, Any]) -> str:
    """Reason and message of the policy's condition `Balanced`."""
    found = [c for c in status.get("conditions", []) if c["type"] == "Balanced"]
    return f"{found[0]['reason']}: {found[0].get('message', '')}" if found else ""
