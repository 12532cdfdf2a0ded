"""A small cluster whose operator was installed by Helm: the rendered Deployment and Job run as processes here."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from chart import CHART, IMAGE, NAMESPACE, RELEASE, Runner
from kubelet import JobRunner, operator_process, while_running
from small_cluster import until
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError
from trimtab_testbed.servers.processes import HOST, Server, free_ports
from trimtab_testbed.servers.prometheus import PrometheusServer
from trimtab_testbed.simulated.cluster import POD_LABELS, SimulatedCluster, landed
from trimtab_testbed.simulated.scenarios import SCENARIOS

API = f"/apis/trimtab.dev/v1alpha1/namespaces/{NAMESPACE}"


class ChartCluster:
    """Context manager: the release is installed, brokers and Prometheus run, the operator does not run yet."""

    def __init__(self, plane: ControlPlane, runner: Runner, prometheus: Path, folder: Path) -> None:
        self.plane, self.rest, self.helm, self.dir = plane, plane.rest, runner, folder
        self._prometheus_program = prometheus
        (port,) = free_ports(1)
        self.values: dict[str, Any] = {
            "image": {"repository": IMAGE},
            "http": {"host": HOST, "port": port},
            "allowUrls": ["http://127.0.0.1:*"],
            "spark": {"memory": "500m"},
        }
        self.url = f"http://{HOST}:{port}"
        self.operator: Server | None = None
        services = {f"{RELEASE}.{NAMESPACE}.svc:{port}": f"{HOST}:{port}"}
        self.jobs = JobRunner(plane, NAMESPACE, folder / "jobs", services)
        self._open: list[Any] = []

    def __enter__(self) -> Self:
        self.dir.mkdir(parents=True, exist_ok=True)
        try:
            self.install()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.operator is not None:
            self.operator.stop(20)
        for part in reversed(self._open):
            part.__exit__(None, None, None)

    def _start(self) -> None:
        until("the kinds are served", self._served, within=120)
        kubeconfig = self.plane.kubeconfig
        self.world = SimulatedCluster(SCENARIOS["uneven-8"], rest=self.rest, kubeconfig=kubeconfig, namespace=NAMESPACE)
        self._enter(self.world)
        self.prometheus = self._enter(
            PrometheusServer(self._prometheus_program, self.dir / "prometheus", self.world.targets)
        )
        self.world.seed_bundles()
        self.world.wait_until_owned(timeout=120)

    def _enter(self, part: Any) -> Any:
        part.__enter__()
        self._open.append(part)
        return part

    def _served(self) -> bool:
        try:
            return all(
                "items" in self.rest.get(f"{API}/{kind}")
                for kind in ("topicnamespaces", "bundles", "brokers", "balancingpolicies", "bundlesplits")
            )
        except KubeApiError:
            return False

    # -- Helm --

    def install(self, **values: Any) -> str:
        return self._with_values(("install", RELEASE, CHART, "--create-namespace"), values)

    def upgrade(self, chart: Path = CHART, **values: Any) -> str:
        return self._with_values(("upgrade", RELEASE, chart), values)

    def rollback(self, revision: int) -> str:
        return self._with_jobs("rollback", RELEASE, str(revision), "--namespace", NAMESPACE)

    def _with_values(self, words: tuple[str | Path, ...], values: Mapping[str, Any]) -> str:
        (file := self.dir / "values.yaml").parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump({**self.values, **values}))
        return self._with_jobs(*words, "--namespace", NAMESPACE, "--values", file)

    def uninstall(self, *words: str) -> str:
        return self._with_jobs("uninstall", RELEASE, "--namespace", NAMESPACE, *words)

    def test(self) -> str:
        return self._with_jobs("test", RELEASE, "--namespace", NAMESPACE)

    def _with_jobs(self, *words: str | Path) -> str:
        """Run Helm and return its output. Meanwhile run the hooks' Jobs, and end the operator once its Deployment wants
        none.
        """
        process = self.helm.start(*words)
        while_running(process, self._look)
        assert process.stdout is not None
        said = process.stdout.read()
        process.stdout.close()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args, said)
        return said

    def _look(self) -> None:
        self.jobs.look(meanwhile=self.follow_the_deployment)

    # -- the kubelet's part --

    def deployment(self) -> Mapping[str, Any]:
        return dict(self.rest.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"))

    def start_operator(self) -> None:
        # Spark's sockets are in a volume, and the path of a socket may have at most 100 characters
        volumes = self._enter(tempfile.TemporaryDirectory(prefix="pod-"))
        self.operator = operator_process(self.plane, self.deployment(), Path(volumes.name))
        self.operator.start()
        self.operator.wait_ready(f"{self.url}/readyz", timeout=280)

    def follow_the_deployment(self) -> None:
        """End the operator when its Deployment wants no replica."""
        if self.operator is not None and self.operator.running and self.deployment()["spec"]["replicas"] == 0:
            self.operator.stop(20)

    # -- a person's part --

    def apply_policy(self, **spec: Any) -> None:
        body = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "BalancingPolicy",
            "metadata": {"name": "policy"},
            "spec": {
                "mode": "Auto",
                "interval": "2s",
                "brokers": {"podLabels": POD_LABELS},
                "source": {"prometheus": {"url": self.prometheus.url, "window": "4s", "maxAge": "30s"}},
                "shedder": {
                    "type": "ThresholdShedder",
                    "thresholdShedder": {"threshold": 5, "historyPercent": 0, "minThroughput": 0},
                },
                "placement": {
                    "type": "LeastResourceUsageWithWeight",
                    "leastResourceUsageWithWeight": {"averageDifference": 5, "historyPercent": 0},
                },
                "limits": {"coolDown": "1s", "moveTimeout": "20s", "lostAfter": "1m"},
                **spec,
            },
        }
        self.rest.create(f"{API}/balancingpolicies", body)

    def policy(self) -> Mapping[str, Any]:
        return dict(self.rest.get(f"{API}/balancingpolicies/policy"))

    def owners(self) -> dict[str, str]:
        return {name: bundle.get("status", {}).get("owner", "") for name, bundle in self.world.bundles().items()}

    def settled(self) -> bool:
        """Whether every bundle is served by its desired owner."""
        return all(map(landed, self.world.bundles().values()))

    def spread(self) -> float:
        """Actual CPU usage of the most used minus the least used broker, in percent points."""
        used = self.world.cpu().values()
        return max(used) - min(used)

    def denied(self) -> list[str]:
        """The requests by a ServiceAccount of the release that were refused so far."""
        return [
            f"{event['user']['username']} {event['verb']} {event['requestURI']}"
            for event in self.plane.audit_events()
            if event["user"]["username"].startswith(f"system:serviceaccount:{NAMESPACE}:")
            and event.get("responseStatus", {}).get("code") == 403
        ]
