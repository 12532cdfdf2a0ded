"""The demo's cluster: control plane, simulated brokers, Prometheus, and the operator as a process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from trimtab_operator.cli.common import EMBEDDED
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.crd import manifests
from trimtab_testbed.programs import find
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.processes import HOST, Server, Startable, free_ports
from trimtab_testbed.servers.prometheus import PrometheusServer
from trimtab_testbed.simulated.cluster import POD_LABELS, SimulatedCluster
from trimtab_testbed.simulated.scenarios import ClusterScenario

NAMESPACE = "demo"
POLICY = "balance"
WINDOW = 8
"""Seconds over which the demo's rates are averaged."""

_READY = 90.0  # seconds that the operator may take to start, Spark included


class DemoCluster(Startable):
    """All servers of the demo, with their files in `work_dir`.

    say: called with one line of text before each step. spark: as in ``trimtab run --spark``. Raises `MissingToolError`
    or `ServerFailedError`.
    """

    def __init__(
        self, scenario: ClusterScenario, work_dir: Path, say: Callable[[str], None], spark: str = EMBEDDED
    ) -> None:
        self.scenario, self.work_dir, self._say, self._spark = scenario, work_dir, say, spark
        self._stack = ExitStack()

    def start(self) -> Self:
        """Start everything except the operator, and wait until all bundles are owned."""
        programs, prometheus = find.ensure_kube(), find.ensure_prometheus()
        self._say("starting etcd and kube-apiserver")
        self.control_plane = self._stack.enter_context(ControlPlane(programs, self.work_dir / "kubernetes"))
        token = {"token": self.control_plane.token}
        self.kubeconfig = self.control_plane.write_kubeconfig(NAMESPACE, token, namespace=NAMESPACE)
        rest = self.control_plane.rest
        rest.apply_crds(manifests().values())
        rest.create_namespace(NAMESPACE)
        self._say(f"starting {len(self.scenario.brokers)} brokers: {self.scenario.summary}")
        self.world = self._stack.enter_context(
            SimulatedCluster(self.scenario, rest=rest, kubeconfig=self.kubeconfig, namespace=NAMESPACE)
        )
        self.world.seed_bundles()
        self.world.wait_until_owned()
        self._say("starting Prometheus")
        self.prometheus = self._stack.enter_context(
            PrometheusServer(prometheus, self.work_dir / "prometheus", self.world.targets)
        )
        return self

    def stop(self) -> None:
        """Stop all servers, including the operator."""
        self._stack.close()

    def start_operator(self) -> None:
        """Start `trimtab run` as a child process and return immediately. `operator_ready` waits for it."""
        (self._port,) = free_ports(1)
        arguments = {
            "--kubeconfig": self.kubeconfig,
            "--namespace": NAMESPACE,
            "--history": self.work_dir / "history",
            "--http-port": self._port,
            "--spark": self._spark,
            "--allow-url": f"http://{HOST}:*",  # this Prometheus is not a Kubernetes Service
        }
        flags = [str(part) for pair in arguments.items() for part in pair]
        command = [sys.executable, "-m", "trimtab_operator", "run", *flags]
        self.operator = Server(command, log=self.work_dir / "operator.log", name="trimtab run")
        self._stack.callback(self.operator.stop)
        self.operator.start()

    def operator_ready(self, within: float = _READY) -> None:
        """Wait at most `within` seconds until the operator is ready; raises `ServerFailedError`."""
        self.operator.wait_ready(f"http://{HOST}:{self._port}/readyz", timeout=within)

    def create_policy(self) -> None:
        """Create the scenario's BalancingPolicy. From here on the operator may move bundles."""
        prometheus = {"url": self.prometheus.url, "window": f"{WINDOW}s", "maxAge": "20s"}
        brokers = {"podLabels": POD_LABELS}
        spec = {**self.scenario.policy, "source": {"prometheus": prometheus}, "brokers": brokers}
        policy = {"apiVersion": API_VERSION, "kind": "BalancingPolicy", "metadata": {"name": POLICY}, "spec": spec}
        self.control_plane.rest.create(self.path("balancingpolicies"), policy)

    def policy(self) -> Any:
        """The BalancingPolicy object as it is now."""
        return self.control_plane.rest.get(f"{self.path('balancingpolicies')}/{POLICY}")

    @staticmethod
    def path(plural: str) -> str:
        """API path of the demo's objects of one kind."""
        return f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{plural}"
