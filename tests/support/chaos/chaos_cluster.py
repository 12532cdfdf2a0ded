"""The cluster of a chaos round: API server with an audit log, brokers, a load source, and two operators."""

from __future__ import annotations

import json
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from chaos_crew import Crew
from chaos_replica import CELLS, Ground
from chaos_schedule import BROKERS, Schedule
from chaos_trail import AUDIT_POLICY, Caps
from chaos_witness import Bundles, Cycles, Served
from faulty_proxy import FaultyProxy
from kube_watch import Watch
from trimtab_operator.resources import crd
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.prometheus import PrometheusServer
from trimtab_testbed.simulated.cluster import POD_LABELS, SimulatedCluster
from trimtab_testbed.simulated.scenarios import ClusterScenario, NamespaceShape, brokers

NAMESPACE, POLICY = "messaging", "policy"
API = f"/apis/trimtab.dev/v1alpha1/namespaces/{NAMESPACE}"
SHAPES = (NamespaceShape("shop", "orders", 16), NamespaceShape("fleet", "telemetry", 8, readers=1))
SHEDDER = {
    "type": "ThresholdShedder",
    "thresholdShedder": {"threshold": 6, "historyPercent": 10, "minThroughput": 0, "lowerBoundary": True},
}


def _scenario(seed: int) -> ClusterScenario:
    return ClusterScenario(
        name="chaos",
        summary="four brokers with 24 bundles",
        brokers=brokers(60, 25, 15, 40, cores=2.0),
        namespaces=SHAPES,
        seed=seed,
        largest=12.0,
        policy={},
    )


class ChaosCluster:
    """Context manager. schedule: gives the seed, and whether load is measured. A policy in mode Auto runs."""

    def __init__(self, binaries: KubeBinaries, prometheus: Path, folder: Path, schedule: Schedule) -> None:
        self.folder, self.schedule = folder, schedule
        self.served, self.bundles, self.cycles = Served(), Bundles(), Cycles()
        self.caps = Caps(cycle=4, broker=2, hour=schedule.moves_per_hour)
        folder.mkdir(parents=True, exist_ok=True)
        policy = folder / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        flags = (f"--audit-policy-file={policy}",)
        self.plane = ControlPlane(binaries, folder / "control-plane", audit=True, extra_flags=flags)
        self._prometheus_program = prometheus
        self._open = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _start(self) -> None:
        plane = self._open.enter_context(self.plane)
        self.rest = plane.rest
        self.rest.apply_crds(crd.manifests().values())
        self.rest.create_namespace(NAMESPACE)
        kubeconfig, told = plane.kubeconfig, self.served.told
        self.world = self._open.enter_context(
            SimulatedCluster(
                _scenario(self.schedule.seed),
                rest=self.rest,
                kubeconfig=kubeconfig,
                namespace=NAMESPACE,
                on_serving=told,
            )
        )
        self._start_source()
        self.world.seed_bundles()
        self.world.wait_until_owned()
        self.apply_policy()
        self._watch("bundles", self.bundles)
        self._watch("balancingpolicies", self.cycles)
        ground = None if self.schedule.measured else self.folder / "ground.json"
        self.crew = Crew(plane, self.folder, ground)
        self._open.callback(self.crew.stop)

    def _start_source(self) -> None:
        self.url = "http://127.0.0.1:9"
        if self.schedule.measured:
            targets = self.world.targets
            server = PrometheusServer(
                self._prometheus_program, self.folder / "prometheus", targets, scrape_interval=0.5
            )
            self.prometheus = self._open.enter_context(server)
            self.proxy = self._open.enter_context(FaultyProxy(server.url))
            self.url = self.proxy.url
        else:
            chance = random.Random(self.schedule.seed)
            self.ground = Ground({shape.full_name: _cells(chance) for shape in SHAPES})
            self.ground.write(self.folder / "ground.json")

    def _watch(self, plural: str, eyes: Bundles | Cycles) -> None:
        watch = Watch(self.rest, f"{API}/{plural}", eyes)
        watch.start()
        self._open.callback(watch.stop)

    def tell_ground(self, *, known: bool = True) -> None:
        """Write the current load, for operators that read it from a file."""
        self.ground.known = known
        self.ground.write(self.folder / "ground.json")

    def apply_policy(self) -> None:
        """A policy that moves soon, with few bundles at a time."""
        body = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "BalancingPolicy",
            "metadata": {"name": POLICY},
            "spec": {"brokers": {"podLabels": POD_LABELS}, **self.policy_spec()},
        }
        self.rest.create(f"{API}/balancingpolicies", body)

    def policy_spec(self) -> dict[str, Any]:
        """The policy's spec, as `apply_policy` creates it."""
        limits = {
            "maxMovesPerCycle": self.caps.cycle,
            "maxMovesPerBroker": self.caps.broker,
            "maxMovesPerHour": self.caps.hour,
            "coolDown": "2s",
            "moveTimeout": "4s",
            "lostAfter": "3s",
            "maxUndoneMoves": 1000,
            "maxLostBrokersPercent": 50,
            "minTrustedBrokersPercent": 50,
        }
        return {
            "mode": "Auto",
            "paused": False,
            "interval": "2s" if self.schedule.measured else "1s",
            "source": {"prometheus": {"url": self.url, "window": "3s", "maxAge": "5s", "timeout": "3s"}},
            "shedder": SHEDDER,
            "placement": {
                "type": "LeastResourceUsageWithWeight",
                "leastResourceUsageWithWeight": {"averageDifference": 4, "historyPercent": 10},
            },
            "limits": limits,
        }

    # -- a person's view --

    def listed(self, plural: str) -> dict[str, dict[str, Any]]:
        """Objects by name."""
        return {item["metadata"]["name"]: item for item in self.rest.get(f"{API}/{plural}")["items"]}

    @property
    def users(self) -> dict[str, int]:
        """The epoch of each operator that ran, 0 if it never led."""
        return {replica.name: replica.epoch() for replica in self.crew.all}


def _cells(chance: random.Random) -> list[float]:
    """Loads of one namespace's cells, skewed: two such namespaces use 45 % of four brokers."""
    sizes = [chance.lognormvariate(0, 0.7) for _ in range(CELLS)]
    return [size / sum(sizes) * 0.45 * len(BROKERS) / len(SHAPES) for size in sizes]
