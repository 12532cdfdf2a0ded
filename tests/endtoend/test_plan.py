"""`trimtab plan` on a live cluster, with the operator and Prometheus."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from small_cluster import SmallCluster, until

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]


@pytest.mark.smoke
def test_plan_predicts_what_the_policy_proposes_and_leaves_nothing_behind(stage: SmallCluster, tmp_path: Path) -> None:
    stage.apply_policy(mode="DryRun")
    until("a proposal", lambda: stage.status().get("proposal", {}).get("moves"))
    before = stage.desired_owners()
    kubeconfig = str(stage.control_plane.kubeconfig)
    words = ["plan", "policy", "--namespace", "messaging", "--kubeconfig", kubeconfig, "--json"]

    done = subprocess.run(
        [sys.executable, "-m", "trimtab_operator", *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    foreseen = json.loads(done.stdout)
    assert foreseen["refusal"] is None
    assert foreseen["moves"], "the hot broker still sheds"
    assert {move["source"] for move in foreseen["moves"]} == {"pulsar-broker-0"}
    assert all(stage.owners()[move["name"]] == move["source"] for move in foreseen["moves"])
    assert all(row["cpuBefore"] is not None for row in foreseen["brokers"])
    assert stage.desired_owners() == before
    assert list(tmp_path.iterdir()) == []
