"""A policy that is edited, paused, refused, doubled or in trouble: its loop says so, and acts on no old text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odd_sources import Broken, Meanwhile, Silent
from policy_scene import Play, PolicyScene
from trimtab_operator.loop.policy_loop import PolicyLoop
from trimtab_pipeline.testing import StaticSource
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
LEVEL = cluster(bundles=2, a=0.5, b=0.5, c=0.5)


@pytest.mark.parametrize("edit", [{"mode": "DryRun"}, {"paused": True}, {"limits": {"maxMovesPerCycle": 1}}], ids=str)
def test_a_policy_edited_while_its_cluster_is_measured_moves_nothing_by_its_old_text(
    edit: dict[str, Any], play: Play
) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.source = Meanwhile(scene.load, lambda: scene.edit(**edit))

        await scene.reconcile()
        assert scene.desired_owners() == scene.owners()

        await scene.reconcile()
        assert scene.status()["observedGeneration"] == 2
        assert scene.status()["lastCycle"]["moved"] <= 1

    play(HOT, story)


def test_a_policy_paused_by_annotation_while_its_cluster_is_measured_moves_nothing(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        annotation = {"metadata": {"annotations": {"trimtab.dev/paused": "true"}}}
        scene.source = Meanwhile(
            scene.load, lambda: scene.rest.patch(scene.path("balancingpolicies", "main"), annotation)
        )

        await scene.reconcile()
        await scene.reconcile()

        assert scene.desired_owners() == scene.owners()
        assert scene.condition("Ready") == ("False", "Paused")

    play(HOT, story)


def test_a_policy_edited_while_its_status_is_written_is_reported_all_the_same(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        get = scene.context.api.get

        async def edited_after(*what: Any) -> Any:
            found = await get(*what)
            if scene.requests["edited"] < 1:
                scene.requests["edited"] += 1
                scene.edit(interval="61s")
            return found

        await scene.reconcile()
        scene.context.api.get = edited_after  # type: ignore[method-assign]
        await scene.cycle()

        assert scene.requests["edited"] == 1
        assert scene.status()["lastCycle"]["time"].endswith("Z")

    play(HOT, story, mode="DryRun")


def test_a_policy_that_is_refused_writes_its_status_once_and_not_each_turn(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second")
        await scene.reconcile()
        await second.reconcile()
        before = scene.policy("second")["metadata"]["resourceVersion"]
        scene.requests.clear()

        for _ in range(5):
            scene.clock += 2
            await second.reconcile()

        assert scene.policy("second")["metadata"]["resourceVersion"] == before
        assert scene.requests["patch"] == 0
        assert scene.condition("Valid", "second") == ("False", "InvalidPolicy")

    play(LEVEL, story)


def test_the_second_policy_goes_on_when_the_first_one_is_deleted(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second")
        await scene.reconcile()
        await second.reconcile()
        stopped = asyncio.Event()
        stopped.set()
        await scene.loop.run(stopped)

        scene.clock += 2
        await second.reconcile()

        assert scene.condition("Ready", "second") == ("True", "Cycled")

    play(LEVEL, story)


def test_a_loop_that_ends_late_does_not_deafen_its_successor(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        stop_old, stop_new = asyncio.Event(), asyncio.Event()
        old = asyncio.create_task(scene.loop.run(stop_old))
        await asyncio.sleep(0.1)
        fresh = PolicyLoop("main", scene.loop.uid, scene.context, scene.loop.read)
        new = asyncio.create_task(fresh.run(stop_new))
        await asyncio.sleep(0.1)

        stop_old.set()
        await old

        assert scene.context.policies.wakers == {"main": fresh.wake}
        assert "main" in scene.context.policies.settings
        stop_new.set()
        await new
        assert scene.context.policies.wakers == {}

    play(LEVEL, story)


def test_a_cancelled_loop_leaves_no_task_behind(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.source = Silent(scene.load)
        others = asyncio.all_tasks()
        running = asyncio.create_task(scene.loop.run(asyncio.Event()))
        await asyncio.sleep(0.6)  # it waits for the source by now

        running.cancel()
        await asyncio.wait({running})
        await asyncio.sleep(0)

        assert asyncio.all_tasks() <= others

    play(LEVEL, story)


def test_a_defect_is_reported_in_the_policys_status_and_the_next_cycle_goes_on(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.source = Broken(scene.load)
        await scene.whole_turn()

        assert scene.condition("Ready") == ("False", "InternalError")
        assert ("InternalError", "Ready: KeyError: 'cpu'") in [(r, n[:23]) for r, n in scene.events()]

        scene.source = StaticSource(scene.load)
        await scene.whole_turn(after=60)
        assert scene.condition("Ready") == ("True", "Cycled")

    play(LEVEL, story)


def test_many_failures_of_one_kind_are_a_handful_of_events(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        for name, owner in scene.owners().items():
            scene.give(name, "c" if owner != "c" else "a")
        await scene.reconcile(after=1)
        await scene.reconcile(after=120)

        told = [note for reason, note in scene.events() if reason == "TimedOut"]
        assert 1 < len(told) <= 6
        assert any("and 4 more" in note for note in told)

    play(HOT, story, mode="DryRun")


def test_unowned_bundles_that_no_broker_can_take_are_reported_once(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for name in scene.load.brokers.names:
            scene.rest.patch(scene.path("brokers", name), {"spec": {"schedulable": False}})
        orphan = next(iter(scene.names.values()))
        scene.give(orphan, "")
        scene.rest.patch(scene.path("bundles", orphan, "status"), {"status": {"owner": ""}})

        for _ in range(3):
            await scene.reconcile(after=11)

        told = [note for reason, note in scene.events() if reason == "NoCandidate"]
        assert told == ["1 bundles wait: no broker is ready and schedulable"]

        scene.rest.patch(scene.path("brokers", "b"), {"spec": {"schedulable": True}})
        await scene.reconcile(after=11)
        assert scene.desired_owners()[orphan] == "b"

    play(LEVEL, story, mode="DryRun")


def test_a_policy_that_is_kept_from_its_cycle_is_in_no_hurry(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        reads = []
        second = scene.add_policy("second")
        await scene.reconcile()
        read = second.read
        second.read = lambda: reads.append(1) or read()
        stopped = asyncio.Event()
        running = asyncio.create_task(second.run(stopped))
        await asyncio.sleep(1.5)

        assert len(reads) == 1
        stopped.set()
        await running

    play(LEVEL, story)


def test_a_shorter_interval_counts_from_the_edit_and_not_from_the_old_ones_end(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        scene.edit(interval="30s")
        await scene.reconcile(after=1)
        edited = scene.status()["lastCycle"]["time"]
        assert scene.status()["observedGeneration"] == 2

        await scene.reconcile(after=29)
        assert scene.status()["lastCycle"]["time"] == edited

        await scene.reconcile(after=1)
        assert scene.status()["lastCycle"]["time"] > edited

    play(LEVEL, story, interval="10m")


def test_a_policy_that_names_a_thousand_missing_brokers_still_gets_its_status(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        assert scene.condition("Valid") == ("False", "UnknownBroker")
        [message] = {c["message"] for c in scene.status()["conditions"] if c["type"] == "Valid"}
        assert message.endswith(" and 995 more")

    play(LEVEL, story, brokers={"names": [f"{'x' * 50}-{n}" for n in range(1000)]})


def test_brokers_beyond_the_policys_names_are_neither_shed_from_nor_moved_to(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()

        assert set(scene.desired_owners().values()) == {"a", "b"}
        brokers = scene.rest.get(scene.path("brokers"))["items"]
        assert {b["metadata"]["name"] for b in brokers if b["status"].get("load")} == {"a", "b"}

    play(HOT, story, brokers={"names": ["a", "b"]})
