"""One release in a namespace of its own, and several messaging clusters that it manages, each in its namespace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import yaml

from chart import CHART, RELEASE, Runner
from helm_release import HelmRelease, levelling_policy
from small_cluster import until
from trimtab_operator.cli.common import NO_SPARK
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError
from trimtab_testbed.servers.prometheus import PrometheusServer
from trimtab_testbed.simulated.cluster import SimulatedCluster, landed
from trimtab_testbed.simulated.scenarios import SCENARIOS

OPERATOR = "trimtab-system"
"""The namespace of the release."""


def collection(namespace: str, kind: str) -> str:
    return f"/apis/trimtab.dev/v1alpha1/namespaces/{namespace}/{kind}"


class ScopedRelease(HelmRelease):
    """Context manager: Helm can install the release, and each of `namespaces` exists.

    One Prometheus measures all. Brokers have the same names everywhere. The operator does not run yet.
    """

    def __init__(
        self, plane: ControlPlane, runner: Runner, prometheus: Path, folder: Path, namespaces: Sequence[str]
    ) -> None:
        super().__init__(plane, runner, folder, OPERATOR)
        self.values["spark"] = {"mode": NO_SPARK}
        self._program, self._namespaces = prometheus, namespaces
        self.worlds: dict[str, SimulatedCluster] = {}

    def __enter__(self) -> Self:
        self.dir.mkdir(parents=True, exist_ok=True)
        for namespace in self._namespaces:
            self.rest.create_namespace(namespace)
        return self

    def install(self, **values: Any) -> None:
        self.helm.run(
            *("install", RELEASE, CHART, "--namespace", OPERATOR, "--values", "-", "--create-namespace"),
            stdin=yaml.safe_dump({**self.values, **values}),
        )
        until("the kinds are served", lambda: all(map(self._served, self._namespaces)), within=120)

    def upgrade(self, **values: Any) -> None:
        file = self.dir / "values.yaml"
        file.write_text(yaml.safe_dump({**self.values, **values}))
        self.with_jobs("upgrade", RELEASE, CHART, "--namespace", OPERATOR, "--values", file)

    def uninstall(self) -> None:
        self.with_jobs("uninstall", RELEASE, "--namespace", OPERATOR, "--timeout", "240s")

    def _served(self, namespace: str) -> bool:
        try:
            return all(self.rest.get(collection(namespace, kind)) for kind in ("bundles", "balancingpolicies"))
        except KubeApiError:
            return False

    def start_brokers(self) -> None:
        """Start brokers with uneven load in each namespace."""
        for namespace in self._namespaces:
            world = SimulatedCluster(
                SCENARIOS["uneven-8"], rest=self.rest, kubeconfig=self.plane.kubeconfig, namespace=namespace
            )
            self.worlds[namespace] = self.enter(world)
            world.seed_bundles()
        targets = [target for world in self.worlds.values() for target in world.targets]
        self.prometheus = self.enter(PrometheusServer(self._program, self.dir / "prometheus", targets))
        for world in self.worlds.values():
            world.wait_until_owned(timeout=120)

    def apply_policy(self, namespace: str) -> None:
        """Create the policy. Its name is the same in each namespace: the operator must not confuse these policies."""
        self.rest.create(collection(namespace, "balancingpolicies"), levelling_policy(self.prometheus.url))

    def level(self, namespace: str) -> bool:
        """Whether the brokers of a namespace have similar usage, and no move is pending."""
        used = self.worlds[namespace].cpu().values()
        return max(used) - min(used) < 15 and all(map(landed, self.worlds[namespace].bundles().values()))

    def requests(self) -> list[tuple[str, str, str, int]]:
        """Namespace (empty: none), resource, verb and status of each request by a ServiceAccount of the release."""
        found = []
        for event in self.plane.audit_events():
            reference = event.get("objectRef")
            if event["user"]["username"].startswith(f"system:serviceaccount:{OPERATOR}:") and reference:
                code = event.get("responseStatus", {}).get("code", 0)
                found.append((reference.get("namespace", ""), reference["resource"], event["verb"], code))
        return found
