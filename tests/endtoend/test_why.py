"""`trimtab explain` and `why-not` on a live cluster, with the operator and Prometheus."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from small_cluster import NAMESPACE, POLICY, SmallCluster, until

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]

HOT = "pulsar-broker-0"


def answered(*words: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "trimtab_operator", *words, "-o", "json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def recorded(stage: SmallCluster) -> bool:
    found = stage.rest.get("/api/v1/namespaces/messaging/configmaps")["items"]
    uid = (stage.policy() or {})["metadata"]["uid"]
    owners = (
        owner["uid"]
        for one in found
        if "decisions" in one["metadata"]["name"]
        for owner in one["metadata"]["ownerReferences"]
    )
    return uid in owners


def test_the_cluster_and_the_history_say_why_the_hot_broker_gives_bundles_away(stage: SmallCluster) -> None:
    stage.apply_policy(mode="Auto")
    until("moves", lambda: stage.desired_owners() != stage.first_owners)
    moved = min(name for name, owner in stage.desired_owners().items() if owner != stage.first_owners[name])
    until("a record", lambda: recorded(stage))
    live = ("-n", "messaging", "--kubeconfig", str(stage.control_plane.kubeconfig))
    past = ("--history", str(stage.dir / "history"), "--policy", f"{NAMESPACE}/{POLICY}")

    bundle, broker = answered("explain", "bundle", moved, *live), answered("explain", "broker", HOT, *live)
    then = answered("explain", "bundle", moved, *past)

    assert f"from {HOT} to " in str(bundle["answer"])
    assert f"{HOT} was at" in str(bundle["answer"])
    assert broker["subject"] == HOT
    assert broker["decision"]
    assert then["subject"] == moved
    condition = next(c for c in stage.status()["conditions"] if c["type"] == "Balanced")
    assert re.search(r"; why: trimtab explain broker pulsar-broker-\d -n messaging$", condition["message"])
