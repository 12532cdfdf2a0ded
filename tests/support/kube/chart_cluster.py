"""A small cluster whose operator was installed by Helm, in the namespace of its brokers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from chart import CHART, NAMESPACE, RELEASE, Runner
from helm_release import HelmRelease, levelling_policy
from small_cluster import until
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError
from trimtab_testbed.servers.prometheus import PrometheusServer
from trimtab_testbed.simulated.cluster import SimulatedCluster, landed
from trimtab_testbed.simulated.scenarios import SCENARIOS

API = f"/apis/trimtab.dev/v1alpha1/namespaces/{NAMESPACE}"


class ChartCluster(HelmRelease):
    """Context manager: the release is installed, brokers and Prometheus run, the operator does not run yet."""

    def __init__(self, plane: ControlPlane, runner: Runner, prometheus: Path, folder: Path) -> None:
        super().__init__(plane, runner, folder, NAMESPACE, domain=f"{NAMESPACE}.svc")
        self._prometheus_program = prometheus

    def __enter__(self) -> Self:
        self.dir.mkdir(parents=True, exist_ok=True)
        try:
            self.install()
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        until("the kinds are served", self._served, within=120)
        kubeconfig = self.plane.kubeconfig
        self.world = SimulatedCluster(SCENARIOS["uneven-8"], rest=self.rest, kubeconfig=kubeconfig, namespace=NAMESPACE)
        self.enter(self.world)
        self.prometheus = self.enter(
            PrometheusServer(self._prometheus_program, self.dir / "prometheus", self.world.targets)
        )
        self.world.seed_bundles()
        self.world.wait_until_owned(timeout=120)

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

    def upgrade(self, **values: Any) -> str:
        return self._with_values(("upgrade", RELEASE, CHART), values)

    def rollback(self, revision: int) -> str:
        return self.with_jobs("rollback", RELEASE, str(revision), "--namespace", NAMESPACE)

    def _with_values(self, words: tuple[str | Path, ...], values: Mapping[str, Any]) -> str:
        (file := self.dir / "values.yaml").parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump({**self.values, **values}))
        return self.with_jobs(*words, "--namespace", NAMESPACE, "--values", file)

    def uninstall(self, *words: str) -> str:
        return self.with_jobs("uninstall", RELEASE, "--namespace", NAMESPACE, *words)

    def test(self) -> str:
        return self.with_jobs("test", RELEASE, "--namespace", NAMESPACE)

    # -- a person's part --

    def apply_policy(self, **spec: Any) -> None:
        self.rest.create(f"{API}/balancingpolicies", levelling_policy(self.prometheus.url, **spec))

    def policy(self) -> Mapping[str, Any]:
        return dict(self.rest.get(f"{API}/balancingpolicies/policy"))

    def owners(self) -> dict[str, str]:
        return {name: bundle.get("status", {}).get("owner", "") for name, bundle in self.world.bundles().items()}

    def settled(self) -> bool:
        """Whether every bundle is served by its desired owner."""
        return all(map(landed, self.world.bundles().values()))

    def spread(self) -> float:
        """Actual CPU usage of the most used minus the least used broker, in percentage points."""
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
