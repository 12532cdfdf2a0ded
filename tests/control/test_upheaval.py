"""Objects that vanish, policies that change, clocks that jump: nothing is lost, and nothing is done in haste."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from policy_scene import Play, PolicyScene
from records import wished
from trimtab_operator.control.flights import Flights
from trimtab_operator.control.loop import PolicyLoop
from trimtab_pipeline.source import Observation, Topology
from trimtab_pipeline.testing import StaticSource
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
LEVEL = cluster(bundles=2, a=0.5, b=0.5, c=0.5)


def test_the_bundles_of_a_deleted_broker_get_other_owners(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.turn()
        orphans = [name for name, owner in scene.owners().items() if owner == "a"]
        assert orphans

        scene.rest.delete(scene.path("brokers", "a"))
        await scene.turn(after=1)
        assert scene.owners()[orphans[0]] == "a", "not before lostAfter"
        for _ in range(3):
            await scene.turn(after=31)
            await scene.land()

        assert all(owner in {"b", "c"} for owner in scene.owners().values())
        assert scene.wishes() == scene.owners()

    play(LEVEL, story)


def test_when_every_broker_object_is_gone_no_bundle_is_touched(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.turn()
        before = scene.versions("bundles")

        for name in scene.load.brokers.names:
            scene.rest.delete(scene.path("brokers", name))
        for _ in range(3):
            await scene.turn(after=31)

        assert scene.versions("bundles") == before
        assert [reason for reason, _ in scene.events()] == ["NoBrokers"]

    play(LEVEL, story)


@pytest.mark.parametrize("edit", [{"mode": "DryRun"}, {"paused": True}, {"limits": {"maxMovesPerCycle": 1}}], ids=str)
def test_a_policy_edited_while_its_cluster_is_measured_moves_nothing_by_its_old_text(
    edit: dict[str, Any], play: Play
) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.source = Meanwhile(scene, lambda: scene.edit(**edit))

        await scene.turn()
        assert scene.wishes() == scene.owners()

        await scene.turn()
        assert scene.status()["observedGeneration"] == 2
        assert scene.status()["lastCycle"]["moved"] <= 1

    play(HOT, story)


def test_a_policy_paused_by_annotation_while_its_cluster_is_measured_moves_nothing(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        annotation = {"metadata": {"annotations": {"trimtab.dev/paused": "true"}}}
        scene.source = Meanwhile(scene, lambda: scene.rest.patch(scene.path("balancingpolicies", "main"), annotation))

        await scene.turn()
        await scene.turn()

        assert scene.wishes() == scene.owners()
        assert scene.condition("Ready") == ("False", "Paused")

    play(HOT, story)


def test_a_policy_edited_while_its_status_is_written_is_told_all_the_same(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        get = scene.context.api.get

        async def edited_after(*what: Any) -> Any:
            found = await get(*what)
            if scene.requests["edited"] < 1:
                scene.requests["edited"] += 1
                scene.edit(interval="61s")
            return found

        await scene.turn()
        scene.context.api.get = edited_after  # type: ignore[method-assign]
        await scene.cycle()

        assert scene.requests["edited"] == 1
        assert scene.status()["lastCycle"]["time"].endswith("Z")

    play(HOT, story, mode="DryRun")


def test_a_wall_clock_that_jumps_ahead_makes_no_broker_lost_and_no_move_overdue(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.turn()
        scene.rest.patch(scene.path("brokers", "c", "status"), {"status": {"ready": False}})
        await scene.turn(after=1)
        before = scene.wishes()

        scene.wall_step += 3600
        await scene.turn(after=1)

        assert scene.wishes() == before
        assert not {reason for reason, _ in scene.events()} & {"TimedOut", "Assigned", "BrokerLost"}

    play(HOT, story)


def test_a_wall_clock_that_jumps_back_does_not_stop_the_cycles(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.turn()
        first = scene.status()["lastCycle"]["time"]

        scene.wall_step -= 3600
        await scene.cycle()

        assert scene.status()["lastCycle"]["time"] < first

    play(LEVEL, story)


def test_a_policy_that_is_refused_writes_its_status_once_and_not_each_turn(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second")
        await scene.turn()
        await second.turn()
        before = scene.policy("second")["metadata"]["resourceVersion"]
        scene.requests.clear()

        for _ in range(5):
            scene.clock += 2
            await second.turn()

        assert scene.policy("second")["metadata"]["resourceVersion"] == before
        assert scene.requests["patch"] == 0
        assert scene.condition("Valid", "second") == ("False", "InvalidPolicy")

    play(LEVEL, story)


def test_the_second_policy_goes_on_when_the_first_one_is_deleted(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        second = scene.add_policy("second")
        await scene.turn()
        await second.turn()
        stopped = asyncio.Event()
        stopped.set()
        await scene.loop.run(stopped)

        scene.clock += 2
        await second.turn()

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

        assert scene.context.wakers == {"main": fresh.wake}
        assert "main" in scene.context.policies
        stop_new.set()
        await new
        assert scene.context.wakers == {}

    play(LEVEL, story)


def test_a_cancelled_loop_leaves_no_task_behind(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.source = Silent(scene)
        others = asyncio.all_tasks()
        running = asyncio.create_task(scene.loop.run(asyncio.Event()))
        await asyncio.sleep(0.3)

        running.cancel()
        await asyncio.wait({running})
        await asyncio.sleep(0)

        assert asyncio.all_tasks() <= others

    play(LEVEL, story)


def test_while_the_source_is_silent_homeless_bundles_get_owners_and_the_cycle_gives_up(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_operator.control.loop.MEASURE_WITHIN", 1.0)
    monkeypatch.setattr("trimtab_operator.control.loop.TEND_EVERY", 0.1)
    monkeypatch.setattr("trimtab_operator.control.tending.HOUSE_WITHIN", 0.1)

    async def story(scene: PolicyScene) -> None:
        await scene.turn()
        scene.source = Silent(scene)
        [orphan] = [name for name, owner in scene.owners().items() if owner == "b"][:1]
        scene.give(orphan, "")
        scene.rest.patch(scene.path("bundles", orphan, "status"), {"status": {"owner": "", "state": "Free"}})

        await scene.cycle()

        assert scene.wishes()[orphan]
        assert scene.condition("DataTrusted") == ("False", "SourceUnavailable")

    play(LEVEL, story)


def test_a_defect_is_told_in_the_policys_status_and_the_next_turn_goes_on(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.source = Broken(scene)
        await scene.whole_turn()

        assert scene.condition("Ready") == ("False", "InternalError")
        assert ("InternalError", "Ready: KeyError: 'cpu'") in [(r, n[:23]) for r, n in scene.events()]

        scene.source = StaticSource(scene.load)
        await scene.whole_turn(after=60)
        assert scene.condition("Ready") == ("True", "Cycled")

    play(LEVEL, story)


def test_a_bundle_whose_namespace_is_gone_asks_for_no_measurement(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        stray = next(iter(scene.names.values()))
        await scene.turn()
        scene.give(stray, "")
        scene.rest.patch(scene.path("bundles", stray, "status"), {"status": {"owner": ""}})
        scene.rest.delete(scene.path("topicnamespaces", "public-a"))
        await scene.seen()
        counting = Counting(scene)
        scene.source = counting

        for _ in range(3):
            await scene.turn(after=11)

        assert counting.looks == 0
        assert scene.wishes()[stray] == ""

    play(LEVEL, story)


def test_many_failures_of_one_kind_are_a_handful_of_events(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.turn()
        for name, owner in scene.owners().items():
            scene.give(name, "c" if owner != "c" else "a")
        await scene.turn(after=1)
        await scene.turn(after=120)

        told = [note for reason, note in scene.events() if reason == "TimedOut"]
        assert 1 < len(told) <= 6
        assert any("and 4 more" in note for note in told)

    play(HOT, story, mode="DryRun")


def test_outcomes_that_nobody_asks_for_do_not_pile_up() -> None:
    flights = Flights()
    for generation in range(30_000):
        flights.see(wished(generation=generation, destination=f"y{generation}"), None, now=0)

    assert len(list(flights.outcomes())) <= 10_000


class Meanwhile(StaticSource):
    """Somebody else acts while the cluster is measured for the first time."""

    def __init__(self, scene: PolicyScene, act: Any) -> None:
        super().__init__(scene.load)
        self._act = act

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        act, self._act = self._act, None
        if act is not None:
            act()
        return super().observe(topology, at)


class Silent(StaticSource):
    """Never answers."""

    def __init__(self, scene: PolicyScene) -> None:
        super().__init__(scene.load)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:  # noqa: ARG002  the port's face
        return Future()


class Counting(StaticSource):
    """Counts how often it was asked."""

    def __init__(self, scene: PolicyScene) -> None:
        super().__init__(scene.load)
        self.looks = 0

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        self.looks += 1
        return super().observe(topology, at)


class Broken(StaticSource):
    """Has a defect."""

    def __init__(self, scene: PolicyScene) -> None:
        super().__init__(scene.load)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:  # noqa: ARG002  the port's face
        raise KeyError("cpu")
