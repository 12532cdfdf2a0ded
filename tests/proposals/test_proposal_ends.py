"""What withdraws a proposal on a real API server, and what people may ask for while it waits or is carried out."""

from __future__ import annotations

from typing import Any

import pytest

from approve_mode import APPROVE, annotations, approved, ask, command, moved, offered, progress, proposal
from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from strategy_testing.clusters import cluster

pytestmark = pytest.mark.apiserver

APPROVES = {"trimtab.dev/rebalance": "approve"}
HOT_BESIDE_ANOTHER = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1] * 4}, a=0.9, b=0.1, c=0.5)


# -- what withdraws a proposal --


def test_an_edited_policy_supersedes_its_proposal_and_offers_another(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)

        env.edit(limits={"coolDown": "31m"})
        ask(env, "approve", first["id"])
        await env.reconcile(after=2)
        await env.reconcile(after=2)

        assert moved(env) == {}
        assert proposal(env)["state"] == "ProposalReady"
        assert proposal(env)["id"] != first["id"]
        status, message = command(env)
        assert status == "False"
        assert first["id"] in message
        assert any(f"{first['id']} was superseded: the policy was edited" in note for _, note in env.events())

    run_policy(HOT, scenario, **APPROVE)


def test_after_an_edit_all_conditions_speak_of_the_policy_as_it_is(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        env.edit(interval="50s")
        await env.reconcile(after=1)

        generation = env.policy()["metadata"]["generation"]
        assert {c["observedGeneration"] for c in env.status()["conditions"]} == {generation}

    run_policy(cluster(bundles=2, a=0.5, b=0.5), scenario, **APPROVE)


def test_a_proposal_expires_and_cannot_be_approved_any_more(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)
        ask(env, "approve", first["id"])

        await env.reconcile(after=121)

        assert moved(env) == {}
        assert annotations(env) == {}
        status, message = command(env)
        assert (status, f"proposal {first['id']} expired" in message) == ("False", True)
        assert proposal(env)["state"] == "ProposalReady", "the cycle of the same turn offers a fresh one"
        assert proposal(env)["id"] != first["id"]

    run_policy(HOT, scenario, **APPROVE, approval={"expiresAfter": "2m"})


def test_a_broker_that_is_closed_supersedes_the_plan_and_another_one_is_offered_at_once(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)
        closed = first["moves"][0]["destination"]
        env.rest.patch(env.path("brokers", closed), {"spec": {"schedulable": False}})
        ask(env, "approve", first["id"])

        await env.reconcile(after=2)

        assert moved(env) == {}
        assert command(env)[0] == "False"
        assert proposal(env)["state"] == "ProposalReady"
        assert proposal(env)["id"] != first["id"]
        assert closed not in {move["destination"] for move in proposal(env)["moves"]}

    run_policy(HOT, scenario, **APPROVE)


@pytest.mark.parametrize("change", ["dies", "goes"])
def test_a_broker_that_is_lost_to_the_plan_supersedes_it(change: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)
        lost = first["moves"][0]["destination"]
        path = env.path("brokers", lost)
        if change == "dies":
            env.rest.patch(f"{path}/status", {"status": {"ready": False}})
        else:
            env.rest.delete(path)
        ask(env, "approve", first["id"])

        await env.reconcile(after=2)

        assert moved(env) == {}
        assert proposal(env)["state"] == "PendingProposal"
        assert (lost in proposal(env)["message"], proposal(env)["moves"]) == (True, [])
        assert command(env)[0] == "False"
        assert sorted(reason for reason, _ in env.events()) == ["PendingProposal", "ProposalReady", "Refused"]

    run_policy(HOT, scenario, **APPROVE)


def emptied(env: PolicyEnvironment) -> set[str]:
    """The brokers that the proposal empties."""
    return {move["source"] for move in proposal(env)["moves"] if move["reason"] == "Drained"}


def test_a_drain_replaces_a_proposal_that_knows_nothing_of_it(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)
        (move,) = {(move["source"], move["destination"]) for move in first["moves"]}
        (drained,) = set(env.load.brokers.names) - set(move)
        env.rest.patch(env.path("brokers", drained), {"spec": {"schedulable": False}})
        ask(env, "approve", first["id"])

        await env.reconcile(after=1)

        assert moved(env) == {}
        assert command(env)[0] == "False"
        assert any(f"superseded: a drain of {drained} was requested since" in note for _, note in env.events())
        assert (proposal(env)["state"], emptied(env)) == ("ProposalReady", {drained})

        second = proposal(env)["id"]
        env.restart()
        await env.cycle()
        assert (proposal(env)["state"], proposal(env)["id"]) == ("ProposalReady", second), "it stays on offer"

    run_policy(HOT_BESIDE_ANOTHER, scenario, **APPROVE)


def test_a_drain_that_moves_nothing_does_not_keep_other_proposals_away(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name, owner in env.owners().items():
            if owner == "c":
                env.rest.patch(env.path("bundles", name), {"spec": {"pinned": True}})
        env.rest.patch(env.path("brokers", "c"), {"spec": {"schedulable": False}})
        first = await offered(env)
        await env.cycle()

        assert emptied(env) == set()
        assert (proposal(env)["state"], proposal(env)["id"]) == ("ProposalReady", first["id"])

    run_policy(HOT_BESIDE_ANOTHER, scenario, **APPROVE)


# -- what people ask for --


@pytest.mark.parametrize("how", ["removes it", "replaces it"])
def test_nothing_is_left_of_an_approval_that_another_person_takes_back(how: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)
        ask(env, "approve", first["id"], by="alice")
        word = None if how == "removes it" else "stop"
        notes = {"trimtab.dev/rebalance": word}  # as with kubectl annotate, which names no other annotation
        env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"annotations": notes}})
        await env.reconcile(after=2)
        assert annotations(env) == {}

        if word is not None:
            ask(env, "refresh")
            await env.reconcile(after=2)
            await env.cycle()
        env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"annotations": {**notes, **APPROVES}}})
        await env.reconcile(after=2)
        assert "approvedBy" not in progress(env), "not the person who had approved before"

    run_policy(HOT, scenario, **APPROVE)


def test_refresh_replaces_the_proposal_by_one_of_what_is_seen_now(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)

        ask(env, "refresh")
        await env.reconcile(after=2)
        assert proposal(env)["state"] == "PendingProposal"
        await env.reconcile(after=1)

        assert annotations(env) == {}
        assert proposal(env)["state"] == "ProposalReady"
        assert proposal(env)["id"] != first["id"]

    run_policy(HOT, scenario, **APPROVE)


def test_stop_withdraws_a_waiting_proposal_until_another_client_refreshes(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)

        ask(env, "stop")
        await env.reconcile(after=2)
        await env.cycle()
        assert (proposal(env)["state"], proposal(env)["total"]) == ("Stopped", 0)

        ask(env, "approve", first["id"])
        await env.reconcile(after=2)
        assert command(env)[0] == "False"
        assert moved(env) == {}

        ask(env, "refresh")
        await env.reconcile(after=2)
        await env.reconcile(after=2)
        assert proposal(env)["state"] == "ProposalReady"

    run_policy(HOT, scenario, **APPROVE)


def test_stop_in_the_middle_writes_nothing_more_and_leaves_every_bundle_whole(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        assert len(moved(env)) == 1 < found["total"]

        ask(env, "stop")
        await env.reconcile(after=2)
        assert proposal(env)["state"] == "Stopped"
        assert (progress(env)["inFlight"], progress(env).get("finishedAt")) == (1, None)

        await env.land()
        await env.reconcile(after=2)
        await env.reconcile(after=2)

        assert len(moved(env)) == 1
        assert env.owners() == env.desired_owners()
        shown = progress(env)
        assert (shown["landed"], shown["failed"], shown["inFlight"], shown["total"]) == (1, 0, 0, found["total"])
        assert shown["finishedAt"]
        assert proposal(env)["state"] == "Stopped"

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


@pytest.mark.parametrize(
    ("spec", "word", "pinned", "complaint"),
    [
        (APPROVE, "aprove", None, "'aprove': write approve, refresh or stop"),
        (APPROVE, "approve", "0badc0de", "it is for proposal 0badc0de, and the current one is "),
        ({"mode": "DryRun"}, "approve", None, "spec.mode is DryRun: set it to Approve"),
        ({"mode": "Auto", "paused": True}, "stop", None, "spec.mode is Auto: it moves by itself; `trimtab pause"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_command_that_cannot_be_taken_is_refused_with_what_to_do(
    spec: dict[str, Any], word: str, pinned: str | None, complaint: str, run_policy: RunPolicy
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        ask(env, word, pinned)
        await env.reconcile(after=2)

        assert moved(env) == {}
        assert annotations(env) == {}
        assert command(env)[0] == "False"
        assert complaint in command(env)[1]
        assert [note for reason, note in env.events() if reason == "Refused"] == [command(env)[1]]

    run_policy(HOT, scenario, **spec)


def test_what_became_of_a_command_is_shown_for_an_hour_from_each_command_on(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await offered(env)
        ask(env, "approved")
        await env.reconcile(after=1)
        ask(env, "rebalance")
        await env.reconcile(after=3000)
        assert command(env)[0] == "False"
        await env.reconcile(after=3500)
        assert "is 'rebalance'" in command(env)[1], "the second one is not an hour ago"

        await env.reconcile(after=200)
        assert env.condition("CommandTaken") == ("", "")

    run_policy(HOT, scenario, **APPROVE)


def test_a_paused_policy_takes_no_approval_and_holds_what_was_approved(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        env.edit(paused=True)
        await env.land()

        await env.reconcile(after=2)
        assert len(moved(env)) == 1 < found["total"]
        assert proposal(env)["state"] == "Rebalancing"

        env.edit(paused=False)
        await env.reconcile(after=2)
        assert len(moved(env)) == 2

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_leaving_the_mode_ends_what_was_approved_as_stop_does(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await approved(env)

        env.edit(mode="DryRun")
        await env.land()
        await env.reconcile(after=2)
        await env.cycle()

        assert len(moved(env)) == 1
        assert progress(env)["finishedAt"]
        shown = proposal(env)
        assert {"state", "id", "expiresAt"}.isdisjoint(shown)
        assert env.condition("ProposalReady") == env.condition("Rebalancing") == ("", "")

        env.edit(mode="Approve")
        await env.reconcile(after=2)
        assert proposal(env)["state"] == "ProposalReady"

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)
