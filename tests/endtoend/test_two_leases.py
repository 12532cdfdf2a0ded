"""Two operators with two Leases for one namespace: one of them decides, and both say who runs there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from replicas import API, NAMESPACE, POLICY, Replica, ReplicaCluster
from small_cluster import until
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def whole_stage(kube_binaries: KubeBinaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaCluster]:
    """A cluster that the tests here share."""
    folder = tmp_path_factory.mktemp("two-leases")
    with (
        ControlPlane(kube_binaries, folder / "control-plane") as plane,
        ReplicaCluster(plane, folder) as made,
    ):
        yield made


@pytest.fixture
def stage(whole_stage: ReplicaCluster) -> ReplicaCluster:
    """The cluster, with a policy that always wants to move."""
    whole_stage.apply_policy()
    return whole_stage


def condition(stage: ReplicaCluster, kind: str) -> tuple[str, str, str]:
    found = stage.policy().get("status", {}).get("conditions", [])
    return next(((c["status"], c["reason"], c["message"]) for c in found if c["type"] == kind), ("", "", ""))


def notes(stage: ReplicaCluster) -> list[tuple[str, str]]:
    found = stage.rest.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
    return [(e["reason"], e["note"]) for e in found]


def leads_here(stage: ReplicaCluster, replica: Replica) -> str:
    def found() -> str:
        status, _, message = condition(stage, "Led")
        return message if status == "True" and message.startswith(f"{replica.name} leads") else ""

    return until(f"{replica.name} leads here", found, within=60)


def test_an_operator_with_another_lease_stands_down_and_the_policy_names_both(stage: ReplicaCluster) -> None:
    with stage.replica() as active:
        leads_here(stage, active)
        until("it moves bundles", lambda: active.epoch() in stage.epochs(), within=60)
        with stage.replica(**{"--lease-name": "mine"}) as other:
            until("it holds its Lease", other.leads, within=60)
            until("it stands down", lambda: condition(stage, "CompetingBalancer")[1] == "OtherLeader", within=60)
            status, _, text = condition(stage, "CompetingBalancer")
            assert status == "True"
            assert text.startswith(f"{active.name} leads, epoch {active.epoch()}, with the Lease {NAMESPACE}/trimtab;")
            assert f"{other.name}, with the Lease {NAMESPACE}/mine, stands down" in text

            time.sleep(8)

            assert max(stage.epochs()) == active.epoch()
            assert condition(stage, "Led")[2].startswith(f"{active.name} leads")
            assert condition(stage, "CompetingBalancer")[:2] == ("True", "OtherLeader")
            assert not {"Deposed", "InternalError"} & {reason for reason, _ in notes(stage)}
            assert not [write for write in other.gate.writes() if "/bundles" in write]
            assert active.server.running
            assert other.server.running


def test_a_leader_whose_epoch_was_overtaken_ends_and_the_next_one_goes_on_above_it(stage: ReplicaCluster) -> None:
    with stage.replica() as leader:
        leads_here(stage, leader)
        until("it moves bundles", lambda: leader.epoch() in stage.epochs(), within=60)
        restored = 1000
        for name, bundle in list(stage.world.bundles().items())[:40]:
            stage.rest.patch(f"{API}/bundles/{name}", {"spec": {"assignment": restored_from(bundle, restored)}})

        assert leader.ended() == 1
        assert "carries epoch 1000, and ours is" in leader.log
        assert "ending, to restart as a standby" in leader.log
        for kind in ("Led", "Acting", "Ready"):
            assert condition(stage, kind)[:2] == ("False", "Deposed")

        with stage.replica() as following:
            text = leads_here(stage, following)
            assert "; epoch 1000 was found here" in text
            until("it moves bundles", lambda: following.epoch() in stage.epochs(), within=60)
            assert following.epoch() == restored + 1
            until("it says that it acts", lambda: condition(stage, "Acting")[0] == "True", within=30)
        assert "InternalError" not in {reason for reason, _ in notes(stage)}


def restored_from(bundle: dict[str, Any], epoch: int) -> dict[str, Any]:
    """The assignment of a bundle as a backup of another cluster has it."""
    owner = bundle["spec"]["owner"]
    return {"owner": owner, "policy": POLICY, "epoch": epoch, "reason": "Overloaded", "time": "2026-01-31T12:00:00Z"}
