"""An environment for thousands of bundles, which it creates in bulk."""

from __future__ import annotations

from typing import Any

from manifests import bundle
from many_bundles import make_bundles
from policy_environment import PolicyEnvironment
from trimtab_operator.kube.naming import parse_pulsar_bundle
from trimtab_strategies.model import ClusterLoad
from trimtab_testbed.servers.kube import ControlPlane


class BulkEnvironment(PolicyEnvironment):
    """An environment that creates its bundles in bulk."""

    def __init__(self, plane: ControlPlane, namespace: str, load: ClusterLoad) -> None:
        super().__init__(plane, namespace, load)
        self._plane = plane
        self._bundles: list[dict[str, Any]] = []

    def build(self) -> None:
        super().build()
        make_bundles(self._plane, self.namespace, self._bundles)

    def add_bundle(self, full: str, owner: str) -> None:
        tenant, name, lower, upper = parse_pulsar_bundle(full)
        made = bundle(self.names[full], lower, upper, topicNamespace=f"{tenant}-{name}", owner=owner)
        self._bundles.append(made)
