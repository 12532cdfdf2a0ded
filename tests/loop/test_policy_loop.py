"""The policy's loop on a real API server: what a turn writes, what it tells, and what it leaves alone."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from odd_sources import Meanwhile
from policy_scene import Play, PolicyScene, eager
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.loop.preview import preview
from trimtab_pipeline.testing import StaticSource
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
LEVEL = cluster(bundles=2, a=0.5, b=0.5)


def moves(scene: PolicyScene) -> dict[str, str]:
    """Bundle -> destination of those that are not wished on their first owner."""
    first = {
        scene.names[full]: scene.load.brokers.names[owner]
        for full, owner in zip(scene.load.bundles.names, scene.load.bundles.owner.tolist(), strict=True)
    }
    return {name: owner for name, owner in scene.desired_owners().items() if owner != first[name]}


def swapped(load: ClusterLoad, one: str, other: str) -> ClusterLoad:
    """The load with two brokers in each other's place: what one carried, the other is measured to carry."""
    rows = list(range(len(load.brokers)))
    i, j = load.brokers.index[one], load.brokers.index[other]
    rows[i], rows[j] = j, i
    brokers = replace(load.brokers, usage=load.brokers.usage[rows], traffic=load.brokers.traffic[rows])
    return replace(load, brokers=brokers)


def test_an_overloaded_broker_sheds_and_all_of_it_is_reported(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        moved = moves(scene)
        assert moved
        for name in moved:
            assignment = scene.bundles()[name]["spec"]["assignment"]
            assert assignment == {
                "owner": moved[name],
                "policy": "main",
                "epoch": 1,
                "reason": "Overloaded",
                "time": timestamp(scene.clock),
            }
        status = scene.status()
        assert status["lastCycle"]["moved"] == status["proposal"]["total"] == len(moved)
        assert {m["bundle"]: m["destination"] for m in status["proposal"]["moves"]} == moved
        assert scene.condition("Balanced") == ("False", "Overloaded")
        assert scene.condition("Ready") == ("True", "Cycled")
        assert [reason for reason, _ in scene.events()] == ["Overloaded"]

    play(HOT, story)


def test_dry_run_shows_the_moves_and_touches_no_bundle(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        before = scene.versions("bundles")

        await scene.reconcile()
        await scene.cycle()

        assert scene.status()["proposal"]["total"] > 0
        assert scene.status()["lastCycle"]["moved"] == 0
        assert scene.versions("bundles") == before
        assert scene.events() == []

    play(HOT, story, mode="DryRun")


def test_a_bundle_that_another_client_changed_meanwhile_keeps_that_change(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        foreseen = await preview(scene.context, "main")
        first, *others = [scene.names[move.bundle] for move in foreseen.plan.moves]
        assert others
        scene.source = Meanwhile(scene.load, lambda: scene.give(first, "b"))

        await scene.reconcile()

        bundles = scene.bundles()
        assert (bundles[first]["spec"]["owner"], bundles[first]["spec"].get("assignment")) == ("b", None)
        assert set(moves(scene)) == {first, *others}
        assert scene.status()["lastCycle"]["heldBack"]["Conflict"] == 1
        [note] = [note for reason, note in scene.events() if reason == "Conflict"]
        assert first in note

        await scene.land()
        await scene.cycle()
        assert "Conflict" not in scene.status()["lastCycle"]["heldBack"]
        assert scene.condition("Ready") == ("True", "Cycled")

    play(HOT, story)


def test_a_bundle_that_was_deleted_meanwhile_is_dropped_and_the_others_move(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        foreseen = await preview(scene.context, "main")
        first, *others = [scene.names[move.bundle] for move in foreseen.plan.moves]
        scene.source = Meanwhile(scene.load, lambda: scene.rest.delete(scene.path("bundles", first)))

        await scene.reconcile()

        assert first not in scene.bundles()
        assert set(moves(scene)) == set(others)
        assert [reason for reason, note in scene.events() if first in note and "not moved" in note] == ["Conflict"]

    play(HOT, story)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"maxMovesPerCycle": 1}, "CycleCap"),
        ({"maxMovesPerBroker": 1}, "BrokerCap"),
        ({"maxMovesPerHour": 1}, "HourCap"),
    ],
    ids=str,
)
def test_a_cap_ends_the_moves_and_is_reported(limits: dict[str, int], reason: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        assert len(moves(scene)) == 1
        assert scene.status()["lastCycle"]["heldBack"][reason] >= 1

    play(HOT, story, **eager(**limits))


def test_the_hours_moves_still_count_after_a_restart(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        assert len(moves(scene)) == 1
        await scene.land()

        scene.restart()
        await scene.cycle()

        assert len(moves(scene)) == 1
        assert scene.memory()["epoch"] == 2
        assert scene.status()["lastCycle"]["heldBack"]["HourCap"] >= 1

    play(HOT, story, **eager(maxMovesPerHour=1, coolDown="1s"))


def test_moves_of_a_leader_that_died_before_it_noted_them_count_for_the_next_one(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.wall_step = time.time() - scene.clock  # bundles and policy tell of one and the same time
        await scene.loop.reconcile()
        noted = scene.memory() | {"moves": []}
        scene.rest.patch(
            f"/api/v1/namespaces/{scene.namespace}/configmaps/trimtab-memory-main",
            {"data": {"memory.json": json.dumps(noted)}},
        )
        assert len(moves(scene)) == 1
        await scene.land()

        scene.restart()
        await scene.cycle()

        assert len(moves(scene)) == 1
        assert [count for _, count in scene.memory()["moves"]] == [1]
        assert scene.status()["lastCycle"]["heldBack"]["HourCap"] >= 1

    play(HOT, story, **eager(maxMovesPerHour=1, coolDown="1s"))


def test_a_bundle_that_moved_cools_down(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        moved = moves(scene)
        await scene.land()
        scene.source = StaticSource(swapped(scene.load, "a", "b"))

        await scene.reconcile(after=120)

        assert moves(scene) == moved
        assert scene.status()["lastCycle"]["heldBack"]["CoolDown"] == len(moved)

        await scene.reconcile(after=1800)
        assert moves(scene).items() < moved.items()

    play(cluster(bundles={"a": [1] * 8, "b": []}, a=0.8, b=0.2), story)


def test_what_a_policy_remembers_is_stored_and_found_again(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        stored = scene.memory()
        assert stored["shedder"]["brokers"]["ema"].keys() == {"a", "b"}

        scene.restart()
        await scene.reconcile()

        assert scene.memory()["epoch"] == stored["epoch"] + 1
        assert scene.memory()["shedder"] == stored["shedder"]

    play(LEVEL, story, shedder={"type": "ThresholdShedder", "thresholdShedder": {"history": 0.9}})


def test_an_idle_cluster_gets_no_event_and_no_write_but_the_policys_status(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        await scene.cycle()
        events, brokers, bundles = scene.events(), scene.versions("brokers"), scene.versions("bundles")
        assert events == []
        scene.requests.clear()

        for _ in range(3):
            await scene.cycle()
            await scene.reconcile(after=2)

        assert (scene.events(), scene.versions("brokers"), scene.versions("bundles")) == (events, brokers, bundles)
        assert scene.requests["patch"] == 3
        assert scene.requests["create"] == 0
        assert scene.condition("Balanced") == ("True", "Balanced")

    play(LEVEL, story)


def test_a_restart_on_an_idle_cluster_writes_no_broker(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        before = scene.versions("brokers")

        scene.restart()
        await scene.reconcile()

        assert scene.versions("brokers") == before

    play(LEVEL, story)


def test_what_is_predicted_is_what_the_next_cycle_does(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        foreseen = await preview(scene.context, "main")
        assert foreseen.plan.moves

        await scene.reconcile()

        assert moves(scene) == {scene.names[move.bundle]: move.destination for move in foreseen.plan.moves}

    play(HOT, story)
