"""One release in a namespace of its own, and several messaging clusters that it manages, each in its namespace."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from chart import CHART, IMAGE, RELEASE, Runner
from kubelet import JobRunner, operator_process, while_running
from small_cluster import until
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError
from trimtab_testbed.servers.processes import HOST, Server, free_ports
from trimtab_testbed.servers.prometheus import PrometheusServer
from trimtab_testbed.simulated.cluster import POD_LABELS, SimulatedCluster, landed
from trimtab_testbed.simulated.scenarios import SCENARIOS

OPERATOR = "trimtab-system"
"""The namespace of the release."""


def collection(namespace: str, kind: str) -> str:
    return f"/apis/trimtab.dev/v1alpha1/namespaces/{namespace}/{kind}"


class ScopedRelease:
    """Context manager: Helm has installed the release, and each of `namespaces` has brokers with uneven load.

    One Prometheus measures all. Brokers have the same names everywhere. The operator does not run yet.
    """

    def __init__(
        self, plane: ControlPlane, runner: Runner, prometheus: Path, folder: Path, namespaces: Sequence[str]
    ) -> None:
        self.plane, self.rest, self.helm, self.dir = plane, plane.rest, runner, folder
        self._program, self._namespaces = prometheus, namespaces
        (port,) = free_ports(1)
        self.url = f"http://{HOST}:{port}"
        self.values = {
            "image": {"repository": IMAGE},
            "http": {"host": HOST, "port": port},
            "allowUrls": ["http://127.0.0.1:*"],
            "spark": {"memory": "500m"},
        }
        self.jobs = JobRunner(plane, OPERATOR, folder / "jobs")
        self.worlds: dict[str, SimulatedCluster] = {}
        self.operator: Server | None = None
        self._open: list[Any] = []

    def __enter__(self) -> Self:
        self.dir.mkdir(parents=True, exist_ok=True)
        for namespace in self._namespaces:
            self.rest.create_namespace(namespace)
        return self

    def __exit__(self, *_: object) -> None:
        if self.operator is not None:
            self.operator.stop(20)
        for part in reversed(self._open):
            part.__exit__(None, None, None)

    def install(self, **values: Any) -> None:
        self._with_values("install", values, "--create-namespace")
        until("the kinds are served", lambda: all(map(self._served, self._namespaces)), within=120)

    def upgrade(self, **values: Any) -> None:
        self._with_values("upgrade", values)

    def _with_values(self, verb: str, values: Mapping[str, Any], *words: str) -> None:
        self.helm.run(
            *(verb, RELEASE, CHART, "--namespace", OPERATOR, "--values", "-", *words),
            stdin=yaml.safe_dump({**self.values, **values}),
        )

    def _served(self, namespace: str) -> bool:
        try:
            return all(self.rest.get(collection(namespace, kind)) for kind in ("bundles", "balancingpolicies"))
        except KubeApiError:
            return False

    def start_brokers(self) -> None:
        for namespace in self._namespaces:
            world = SimulatedCluster(
                SCENARIOS["uneven-8"], rest=self.rest, kubeconfig=self.plane.kubeconfig, namespace=namespace
            )
            self.worlds[namespace] = self._enter(world)
            world.seed_bundles()
        targets = [target for world in self.worlds.values() for target in world.targets]
        self.prometheus = self._enter(PrometheusServer(self._program, self.dir / "prometheus", targets))
        for world in self.worlds.values():
            world.wait_until_owned(timeout=120)

    def _enter(self, part: Any) -> Any:
        part.__enter__()
        self._open.append(part)
        return part

    def deployment(self) -> Mapping[str, Any]:
        return dict(self.rest.get(f"/apis/apps/v1/namespaces/{OPERATOR}/deployments/{RELEASE}"))

    def start_operator(self) -> None:
        volumes = self._enter(tempfile.TemporaryDirectory(prefix="pod-"))
        self.operator = operator_process(self.plane, self.deployment(), Path(volumes.name))
        self.operator.start()
        self.operator.wait_ready(f"{self.url}/readyz", timeout=280)

    def apply_policy(self, namespace: str) -> None:
        """The same name in each namespace: names must not meet."""
        source = {"prometheus": {"url": self.prometheus.url, "window": "4s", "maxAge": "30s"}}
        spec = {
            "mode": "Auto",
            "interval": "2s",
            "brokers": {"podLabels": POD_LABELS},
            "source": source,
            "shedder": {
                "type": "ThresholdShedder",
                "thresholdShedder": {"threshold": 5, "historyPercent": 0, "minThroughput": 0},
            },
            "placement": {
                "type": "LeastResourceUsageWithWeight",
                "leastResourceUsageWithWeight": {"averageDifference": 5, "historyPercent": 0},
            },
            "limits": {"coolDown": "1s", "moveTimeout": "20s", "lostAfter": "1m"},
        }
        meta = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy", "metadata": {"name": "policy"}}
        self.rest.create(collection(namespace, "balancingpolicies"), {**meta, "spec": spec})

    def level(self, namespace: str) -> bool:
        """Whether the brokers of a namespace are used alike, and nothing is under way."""
        used = self.worlds[namespace].cpu().values()
        return max(used) - min(used) < 15 and all(map(landed, self.worlds[namespace].bundles().values()))

    def uninstall(self) -> None:
        """Run Helm, and the hook's Job meanwhile; end the operator once its Deployment wants none."""
        process = self.helm.start("uninstall", RELEASE, "--namespace", OPERATOR, "--timeout", "240s")
        while_running(process, lambda: self.jobs.look(meanwhile=self._follow_the_deployment))
        assert process.stdout is not None
        said = process.stdout.read()
        process.stdout.close()
        if process.returncode:
            raise AssertionError("\n".join([said, *self.jobs.outputs]))

    def _follow_the_deployment(self) -> None:
        if self.operator is not None and self.operator.running and self.deployment()["spec"]["replicas"] == 0:
            self.operator.stop(20)

    def requests(self) -> list[tuple[str, str, str, int]]:
        """Namespace (empty: none), resource, verb and status of each request by a ServiceAccount of the release."""
        found = []
        for event in self.plane.audit_events():
            reference = event.get("objectRef")
            if event["user"]["username"].startswith(f"system:serviceaccount:{OPERATOR}:") and reference:
                code = event.get("responseStatus", {}).get("code", 0)
                found.append((reference.get("namespace", ""), reference["resource"], event["verb"], code))
        return found
