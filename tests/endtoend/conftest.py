"""One cluster for all tests here, as it takes ten seconds or more to start. Each test starts from the same state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from small_cluster import SmallCluster
from trimtab_operator.cli.common import EMBEDDED
from trimtab_testbed.programs.find import KubeBinaries


@pytest.fixture(scope="session")
def whole_stage(
    kube_binaries: KubeBinaries, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SmallCluster]:
    """Everything running, with no policy."""
    with SmallCluster(kube_binaries, prometheus_binary, tmp_path_factory.mktemp("stage"), spark=EMBEDDED) as stage:
        yield stage


@pytest.fixture
def stage(whole_stage: SmallCluster) -> Iterator[SmallCluster]:
    """The cluster at its start; restored afterwards."""
    yield whole_stage
    whole_stage.reset()
