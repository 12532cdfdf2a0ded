"""Deleted objects, edited policies and clock jumps: nothing is lost, and nothing moves too early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from faulty_api import until
from odd_sources import Counting, Silent
from plan_clusters import HOT, LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, RunPolicy
from records import moving_bundle
from strategy_testing.clusters import cluster
from trimtab_operator.state.pending_moves import PendingMoves

pytestmark = pytest.mark.apiserver

LABELS = {"app": "pulsar"}


def test_the_bundles_of_a_deleted_broker_get_other_owners(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        orphans = [name for name, owner in env.owners().items() if owner == "a"]
        assert orphans

        env.rest.delete(env.path("brokers", "a"))
        await env.reconcile(after=1)
        assert env.owners()[orphans[0]] == "a", "not before lostAfter"
        for _ in range(3):
            await env.reconcile(after=31)
            await env.land()

        assert all(owner in {"b", "c"} for owner in env.owners().values())
        assert env.desired_owners() == env.owners()

    run_policy(LEVEL_OF_THREE, scenario)


@pytest.mark.parametrize(
    "spec",
    [{"brokers": {"podLabels": LABELS}}, {"pulsar": {"adminUrl": "http://pulsar:8080"}}],
    ids=["labels", "Pulsar"],
)
def test_a_policy_whose_brokers_are_discovered_does_not_complain_before_they_can_be_found(
    run_policy: RunPolicy, spec: dict[str, Any]
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name in env.load.brokers.names:
            env.rest.delete(env.path("brokers", name))
        await env.reconcile(after=1)
        assert env.events() == []

        await env.reconcile(after=31)
        assert [reason for reason, _ in env.events()] == ["NoBrokers"]

    run_policy(LEVEL_OF_THREE, scenario, **spec)


def test_brokers_that_were_just_found_have_some_seconds_to_become_ready(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name in env.load.brokers.names:
            env.rest.patch(env.path("brokers", name, "status"), {"status": {"ready": False}})
        await env.reconcile(after=1)
        assert env.events() == []

        await env.reconcile(after=31)
        assert [reason for reason, _ in env.events()] == ["MassFailure"]

    run_policy(LEVEL_OF_THREE, scenario, brokers={"podLabels": LABELS})


def test_the_bundles_of_one_of_two_brokers_go_to_the_other_when_it_is_lost(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.patch(env.path("brokers", "b", "status"), {"status": {"ready": False}})
        for _ in range(3):
            await env.reconcile(after=31)
            await env.land()

        assert set(env.owners().values()) == {"a"}

    run_policy(cluster(bundles=2, a=0.5, b=0.5), scenario)


def test_when_every_broker_object_is_gone_no_bundle_is_touched(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        before = env.versions("bundles")

        for name in env.load.brokers.names:
            env.rest.delete(env.path("brokers", name))
        for _ in range(3):
            await env.reconcile(after=31)

        assert env.versions("bundles") == before
        assert [reason for reason, _ in env.events()] == ["NoBrokers"]

    run_policy(LEVEL_OF_THREE, scenario)


def test_a_wall_clock_that_jumps_ahead_makes_no_broker_lost_and_no_move_overdue(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        env.rest.patch(env.path("brokers", "c", "status"), {"status": {"ready": False}})
        await env.reconcile(after=1)
        before = env.desired_owners()

        env.wall_step += 3600
        await env.reconcile(after=1)

        assert env.desired_owners() == before
        assert not {reason for reason, _ in env.events()} & {"TimedOut", "Assigned", "BrokerLost"}

    run_policy(HOT, scenario)


def test_a_wall_clock_that_jumps_back_does_not_stop_the_cycles(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        first = env.status()["lastCycle"]["time"]

        env.wall_step -= 3600
        await env.cycle()

        assert env.status()["lastCycle"]["time"] < first

    run_policy(LEVEL_OF_THREE, scenario)


def test_while_the_source_is_silent_unowned_bundles_get_owners_and_the_cycle_gives_up(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_operator.loop.cycle.MEASURE_WITHIN", 1.0)
    monkeypatch.setattr("trimtab_operator.loop.cycle.RECONCILE_EVERY", 0.1)
    monkeypatch.setattr("trimtab_operator.reconcile.bundles.ASSIGN_WITHIN", 0.1)

    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        env.source = Silent(env.load)
        [orphan] = [name for name, owner in env.owners().items() if owner == "b"][:1]
        env.give(orphan, "")
        env.rest.patch(env.path("bundles", orphan, "status"), {"status": {"owner": "", "state": "Free"}})

        await env.cycle()

        assert env.desired_owners()[orphan]
        assert env.condition("DataTrusted") == ("False", "SourceUnavailable")

    run_policy(LEVEL_OF_THREE, scenario)


def test_a_bundle_whose_namespace_is_gone_asks_for_no_measurement(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        stray = next(iter(env.names.values()))
        await env.reconcile()
        env.give(stray, "")
        env.rest.patch(env.path("bundles", stray, "status"), {"status": {"owner": ""}})
        env.rest.delete(env.path("topicnamespaces", "public-a"))
        await env.seen()
        counting = Counting(env.load)
        env.source = counting

        for _ in range(3):
            await env.reconcile(after=11)

        assert counting.looks == 0
        assert env.desired_owners()[stray] == ""

    run_policy(LEVEL_OF_THREE, scenario)


def test_outcomes_that_no_one_asks_for_do_not_pile_up() -> None:
    pending_moves = PendingMoves()
    for generation in range(30_000):
        pending_moves.update(moving_bundle(generation=generation, destination=f"y{generation}"), None, now=0)

    assert len(list(pending_moves.outcomes())) <= 10_000


def test_a_burst_of_changes_makes_one_turn(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        turns = Counting(env.load)
        env.source = turns
        env.clock += 1
        stopped = asyncio.Event()
        running = asyncio.create_task(env.loop.run(stopped))
        for name in env.names.values():
            env.rest.patch(env.path("bundles", name), {"spec": {"owner": ""}})
            env.rest.patch(env.path("bundles", name, "status"), {"status": {"owner": ""}})
            await asyncio.sleep(0)
        await until("every bundle has a desired owner", lambda: all(env.desired_owners().values()))

        assert turns.looks <= 3
        stopped.set()
        await running

    run_policy(LEVEL_OF_THREE, scenario)
