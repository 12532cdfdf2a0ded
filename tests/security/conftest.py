"""A whole cluster of its own for these tests, as a scenario here changes its bundles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from small_cluster import SmallCluster
from trimtab_operator.cli.common import EMBEDDED
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Signs the certificates of this test."""
    return Authority(tmp_path / "authority")


@pytest.fixture(scope="session")
def stage(
    kube_binaries: KubeBinaries, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallCluster]:
    """Everything running, Spark too, with no policy; its operator is the ServiceAccount that ships."""
    folder = tmp_path_factory.mktemp("secured-stage")
    with SmallCluster(kube_binaries, prometheus_binary, folder, spark=EMBEDDED) as running:
        yield running
