"""A policy that is edited, paused, refused, doubled or in trouble: its loop says so, and acts on no old text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odd_sources import Broken, Meanwhile, Silent
from plan_clusters import HOT, LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, RunPolicy
from static_sources import StaticSource
from trimtab_operator.loop.policy_loop import PolicyLoop

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("edit", [{"mode": "DryRun"}, {"paused": True}, {"limits": {"maxMovesPerCycle": 1}}], ids=str)
def test_a_policy_edited_while_its_cluster_is_measured_moves_nothing_by_its_old_text(
    edit: dict[str, Any], run_policy: RunPolicy
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.source = Meanwhile(env.load, lambda: env.edit(**edit))

        await env.reconcile()
        assert env.desired_owners() == env.owners()

        await env.reconcile()
        assert env.status()["observedGeneration"] == 2
        assert env.status()["lastCycle"]["moved"] <= 1

    run_policy(HOT, scenario)


def test_a_policy_paused_by_annotation_while_its_cluster_is_measured_moves_nothing(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        annotation = {"metadata": {"annotations": {"trimtab.dev/paused": "true"}}}
        env.source = Meanwhile(env.load, lambda: env.rest.patch(env.path("balancingpolicies", "main"), annotation))

        await env.reconcile()
        await env.reconcile()

        assert env.desired_owners() == env.owners()
        assert env.condition("Ready") == ("False", "Paused")

    run_policy(HOT, scenario)


def test_a_policy_edited_while_its_status_is_written_is_reported_all_the_same(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        get = env.cluster.api.get

        async def edited_after(*what: Any) -> Any:
            found = await get(*what)
            if env.requests["edited"] < 1:
                env.requests["edited"] += 1
                env.edit(interval="61s")
            return found

        await env.reconcile()
        env.cluster.api.get = edited_after  # type: ignore[method-assign]
        await env.cycle()

        assert env.requests["edited"] == 1
        assert env.status()["lastCycle"]["time"].endswith("Z")

    run_policy(HOT, scenario, mode="DryRun")


def test_a_policy_that_is_refused_writes_its_status_once_and_not_each_turn(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second")
        await env.reconcile()
        await second.reconcile()
        before = env.policy("second")["metadata"]["resourceVersion"]
        env.requests.clear()

        for _ in range(5):
            env.clock += 2
            await second.reconcile()

        assert env.policy("second")["metadata"]["resourceVersion"] == before
        assert env.requests["patch"] == 0
        assert env.condition("Valid", "second") == ("False", "InvalidPolicy")

    run_policy(LEVEL_OF_THREE, scenario)


def test_the_second_policy_goes_on_when_the_first_one_is_deleted(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second")
        await env.reconcile()
        await second.reconcile()
        stopped = asyncio.Event()
        stopped.set()
        await env.loop.run(stopped)

        env.clock += 2
        await second.reconcile()

        assert env.condition("Ready", "second") == ("True", "Cycled")

    run_policy(LEVEL_OF_THREE, scenario)


def test_a_loop_that_ends_late_does_not_deafen_its_successor(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        stop_old, stop_new = asyncio.Event(), asyncio.Event()
        old = asyncio.create_task(env.loop.run(stop_old))
        await asyncio.sleep(0.1)
        fresh = PolicyLoop("main", env.loop.uid, env.cluster, env.loop.read)
        new = asyncio.create_task(fresh.run(stop_new))
        await asyncio.sleep(0.1)

        stop_old.set()
        await old

        assert env.cluster.policies.wakers == {"main": fresh.wake}
        assert "main" in env.cluster.policies.settings
        stop_new.set()
        await new
        assert env.cluster.policies.wakers == {}

    run_policy(LEVEL_OF_THREE, scenario)


def test_a_cancelled_loop_leaves_no_task_behind(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.source = Silent(env.load)
        others = asyncio.all_tasks()
        running = asyncio.create_task(env.loop.run(asyncio.Event()))
        await asyncio.sleep(0.6)  # it waits for the source by now

        running.cancel()
        await asyncio.wait({running})
        await asyncio.sleep(0)

        assert asyncio.all_tasks() <= others

    run_policy(LEVEL_OF_THREE, scenario)


def test_a_defect_is_reported_in_the_policys_status_and_the_next_cycle_goes_on(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.source = Broken(env.load)
        await env.whole_turn()

        assert env.condition("Ready") == ("False", "InternalError")
        assert ("InternalError", "Ready: KeyError: 'cpu'") in [(r, n[:23]) for r, n in env.events()]

        env.source = StaticSource(env.load)
        await env.whole_turn(after=60)
        assert env.condition("Ready") == ("True", "Cycled")

    run_policy(LEVEL_OF_THREE, scenario)


def test_many_failures_of_one_kind_are_a_handful_of_events(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        for name, owner in env.owners().items():
            env.give(name, "c" if owner != "c" else "a")
        await env.reconcile(after=1)
        await env.reconcile(after=120)

        told = [note for reason, note in env.events() if reason == "TimedOut"]
        assert 1 < len(told) <= 6
        assert any("and 4 more" in note for note in told)

    run_policy(HOT, scenario, mode="DryRun")


def test_unowned_bundles_that_no_broker_can_take_are_reported_once(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name in env.load.brokers.names:
            env.rest.patch(env.path("brokers", name), {"spec": {"schedulable": False}})
        orphan = next(iter(env.names.values()))
        env.give(orphan, "")
        env.rest.patch(env.path("bundles", orphan, "status"), {"status": {"owner": ""}})

        for _ in range(3):
            await env.reconcile(after=11)

        told = [note for reason, note in env.events() if reason == "NoCandidate"]
        assert told == ["1 bundles wait: no broker is ready and schedulable"]

        env.rest.patch(env.path("brokers", "b"), {"spec": {"schedulable": True}})
        await env.reconcile(after=11)
        assert env.desired_owners()[orphan] == "b"

    run_policy(LEVEL_OF_THREE, scenario, mode="DryRun")


def test_a_policy_that_is_kept_from_its_cycle_is_in_no_hurry(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        reads = []
        second = env.add_policy("second")
        await env.reconcile()
        read = second.read
        second.read = lambda: reads.append(1) or read()
        stopped = asyncio.Event()
        running = asyncio.create_task(second.run(stopped))
        await asyncio.sleep(1.5)

        assert len(reads) == 1
        stopped.set()
        await running

    run_policy(LEVEL_OF_THREE, scenario)


def test_a_shorter_interval_counts_from_the_edit_and_not_from_the_old_ones_end(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        env.edit(interval="30s")
        await env.reconcile(after=1)
        edited = env.status()["lastCycle"]["time"]
        assert env.status()["observedGeneration"] == 2

        await env.reconcile(after=29)
        assert env.status()["lastCycle"]["time"] == edited

        await env.reconcile(after=1)
        assert env.status()["lastCycle"]["time"] > edited

    run_policy(LEVEL_OF_THREE, scenario, interval="10m")


def test_a_policy_that_names_a_thousand_missing_brokers_still_gets_its_status(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        assert env.condition("Valid") == ("False", "UnknownBroker")
        message = env.message("Valid")
        assert message.endswith(" and 995 more")

    run_policy(LEVEL_OF_THREE, scenario, brokers={"names": [f"{'x' * 50}-{n}" for n in range(1000)]})


def test_brokers_beyond_the_policys_names_are_neither_shed_from_nor_moved_to(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        assert set(env.desired_owners().values()) == {"a", "b"}
        brokers = env.rest.get(env.path("brokers"))["items"]
        assert {b["metadata"]["name"] for b in brokers if b["status"].get("load")} == {"a", "b"}

    run_policy(HOT, scenario, brokers={"names": ["a", "b"]})
