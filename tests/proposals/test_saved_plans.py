"""A saved plan that a person approves is carried out as a proposal is, in modes Approve and Auto."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from approve_mode import APPROVE, annotations, ask, command, moved, offered, progress, proposal
from plan_clusters import HOT, LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, eager
from strategy_testing.clusters import NOW
from trimtab_operator.kube.config_map_store import packed
from trimtab_operator.proposals.saved_plan import MOST_SENT, InvalidPlanError, MovePlan, SavedMove, plan_id, received

pytestmark = pytest.mark.apiserver

AUTO = {"mode": "Auto"}
LONG_AGO = datetime.fromtimestamp(NOW - 3602, UTC)
"""An hour before the plan is read."""


def plan(env: PolicyEnvironment, *moves: tuple[int, str, str], **fields: Any) -> MovePlan:
    """A plan of `moves`: row of a bundle, source, destination."""
    names = env.load.bundles.names
    rows = [SavedMove(bundle=names[row], source=source, destination=to) for row, source, to in moves]
    plain: dict[str, Any] = {"kind": "MovePlan", "namespace": env.namespace, "policy": "main"}
    return MovePlan(**{**plain, "moves": rows, **fields})


def approve(env: PolicyEnvironment, what: MovePlan | str, by: str | None = None) -> str:
    """Approve a plan as `trimtab approve -f` does; the id of the proposal that it becomes."""
    sent = what if isinstance(what, str) else what.sent
    ask(env, "approve", by=by)
    env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"annotations": {"trimtab.dev/plan": sent}}})
    return plan_id(sent)


def wished(env: PolicyEnvironment, **moves: str) -> dict[str, str]:
    """``r0="c"``: the bundle of row 0 goes to c."""
    return {env.names[env.load.bundles.names[int(row[1:])]]: to for row, to in moves.items()}


def test_a_plan_is_carried_out_instead_of_the_proposal_that_waits(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = await offered(env)

        made = approve(env, plan(env, (0, "a", "c"), (1, "a", "c")), by="jane")
        await env.reconcile(after=2)

        assert command(env) == ("True", proposal(env)["message"].replace("proposal", "approve: proposal", 1))
        assert f"proposal {made}, approved by jane, is carried out: 2 moves" in command(env)[1]
        assert (proposal(env)["state"], proposal(env)["id"]) == ("Rebalancing", made != before["id"] and made)
        assert moved(env) == wished(env, r0="c"), "one at a time"
        assert annotations(env) == {}
        found = env.bundles()[env.names[env.load.bundles.names[0]]]["spec"]["assignment"]
        assert (found["policy"], found["reason"]) == ("main", "Approved")

        await env.land()
        await env.reconcile(after=2)
        await env.land()
        await env.reconcile(after=2)

        assert moved(env) == wished(env, r0="c", r1="c")
        assert proposal(env)["state"] == "Ready"
        assert (progress(env)["proposal"], progress(env)["approvedBy"], progress(env)["landed"]) == (made, "jane", 2)

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_in_mode_auto_a_plan_is_carried_out_and_cycles_wait_for_its_end(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        approve(env, plan(env, (0, "a", "b"), (1, "a", "b")))
        await env.reconcile()

        assert command(env)[0] == "True"
        assert moved(env) == wished(env, r0="b")
        assert env.condition("Acting") == ("False", "InFlight")
        assert env.message("Acting") == "an approved plan is being carried out"

        env.restart()
        for _ in range(2):
            await env.land()
            await env.reconcile(after=2)
        assert moved(env) == wished(env, r0="b", r1="b")
        assert progress(env)["finishedAt"]
        assert {"state", "id"}.isdisjoint(proposal(env))

        await env.cycle()
        assert env.condition("Acting")[0] == "True"
        assert len(moved(env)) > 2, "the policy goes on balancing"

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1))


def test_stop_ends_a_plan_in_mode_auto_and_its_reverse_can_follow(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        forth = plan(env, (0, "a", "b"), (2, "b", "a"))
        approve(env, forth)
        await env.reconcile(after=2)
        ask(env, "stop")
        await env.reconcile(after=2)
        assert command(env) == ("True", "stop: 1 move not started; 1 pending moves land or are withdrawn")

        approve(env, forth.undone)
        await env.reconcile(after=2)
        assert command(env)[0] == "False"
        assert "the last proposal still has 1 pending move: wait until they have ended" in command(env)[1]

        await env.land()
        await env.reconcile(after=2)
        assert moved(env) == wished(env, r0="b")
        approve(env, forth.undone)
        for _ in range(3):
            await env.reconcile(after=2)
            await env.land()
        await env.reconcile(after=2)
        assert moved(env) == {}
        assert (progress(env)["landed"], progress(env)["total"]) == (2, 2), "what never left is at its destination"

    run_policy(LEVEL, scenario, **eager(maxMovesInFlight=1))


def test_a_plan_goes_on_when_the_mode_becomes_auto_and_stops_when_it_becomes_dry_run(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        approve(env, plan(env, (0, "a", "b"), (2, "b", "a")))
        await env.reconcile(after=2)
        env.edit(mode="Auto")
        await env.reconcile(after=2)
        assert env.condition("Rebalancing") == ("", "")
        assert progress(env)["inFlight"] == 1

        env.edit(mode="DryRun")
        await env.land()
        await env.reconcile(after=2)
        assert moved(env) == wished(env, r0="b")
        assert progress(env)["finishedAt"]

    run_policy(LEVEL, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_a_move_that_no_longer_fits_is_left_out_with_its_reason(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        names = [env.names[full] for full in env.load.bundles.names]
        env.give(names[0], "c")
        await env.land()
        env.rest.patch(env.path("bundles", names[1]), {"spec": {"pinned": True}})
        env.give(names[2], "c")  # it is on its way
        await env.seen()

        approve(env, plan(env, *((row, "a", "b") for row in range(4))))
        await env.reconcile(after=2)
        await env.land()
        await env.reconcile(after=2)

        failures = {found["bundle"]: (found["reason"], found["detail"]) for found in progress(env)["failures"]}
        assert failures == {
            names[0]: ("Conflict", "it is on c now, and not on a any more"),
            names[1]: ("Pinned", "a person pinned it to a"),
            names[2]: ("InFlight", "it is on its way to c"),
        }
        assert (progress(env)["landed"], env.owners()[names[3]]) == (1, "b")
        assert proposal(env)["state"] == "NotReady"

    run_policy(HOT, scenario, **eager(maxMovesPerCycle=1) | APPROVE)


@pytest.mark.parametrize(
    ("spec", "moves", "fields", "complaint"),
    [
        ({"mode": "DryRun"}, [(0, "a", "b")], {}, "spec.mode is DryRun: it only shows what it would do; set it to App"),
        ({"paused": True}, [(0, "a", "b")], {}, "the policy is paused: resume it first"),
        (AUTO | {"paused": True}, [(0, "a", "b")], {}, "the policy is paused: resume it first"),
        ({}, [], {}, "the plan has no moves"),
        ({}, [(0, "a", "z"), (1, "y", "a")], {}, "brokers that are gone, or that the policy does not select: y, z"),
        ({}, [(0, "a", "b")], {"policy": "other"}, "the plan is for policy other in namespace "),
        ({}, [(0, "a", "b")], {"namespace": "other"}, "the plan is for policy main in namespace other"),
        ({}, [(0, "a", "b")], {"made_at": LONG_AGO}, "was made 1h00m ago, and may be at most 15m00s old (approval."),
    ],
)
def test_a_plan_that_can_not_be_carried_out_is_refused_with_what_to_do(
    spec: dict[str, Any],
    moves: list[tuple[int, str, str]],
    fields: dict[str, Any],
    complaint: str,
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        approve(env, plan(env, *moves, **fields))
        await env.reconcile(after=2)

        assert command(env)[0] == "False"
        assert complaint in command(env)[1]
        assert moved(env) == annotations(env) == {}
        assert [note for reason, note in env.events() if reason == "Refused"] == [command(env)[1]]

    run_policy(LEVEL, scenario, **APPROVE | spec)


def test_a_plan_of_bundles_that_were_split_or_deleted_since_is_refused_with_their_names(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        gone = env.load.bundles.names[0]
        what = plan(env, (0, "a", "b"), (2, "b", "a"))
        env.rest.delete(env.path("bundles", env.names[gone]))
        await env.seen()
        approve(env, what)
        await env.reconcile(after=2)

        assert f"names bundles that were split or deleted, or never existed: {gone}" in command(env)[1]
        assert env.desired_owners() == env.owners()

    run_policy(LEVEL, scenario, **APPROVE)


def test_a_plan_that_is_read_twice_is_carried_out_once(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        what = plan(env, (0, "a", "b"), (2, "b", "a"))
        approve(env, what)
        await env.reconcile(after=2)
        started = progress(env)["startedAt"]

        approve(env, what)
        env.restart()
        await env.reconcile(after=2)
        assert command(env)[0] == "True"
        assert (progress(env)["startedAt"], progress(env)["inFlight"]) == (started, 1)

        approve(env, plan(env, (2, "b", "a")))
        await env.reconcile(after=2)
        assert command(env)[1].endswith("a proposal is being carried out: wait, or stop it first")

    run_policy(LEVEL, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_a_plan_without_its_approval_is_taken_off(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        sent = plan(env, (0, "a", "b")).sent
        env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"annotations": {"trimtab.dev/plan": sent}}})
        await env.reconcile(after=2)
        ask(env, "approve")
        await env.reconcile(after=2)

        assert command(env)[0] == "False"
        assert moved(env) == {}

    run_policy(LEVEL, scenario, **APPROVE)


MOVE = '{"bundle": "x", "source": "a", "destination": "b"}'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is no MovePlan: Invalid JSON"),
        ('{"kind": "Policy", "namespace": "x", "policy": "y", "moves": []}', "kind: Input should be 'MovePlan'"),
        ('{"kind": "MovePlan", "namespace": "x", "policy": 7, "moves": []}', "policy: Input should be a valid string"),
        ('{"kind": "MovePlan", "namespace": "x", "policy": "y", "moves": [], "force": true}', "force: Extra inputs"),
        (f'{{"kind": "MovePlan", "namespace": "x", "policy": "y", "moves": [{MOVE}, {MOVE}]}}', "x is moved twice"),
        (
            f'{{"kind": "MovePlan", "namespace": "x", "policy": "y", "moves": [{MOVE}{f", {MOVE}" * 10_000}]}}',
            "moves: Tuple should have at most 10000 items",
        ),
    ],
)
def test_what_is_sent_is_checked_field_by_field(text: str, complaint: str) -> None:
    with pytest.raises(InvalidPlanError, match=complaint):
        received(packed(text))


@pytest.mark.parametrize("sent", ["", "AAAA", "plan.yaml", "a" * 100, packed("{}")[:-8]])
def test_what_is_not_compressed_json_is_no_plan(sent: str) -> None:
    with pytest.raises(InvalidPlanError):
        received(sent)


def test_ten_thousand_moves_can_be_sent_and_names_without_end_can_not() -> None:
    def many(width: int) -> MovePlan:
        ranges = [f"public/default/0x{k * 7919 % 2**32:08x}_0x{(k + 1) * 7919 % 2**32:08x}" for k in range(10_000)]
        moves = [
            SavedMove(bundle=r if not width else f"{k:0{width}x}", source=f"broker-{k % 40}", destination="broker-41")
            for k, r in enumerate(ranges)
        ]
        return MovePlan(kind="MovePlan", namespace="x", policy="y", moves=tuple(moves))

    sent = many(0).sent
    assert len(sent) <= MOST_SENT
    assert received(sent) == many(0)


def test_a_bundle_that_had_no_owner_has_nowhere_to_go_back_to() -> None:
    move = SavedMove(bundle="x", destination="b")
    with pytest.raises(InvalidPlanError, match="can't be undone for x, which had no owner: leave these moves out"):
        _ = MovePlan(kind="MovePlan", namespace="x", policy="y", moves=(move,)).undone
