"""A small cluster whose pods belong to a StatefulSet: kube-controller-manager restarts them one after the other.

A simulated kubelet makes pods ready some time after their creation, and removes them after they have stopped.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from small_cluster import NAMESPACE, SmallCluster, until
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeRest
from trimtab_testbed.simulated.cluster import POD_LABELS, SimulatedCluster, pod_spec, running_status
from trimtab_testbed.simulated.scenarios import ClusterScenario, NamespaceShape, brokers

SET = "pulsar-broker"
"""Name of the StatefulSet; its pods have the names of a scenario's brokers."""
SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

LOOK_EVERY = 0.2
STARTS_WITHIN = 2.0
GRACE = 30.0
"""Seconds: between two reads of the pods; from a pod's creation until it is ready; of a pod's grace period."""


def level(count: int, bundles: int) -> ClusterScenario:
    """`count` equal brokers at 40 %, each with about as many `bundles`."""
    return ClusterScenario(
        name="level",
        summary="equal brokers that restart",
        brokers=brokers(*[40.0] * count),
        namespaces=(NamespaceShape("t", "n", count * bundles),),
        seed=7,
        largest=40.0 / bundles * 1.2,
        policy={},
    )


@dataclass
class RestartWitness:
    """The brokers' own reports of the start and end of serving.

    serving: serving brokers by bundle. served_by: the latest broker to serve each bundle. moves: number of times that
    another broker started to serve it, by bundle. twice: bundles that two brokers served at the same time. gap: longest
    time in seconds without a broker, by bundle.
    """

    serving: dict[str, set[str]] = field(default_factory=dict)
    served_by: dict[str, str] = field(default_factory=dict)
    moves: Counter[str] = field(default_factory=Counter)
    twice: list[str] = field(default_factory=list)
    gap: Counter[str] = field(default_factory=Counter)
    _left_at: dict[str, float] = field(default_factory=dict)

    def told(self, broker: str, bundle: str, serves: bool) -> None:  # noqa: FBT001  (a protocol)
        """Note the start or end of serving."""
        now, serving = time.monotonic(), self.serving.setdefault(bundle, set())
        if not serves:
            serving.discard(broker)
            self._left_at[bundle] = now
            return
        serving.add(broker)
        if len(serving) > 1:
            self.twice.append(f"{bundle}: {sorted(serving)}")
        self.moves[bundle] += self.served_by.get(bundle, broker) != broker
        self.gap[bundle] = max(self.gap[bundle], now - self._left_at.get(bundle, now))
        self.served_by[bundle] = broker


@dataclass
class Kubelet:
    """Context manager that acts as a kubelet for the pods of `world`, and starts and stops their brokers.

    The broker of a terminating pod serves until it has given all bundles away, or the grace period is over. cut_off:
    bundles that it still served when the grace period was over. peak: highest CPU of a broker at a read, in percent.
    """

    rest: KubeRest
    world: SimulatedCluster
    starts_within: float = 0.0
    cut_off: list[str] = field(default_factory=list)
    peak: float = 0.0
    failure: BaseException | None = None
    _up: set[str] = field(default_factory=set)
    _over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()
        if self.failure is not None and error is None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._over.wait(LOOK_EVERY):
                self._look()
        except BaseException as error:  # noqa: BLE001  (raised by the thread that waits for this one)
            self.failure = error

    def _look(self) -> None:
        self.peak = max(self.peak, *self.world.cpu().values())
        for pod in self.rest.get(PODS)["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                self._end(pod)
            elif pod["metadata"]["uid"] not in self._up and _age(pod) >= self.starts_within:
                self._begin(pod)

    def _begin(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        self.world.revive(name)
        self.rest.patch(f"{PODS}/{name}/status", {"status": running_status(ready=True)})
        self._up.add(pod["metadata"]["uid"])

    def _end(self, pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        left = self.world.serving()[name]
        if left and _seconds_since(pod["metadata"]["deletionTimestamp"]) < 0:
            return
        self.cut_off += [f"{name}: {bundle}" for bundle in sorted(left)]
        self.world.kill(name)
        self.rest.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def _age(pod: dict[str, Any]) -> float:
    return _seconds_since(pod["metadata"]["creationTimestamp"])


def _seconds_since(text: str) -> float:
    return time.time() - datetime.fromisoformat(text).timestamp()


class StatefulSetCluster(SmallCluster):
    """A small cluster of a `scenario` on a control plane with controllers; its pods belong to a StatefulSet.

    plane: runs before and afterwards.
    """

    def __init__(self, plane: ControlPlane, prometheus: Path, work_dir: Path, scenario: ClusterScenario) -> None:
        super().__init__(plane.binaries, prometheus, work_dir, scenario)
        self.control_plane, self.witness = plane, RestartWitness()

    def _open_plane(self) -> None:
        """Do nothing: the control plane already runs."""

    def _world(self, **where: Any) -> SimulatedCluster:
        return SimulatedCluster(self.scenario, **where, on_serving=self.witness.told, pods=False)

    def _start(self) -> None:
        super()._start()
        self.kubelet = self._enter(Kubelet(self.rest, self.world))
        self.rest.create(SETS, self._stateful_set())
        until("all pods are ready", self._stands)

    def roll_out(self, within: float) -> None:
        """Run ``kubectl rollout restart`` and wait for its end: a pod is replaced when all others are ready."""
        self.control_plane.kubectl("-n", NAMESPACE, "rollout", "restart", f"statefulset/{SET}")
        until("all pods were restarted", self._stands, within)

    def _stands(self) -> bool:
        found = self.rest.get(f"{SETS}/{SET}")
        status, count = found.get("status", {}), len(self.scenario.brokers)
        seen = status.get("observedGeneration") == found["metadata"]["generation"]
        newest = status.get("updateRevision") == status.get("currentRevision")
        return bool(seen and newest and status.get("readyReplicas") == count)

    def _stateful_set(self) -> dict[str, Any]:
        shape = self.scenario.brokers[0].shape
        pod = {
            "metadata": {"labels": POD_LABELS},
            "spec": {**pod_spec(shape.cores, shape.memory), "terminationGracePeriodSeconds": int(GRACE)},
        }
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": SET},
            "spec": {
                "replicas": len(self.scenario.brokers),
                "serviceName": SET,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate"},
                "selector": {"matchLabels": POD_LABELS},
                "template": pod,
            },
        }
