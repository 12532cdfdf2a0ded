"""Mode Approve on a real API server: a proposal is offered, waits, and what was shown is what is carried out."""

from __future__ import annotations

import asyncio

import pytest

from approve_mode import APPROVE, annotations, approved, ask, command, destinations, moved, offered, progress, proposal
from faulty_api import until
from odd_sources import Slow
from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from strategy_testing.clusters import NOW, cluster, with_bundles
from trimtab_operator.state.policies import Claim
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver


# -- offering --


def test_a_plan_is_offered_with_what_it_changes_and_costs_and_moves_nothing(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.versions("bundles")

        found = await offered(env)

        assert found["total"] == len(found["moves"]) > 0
        assert found["cpuBefore"]["highest"] > found["cpuAfter"]["highest"]
        assert {r["resource"] for r in found["ranges"]} >= {"cpu", "networkIn", "networkOut"}
        assert {b["broker"] for b in found["brokers"]} == {"a", "b", "c"}
        assert found["cost"] == {"connections": 60 * found["total"], "topics": 6 * found["total"], "unknown": 0}
        assert found["message"].endswith(f"trimtab approve main -n {env.namespace} --proposal {found['id']}")
        assert env.condition("ProposalReady") == ("True", "ProposalReady")
        assert env.condition("Rebalancing") == ("False", "ProposalReady")
        assert env.versions("bundles") == before
        assert env.held_back()["NotApproved"] == found["total"]
        assert [reason for reason, _ in env.events()] == ["ProposalReady"]

    known = with_bundles(HOT, sessions=dict.fromkeys(range(9), 60.0), topics=dict.fromkeys(range(9), 6.0))
    run_policy(known, scenario, **APPROVE)


def test_a_cost_that_is_not_known_is_said_to_be_unknown(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)

        assert found["cost"] == {"connections": 0, "topics": 0, "unknown": found["total"]}

    unknown = with_bundles(HOT, sessions=dict.fromkeys(range(9), float("nan")))
    run_policy(unknown, scenario, **APPROVE)


def test_a_proposal_that_waits_stays_as_it_is_while_cycles_go_on(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        cycle = env.status()["lastCycle"]["time"]

        await env.cycle()
        await env.cycle()

        assert env.status()["lastCycle"]["time"] > cycle
        assert proposal(env) == found
        assert len(env.events()) == 1

    run_policy(HOT, scenario, **APPROVE)


def test_nothing_is_offered_where_nothing_is_to_move(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        await env.cycle()

        assert proposal(env)["state"] == "PendingProposal"
        assert env.condition("ProposalReady") == ("False", "PendingProposal")
        assert env.events() == []

    run_policy(cluster(bundles=2, a=0.5, b=0.5), scenario, **APPROVE)


# -- approving --


def test_approving_carries_out_exactly_what_was_shown(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)

        assert annotations(env) == {}
        assert command(env)[0] == "True"
        assert proposal(env)["state"] == "Rebalancing"
        assert env.condition("Rebalancing") == ("True", "Rebalancing")
        assert moved(env) == destinations(found)

        await env.land()
        await env.reconcile(after=2)

        assert proposal(env)["state"] == "Ready"
        total = found["total"]
        assert (progress(env)["landed"], progress(env)["percent"], progress(env)["failed"]) == (total, 100, 0)
        assert progress(env)["finishedAt"]
        assert moved(env) == destinations(found)
        assert env.memory()["moves"][0][1] == total

    run_policy(HOT, scenario, **APPROVE)


def test_only_so_many_moves_are_open_at_once(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        assert found["total"] >= 3
        open_at_once = []

        for done in range(found["total"]):
            open_at_once.append(len(moved(env)) - done)
            await env.land()
            await env.reconcile(after=2)

        assert open_at_once == [1] * found["total"]
        assert proposal(env)["state"] == "Ready"
        assert progress(env)["done"] == found["total"]

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_progress_is_stored_now_and_then_and_not_at_each_landing(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await approved(env)

        def version() -> str:
            path = f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-proposal-main"
            found: str = env.rest.get(path)["metadata"]["resourceVersion"]
            return found

        before = version()
        await env.land()
        await env.reconcile(after=0.5)
        assert (len(moved(env)), version()) == (2, before)

        await env.reconcile(after=2)
        assert version() != before
        assert progress(env)["landed"] == 1

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_the_rest_of_the_time_is_reported_at_the_pace_so_far(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        await env.land()
        await env.reconcile(after=10)

        done, total = progress(env)["done"], found["total"]
        assert (done, progress(env)["inFlight"]) == (1, 1)
        assert progress(env)["percent"] == 100 // total
        assert progress(env)["timeLeft"] == f"{10 * (total - 1)}s"

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_a_pause_in_the_middle_is_said_and_no_time_is_promised(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        env.edit(paused=True)
        await env.land()
        await env.reconcile(after=10)

        left = found["total"] - 1
        assert progress(env)["waits"] == f"{left} moves held back: the policy is paused"
        assert "timeLeft" not in progress(env)

        env.edit(paused=False)
        await env.reconcile(after=10)
        assert "waits" not in progress(env)
        assert len(moved(env)) == 2

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_the_next_plan_is_offered_once_the_last_one_is_done(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await approved(env)
        await env.land()
        await env.reconcile(after=2)
        assert proposal(env)["state"] == "Ready"

        await env.reconcile(after=3600)

        again = proposal(env)
        assert (again["state"], again["id"] != first["id"]) == ("ProposalReady", True)

    run_policy(HOT, scenario, **eager(maxMovesPerCycle=1) | APPROVE)


def test_a_landing_wakes_the_loop_for_the_next_move(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await approved(env)
        env.cluster.policies.wakers["main"] = env.loop.wake
        env.loop.wake.clear()

        await env.land()

        assert env.loop.wake.is_set()

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_kubectl_waits_for_a_proposal_and_lists_its_state(run_policy: RunPolicy, trimtab_crds: ControlPlane) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await offered(env)

        trimtab_crds.kubectl("-n", env.namespace, "wait", "bpol/main", "--for=condition=ProposalReady", "--timeout=5s")
        listed = trimtab_crds.kubectl("-n", env.namespace, "get", "bpol", "main").splitlines()

        assert "PROPOSAL" in listed[0]
        assert "ProposalReady" in listed[1]

    run_policy(HOT, scenario, **APPROVE)


def test_moves_go_on_and_stop_is_heard_while_prometheus_is_slow(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_operator.loop.cycle.RECONCILE_EVERY", 0.1)

    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        env.source = slow = Slow(env.load)
        measuring = asyncio.create_task(env.cycle())
        await until("the cycle measures", lambda: env.loop.cluster.clock() > NOW + 60)

        await env.land()
        await until("the next move is written", lambda: len(moved(env)) == 2)
        ask(env, "stop")
        await until("it is stopped", lambda: proposal(env)["state"] == "Stopped")
        await env.land()
        slow.answer.set_exception(SourceUnavailableError("it is too slow"))
        await measuring

        assert len(moved(env)) == 2 < found["total"]
        assert env.condition("DataTrusted") == ("False", "SourceUnavailable")
        assert sum(count for _, count in env.memory()["moves"]) == 2

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_what_was_approved_rests_when_an_older_policy_takes_over_in_the_middle_of_a_cycle(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_operator.loop.cycle.RECONCILE_EVERY", 0.05)

    async def scenario(env: PolicyEnvironment) -> None:
        await approved(env)
        env.source = slow = Slow(env.load)
        measuring = asyncio.create_task(env.cycle())
        await until("the cycle measures", lambda: env.loop.cluster.clock() > NOW + 60)
        env.cluster.policies.claims["older"] = Claim("older", "1970")
        env.cluster.share_out()

        await env.land()
        await asyncio.sleep(0.3)
        slow.answer.set_exception(SourceUnavailableError("it is too slow"))
        await measuring

        assert len(moved(env)) == 1
        assert progress(env)["failed"] == 0

    run_policy(HOT, scenario, **eager(maxMovesInFlight=1) | APPROVE)


def test_nothing_is_ready_to_be_approved_while_an_older_policy_has_the_brokers(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)

        env.cluster.policies.claims["older"] = Claim("older", "1970")
        await env.reconcile(after=2)
        assert env.condition("ProposalReady") == ("False", "InvalidPolicy")

        env.cluster.leave("older")
        await env.reconcile(after=2)
        assert env.condition("ProposalReady") == ("True", "ProposalReady")
        assert proposal(env)["id"] == first["id"]

    run_policy(HOT, scenario, **APPROVE)


def test_nothing_is_ready_to_be_approved_of_a_policy_that_cannot_be_run(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first = await offered(env)

        env.edit(interval="0s")
        env.restart()
        await env.reconcile(after=2)
        assert env.condition("ProposalReady") == env.condition("Valid") == ("False", "InvalidPolicy")

        env.edit(interval="30s")
        await env.reconcile(after=2)
        assert env.condition("ProposalReady") == ("True", "ProposalReady")
        assert proposal(env)["id"] != first["id"]

    run_policy(HOT, scenario, **APPROVE)
