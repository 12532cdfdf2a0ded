"""Two operators and one cluster: only one of them writes at any moment. The API server's audit log proves it."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replicas import NAMESPACE, Replica, ReplicaCluster, now, pause, resume, started, write_on
from small_cluster import until
from trimtab_operator.actuators import WRITERS
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.prometheus import PrometheusServer

pytestmark = pytest.mark.apiserver

TAKEOVER = 45.0
"""Seconds; the Lease lasts 15 of them."""


@pytest.fixture(scope="module")
def whole_stage(kube_binaries: KubeBinaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaCluster]:
    """A cluster that all tests here share; each test starts without an operator."""
    folder = tmp_path_factory.mktemp("replicas")
    with (
        ControlPlane(kube_binaries, folder / "control-plane", audit=True) as plane,
        ReplicaCluster(plane, folder) as made,
    ):
        yield made


@pytest.fixture
def stage(whole_stage: ReplicaCluster) -> Iterator[ReplicaCluster]:
    """The cluster, with a policy that always wants to move. Afterwards the whole audit log is checked."""
    whole_stage.apply_policy()
    yield whole_stage
    whole_stage.check_trail()


def moves(stage: ReplicaCluster, leader: Replica) -> None:
    """Wait until bundles have the leader's epoch."""
    until(f"{leader.name} moves bundles", lambda: leader.epoch() in stage.epochs(), within=60)


def took_over(stage: ReplicaCluster, standby: Replica, since: float) -> None:
    """Wait until the standby leads and has decided; its writes have a later epoch."""
    until("the standby leads", standby.leads, within=60)
    until("it says so in the policy", lambda: stage.leader_told().startswith(f"{standby.name} leads"), within=60)
    moves(stage, standby)
    assert standby.epoch() > max(r.epoch() for r in stage.replicas if r is not standby)
    assert standby.name in {write.user for write in stage.trail(since)}


def test_a_leader_killed_in_the_middle_is_followed_and_its_memory_goes_on(stage: ReplicaCluster) -> None:
    with started(stage.replica(), stage.replica()) as (leader, standby):
        moves(stage, leader)
        assert "trimtab_leader 0.0" in standby.page("metrics")
        assert standby.gate.proxy.seen
        assert not standby.gate.writes()
        events = stage.rest.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
        [told] = [e["note"] for e in events if e["regarding"]["kind"] == "Lease" and leader.name in e["note"]]
        assert told == f"{leader.name} leads, epoch {leader.epoch()}"
        before = until("the leader remembers its moves", lambda: _with_moves(stage.remembered()))

        killed = now()
        leader.server.kill()

        took_over(stage, standby, killed)
        after = stage.remembered()
        assert before["epoch"] == leader.epoch()
        assert after["epoch"] == standby.epoch()
        assert before["shedder"]["brokers"]["ema"].keys() <= after["shedder"]["brokers"]["ema"].keys()
        assert before["moves"][0] in after["moves"]
        stage.settle()


def _with_moves(memory: dict[str, Any]) -> dict[str, Any]:
    return memory if memory["moves"] else {}


def test_a_leader_paused_past_its_lease_in_the_middle_of_100_moves_writes_nothing_more(stage: ReplicaCluster) -> None:
    stage.edit_policy(paused=True, limits={"maxMovesPerCycle": 100})
    with started(stage.replica(), stage.replica()) as (leader, standby):
        stage.concentrate()
        write_on(leader.gate, 40, lambda: pause(leader))
        stage.edit_policy(paused=False)
        until("the leader stands still in the middle of its plan", lambda: _stopped(leader), within=60)

        stopped = now()
        took_over(stage, standby, stopped)
        asked = leader.gate.writes()
        resume(leader)

        assert leader.ended() == 1
        sent, held_back = re.findall(r"Overloaded, (\d+) moved, (.*'InternalError': .*)", leader.log)[0]
        sent, failed = int(sent), sum(map(int, re.findall(r"'(?:InternalError|Conflict)': (\d+)", held_back)))
        assert sent + failed == 100
        # The pause leaves up to WRITERS of the 40 writes without an answer: the leader counts them as failed, also
        # one that it repeats and that meets its own first attempt (`Conflict`).
        assert 40 - WRITERS <= sent < 100
        assert leader.gate.writes() == asked
        assert "could not be renewed" in leader.log
        assert not [write for write in stage.trail(stopped + 1) if write.user == leader.name]
        stage.settle()


def _stopped(replica: Replica) -> bool:
    state = Path(f"/proc/{replica.server.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state == "T"


def test_a_leader_cut_off_from_the_api_server_ends_and_another_goes_on(stage: ReplicaCluster) -> None:
    with started(stage.replica(), stage.replica()) as (leader, standby):
        moves(stage, leader)

        cut = now()
        leader.gate.cut()

        assert leader.ended(within=6 + 8 + 10) == 1
        took_over(stage, standby, cut)
        stage.settle()


def test_a_leader_asked_to_stop_hands_over_at_once(stage: ReplicaCluster) -> None:
    slow = {"--lease-duration": 60, "--renew-deadline": 40}
    with started(stage.replica(**slow), stage.replica(**slow)) as (leader, standby):
        moves(stage, leader)

        leader.server.send(signal.SIGTERM)

        assert leader.ended() == 0
        until("the standby leads", standby.leads, within=10)
        took_over(stage, standby, 0)
        stage.settle()


@pytest.mark.prometheus
@pytest.mark.spark
def test_a_warm_standby_decides_soon_after_the_leaders_death(stage: ReplicaCluster, prometheus_binary: Path) -> None:
    """Within 20 s with free cores. Other tests share them here, so the bound only detects a hang."""
    with PrometheusServer(prometheus_binary, stage.folder / "prometheus", stage.world.targets) as prometheus:
        stage.apply_policy(prometheus.url, interval="60s", mode="DryRun")
        with started(stage.measuring_replica(), stage.measuring_replica()) as (leader, standby):
            until("the leader decides", lambda: stage.decided()[0] == leader.name and stage.decided()[1], within=60)
            before = stage.decided()[1]

            killed = time.monotonic()
            leader.server.kill()
            until("the next leader decides", lambda: _anew(stage, standby, before), within=60, every=0.05)

            assert time.monotonic() - killed < TAKEOVER
            status = stage.policy()["status"]
            trusted = {c["type"]: c["status"] for c in status["conditions"]}["DataTrusted"]
            assert (trusted, status["lastCycle"]["outcome"] in {"Overloaded", "Balanced"}) == ("True", True), status


def _anew(stage: ReplicaCluster, leader: Replica, before: str) -> bool:
    told, began = stage.decided()
    return told == leader.name and began != before
