"""A release that Helm installed: the rendered Deployment and the hooks' Jobs run as processes of this machine."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import manifests
from chart import IMAGE, RELEASE, Manifest, Runner
from kubelet import JobRunner, operator_process, while_running
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.processes import HOST, Server, free_ports
from trimtab_testbed.simulated.cluster import POD_LABELS


class HelmRelease:
    """A release in `namespace`, not installed yet. At the end it stops its operator, and all entered parts.

    domain: that of the release's Service (`NAMESPACE.svc`), whose URL leads to the operator's page; empty if no Job
    queries it.
    """

    def __init__(self, plane: ControlPlane, runner: Runner, folder: Path, namespace: str, domain: str = "") -> None:
        self.plane, self.rest, self.helm, self.dir, self.namespace = plane, plane.rest, runner, folder, namespace
        (port,) = free_ports(1)
        self.url = f"http://{HOST}:{port}"
        self.values: dict[str, Any] = {
            "image": {"repository": IMAGE},
            "http": {"host": HOST, "port": port},
            "allowUrls": ["http://127.0.0.1:*"],
        }
        services = {f"{RELEASE}.{domain}:{port}": f"{HOST}:{port}"} if domain else {}
        self.jobs = JobRunner(plane, namespace, folder / "jobs", services)
        self.operator: Server | None = None
        self._open: list[Any] = []

    def __exit__(self, *_: object) -> None:
        if self.operator is not None:
            self.operator.stop(20)
        for part in reversed(self._open):
            part.__exit__(None, None, None)

    def enter(self, part: Any) -> Any:
        """Enter a context manager, which is exited together with the release."""
        part.__enter__()
        self._open.append(part)
        return part

    def with_jobs(self, *words: str | Path) -> str:
        """Run Helm and return its output. Raises `CalledProcessError`, with a note of what Helm and the Jobs wrote.

        While Helm runs, run the hooks' Jobs, and stop the operator once its Deployment has 0 replicas.
        """
        process = self.helm.start(*words)
        while_running(process, lambda: self.jobs.look(meanwhile=self.follow_the_deployment))
        assert process.stdout is not None
        said = process.stdout.read()
        process.stdout.close()
        if process.returncode:
            error = subprocess.CalledProcessError(process.returncode, process.args, said)
            error.add_note("\n".join([said, *self.jobs.outputs]))
            raise error
        return said

    def deployment(self) -> Mapping[str, Any]:
        """The operator's Deployment in the API server."""
        return dict(self.rest.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{RELEASE}"))

    def start_operator(self) -> None:
        """Start the operator as its Deployment says, and wait until it is ready."""
        # Spark's sockets are in a volume, and the path of a socket may have at most 100 characters
        volumes = self.enter(tempfile.TemporaryDirectory(prefix="pod-"))
        self.operator = operator_process(self.plane, self.deployment(), Path(volumes.name))
        self.operator.start()
        self.operator.wait_ready(f"{self.url}/readyz", timeout=280)

    def follow_the_deployment(self) -> None:
        """Stop the operator when its Deployment has 0 replicas."""
        if self.operator is not None and self.operator.running and self.deployment()["spec"]["replicas"] == 0:
            self.operator.stop(20)


def levelling_policy(prometheus_url: str, **spec: Any) -> Manifest:
    """The policy `policy`, which acts immediately and often. spec: fields that replace the defaults."""
    base = {
        "mode": "Auto",
        "interval": "2s",
        "brokers": {"podLabels": POD_LABELS},
        "source": {"prometheus": {"url": prometheus_url, "window": "4s", "maxAge": "30s"}},
        **manifests.eager_strategies(),
        "limits": {"coolDown": "1s", "moveTimeout": "20s", "lostAfter": "1m"},
    }
    return manifests.policy("policy", **{**base, **spec})
