"""A person approves a real operator's proposal on the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from small_cluster import SmallCluster, until

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]


def trimtab(stage: SmallCluster, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `trimtab` as a person would."""
    where = ["--namespace", "messaging", "--kubeconfig", str(stage.control_plane.kubeconfig)]
    command = [sys.executable, "-m", "trimtab_operator", verb, "policy", *words, *where]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)


def test_what_is_approved_is_carried_out_one_by_one_and_nothing_else(stage: SmallCluster) -> None:
    stage.apply_policy(mode="Approve", limits={"maxMovesInFlight": 1})
    stage.wait_condition("ProposalReady", "True")
    proposal = stage.status()["proposal"]
    before = stage.desired_owners()
    stage.wait_cycles(2)
    assert stage.desired_owners() == before, "nothing moves before a person approves"
    assert stage.status()["proposal"]["id"] == proposal["id"]

    shown = trimtab(stage, "status")
    assert shown.returncode == 0, shown.stderr
    assert proposal["id"] in shown.stdout

    done = trimtab(stage, "approve", "--proposal", proposal["id"], "--wait")

    assert done.returncode == 0, done.stderr
    assert f"100 %: {proposal['total']} of {proposal['total']} landed" in done.stdout
    moved = {name: owner for name, owner in stage.owners().items() if owner != before[name]}
    assert moved == {move["bundle"]: move["destination"] for move in proposal["moves"]}
    assert (stage.policy() or {})["metadata"].get("annotations", {}).keys().isdisjoint({"trimtab.dev/rebalance"})

    until("the end is told", lambda: stage.status()["progress"].get("finishedAt"))
    stopped = trimtab(stage, "stop")
    assert stopped.returncode == 0, stopped.stderr
    assert stage.status()["proposal"]["state"] == "Stopped"
