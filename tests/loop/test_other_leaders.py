"""Leaders with different Leases in one Kubernetes namespace: who is deposed, who stands down, and what people see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from plan_clusters import HOT, LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, clusters_of
from trimtab_operator import leadership
from trimtab_operator.kube.client import Api
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.leader_election import Candidacy, Elector
from trimtab_operator.namespace_admission import NamespaceAdmission, unused_epoch
from trimtab_operator.state.other_leaders import AT_LEAST, CLAIM_EVERY, SETTLE, Term

US, THEM = "ops/trimtab", "laptop/mine"

pytestmark = pytest.mark.apiserver


def told(env: PolicyEnvironment, who: str, *, status: str = "True", reason: str = "Elected") -> None:
    """Another leader writes this message of `Led`, and its cycle."""
    now = "2026-01-31T12:00:00Z"
    led = {"type": "Led", "status": status, "reason": reason, "message": who, "lastTransitionTime": now}
    others = [c for c in env.status().get("conditions", []) if c["type"] != "Led"]
    body = {"conditions": [*others, led], "lastCycle": {"seconds": 1.0, "outcome": "Balanced", "time": stamp(env)}}
    env.rest.patch(env.path("balancingpolicies", "main", "status"), {"status": body})


def stamp(env: PolicyEnvironment) -> str:
    return timestamp(env.clock)


@asynccontextmanager
async def beginning(env: PolicyEnvironment, epoch: int = 1) -> AsyncIterator[tuple[NamespaceAdmission, asyncio.Event]]:
    """The admission of a leader `us` that holds its Lease, and the flag that ends its term."""
    fence, stop, clusters = Fence(), asyncio.Event(), clusters_of(env.cluster)
    rules = Candidacy("trimtab", "us", duration=30, deadline=20, retry=0.2)
    async with Api.connect(env.kubeconfig, patience=0) as api:
        elector = Elector(api, env.namespace, rules, fence)
        assert await elector.attempt()
        process = clusters.process
        process.leader, process.lease, process.epoch = "us", US, await elector.claim(epoch)
        admission = NamespaceAdmission(clusters, elector, stop, lambda _: {})
        try:
            yield admission, stop
        finally:
            await admission.end()


def assigned(env: PolicyEnvironment, epoch: int) -> str:
    """A leader of that epoch confirms the owner of the first bundle."""
    name = next(iter(env.names.values()))
    owner = env.desired_owners()[name]
    assignment = {"owner": owner, "epoch": epoch, "reason": "Overloaded", "time": "2026-01-31T12:00:00Z"}
    env.rest.patch(env.path("bundles", name), {"spec": {"owner": owner, "assignment": assignment}})
    return name


def test_a_leader_that_finds_a_higher_epoch_ends_its_term_and_the_status_says_why(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        async with beginning(env) as (admission, stop):
            await admission.look()
            await env.reconcile()
            assert env.condition("Led") == ("True", "Elected")
            name = assigned(env, 41)
            await env.seen()

            await admission.look()
            await env.cycle()  # what its loop still does

        assert stop.is_set()
        for kind in ("Led", "Acting", "Ready"):
            assert env.condition(kind) == ("False", "Deposed")
        assert env.message("Led").startswith(f"Bundle {name} carries epoch 41, and ours is 1: another leader wrote it")
        assert not [note for reason, note in env.events() if reason == "InternalError"]

    run_policy(HOT, scenario)


def test_the_leader_after_a_deposed_one_claims_a_higher_epoch_and_says_that_another_wrote_here(
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        assigned(env, 41)
        told(env, "Bundle x carries epoch 41", status="False", reason="Deposed")
        await env.seen()

        async with beginning(env, epoch=6) as (admission, stop):
            await admission.look()
            await env.reconcile()

            assert env.cluster.process.epoch == 42
            assert env.message("Led").startswith(
                "us leads, epoch 42, with the Lease ops/trimtab; epoch 41 was found here"
            )
            assert env.condition("Led") == ("True", "Elected")
            assert not stop.is_set()

    run_policy(HOT, scenario)


def test_a_leader_claims_an_epoch_above_all_bundles_before_it_begins(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        assigned(env, 41)
        await env.seen()
        async with Api.connect(env.kubeconfig, patience=0) as api:
            elector = Elector(api, env.namespace, Candidacy("trimtab", "us", duration=30, deadline=20), Fence())
            assert await elector.attempt()

            assert await leadership._begin(clusters_of(env.cluster), elector) == {env.namespace}

        lease = env.rest.get(f"/apis/coordination.k8s.io/v1/namespaces/{env.namespace}/leases/trimtab")
        assert (env.cluster.process.epoch, elector.epoch, lease["spec"]["leaseTransitions"]) == (42, 42, 42)
        assert env.cluster.process.term == Term("us", 42, f"{env.namespace}/trimtab")

    run_policy(LEVEL, scenario)


def test_who_begins_just_after_a_leader_was_deposed_waits_for_an_active_one(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        led = {"type": "Led", "status": "False", "reason": "Deposed", "message": "x", "lastTransitionTime": stamp(env)}
        env.rest.patch(env.path("balancingpolicies", "main", "status"), {"status": {"conditions": [led]}})
        async with beginning(env) as (admission, _):
            await admission.look()
            assert not admission.tasks

            env.clock += SETTLE
            await admission.look()

            assert admission.tasks

    run_policy(LEVEL, scenario)


def test_who_begins_while_another_leader_is_active_stands_down_and_names_both(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        told(env, f"laptop_1 leads, epoch 7, with the Lease {THEM}")
        before = env.bundles()
        async with beginning(env, epoch=3) as (admission, _):
            for _ in range(3):
                await admission.look()

            assert not admission.tasks
            assert env.condition("CompetingBalancer") == ("True", "OtherLeader")
            text = env.message("CompetingBalancer")
            assert text.startswith(
                f"laptop_1 leads, epoch 7, with the Lease {THEM}; us, with the Lease {US}, stands down"
            )
            assert "--lease-name" in text
            assert env.message("Led").startswith("laptop_1 leads")
            assert env.cluster.process.epoch == 3
            env.clock += CLAIM_EVERY
            await admission.look()
            assert env.message("CompetingBalancer") != text  # so the active leader sees that it still runs

            env.clock += AT_LEAST + 180
            await admission.look()

            assert admission.tasks
            assert env.cluster.process.epoch == 8
            assert env.condition("CompetingBalancer") == ("False", "Alone")
            await env.reconcile()
            assert "epoch 8, with the Lease ops/trimtab; laptop_1 led here before, with the Lease" in env.message("Led")
        assert env.bundles() == before

    run_policy(LEVEL, scenario)


def test_of_two_active_leaders_the_one_of_the_higher_epoch_goes_on(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        async with beginning(env, epoch=5) as (admission, stop):
            await admission.look()
            await env.reconcile()
            told(env, f"them leads, epoch 4, with the Lease {THEM}")
            await env.reconcile()
            await admission.look()
            assert env.message("Led") == "us leads, epoch 5, with the Lease ops/trimtab"
            assert not stop.is_set()

            told(env, f"them leads, epoch 6, with the Lease {THEM}")
            moved = env.desired_owners()
            await env.cycle()
            await admission.look()

            assert stop.is_set()
            assert env.desired_owners() == moved
            assert env.message("Led").startswith(f"them leads, epoch 6, with the Lease {THEM}, and our epoch is 5")

    run_policy(HOT, scenario)


def test_an_active_leader_takes_back_what_a_deposed_one_wrote(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        async with beginning(env, epoch=6) as (admission, _):
            await admission.look()
            await env.reconcile()
            told(
                env,
                "us leads, epoch 6, with the Lease ops/trimtab, and our epoch is 5",
                status="False",
                reason="Deposed",
            )

            await env.reconcile(after=2)

            assert env.condition("Led") == ("True", "Elected")

    run_policy(LEVEL, scenario)


def test_the_active_leader_keeps_the_word_of_one_that_stands_down_until_that_one_is_gone(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        async with beginning(env, epoch=6) as (admission, _):
            await admission.look()
            await env.reconcile()
            claim = {"type": "CompetingBalancer", "status": "True", "reason": "OtherLeader", "message": "b stands down"}
            conditions = [*env.status()["conditions"], {**claim, "lastTransitionTime": stamp(env)}]
            env.rest.patch(env.path("balancingpolicies", "main", "status"), {"status": {"conditions": conditions}})

            await env.cycle()
            await env.cycle()
            assert env.condition("CompetingBalancer") == ("True", "OtherLeader")

            for _ in range(3):
                await env.cycle()
            assert env.condition("CompetingBalancer") == ("False", "Alone")

    run_policy(LEVEL, scenario)


def test_a_refused_move_is_told_as_the_decision_of_another_leader_without_a_url(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name in env.names.values():
            owner = env.desired_owners()[name]
            assignment = {"owner": owner, "epoch": 9, "reason": "Overloaded", "time": "2026-01-31T12:00:00Z"}
            env.rest.patch(env.path("bundles", name), {"spec": {"owner": owner, "assignment": assignment}})
        await env.land()
        env.cluster.process.leader, env.cluster.process.epoch = "late", 8

        await env.cycle()

        refused = [note for reason, note in env.events() if reason == "Deposed"]
        assert refused
        assert not [note for reason, note in env.events() if reason == "InternalError" or "://" in note or "?" in note]
        assert all("a leader of a higher epoch than 8 has already decided" in note for note in refused[:1])
        assert env.held_back()["Deposed"] >= 1

    run_policy(HOT, scenario, limits={"coolDown": "1s"})


def test_an_epoch_in_the_word_of_another_leader_counts_as_used(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        told(env, f"them leads, epoch 11, with the Lease {THEM}")
        env.cluster.process.lease = US

        assert await unused_epoch(env.cluster) == 12

    run_policy(LEVEL, scenario)
