"""A saved plan on a live cluster: a person approves it, and the operator carries it out and undoes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from small_cluster import SmallCluster, until

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]


def test_a_saved_plan_is_carried_out_by_the_operator_and_undone(stage: SmallCluster, tmp_path: Path) -> None:
    stage.apply_policy(mode="Approve", limits={"maxMovesInFlight": 2})
    until("a proposal", lambda: stage.status().get("proposal", {}).get("moves"), within=120)
    before = stage.owners()

    def trimtab(*words: str) -> str:
        flags = ("-n", "messaging", "--kubeconfig", str(stage.control_plane.kubeconfig))
        command = [sys.executable, "-m", "trimtab_operator", *flags, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    trimtab("plan", "policy", "--from", "pulsar-broker-0", "--save", "plan.yaml")
    planned = yaml.safe_load((tmp_path / "plan.yaml").read_text())["moves"]
    assert planned
    assert {move["source"] for move in planned} == {"pulsar-broker-0"}

    assert f"{len(planned)} of {len(planned)} landed" in trimtab("approve", "-f", "plan.yaml", "--wait")
    moved = {name for name, owner in stage.owners().items() if owner != before[name]}
    assert len(moved) == len(planned)
    assert "pulsar-broker-0" not in {stage.owners()[name] for name in moved}
    found = stage.world.bundles()
    assert {found[name]["spec"]["assignment"]["reason"] for name in moved} == {"Approved"}

    trimtab("approve", "-f", "plan.yaml", "--undo", "--wait")
    assert stage.owners() == before
