"""Fixtures that start the world outside: a Kubernetes control plane and Prometheus.

A missing program is an error, never a skip, and nothing is built here: `make setup controllers` does that, as building
takes longer than a test may.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from trimtab_testbed import binaries, prometheus_binary as prometheus_programs
from trimtab_testbed.binaries import KubeBinaries
from trimtab_testbed.control_plane import ControlPlane

CRDS = Path(__file__).parents[1] / "crds"

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kube_binaries() -> KubeBinaries:
    """etcd, kube-apiserver and kubectl."""
    return binaries.find()


@pytest.fixture(scope="session")
def prometheus_binary() -> Path:
    """The Prometheus server program."""
    return prometheus_programs.find()


@pytest.fixture(scope="session")
def control_plane(kube_binaries: KubeBinaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that all tests share: leave it running, and work in a `kube_namespace`."""
    with ControlPlane(kube_binaries, tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture(scope="session")
def full_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A shared control plane with kube-controller-manager: owners collect, namespaces end, Deployments make pods."""
    work_dir = tmp_path_factory.mktemp("full-control-plane")
    with ControlPlane(binaries.find(controllers=True), work_dir, controllers=True) as running:
        yield running


@pytest.fixture
def own_control_plane(kube_binaries: KubeBinaries, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane for one test alone, which may stop and restart it; audit log on, our CRDs applied."""
    with ControlPlane(kube_binaries, tmp_path / "control-plane", audit=True) as running:
        _apply_crds(running)
        yield running


@pytest.fixture(scope="session")
def trimtab_crds(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane with the CRDs of ``crds/`` applied."""
    _apply_crds(control_plane)
    return control_plane


@pytest.fixture
def kube_namespace(control_plane: ControlPlane) -> str:
    """Name of a fresh Kubernetes namespace of the shared control plane."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    control_plane.rest.create_namespace(name)
    return name


def _apply_crds(control_plane: ControlPlane) -> None:
    files = sorted(CRDS.glob("*.yaml"))
    assert files, f"no CRDs in {CRDS}: `make crds` renders them"
    control_plane.rest.apply_crds([document for file in files for document in yaml.safe_load_all(file.read_text())])
