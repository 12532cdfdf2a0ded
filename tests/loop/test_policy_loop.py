"""The policy's loop on a real API server: what a turn writes, what it tells, and what it leaves alone."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from odd_sources import Meanwhile
from plan_clusters import HOT, LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, eager
from static_sources import StaticSource
from strategy_testing.clusters import cluster
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.loop.preview import preview
from trimtab_strategies.model import ClusterLoad

pytestmark = pytest.mark.apiserver


def moves(env: PolicyEnvironment) -> dict[str, str]:
    """Bundle -> destination of those whose desired owner is not their first owner."""
    first = {
        env.names[full]: env.load.brokers.names[owner]
        for full, owner in zip(env.load.bundles.names, env.load.bundles.owner.tolist(), strict=True)
    }
    return {name: owner for name, owner in env.desired_owners().items() if owner != first[name]}


def swapped(load: ClusterLoad, one: str, other: str) -> ClusterLoad:
    """The load with two brokers in each other's place: what one carried, the other is measured to carry."""
    rows = list(range(len(load.brokers)))
    i, j = load.brokers.index[one], load.brokers.index[other]
    rows[i], rows[j] = j, i
    brokers = replace(load.brokers, usage=load.brokers.usage[rows], traffic=load.brokers.traffic[rows])
    return replace(load, brokers=brokers)


def test_an_overloaded_broker_sheds_and_all_of_it_is_reported(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        moved = moves(env)
        assert moved
        for name in moved:
            assignment = env.bundles()[name]["spec"]["assignment"]
            assert assignment == {
                "owner": moved[name],
                "policy": "main",
                "epoch": 1,
                "reason": "Overloaded",
                "time": timestamp(env.clock),
            }
        status = env.status()
        assert status["lastCycle"]["moved"] == status["proposal"]["total"] == len(moved)
        assert {m["bundle"]: m["destination"] for m in status["proposal"]["moves"]} == moved
        assert env.condition("Balanced") == ("False", "Overloaded")
        assert env.condition("Ready") == ("True", "Cycled")
        assert [reason for reason, _ in env.events()] == ["Overloaded"]

    run_policy(HOT, scenario)


def test_dry_run_shows_the_moves_and_touches_no_bundle(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.versions("bundles")

        await env.reconcile()
        await env.cycle()

        assert env.status()["proposal"]["total"] > 0
        assert env.status()["lastCycle"]["moved"] == 0
        assert env.versions("bundles") == before
        assert env.events() == []

    run_policy(HOT, scenario, mode="DryRun")


def test_a_bundle_that_another_client_changed_meanwhile_keeps_that_change(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        foreseen = await preview(env.cluster, "main")
        first, *others = [env.names[move.bundle] for move in foreseen.plan.moves]
        assert others
        env.source = Meanwhile(env.load, lambda: env.give(first, "b"))

        await env.reconcile()

        bundles = env.bundles()
        assert (bundles[first]["spec"]["owner"], bundles[first]["spec"].get("assignment")) == ("b", None)
        assert set(moves(env)) == {first, *others}
        assert env.held_back()["Conflict"] == 1
        [note] = [note for reason, note in env.events() if reason == "Conflict"]
        assert first in note

        await env.land()
        await env.cycle()
        assert "Conflict" not in env.held_back()
        assert env.condition("Ready") == ("True", "Cycled")

    run_policy(HOT, scenario)


def test_a_bundle_that_was_deleted_meanwhile_is_dropped_and_the_others_move(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        foreseen = await preview(env.cluster, "main")
        first, *others = [env.names[move.bundle] for move in foreseen.plan.moves]
        env.source = Meanwhile(env.load, lambda: env.rest.delete(env.path("bundles", first)))

        await env.reconcile()

        assert first not in env.bundles()
        assert set(moves(env)) == set(others)
        assert [reason for reason, note in env.events() if first in note and "not moved" in note] == ["Conflict"]

    run_policy(HOT, scenario)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"maxMovesPerCycle": 1}, "CycleCap"),
        ({"maxMovesPerBroker": 1}, "BrokerCap"),
        ({"maxMovesPerHour": 1}, "HourCap"),
    ],
    ids=str,
)
def test_a_cap_ends_the_moves_and_is_reported(limits: dict[str, int], reason: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        assert len(moves(env)) == 1
        assert env.held_back()[reason] >= 1

    run_policy(HOT, scenario, **eager(**limits))


def test_the_hours_moves_still_count_after_a_restart(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert len(moves(env)) == 1
        await env.land()

        env.restart()
        await env.cycle()

        assert len(moves(env)) == 1
        assert env.memory()["epoch"] == 2
        assert env.held_back()["HourCap"] >= 1

    run_policy(HOT, scenario, **eager(maxMovesPerHour=1, coolDown="1s"))


def test_a_move_whose_answer_was_lost_counts(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.wall_step = time.time() - env.clock  # bundles and policy tell of one and the same time
        await env.loop.memory.recall()
        name = next(name for name, owner in env.owners().items() if owner != "a")
        chosen = {
            "owner": "a",
            "policy": "main",
            "epoch": 1,
            "reason": "Overloaded",
            "time": timestamp(env.cluster.now()),
        }
        env.rest.patch(env.path("bundles", name), {"spec": {"owner": "a", "assignment": chosen}})
        await env.land()

        await env.reconcile()

        assert moves(env) == {name: "a"}
        assert env.held_back()["HourCap"] >= 1

    run_policy(HOT, scenario, **eager(maxMovesPerHour=1, coolDown="1s"))


def test_moves_of_a_leader_that_died_before_it_noted_them_count_for_the_next_one(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.wall_step = time.time() - env.clock  # bundles and policy tell of one and the same time
        await env.loop.reconcile()
        noted = env.memory() | {"moves": []}
        env.rest.patch(
            f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-memory-main",
            {"data": {"memory.json": json.dumps(noted)}},
        )
        assert len(moves(env)) == 1
        await env.land()

        env.restart()
        await env.cycle()

        assert len(moves(env)) == 1
        assert [count for _, count in env.memory()["moves"]] == [1]
        assert env.held_back()["HourCap"] >= 1

    run_policy(HOT, scenario, **eager(maxMovesPerHour=1, coolDown="1s"))


def test_a_bundle_that_moved_cools_down(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        moved = moves(env)
        await env.land()
        env.source = StaticSource(swapped(env.load, "a", "b"))

        await env.reconcile(after=120)

        assert moves(env) == moved
        assert env.held_back()["CoolDown"] == len(moved)

        await env.reconcile(after=1800)
        assert moves(env).items() < moved.items()

    run_policy(cluster(bundles={"a": [1] * 8, "b": []}, a=0.8, b=0.2), scenario)


def test_what_a_policy_remembers_is_stored_and_found_again(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        stored = env.memory()
        assert stored["shedder"]["brokers"]["ema"].keys() == {"a", "b"}

        env.restart()
        await env.reconcile()

        assert env.memory()["epoch"] == stored["epoch"] + 1
        assert env.memory()["shedder"] == stored["shedder"]

    run_policy(LEVEL, scenario, shedder={"type": "ThresholdShedder", "thresholdShedder": {"historyPercent": 90}})


def test_an_idle_cluster_gets_no_event_and_no_write_but_the_policys_status(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        await env.cycle()
        events, brokers, bundles = env.events(), env.versions("brokers"), env.versions("bundles")
        assert events == []
        env.requests.clear()

        for _ in range(3):
            await env.cycle()
            await env.reconcile(after=2)

        assert (env.events(), env.versions("brokers"), env.versions("bundles")) == (events, brokers, bundles)
        assert env.requests["patch"] == 3
        assert env.requests["create"] == 0
        assert env.condition("Balanced") == ("True", "Balanced")

    run_policy(LEVEL, scenario)


def test_a_restart_on_an_idle_cluster_writes_no_broker(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        before = env.versions("brokers")

        env.restart()
        await env.reconcile()

        assert env.versions("brokers") == before

    run_policy(LEVEL, scenario)


def test_what_is_predicted_is_what_the_next_cycle_does(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        foreseen = await preview(env.cluster, "main")
        assert foreseen.plan.moves

        await env.reconcile()

        assert moves(env) == {env.names[move.bundle]: move.destination for move in foreseen.plan.moves}

    run_policy(HOT, scenario)
