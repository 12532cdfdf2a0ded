"""An hour of 20 brokers with 2,000 bundles and with faults: nothing grows, and nothing drifts from what is served."""

from __future__ import annotations

from pathlib import Path

import pytest

from soak import soak
from trimtab_pipeline.api import Retention
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = [pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(900)]

KEEP = Retention(bytes=600_000)


def test_an_hour_with_faults_leaves_nothing_behind(
    trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path
) -> None:
    found = soak(trimtab_crds, kube_namespace, tmp_path, (20, 100), 1.0, KEEP)

    assert found.problems(KEEP) == []
    assert found.moves > 100
    assert len(found.faults) >= 5
