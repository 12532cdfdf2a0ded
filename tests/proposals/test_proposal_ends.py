"""What withdraws a proposal on a real API server, and what people may ask for while it waits or is carried out."""

from __future__ import annotations

from typing import Any

import pytest

from approve_mode import APPROVE, annotations, approved, ask, command, moved, offered, progress, proposal
from plan_clusters import HOT
from policy_scene import Play, PolicyScene, eager
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver


# -- what withdraws a proposal --


def test_an_edited_policy_supersedes_its_proposal_and_offers_another(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        scene.edit(limits={"coolDown": "31m"})
        ask(scene, "approve", first["id"])
        await scene.reconcile(after=2)
        await scene.reconcile(after=2)

        assert moved(scene) == {}
        assert proposal(scene)["state"] == "ProposalReady"
        assert proposal(scene)["id"] != first["id"]
        status, message = command(scene)
        assert status == "False"
        assert first["id"] in message
        assert any(f"{first['id']} was superseded: the policy was edited" in note for _, note in scene.events())

    play(HOT, story, **APPROVE)


def test_after_an_edit_all_conditions_speak_of_the_policy_as_it_is(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        scene.edit(interval="50s")
        await scene.reconcile(after=1)

        generation = scene.policy()["metadata"]["generation"]
        assert {c["observedGeneration"] for c in scene.status()["conditions"]} == {generation}

    play(cluster(bundles=2, a=0.5, b=0.5), story, **APPROVE)


def test_a_proposal_expires_and_cannot_be_approved_any_more(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)
        ask(scene, "approve", first["id"])

        await scene.reconcile(after=121)

        assert moved(scene) == {}
        assert annotations(scene) == {}
        status, message = command(scene)
        assert (status, f"proposal {first['id']} expired" in message) == ("False", True)
        assert proposal(scene)["state"] == "ProposalReady", "the cycle of the same turn offers a fresh one"
        assert proposal(scene)["id"] != first["id"]

    play(HOT, story, **APPROVE, approval={"expiresAfter": "2m"})


def test_a_broker_that_is_closed_supersedes_the_plan_and_another_one_is_offered_at_once(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)
        closed = first["moves"][0]["destination"]
        scene.rest.patch(scene.path("brokers", closed), {"spec": {"schedulable": False}})
        ask(scene, "approve", first["id"])

        await scene.reconcile(after=2)

        assert moved(scene) == {}
        assert command(scene)[0] == "False"
        assert proposal(scene)["state"] == "ProposalReady"
        assert proposal(scene)["id"] != first["id"]
        assert closed not in {move["destination"] for move in proposal(scene)["moves"]}

    play(HOT, story, **APPROVE)


@pytest.mark.parametrize("change", ["dies", "goes"])
def test_a_broker_that_is_lost_to_the_plan_supersedes_it(change: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)
        lost = first["moves"][0]["destination"]
        path = scene.path("brokers", lost)
        if change == "dies":
            scene.rest.patch(f"{path}/status", {"status": {"ready": False}})
        else:
            scene.rest.delete(path)
        ask(scene, "approve", first["id"])

        await scene.reconcile(after=2)

        assert moved(scene) == {}
        assert proposal(scene)["state"] == "PendingProposal"
        assert (lost in proposal(scene)["message"], proposal(scene)["moves"]) == (True, [])
        assert command(scene)[0] == "False"
        assert sorted(reason for reason, _ in scene.events()) == ["PendingProposal", "ProposalReady", "Refused"]

    play(HOT, story, **APPROVE)


# -- what people ask for --


def test_refresh_replaces_the_proposal_by_one_of_what_is_seen_now(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        ask(scene, "refresh")
        await scene.reconcile(after=2)
        assert proposal(scene)["state"] == "PendingProposal"
        await scene.reconcile(after=1)

        assert annotations(scene) == {}
        assert proposal(scene)["state"] == "ProposalReady"
        assert proposal(scene)["id"] != first["id"]

    play(HOT, story, **APPROVE)


def test_stop_withdraws_a_waiting_proposal_until_another_client_refreshes(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first = await offered(scene)

        ask(scene, "stop")
        await scene.reconcile(after=2)
        await scene.cycle()
        assert (proposal(scene)["state"], proposal(scene)["total"]) == ("Stopped", 0)

        ask(scene, "approve", first["id"])
        await scene.reconcile(after=2)
        assert command(scene)[0] == "False"
        assert moved(scene) == {}

        ask(scene, "refresh")
        await scene.reconcile(after=2)
        await scene.reconcile(after=2)
        assert proposal(scene)["state"] == "ProposalReady"

    play(HOT, story, **APPROVE)


def test_stop_in_the_middle_writes_nothing_more_and_leaves_every_bundle_whole(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        assert len(moved(scene)) == 1 < found["total"]

        ask(scene, "stop")
        await scene.reconcile(after=2)
        assert proposal(scene)["state"] == "Stopped"
        assert (progress(scene)["inFlight"], progress(scene).get("finishedAt")) == (1, None)

        await scene.land()
        await scene.reconcile(after=2)
        await scene.reconcile(after=2)

        assert len(moved(scene)) == 1
        assert scene.owners() == scene.desired_owners()
        shown = progress(scene)
        assert (shown["landed"], shown["failed"], shown["inFlight"], shown["total"]) == (1, 0, 0, found["total"])
        assert shown["finishedAt"]
        assert proposal(scene)["state"] == "Stopped"

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


@pytest.mark.parametrize(
    ("spec", "word", "pinned", "complaint"),
    [
        (APPROVE, "aprove", None, "'aprove': write approve, refresh or stop"),
        (APPROVE, "approve", "0badc0de", "it is for proposal 0badc0de, and the one there is now is "),
        ({"mode": "DryRun"}, "approve", None, "spec.mode is DryRun: set it to Approve"),
        ({"mode": "Auto", "paused": True}, "stop", None, "spec.mode is Auto: it moves by itself; `trimtab pause"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_command_that_cannot_be_taken_is_refused_with_what_to_do(
    spec: dict[str, Any], word: str, pinned: str | None, complaint: str, play: Play
) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        ask(scene, word, pinned)
        await scene.reconcile(after=2)

        assert moved(scene) == {}
        assert annotations(scene) == {}
        assert command(scene)[0] == "False"
        assert complaint in command(scene)[1]
        assert [note for reason, note in scene.events() if reason == "Refused"] == [command(scene)[1]]

    play(HOT, story, **spec)


def test_what_became_of_a_command_is_shown_for_an_hour_from_each_command_on(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await offered(scene)
        ask(scene, "approved")
        await scene.reconcile(after=1)
        ask(scene, "rebalance")
        await scene.reconcile(after=3000)
        assert command(scene)[0] == "False"
        await scene.reconcile(after=3500)
        assert "is 'rebalance'" in command(scene)[1], "the second one is not an hour ago"

        await scene.reconcile(after=200)
        assert scene.condition("CommandTaken") == ("", "")

    play(HOT, story, **APPROVE)


def test_a_paused_policy_takes_no_approval_and_holds_what_was_approved(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        scene.edit(paused=True)
        await scene.land()

        await scene.reconcile(after=2)
        assert len(moved(scene)) == 1 < found["total"]
        assert proposal(scene)["state"] == "Rebalancing"

        scene.edit(paused=False)
        await scene.reconcile(after=2)
        assert len(moved(scene)) == 2

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_leaving_the_mode_ends_what_was_approved_as_stop_does(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await approved(scene)

        scene.edit(mode="DryRun")
        await scene.land()
        await scene.reconcile(after=2)
        await scene.cycle()

        assert len(moved(scene)) == 1
        assert progress(scene)["finishedAt"]
        shown = proposal(scene)
        assert {"state", "id", "expiresAt"}.isdisjoint(shown)
        assert scene.condition("ProposalReady") == scene.condition("Rebalancing") == ("", "")

        scene.edit(mode="Approve")
        await scene.reconcile(after=2)
        assert proposal(scene)["state"] == "ProposalReady"

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)
