"""While another balancer may act on the Pulsar cluster, a policy only advises."""

from __future__ import annotations

import asyncio
import json

import pytest

from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from restarting_pods import RestartingPods
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.pulsar_link import OwnBalancerState, PulsarLink
from trimtab_operator.status.conditions import pulsar_balancer_active, steered

PULSAR = {"pulsar": {"adminUrl": "http://pulsar:8080"}}
ONE_UNDONE = eager(maxUndoneMoves=1)
SPEC = PulsarSpec(admin_url="http://pulsar:8080")


def seen(env: PolicyEnvironment, state: OwnBalancerState) -> None:
    """What the bridge knows once it has looked."""
    link = env.cluster.link
    link.lead_to(SPEC, "main")
    link.problem, link.own_balancer = "", state
    link.ids = {name: f"{name}:8080" for name in ("a", "b", "c")}


def wished_elsewhere(env: PolicyEnvironment) -> int:
    return sum(bundle["metadata"]["generation"] > 1 for bundle in env.bundles().values())


@pytest.mark.parametrize(
    ("held", "condition"),
    [
        (True, ("True", "PulsarBalancerDisabled")),
        (False, ("False", "PulsarBalancerActive")),
        (None, ("Unknown", "NotVerified")),
    ],
)
def test_the_condition_says_who_balances(held: bool | None, condition: tuple[str, str]) -> None:  # noqa: FBT001
    link = PulsarLink(spec=SPEC, own_balancer=OwnBalancerState(held, "so it is"))
    (found,) = steered([], link, 3, 0.0)
    assert (found["status"], found["reason"]) == condition
    assert pulsar_balancer_active(link) == ("" if held else "so it is")


def test_without_pulsar_nothing_is_said() -> None:
    told = steered([], PulsarLink(spec=SPEC), 1, 0.0)
    assert steered(told, PulsarLink(), 2, 0.0) == []
    assert pulsar_balancer_active(PulsarLink()) == ""


@pytest.mark.apiserver
def test_nothing_moves_while_pulsars_own_balancer_is_active(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        seen(env, OwnBalancerState(disabled=False, text="shedding is on at a"))
        await env.cycle()
        assert wished_elsewhere(env) == 0
        assert env.condition("PulsarBalancerDisabled") == ("False", "PulsarBalancerActive")
        assert env.condition("Acting") == ("False", "PulsarBalancerActive")
        assert ("PulsarBalancerActive", "PulsarBalancerDisabled: shedding is on at a") in env.events()

        seen(env, OwnBalancerState(disabled=True, text="off"))
        await env.cycle()
        assert wished_elsewhere(env)
        assert env.condition("PulsarBalancerDisabled") == ("True", "PulsarBalancerDisabled")

    run_policy(HOT, scenario, **PULSAR)


@pytest.mark.apiserver
def test_an_approval_is_refused_and_an_approved_move_is_not_begun(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        seen(env, OwnBalancerState(disabled=False, text="shedding is on at a"))
        await env.cycle()
        assert env.condition("ProposalReady")[0] == "True"

        def approve() -> None:
            body = {"metadata": {"annotations": {"trimtab.dev/rebalance": "approve"}}}
            env.rest.patch(env.path("balancingpolicies", "main"), body)

        approve()
        await env.reconcile(after=1)
        assert env.condition("CommandTaken")[0] == "False"
        assert "shedding is on at a" in json.dumps(env.status()["conditions"])
        assert wished_elsewhere(env) == 0

        seen(env, OwnBalancerState(disabled=True, text="off"))
        approve()
        await env.reconcile(after=1)
        assert env.condition("CommandTaken")[0] == "True"
        begun = wished_elsewhere(env)
        assert begun

        seen(env, OwnBalancerState(disabled=False, text="somebody switched it on"))
        await asyncio.sleep(0)
        await env.land()
        await env.reconcile(after=1)
        assert wished_elsewhere(env) == begun

    run_policy(HOT, scenario, mode="Approve", limits={"maxMovesInFlight": 1}, **PULSAR)


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("pulsar", "advice", "unfounded"),
    [
        (PULSAR, "Pulsar's own shedding and automatic split are off on 3 brokers", "switch off"),
        ({}, "switch off the brokers' own shedding", "automatic split are off"),
    ],
    ids=["verified", "not known"],
)
def test_who_undoes_moves_is_not_searched_for_where_it_is_verified_off(
    run_policy: RunPolicy, pulsar: dict[str, object], advice: str, unfounded: str
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await RestartingPods(env).all_serve()
        if pulsar:
            seen(
                env,
                OwnBalancerState(disabled=True, text="Pulsar's own shedding and automatic split are off on 3 brokers"),
            )
        await env.reconcile()
        moved = min(name for name, desired in env.desired_owners().items() if desired != env.owners()[name])
        await env.land()
        await env.reconcile(after=1)
        env.rest.patch(env.path("bundles", moved, "status"), {"status": {"owner": "a", "state": "Owned"}})
        await env.reconcile(after=1)

        assert env.condition("CompetingBalancer") == ("True", "CompetingBalancer")
        note = next(note for reason, note in env.events() if reason == "CompetingBalancer")
        condition = env.message("CompetingBalancer")
        assert f"{moved} went back to a" in note
        assert advice in note
        assert unfounded not in note + condition

    run_policy(HOT, scenario, **{**ONE_UNDONE, **pulsar})
