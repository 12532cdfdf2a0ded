"""A namespace as a dead operator leaves it, for tests of `trimtab restore`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faulty_api import FaultyApi
from manifests import policy, topic_namespace
from pulsar_settings import SettingsBrokers
from trimtab_operator.cli import main
from trimtab_operator.kube.conditions import micro_timestamp
from trimtab_operator.pulsar.client.dynamic_config import SHEDDING, SPLITTING, FoundSettings
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError

FINALIZER = "trimtab.dev/finalizer"
HERE = ["--allow-url", "http://127.0.0.1:*"]
"""The operator's flags that allow brokers on this machine."""


class AbandonedNamespace:
    """A namespace of a dead operator: Pulsar's switches are off, and objects have finalizers."""

    def __init__(self, plane: ControlPlane, namespace: str, brokers: SettingsBrokers) -> None:
        self.rest, self.namespace, self.brokers = plane.rest, namespace, brokers
        self.words = ["restore", "-n", namespace, "--kubeconfig", str(plane.kubeconfig), *HERE]
        found = FoundSettings(self.spec()).noting([SHEDDING, SPLITTING], {SPLITTING: "TRUE"})
        brokers.dynamic.update({SHEDDING: "false", SPLITTING: "false"})
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trimtab-pulsar-found"}}
        self.rest.create(self.maps, {**config_map, "data": {"found.json": found.to_json()}})
        self.policy("main", [FINALIZER, "example.com/theirs"])
        self._create("topicnamespaces", topic_namespace("public-default"), [FINALIZER, "example.com/theirs"])

    def spec(self) -> PulsarSpec:
        """The connection to Pulsar: with a token if its brokers require one."""
        if not self.brokers.token:
            return PulsarSpec(admin_url=self.brokers.url)
        meta = {"name": "pulsar", "labels": {"trimtab.dev/credentials": "true"}}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "stringData": {"token": self.brokers.token}}
        self.rest.create(f"/api/v1/namespaces/{self.namespace}/secrets", body)
        auth = {"token": {"secretKeyRef": {"name": "pulsar", "key": "token"}}}
        return PulsarSpec.model_validate({"adminUrl": self.brokers.url, "auth": auth})

    @property
    def maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def path(self, plural: str, name: str = "") -> str:
        return f"/apis/trimtab.dev/v1alpha1/namespaces/{self.namespace}/{plural}/{name}".rstrip("/")

    def policy(self, name: str, finalizers: list[str], **labels: str) -> None:
        """Create a policy that has switched off Pulsar's own balancing."""
        pulsar = {"adminUrl": self.brokers.url, "ownBalancing": "SwitchOff"}
        manifest = policy(name, mode="Auto", pulsar=pulsar)
        manifest["metadata"]["labels"] = labels
        self._create("balancingpolicies", manifest, finalizers)

    def _create(self, plural: str, manifest: dict[str, Any], finalizers: list[str]) -> None:
        manifest["metadata"]["finalizers"] = finalizers
        self.rest.create(self.path(plural), manifest)

    def finalizers(self) -> list[list[str]]:
        objects = [("balancingpolicies", "main"), ("topicnamespaces", "public-default")]
        return [self.rest.get(self.path(*names))["metadata"]["finalizers"] for names in objects]

    def mode(self) -> str:
        return str(self.rest.get(self.path("balancingpolicies", "main"))["spec"]["mode"])

    def operate(self, lasts: int, renewed: float | None = None) -> None:
        """Create a Deployment of two replicas, and the Lease of a leader, valid for `lasts` seconds.

        renewed: epoch seconds of its last renewal; None: the Lease of a killed leader, without a time.
        """
        labels = {"app": "trimtab"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "operator", "image": "trimtab"}]}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        meta = {"metadata": {"name": "trimtab"}}
        self.rest.create(self.deployments, {"apiVersion": "apps/v1", "kind": "Deployment", **meta, "spec": spec})
        held: dict[str, Any] = {"holderIdentity": "trimtab-0", "leaseDurationSeconds": lasts}
        if renewed is not None:
            held["renewTime"] = micro_timestamp(renewed)
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **meta, "spec": held}
        self.rest.create(self.leases, lease)

    @property
    def leases(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def deployments(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments"

    def replicas(self) -> int:
        return int(self.rest.get(f"{self.deployments}/trimtab")["spec"]["replicas"])

    @property
    def found(self) -> str:
        return f"{self.maps}/trimtab-pulsar-found"

    def kept(self) -> bool:
        try:
            self.rest.get(self.found)
        except KubeApiError:
            return False
        return True


def restore_through(
    plane: ControlPlane, env: AbandonedNamespace, folder: Path, told: Callable[[str, str], None], *more: str
) -> int:
    """The exit code. told: called with method and path of each request before the API server gets it."""

    async def scenario() -> int:
        async with FaultyApi(plane, folder) as proxy:
            proxy.told = told
            words = ["restore", "-n", env.namespace, "--kubeconfig", str(proxy.kubeconfig), *HERE, *more]
            return await asyncio.to_thread(main, words)

    return asyncio.run(scenario())
