"""What comes and goes: brokers that are lost at once, bundles deleted while they move, brokers that never come back."""

from __future__ import annotations

from typing import Any

import pytest

from faulty_api import until
from plan_clusters import HOT_NONE_EMPTY
from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_operator.app import discover_once

pytestmark = pytest.mark.apiserver

FIVE = cluster(bundles=2, a=0.3, b=0.3, c=0.3, d=0.3, e=0.3)
LABELS = {"app": "pulsar"}


async def ready(env: PolicyEnvironment, brokers: str, *, is_ready: bool) -> None:
    for name in brokers:
        env.rest.patch(env.path("brokers", name, "status"), {"status": {"ready": is_ready}})
    await env.seen()


def held_back(env: PolicyEnvironment, reason: str) -> float:
    found = env.cluster.metrics.registry.get_sample_value(
        "trimtab_held_back_total", {"policy": "main", "reason": reason}
    )
    return found or 0.0


def test_a_mass_failure_stops_everything_says_so_everywhere_and_ends_by_itself(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        before = env.desired_owners()
        await ready(env, "abc", is_ready=False)
        await env.reconcile(after=1)
        await env.cycle()

        assert env.desired_owners() == before
        assert env.condition("Ready") == env.condition("Acting") == ("False", "MassFailure")
        told = [note for reason, note in env.events() if reason == "MassFailure"]
        assert any("3 of 5 brokers are lost: their bundles stay where they are" in note for note in told)
        assert any(
            "3 of 5 brokers are not ready, more than 40% (limits.maxLostBrokersPercent)" in note for note in told
        )
        assert held_back(env, "MassFailure") >= 1

        count = len(told)
        await env.cycle()
        assert len([reason for reason, _ in env.events() if reason == "MassFailure"]) == count, "it is told once"

        await ready(env, "abc", is_ready=True)
        await env.cycle()
        assert env.condition("Ready") == ("True", "Cycled")
        assert env.condition("Acting") == ("True", "Acting")
        assert env.desired_owners() == before

    run_policy(FIVE, scenario)


def test_brokers_whose_objects_were_deleted_count_as_a_mass_failure(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.owners()
        for name in "abc":
            env.rest.delete(env.path("brokers", name))
        await env.reconcile()

        await env.reconcile(after=31)

        assert env.owners() == env.desired_owners() == before
        assert ("MassFailure", "3 of 5 brokers are lost: their bundles stay where they are") in env.events()

    run_policy(FIVE, scenario)


async def moving(env: PolicyEnvironment) -> list[str]:
    """Names of the bundles that a cycle moves, on their way."""
    await env.reconcile()
    flying = sorted(env.cluster.pending_moves.open)
    assert flying
    assert env.status()["inFlight"] == len(flying)
    return flying


def test_a_bundle_that_is_deleted_while_it_moves_ends_its_move_and_is_not_created_again(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        gone, *others = await moving(env)
        env.rest.delete(env.path("bundles", gone))
        await env.cycle()
        await env.land()
        await env.cycle()

        assert gone not in env.bundles()
        assert set(others) <= set(env.bundles())
        assert gone not in env.cluster.pending_moves.open
        assert gone not in env.cluster.pending_moves.landed
        assert env.condition("Ready")[0] == "True"
        assert "InternalError" not in {reason for reason, _ in env.events()}

    run_policy(HOT_NONE_EMPTY, scenario)


def test_a_namespace_that_is_deleted_while_its_bundles_move_leaves_nothing_behind(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        flying = await moving(env)
        env.rest.delete(env.path("topicnamespaces", "public-a"))
        spaces = env.cluster.stores.topic_namespaces.items
        await until("the store shows it", lambda: "public-a" not in spaces)
        await env.reconcile(after=1)  # its bundles are still there for a moment
        half = [name for name in env.bundles() if name.startswith("public-a-")]
        for name in half[::2]:
            env.rest.delete(env.path("bundles", name))
        await env.reconcile(after=90)  # past the time-out of the moves
        for name in half[1::2]:
            env.rest.delete(env.path("bundles", name))
        await env.cycle()

        assert flying
        assert not [name for name in env.bundles() if name.startswith("public-a-")]
        assert not set(env.cluster.pending_moves.open) | set(env.cluster.pending_moves.landed)
        assert env.status()["inFlight"] == 0
        assert "InternalError" not in {reason for reason, _ in env.events()}

    run_policy(HOT_NONE_EMPTY, scenario)


async def discovered(env: PolicyEnvironment, name: str) -> None:
    """A pod, and the Broker that is made for it."""
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": LABELS}}
    body["spec"] = {"containers": [{"name": "broker", "image": "none"}]}
    env.rest.create(f"/api/v1/namespaces/{env.namespace}/pods", body)
    await until("the pod is seen", lambda: name in env.cluster.stores.pods.items)
    await look(env)


async def look(env: PolicyEnvironment, *, after: float = 0.0) -> set[str]:
    """Compare pods and Brokers; the Brokers there are then."""
    env.clock += after
    await env.seen()
    env.cluster.share_out()
    await discover_once(env.cluster)
    await env.seen()
    return set(env.versions("brokers"))


def test_a_discovered_broker_is_forgotten_once_its_pod_is_gone_for_good_and_it_owns_nothing(
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        for name in ("idle", "busy", "mine"):
            await discovered(env, name)
        env.rest.patch(env.path("brokers", "mine"), {"spec": {"weight": 2}})
        (kept, *_) = env.bundles()
        env.rest.patch(env.path("bundles", kept, "status"), {"status": {"owner": "busy", "state": "Owned"}})
        for name in ("idle", "busy", "mine"):
            env.rest.delete(f"/api/v1/namespaces/{env.namespace}/pods/{name}?gracePeriodSeconds=0")
        await until("the pods are gone", lambda: not env.cluster.stores.pods.items)

        everybody = {"a", "b", "c", "idle", "busy", "mine"}
        assert await look(env) == everybody
        assert await look(env, after=600) == everybody
        assert await look(env, after=2) == everybody - {"idle"}, "a, b and c were not made by discovery"
        assert await look(env, after=86400) == everybody - {"idle"}

    run_policy(HOT_NONE_EMPTY, scenario, mode="DryRun", brokers={"podLabels": LABELS}, limits={"forgetAfter": "10m"})
