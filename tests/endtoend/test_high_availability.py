"""Two operators and one cluster: at any moment one of them writes. The API server's audit log is the witness."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from replicas import NAMESPACE, Replica, ReplicaStage, now, pause, resume, write_on
from stage import until
from trimtab_testbed.binaries import KubeBinaries
from trimtab_testbed.control_plane import ControlPlane
from trimtab_testbed.prometheus import Prometheus

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def whole_stage(kube_binaries: KubeBinaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaStage]:
    """A cluster that all tests here share; each begins with no operator."""
    folder = tmp_path_factory.mktemp("replicas")
    with (
        ControlPlane(kube_binaries, folder / "control-plane", audit=True) as plane,
        ReplicaStage(plane, folder) as made,
    ):
        yield made


@pytest.fixture
def stage(whole_stage: ReplicaStage) -> Iterator[ReplicaStage]:
    """The cluster, with a policy that always wants to move; afterwards the whole trail is looked at."""
    whole_stage.apply_policy()
    yield whole_stage
    whole_stage.check_trail()


def leader_and_standby(stage: ReplicaStage, leader: Replica, standby: Replica) -> None:
    """Wait until one leads and moves, and the other stands by."""
    until("the leader leads", leader.leads, within=60)
    assert standby.server.running
    assert "stands by for" in until("the standby has seen the leader", standby.ready, within=60)
    until("the leader moves bundles", lambda: leader.epoch() in stage.epochs(), within=60)


def took_over(stage: ReplicaStage, standby: Replica, since: float) -> None:
    """Wait until the standby leads and has decided; what it wrote carries a later epoch."""
    until("the standby leads", standby.leads, within=60)
    until("it says so in the policy", lambda: stage.leader_told().startswith(f"{standby.name} leads"), within=60)
    until("it moves bundles", lambda: standby.epoch() in stage.epochs(), within=60)
    assert standby.epoch() > max(r.epoch() for r in stage.replicas if r is not standby)
    assert standby.name in {write.user for write in stage.trail(since)}


def test_a_leader_killed_in_the_middle_is_followed_and_its_memory_goes_on(stage: ReplicaStage) -> None:
    with stage.replica() as leader:
        until("the leader leads", leader.leads, within=60)
        with stage.replica() as standby:
            leader_and_standby(stage, leader, standby)
            assert "trimtab_leader 0.0" in standby.page("metrics")
            assert not standby.gate.writes()
            assert {method for method, _ in standby.gate.proxy.seen} == {"GET"}
            events = stage.rest.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
            [told] = [e["note"] for e in events if e["regarding"]["kind"] == "Lease" and leader.name in e["note"]]
            assert told == f"{leader.name} leads, epoch {leader.epoch()}"
            before = stage.remembered()

            killed = now()
            leader.server.kill()

            took_over(stage, standby, killed)
            after = stage.remembered()
            assert before["epoch"] == leader.epoch()
            assert after["epoch"] == standby.epoch()
            assert before["shedder"]["brokers"]["ema"].keys() == after["shedder"]["brokers"]["ema"].keys()
            assert before["moves"][0] in after["moves"]
            stage.settle()


def test_a_leader_paused_past_its_lease_in_the_middle_of_100_moves_writes_nothing_more(stage: ReplicaStage) -> None:
    stage.pause()
    stage.concentrate()
    with stage.replica() as leader:
        until("the leader leads", leader.leads, within=60)
        with stage.replica() as standby:
            until("the standby is ready", standby.ready, within=60)
            write_on(leader.gate, 40, lambda: pause(leader))
            stage.pause(paused=False)
            until("the leader stands still in the middle of its plan", lambda: _stopped(leader), within=60)

            stopped = now()
            took_over(stage, standby, stopped)
            asked = leader.gate.writes()
            resume(leader)

            assert leader.ended() == 1
            sent, held_back = map(int, re.findall(r"Overloaded, (\d+) moved, .*'InternalError': (\d+)", leader.log)[0])
            assert sent + held_back == 100
            assert 40 <= sent < 100
            assert leader.gate.writes() == asked
            assert "could not be renewed" in leader.log
            assert not [write for write in stage.trail(stopped + 1) if write.user == leader.name]
            stage.settle()
            assert f"{standby.name} leads" in stage.leader_told()


def _stopped(replica: Replica) -> bool:
    state = Path(f"/proc/{replica.server.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def test_a_leader_cut_off_from_the_api_server_ends_and_another_goes_on(stage: ReplicaStage) -> None:
    with stage.replica() as leader:
        until("the leader leads", leader.leads, within=60)
        with stage.replica() as standby:
            leader_and_standby(stage, leader, standby)

            cut = now()
            leader.gate.cut()

            assert leader.ended(within=4 + 8 + 10) == 1
            took_over(stage, standby, cut)
            stage.settle()


def test_a_leader_told_to_end_hands_over_at_once(stage: ReplicaStage) -> None:
    slow = {"--lease-duration": 60, "--renew-deadline": 40}
    with stage.replica(**slow) as leader:
        until("the leader leads", leader.leads, within=60)
        with stage.replica(**slow) as standby:
            leader_and_standby(stage, leader, standby)

            leader.server.send(signal.SIGTERM)

            assert leader.ended() == 0
            until("the standby leads", standby.leads, within=10)
            took_over(stage, standby, 0)
            stage.settle()


@pytest.mark.prometheus
@pytest.mark.spark
def test_a_warm_standby_decides_within_20_s_of_the_leaders_death(stage: ReplicaStage, prometheus_binary: Path) -> None:
    with Prometheus(prometheus_binary, stage.folder / "prometheus", stage.world.targets) as prometheus:
        stage.apply_policy(prometheus.url, interval="60s", mode="DryRun")
        with stage.measuring_replica() as leader, stage.measuring_replica() as standby:
            for replica in (leader, standby):
                replica.ready()
            first, second = (leader, standby) if leader.leads() else (standby, leader)
            until("the leader decides", lambda: stage.leader_told().startswith(first.name), within=60)

            killed = time.monotonic()
            first.server.kill()
            until("the next leader decides", lambda: stage.leader_told().startswith(second.name), within=60, every=0.05)

            assert time.monotonic() - killed < 20
            status = stage.policy()["status"]
            assert status["lastCycle"]["outcome"] == "Overloaded"
            assert status["proposal"]["total"] > 0
