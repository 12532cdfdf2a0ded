"""A policy's loop to run scenarios on, and a whole cluster: one of its own, as a scenario here changes its bundles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from policy_environment import RunPolicy, run_scenario
from small_cluster import SmallCluster
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube import ControlPlane


@pytest.fixture
def run_policy(trimtab_crds: ControlPlane, kube_namespace: str) -> RunPolicy:
    return partial(run_scenario, trimtab_crds, kube_namespace)


@pytest.fixture(scope="session")
def stage(
    kube_binaries: KubeBinaries, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallCluster]:
    """Everything running, with no policy; its operator is the ServiceAccount that ships."""
    with SmallCluster(kube_binaries, prometheus_binary, tmp_path_factory.mktemp("secured-stage")) as running:
        yield running
