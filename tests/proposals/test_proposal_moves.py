"""Approved moves on a real API server: each is validated when it is written, and goes on where an operator died."""

from __future__ import annotations

from typing import Any

import pytest

from approve_mode import APPROVE, DIVIDING, LARGE, approved, ask, destinations, moved, offered, progress, proposal
from declarative_splits import splits
from faulty_api import until
from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from trimtab_operator.kube.client import ConflictError
from trimtab_operator.kube.conditions import timestamp

pytestmark = pytest.mark.apiserver


# -- each move is validated when it is written --


NAMESPACE_CHANGES: dict[str, dict[str, Any]] = {
    "Unbalanced": {"balanced": False},
    "Isolated": {"isolation": {"primary": ["a"]}},
}


async def blocked_by(env: PolicyEnvironment, move: dict[str, str], how: str) -> None:
    """Another client changes what `move` rests on."""
    path = env.path("bundles", move["bundle"])
    if how == "Pinned":
        env.rest.patch(path, {"spec": {"pinned": True}})
    elif how == "Deleted":
        env.rest.delete(path)
    elif how == "InFlight":
        env.give(move["bundle"], "b" if move["destination"] == "c" else "c")
    elif how in NAMESPACE_CHANGES:
        space = env.bundles()[move["bundle"]]["spec"]["topicNamespace"]
        spaces = env.cluster.stores.topic_namespaces.items
        before = spaces[space].policy
        env.rest.patch(env.path("topicnamespaces", space), {"spec": NAMESPACE_CHANGES[how]})
        await until("the store shows it", lambda: spaces[space].policy != before)
    elif how == "NotReady":
        env.rest.patch(env.path("brokers", move["destination"], "status"), {"status": {"ready": False}})


@pytest.mark.parametrize(("how", "reason"), [("Pinned", "Pinned"), ("Deleted", "Conflict"), ("InFlight", "InFlight")])
def test_a_bundle_that_changed_meanwhile_costs_its_own_move_alone(how: str, reason: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        first, *others = found["moves"]
        await blocked_by(env, first, how)
        ask(env, "approve", found["id"])

        await env.reconcile(after=2)
        await env.land()
        await env.reconcile(after=2)

        assert {name: owner for name, owner in moved(env).items() if name != first["bundle"]} == {
            move["bundle"]: move["destination"] for move in others
        }
        [failure] = progress(env)["failures"]
        assert (failure["bundle"], failure["reason"]) == (first["bundle"], reason)
        assert (proposal(env)["state"], progress(env)["percent"]) == ("NotReady", 100)
        assert [note for r, note in env.events() if r == reason and first["bundle"] in note and "not moved" in note]

    run_policy(HOT, scenario, **APPROVE)


def test_a_bundle_that_a_person_moved_and_that_landed_there_is_left_there(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        first = found["moves"][0]
        elsewhere = "b" if first["destination"] == "c" else "c"
        env.give(first["bundle"], elsewhere)
        await env.land()
        ask(env, "approve", found["id"])

        await env.reconcile(after=2)
        await env.reconcile(after=2)

        assert env.desired_owners()[first["bundle"]] == elsewhere
        [failure] = progress(env)["failures"]
        assert failure["reason"] == "Conflict"
        assert f"it is on {elsewhere} now, and not on a any more" in failure["detail"]

    run_policy(HOT, scenario, **APPROVE)


@pytest.mark.parametrize(
    ("how", "reason"), [("Unbalanced", "Excluded"), ("Isolated", "Isolation"), ("NotReady", "NotReady")]
)
def test_what_changes_in_the_middle_refuses_the_moves_that_are_left(
    how: str, reason: str, run_policy: RunPolicy
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        [(written, _)] = moved(env).items()
        await env.land()
        await blocked_by(env, found["moves"][1], how)
        refused = {
            m["bundle"]
            for m in found["moves"]
            if how in NAMESPACE_CHANGES or m["destination"] == found["moves"][1]["destination"]
        }

        for _ in found["moves"]:
            await env.reconcile(after=2)
            await env.land()
        await env.reconcile(after=2)

        failures = progress(env)["failures"]
        assert {failure["reason"] for failure in failures} == {reason}
        assert {failure["bundle"] for failure in failures} == refused - {written}
        assert any(reason == "NotReady" and found["id"] in note for reason, note in env.events())
        assert set(moved(env)) == {m["bundle"] for m in found["moves"]} - (refused - {written})

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_the_hours_moves_are_counted_while_a_proposal_is_carried_out(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        env.edit(mode="Auto")  # a person is impatient, and turns back
        await env.reconcile(after=2)
        spent = len(moved(env))
        assert spent == found["total"] == 2
        await env.land()
        env.edit(mode="Approve")

        await env.reconcile(after=2)

        assert proposal(env)["state"] == "PendingProposal"
        assert env.held_back()["HourCap"] >= 1

    run_policy(HOT, scenario, **eager(maxMovesPerHour=2, coolDown="1s") | APPROVE)


def test_a_move_that_no_broker_confirms_is_withdrawn_and_counts_as_failed(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        assert len(moved(env)) == found["total"] == 1

        await env.reconcile(after=31)
        await env.land()
        await env.reconcile(after=2)

        assert moved(env) == {}
        [failure] = progress(env)["failures"]
        assert failure["reason"] == "TimedOut"
        assert proposal(env)["state"] == "NotReady"

    run_policy(HOT, scenario, **eager(maxMovesPerCycle=1, moveTimeout="30s") | APPROVE)


# -- the operator dies --


def test_a_waiting_proposal_survives_the_operator(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)

        env.restart()
        await env.reconcile(after=2)
        assert proposal(env) == found

        ask(env, "approve", found["id"])
        await env.reconcile(after=2)
        assert moved(env) == destinations(found)

    run_policy(HOT, scenario, **APPROVE)


def test_an_execution_goes_on_where_the_operator_died(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        await env.land()

        for _ in range(found["total"]):
            env.restart()
            await env.reconcile(after=2)
            await env.land()
        env.restart()
        await env.reconcile(after=2)

        assert moved(env) == destinations(found)
        assert (progress(env)["landed"], progress(env)["failed"]) == (found["total"], 0)
        assert any(reason == "Ready" and found["id"] in note for reason, note in env.events())
        written = [b["metadata"]["generation"] for b in env.bundles().values() if b["metadata"]["name"] in moved(env)]
        assert set(written) == {2}, "no move was written twice"

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_a_move_that_was_written_and_not_noted_is_not_written_again(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        for move in found["moves"]:  # as the operator does, which dies before it stores that
            owner = move["destination"]
            assignment = {"owner": owner, "policy": "main", "reason": "Overloaded", "time": timestamp(env.clock)}
            env.rest.patch(env.path("bundles", move["bundle"]), {"spec": {"owner": owner, "assignment": assignment}})
        ask(env, "approve", found["id"])

        env.restart()
        await env.reconcile(after=2)
        await env.land()
        await env.reconcile(after=2)

        assert proposal(env)["state"] == "Ready"
        assert {b["metadata"]["generation"] for b in env.bundles().values()} == {1, 2}

    run_policy(HOT, scenario, **APPROVE)


@pytest.mark.parametrize(
    "spoilt",
    [
        {"binaryData": {"proposal.json.gz": "AAAA"}},
        {"binaryData": {"proposal.json.gz": None}},
        {"data": {"state.json": "{}"}},
    ],
    ids=["no gzip", "no proposal", "no state"],
)
def test_a_proposal_that_another_client_spoilt_is_begun_again_and_reported(
    spoilt: dict[str, Any], run_policy: RunPolicy
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await offered(env)
        path = f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-proposal-main"
        env.rest.patch(path, spoilt)

        env.restart()
        await env.cycle()

        assert proposal(env)["state"] == "ProposalReady"
        assert any("begins without a proposal" in note for reason, note in env.events() if reason == "InternalError")

    run_policy(HOT, scenario, **APPROVE)


def test_moves_of_a_round_that_could_not_be_stored_count_for_the_hour(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        ask(env, "approve", found["id"])
        await env.reconcile(after=2)
        await env.land()
        path = f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-proposal-main"
        env.rest.patch(path, {"metadata": {"labels": {"changed-by": "another-client"}}})

        with pytest.raises(ConflictError):
            await env.reconcile(after=2)

        assert len(moved(env)) == 2
        assert env.loop.memory.state is not None
        assert env.loop.memory.state.moved_last_hour(env.clock) == 2

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


# -- splits --


def test_splits_are_offered_and_asked_for_once_approved(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        assert (found["total"], found["totalSplits"]) == (0, 1)
        [shown] = found["splits"]
        assert splits(env) == {}

        ask(env, "approve", found["id"])
        await env.reconcile(after=2)

        [made] = splits(env).values()
        assert made["spec"]["bundle"] == shown["bundle"]
        assert made["spec"]["boundaries"] == shown["boundaries"]
        assert (progress(env)["landed"], proposal(env)["state"]) == (1, "Ready")

    run_policy(LARGE, scenario, **APPROVE, **DIVIDING)


def test_a_split_of_a_bundle_that_moved_meanwhile_is_not_asked_for(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        env.give(found["splits"][0]["bundle"], "b")
        await env.land()

        ask(env, "approve", found["id"])
        await env.reconcile(after=2)

        assert splits(env) == {}
        [failure] = progress(env)["failures"]
        assert (failure["reason"], failure["bundle"]) == ("Conflict", found["splits"][0]["bundle"])

    run_policy(LARGE, scenario, **APPROVE, **DIVIDING)
