"""Helm, with and without a cluster. It is Helm 4 unless ``$HELM`` names another program, such as Helm 3."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from chart import NAMESPACE, Runner
from helm_tools import Helm, find_helm, find_monitoring_crds
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube import ControlPlane


@pytest.fixture(scope="session")
def helm_program() -> Helm:
    """Helm as users have it; a missing one is an error."""
    return find_helm()


@pytest.fixture(scope="session")
def offline(helm_program: Helm, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Helm without a cluster."""
    return Runner(helm_program, tmp_path_factory.mktemp("helm"))


@pytest.fixture
def release_plane(kube_binaries: KubeBinaries, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane that nothing was installed into yet; audit log on."""
    with ControlPlane(kube_binaries, tmp_path / "control-plane", audit=True) as running:
        yield running


@pytest.fixture
def online(helm_program: Helm, release_plane: ControlPlane, tmp_path: Path) -> Runner:
    """Helm as an administrator of `release_plane`."""
    return Runner(helm_program, tmp_path / "helm", release_plane.kubeconfig)


@pytest.fixture(scope="session")
def furnished(trimtab_crds: ControlPlane) -> ControlPlane:
    """The shared control plane with the kinds of Trimtab and of the Prometheus operator, and namespaces."""
    trimtab_crds.rest.apply_crds([yaml.safe_load(file.read_text()) for file in find_monitoring_crds()])
    for namespace in (NAMESPACE, "monitoring", "orders", "payments"):
        trimtab_crds.rest.create_namespace(namespace)
    return trimtab_crds
