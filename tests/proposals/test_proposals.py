"""Mode Approve on a real API server: a proposal is offered, waits, and what was shown is what is carried out."""

from __future__ import annotations

import asyncio

import pytest

from approve_mode import (
    APPROVE,
    annotations,
    approved,
    ask,
    command,
    destinations,
    moved,
    offered,
    progress,
    proposal,
)
from faulty_api import until
from odd_sources import Slow
from plan_clusters import HOT
from policy_scene import Play, PolicyScene, eager
from trimtab_operator.state.policies import Claim
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_strategies.testing import NOW, cluster, with_bundles
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver


# -- offering --


def test_a_plan_is_offered_with_what_it_changes_and_costs_and_moves_nothing(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        before = scene.versions("bundles")

        found = await offered(scene)

        assert found["total"] == len(found["moves"]) > 0
        assert found["cpuBefore"]["highest"] > found["cpuAfter"]["highest"]
        assert {r["resource"] for r in found["ranges"]} >= {"cpu", "networkIn", "networkOut"}
        assert {b["broker"] for b in found["brokers"]} == {"a", "b", "c"}
        assert found["cost"] == {"connections": 60 * found["total"], "topics": 6 * found["total"], "unknown": 0}
        assert found["message"].endswith(f"trimtab approve main -n {scene.namespace} --proposal {found['id']}")
        assert scene.condition("ProposalReady") == ("True", "ProposalReady")
        assert scene.condition("Rebalancing") == ("False", "ProposalReady")
        assert scene.versions("bundles") == before
        assert scene.status()["lastCycle"]["heldBack"]["NotApproved"] == found["total"]
        assert [reason for reason, _ in scene.events()] == ["ProposalReady"]

    known = with_bundles(HOT, sessions=dict.fromkeys(range(9), 60.0), topics=dict.fromkeys(range(9), 6.0))
    play(known, story, **APPROVE)


def test_a_cost_that_is_not_known_is_said_to_be_unknown(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)

        assert found["cost"] == {"connections": 0, "topics": 0, "unknown": found["total"]}

    unknown = with_bundles(HOT, sessions=dict.fromkeys(range(9), float("nan")))
    play(unknown, story, **APPROVE)


def test_a_proposal_that_waits_stays_as_it_is_while_cycles_go_on(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        cycle = scene.status()["lastCycle"]["time"]

        await scene.cycle()
        await scene.cycle()

        assert scene.status()["lastCycle"]["time"] > cycle
        assert proposal(scene) == found
        assert len(scene.events()) == 1

    play(HOT, story, **APPROVE)


def test_nothing_is_offered_where_nothing_is_to_move(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        await scene.cycle()

        assert proposal(scene)["state"] == "PendingProposal"
        assert scene.condition("ProposalReady") == ("False", "PendingProposal")
        assert scene.events() == []

    play(cluster(bundles=2, a=0.5, b=0.5), story, **APPROVE)


# -- approving --


def test_approving_carries_out_exactly_what_was_shown(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)

        assert annotations(scene) == {}
        assert command(scene)[0] == "True"
        assert proposal(scene)["state"] == "Rebalancing"
        assert scene.condition("Rebalancing") == ("True", "Rebalancing")
        assert moved(scene) == destinations(found)

        await scene.land()
        await scene.reconcile(after=2)

        assert proposal(scene)["state"] == "Ready"
        total = found["total"]
        assert (progress(scene)["landed"], progress(scene)["percent"], progress(scene)["failed"]) == (total, 100, 0)
        assert progress(scene)["finishedAt"]
        assert moved(scene) == destinations(found)
        assert scene.memory()["moves"][0][1] == total

    play(HOT, story, **APPROVE)


def test_only_so_many_moves_are_open_at_once(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        assert found["total"] >= 3
        open_at_once = []

        for done in range(found["total"]):
            open_at_once.append(len(moved(scene)) - done)
            await scene.land()
            await scene.reconcile(after=2)

        assert open_at_once == [1] * found["total"]
        assert proposal(scene)["state"] == "Ready"
        assert progress(scene)["done"] == found["total"]

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_progress_is_stored_now_and_then_and_not_at_each_landing(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await approved(scene)

        def version() -> str:
            path = f"/api/v1/namespaces/{scene.namespace}/configmaps/trimtab-proposal-main"
            found: str = scene.rest.get(path)["metadata"]["resourceVersion"]
            return found

        before = version()
        await scene.land()
        await scene.reconcile(after=0.5)
        assert (len(moved(scene)), version()) == (2, before)

        await scene.reconcile(after=2)
        assert version() != before
        assert progress(scene)["landed"] == 1

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_the_rest_of_the_time_is_reported_at_the_pace_so_far(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        await scene.land()
        await scene.reconcile(after=10)

        done, total = progress(scene)["done"], found["total"]
        assert (done, progress(scene)["inFlight"]) == (1, 1)
        assert progress(scene)["percent"] == 100 // total
        assert progress(scene)["timeLeft"] == f"{10 * (total - 1)}s"

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_the_next_plan_is_offered_once_the_last_one_is_done(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await approved(scene)
        await scene.land()
        await scene.reconcile(after=2)
        assert proposal(scene)["state"] == "Ready"

        await scene.reconcile(after=3600)

        again = proposal(scene)
        assert (again["state"], again["id"] != first["id"]) == ("ProposalReady", True)

    play(HOT, story, **eager(maxMovesPerCycle=1) | APPROVE)


def test_a_landing_wakes_the_loop_for_the_next_move(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await approved(scene)
        scene.context.policies.wakers["main"] = scene.loop.wake
        scene.loop.wake.clear()

        await scene.land()

        assert scene.loop.wake.is_set()

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_kubectl_waits_for_a_proposal_and_lists_its_state(play: Play, trimtab_crds: ControlPlane) -> None:
    async def story(scene: PolicyScene) -> None:
        await offered(scene)

        trimtab_crds.kubectl(
            "-n", scene.namespace, "wait", "bpol/main", "--for=condition=ProposalReady", "--timeout=5s"
        )
        listed = trimtab_crds.kubectl("-n", scene.namespace, "get", "bpol", "main").splitlines()

        assert "PROPOSAL" in listed[0]
        assert "ProposalReady" in listed[1]

    play(HOT, story, **APPROVE)


def test_moves_go_on_and_stop_is_heard_while_prometheus_is_slow(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab_operator.loop.cycle.RECONCILE_EVERY", 0.1)

    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        scene.source = slow = Slow(scene.load)
        measuring = asyncio.create_task(scene.cycle())
        await until("the cycle measures", lambda: scene.loop.cluster.clock() > NOW + 60)

        await scene.land()
        await until("the next move is written", lambda: len(moved(scene)) == 2)
        ask(scene, "stop")
        await until("it is stopped", lambda: proposal(scene)["state"] == "Stopped")
        await scene.land()
        slow.answer.set_exception(SourceUnavailableError("it is too slow"))
        await measuring

        assert len(moved(scene)) == 2 < found["total"]
        assert scene.condition("DataTrusted") == ("False", "SourceUnavailable")
        assert sum(count for _, count in scene.memory()["moves"]) == 2

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_what_was_approved_rests_when_an_older_policy_takes_over_in_the_middle_of_a_cycle(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_operator.loop.cycle.RECONCILE_EVERY", 0.05)

    async def story(scene: PolicyScene) -> None:
        await approved(scene)
        scene.source = slow = Slow(scene.load)
        measuring = asyncio.create_task(scene.cycle())
        await until("the cycle measures", lambda: scene.loop.cluster.clock() > NOW + 60)
        scene.context.policies.claims["older"] = Claim("older", "1970")
        scene.context.share_out()

        await scene.land()
        await asyncio.sleep(0.3)
        slow.answer.set_exception(SourceUnavailableError("it is too slow"))
        await measuring

        assert len(moved(scene)) == 1
        assert progress(scene)["failed"] == 0

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_nothing_is_ready_to_be_approved_while_an_older_policy_has_the_brokers(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        scene.context.policies.claims["older"] = Claim("older", "1970")
        await scene.reconcile(after=2)
        assert scene.condition("ProposalReady") == ("False", "InvalidPolicy")

        scene.context.leave("older")
        await scene.reconcile(after=2)
        assert scene.condition("ProposalReady") == ("True", "ProposalReady")
        assert proposal(scene)["id"] == first["id"]

    play(HOT, story, **APPROVE)


def test_nothing_is_ready_to_be_approved_of_a_policy_that_cannot_be_run(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        scene.edit(interval="0s")
        scene.restart()
        await scene.reconcile(after=2)
        assert scene.condition("ProposalReady") == scene.condition("Valid") == ("False", "InvalidPolicy")

        scene.edit(interval="30s")
        await scene.reconcile(after=2)
        assert scene.condition("ProposalReady") == ("True", "ProposalReady")
        assert proposal(scene)["id"] != first["id"]

    play(HOT, story, **APPROVE)
