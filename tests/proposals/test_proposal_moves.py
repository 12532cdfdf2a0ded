"""Approved moves on a real API server: each is validated when it is written, and goes on where an operator died."""

from __future__ import annotations

from typing import Any

import pytest

from approve_mode import (
    APPROVE,
    DIVIDING,
    LARGE,
    approved,
    ask,
    destinations,
    moved,
    offered,
    progress,
    proposal,
)
from declarative_splits import splits
from faulty_api import until
from plan_clusters import HOT
from policy_scene import Play, PolicyScene, eager

pytestmark = pytest.mark.apiserver


# -- each move is validated when it is written --


NAMESPACE_CHANGES: dict[str, dict[str, Any]] = {
    "Unbalanced": {"balanced": False},
    "Isolated": {"isolation": {"primary": ["a"]}},
}


async def blocked_by(scene: PolicyScene, move: dict[str, str], how: str) -> None:
    """Somebody changes what `move` rests on."""
    path = scene.path("bundles", move["bundle"])
    if how == "Pinned":
        scene.rest.patch(path, {"spec": {"pinned": True}})
    elif how == "Deleted":
        scene.rest.delete(path)
    elif how == "InFlight":
        scene.give(move["bundle"], "b" if move["destination"] == "c" else "c")
    elif how in NAMESPACE_CHANGES:
        space = scene.bundles()[move["bundle"]]["spec"]["topicNamespace"]
        spaces = scene.context.stores.topic_namespaces.items
        before = spaces[space].policy
        scene.rest.patch(scene.path("topicnamespaces", space), {"spec": NAMESPACE_CHANGES[how]})
        await until("the store shows it", lambda: spaces[space].policy != before)
    elif how == "NotReady":
        scene.rest.patch(scene.path("brokers", move["destination"], "status"), {"status": {"ready": False}})


@pytest.mark.parametrize(("how", "reason"), [("Pinned", "Pinned"), ("Deleted", "Conflict"), ("InFlight", "InFlight")])
def test_a_bundle_that_changed_meanwhile_costs_its_own_move_alone(how: str, reason: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        first, *others = found["moves"]
        await blocked_by(scene, first, how)
        ask(scene, "approve", found["id"])

        await scene.reconcile(after=2)
        await scene.land()
        await scene.reconcile(after=2)

        assert {name: owner for name, owner in moved(scene).items() if name != first["bundle"]} == {
            move["bundle"]: move["destination"] for move in others
        }
        [failure] = progress(scene)["failures"]
        assert (failure["bundle"], failure["reason"]) == (first["bundle"], reason)
        assert (proposal(scene)["state"], progress(scene)["percent"]) == ("NotReady", 100)
        assert [note for r, note in scene.events() if r == reason and first["bundle"] in note and "not moved" in note]

    play(HOT, story, **APPROVE)


def test_a_bundle_that_a_person_moved_and_that_landed_there_is_left_there(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        first = found["moves"][0]
        elsewhere = "b" if first["destination"] == "c" else "c"
        scene.give(first["bundle"], elsewhere)
        await scene.land()
        ask(scene, "approve", found["id"])

        await scene.reconcile(after=2)
        await scene.reconcile(after=2)

        assert scene.desired_owners()[first["bundle"]] == elsewhere
        [failure] = progress(scene)["failures"]
        assert failure["reason"] == "Conflict"
        assert f"it is on {elsewhere} now, and not on a any more" in failure["detail"]

    play(HOT, story, **APPROVE)


@pytest.mark.parametrize(
    ("how", "reason"), [("Unbalanced", "Excluded"), ("Isolated", "Isolation"), ("NotReady", "NotReady")]
)
def test_what_changes_in_the_middle_refuses_the_moves_that_are_left(how: str, reason: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        [(written, _)] = moved(scene).items()
        await scene.land()
        await blocked_by(scene, found["moves"][1], how)
        refused = {
            m["bundle"]
            for m in found["moves"]
            if how in NAMESPACE_CHANGES or m["destination"] == found["moves"][1]["destination"]
        }

        for _ in found["moves"]:
            await scene.reconcile(after=2)
            await scene.land()
        await scene.reconcile(after=2)

        failures = progress(scene)["failures"]
        assert {failure["reason"] for failure in failures} == {reason}
        assert {failure["bundle"] for failure in failures} == refused - {written}
        assert any(reason == "NotReady" and found["id"] in note for reason, note in scene.events())
        assert set(moved(scene)) == {m["bundle"] for m in found["moves"]} - (refused - {written})

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_the_hours_moves_are_counted_while_a_proposal_is_carried_out(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        scene.edit(mode="Auto")  # a person is impatient, and turns back
        await scene.reconcile(after=2)
        spent = len(moved(scene))
        assert spent == found["total"] == 2
        await scene.land()
        scene.edit(mode="Approve")

        await scene.reconcile(after=2)

        assert proposal(scene)["state"] == "PendingProposal"
        assert scene.status()["lastCycle"]["heldBack"]["HourCap"] >= 1

    play(HOT, story, **eager(maxMovesPerHour=2, coolDown="1s") | APPROVE)


def test_a_move_that_no_broker_confirms_is_withdrawn_and_counts_as_failed(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        assert len(moved(scene)) == found["total"] == 1

        await scene.reconcile(after=31)
        await scene.land()
        await scene.reconcile(after=2)

        assert moved(scene) == {}
        [failure] = progress(scene)["failures"]
        assert failure["reason"] == "TimedOut"
        assert proposal(scene)["state"] == "NotReady"

    play(HOT, story, **eager(maxMovesPerCycle=1, moveTimeout="30s") | APPROVE)


# -- the operator dies --


def test_a_waiting_proposal_survives_the_operator(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)

        scene.restart()
        await scene.reconcile(after=2)
        assert proposal(scene) == found

        ask(scene, "approve", found["id"])
        await scene.reconcile(after=2)
        assert moved(scene) == destinations(found)

    play(HOT, story, **APPROVE)


def test_an_execution_goes_on_where_the_operator_died(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await approved(scene)
        await scene.land()

        for _ in range(found["total"]):
            scene.restart()
            await scene.reconcile(after=2)
            await scene.land()
        scene.restart()
        await scene.reconcile(after=2)

        assert moved(scene) == destinations(found)
        assert (progress(scene)["landed"], progress(scene)["failed"]) == (found["total"], 0)
        assert any(reason == "Ready" and found["id"] in note for reason, note in scene.events())
        written = [
            b["metadata"]["generation"] for b in scene.bundles().values() if b["metadata"]["name"] in moved(scene)
        ]
        assert set(written) == {2}, "no move was written twice"

    play(HOT, story, **eager(maxMovesInFlight=1) | APPROVE)


def test_a_move_that_was_written_and_not_noted_is_not_written_again(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        for move in found["moves"]:  # as the operator does, which dies before it stores that
            scene.give(move["bundle"], move["destination"])
        ask(scene, "approve", found["id"])

        scene.restart()
        await scene.reconcile(after=2)
        await scene.land()
        await scene.reconcile(after=2)

        assert proposal(scene)["state"] == "Ready"
        assert {b["metadata"]["generation"] for b in scene.bundles().values()} == {1, 2}

    play(HOT, story, **APPROVE)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"binaryData": {"proposal.json.gz": "AAAA"}},
        {"binaryData": {"proposal.json.gz": None}},
        {"data": {"state.json": "{}"}},
    ],
    ids=["no gzip", "no proposal", "no state"],
)
def test_a_proposal_that_another_client_spoilt_is_begun_again_and_reported(spoilt: dict[str, Any], play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await offered(scene)
        path = f"/api/v1/namespaces/{scene.namespace}/configmaps/trimtab-proposal-main"
        scene.rest.patch(path, spoilt)

        scene.restart()
        await scene.cycle()

        assert proposal(scene)["state"] == "ProposalReady"
        assert any("begins without a proposal" in note for reason, note in scene.events() if reason == "InternalError")

    play(HOT, story, **APPROVE)


# -- splits --


def test_splits_are_offered_and_asked_for_once_approved(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        assert (found["total"], found["totalSplits"]) == (0, 1)
        [shown] = found["splits"]
        assert splits(scene) == {}

        ask(scene, "approve", found["id"])
        await scene.reconcile(after=2)

        [made] = splits(scene).values()
        assert made["spec"]["bundle"] == shown["bundle"]
        assert made["spec"]["boundaries"] == shown["boundaries"]
        assert (progress(scene)["landed"], proposal(scene)["state"]) == (1, "Ready")

    play(LARGE, story, **APPROVE, **DIVIDING)


def test_a_split_of_a_bundle_that_moved_meanwhile_is_not_asked_for(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        found = await offered(scene)
        scene.give(found["splits"][0]["bundle"], "b")
        await scene.land()

        ask(scene, "approve", found["id"])
        await scene.reconcile(after=2)

        assert splits(scene) == {}
        [failure] = progress(scene)["failures"]
        assert (failure["reason"], failure["bundle"]) == ("Conflict", found["splits"][0]["bundle"])

    play(LARGE, story, **APPROVE, **DIVIDING)
