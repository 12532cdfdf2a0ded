"""What changes hands with the lead: an ever larger epoch, and what strategies remember; on a real API server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from plan_clusters import HOT, LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, clusters_of
from static_sources import StaticSource
from strategy_testing.clusters import cluster
from trimtab_operator import leadership
from trimtab_operator.aio import ended
from trimtab_operator.kube.leader_election import LAST_EPOCH, LeaseLostError
from trimtab_operator.leadership import announce
from trimtab_operator.namespace_admission import unused_epoch
from trimtab_strategies.model import ClusterLoad
from trimtab_testbed.servers.kube_rest import KubeApiError

pytestmark = pytest.mark.apiserver

PATIENT = {
    "type": "TransferShedder",
    "transferShedder": {"hitCount": 4, "historyPercent": 0, "delay": "0s"},
}


def assign(env: PolicyEnvironment, name: str, epoch: int) -> None:
    """A leader of that epoch confirms the bundle's present owner."""
    owner = env.desired_owners()[name]
    assignment = {"owner": owner, "epoch": epoch, "reason": "Overloaded", "time": "2026-01-31T12:00:00Z"}
    env.rest.patch(env.path("bundles", name), {"spec": {"owner": owner, "assignment": assignment}})


def moves(env: PolicyEnvironment) -> dict[str, str]:
    """Bundles whose desired owner is not their first owner, and their desired owners."""
    load = env.load
    first = {
        env.names[full]: load.brokers.names[owner]
        for full, owner in zip(load.bundles.names, load.bundles.owner.tolist(), strict=True)
    }
    return {name: owner for name, owner in env.desired_owners().items() if owner != first[name]}


def exchanged(load: ClusterLoad) -> ClusterLoad:
    """The load with its first two brokers in each other's place."""
    rows = [1, 0, *range(2, len(load.brokers))]
    brokers = replace(load.brokers, usage=load.brokers.usage[rows], traffic=load.brokers.traffic[rows])
    return replace(load, brokers=brokers)


def lead(env: PolicyEnvironment, identity: str, epoch: int) -> None:
    """Another process leads from now on, and knows nothing but what the API server holds."""
    env.restart()
    env.cluster.process.leader, env.cluster.process.epoch = identity, epoch


def test_no_one_ever_wrote_and_the_first_epoch_is_1(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        assert await unused_epoch(env.cluster) == 1

    run_policy(LEVEL, scenario)


def test_an_unused_epoch_is_above_what_bundles_carry_though_all_memory_is_gone(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first, *_ = env.names.values()
        assign(env, first, 41)
        await env.seen()

        assert await unused_epoch(env.cluster) == 42

    run_policy(LEVEL, scenario)


def test_an_epoch_that_none_can_follow_does_not_count(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first, second, *_ = env.names.values()
        assign(env, first, LAST_EPOCH)
        assign(env, second, 6)
        await env.seen()

        assert await unused_epoch(env.cluster) == 7

    run_policy(LEVEL, scenario)


def test_an_unused_epoch_is_above_that_of_a_leader_who_wrote_no_bundle(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        lead(env, "x", 7)
        await env.reconcile()
        assert env.memory()["epoch"] == 7

        assert await unused_epoch(env.cluster) == 8

    run_policy(LEVEL, scenario)


def test_every_assignment_and_memory_carries_the_leaders_epoch_and_the_policy_says_who_leads(
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        lead(env, "replica-x", 7)
        await env.reconcile()

        moved = [
            found["spec"]["assignment"]["epoch"] for found in env.bundles().values() if "assignment" in found["spec"]
        ]
        assert moved
        assert set(moved) == {7}
        [told] = [c for c in env.status()["conditions"] if c["type"] == "Led"]
        assert (told["status"], told["message"]) == ("True", "replica-x leads, epoch 7")

    run_policy(HOT, scenario)


def test_the_api_server_refuses_an_assignment_of_an_earlier_epoch(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first, *_ = env.names.values()
        assign(env, first, 5)
        assign(env, first, 5)

        with pytest.raises(KubeApiError, match=r"assignment\.epoch must not decrease"):
            assign(env, first, 4)

        assign(env, first, 6)

    run_policy(LEVEL, scenario)


def test_a_person_may_still_move_a_bundle_and_take_the_assignment_away(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        first, *_ = env.names.values()
        assign(env, first, 5)

        env.give(first, "b")
        env.rest.patch(env.path("bundles", first), {"spec": {"assignment": None}})
        assign(env, first, 1)

        assert env.desired_owners()[first] == "b"

    run_policy(LEVEL, scenario)


def test_a_late_leader_learns_that_its_move_was_refused(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name in env.names.values():
            assign(env, name, 9)
        await env.land()
        lead(env, "late", 8)

        await env.cycle()

        assert env.desired_owners() == env.owners()
        assert any("a leader of a higher epoch than 8" in note for reason, note in env.events() if reason == "Deposed")

    run_policy(HOT, scenario, limits={"coolDown": "1s"})


def test_hits_that_one_leader_counted_count_for_the_next(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        lead(env, "x", 1)
        await env.reconcile()
        await env.cycle()
        assert env.memory()["shedder"]["hits"] == 2

        lead(env, "y", 2)
        await env.cycle()
        assert env.memory()["shedder"]["hits"] == 3
        assert env.desired_owners() == env.owners()

        await env.cycle()
        assert moves(env)  # more than three in a row; a leader who forgets would have seen two

    run_policy(HOT, scenario, shedder=PATIENT)


def test_a_bundle_that_one_leader_moved_cools_down_under_the_next(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        lead(env, "x", 1)
        await env.reconcile()
        moved = moves(env)
        await env.land()
        env.source = StaticSource(exchanged(env.load))

        lead(env, "y", 2)
        await env.reconcile(after=120)

        assert moved
        assert moves(env) == moved
        assert env.held_back()["CoolDown"] == len(moved)

    run_policy(cluster(bundles={"a": [1] * 8, "b": []}, a=0.8, b=0.2), scenario)


def test_beginning_to_lead_is_reported_by_an_event_on_the_lease_and_a_metric(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        lease: Any = env.rest.create(
            f"/apis/coordination.k8s.io/v1/namespaces/{env.namespace}/leases",
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "trimtab"}, "spec": {}},
        )
        lead(env, "x", 3)

        await announce(clusters_of(env.cluster), lease)

        assert ("LeaderElected", "x leads, epoch 3") in env.events()
        assert b"trimtab_leader 1.0" in env.cluster.metrics.text()

    run_policy(LEVEL, scenario)


def test_a_process_that_lost_the_lease_does_not_lead_on_its_page_while_it_ends(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "END_WITHIN", 3600.0)  # this process goes on

    async def scenario(env: PolicyEnvironment) -> None:
        clusters, stop = clusters_of(env.cluster), asyncio.Event()
        clusters.metrics.leader.set(1)

        async def keep() -> None:
            raise LeaseLostError("taken over")

        elector: Any = SimpleNamespace(
            keep=keep,
            fence=SimpleNamespace(left=1.0),
            claim=lambda _: asyncio.Event().wait(),
            namespace=env.namespace,
            candidacy=SimpleNamespace(name="trimtab"),
            epoch=0,
        )
        leading = asyncio.create_task(leadership.lead(env.cluster.api, clusters, elector, stop, lambda _: {}))
        await stop.wait()
        assert b"trimtab_leader 0.0" in env.cluster.metrics.text()
        await ended(leading)

    run_policy(LEVEL, scenario)
