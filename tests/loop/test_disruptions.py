"""Deleted objects, edited policies and clock jumps: nothing is lost, and nothing moves too early."""

from __future__ import annotations

import asyncio

import pytest

from faulty_api import until
from odd_sources import Counting, Silent
from policy_scene import Play, PolicyScene
from records import wished
from trimtab_operator.state.pending_moves import PendingMoves
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
LEVEL = cluster(bundles=2, a=0.5, b=0.5, c=0.5)


def test_the_bundles_of_a_deleted_broker_get_other_owners(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        orphans = [name for name, owner in scene.owners().items() if owner == "a"]
        assert orphans

        scene.rest.delete(scene.path("brokers", "a"))
        await scene.reconcile(after=1)
        assert scene.owners()[orphans[0]] == "a", "not before lostAfter"
        for _ in range(3):
            await scene.reconcile(after=31)
            await scene.land()

        assert all(owner in {"b", "c"} for owner in scene.owners().values())
        assert scene.desired_owners() == scene.owners()

    play(LEVEL, story)


def test_a_policy_that_finds_its_brokers_by_label_does_not_complain_before_they_can_be_found(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for name in scene.load.brokers.names:
            scene.rest.delete(scene.path("brokers", name))
        await scene.reconcile(after=1)
        assert scene.events() == []

        await scene.reconcile(after=31)
        assert [reason for reason, _ in scene.events()] == ["NoBrokers"]

    play(LEVEL, story, brokers={"podLabels": {"app": "pulsar"}})


def test_the_bundles_of_one_of_two_brokers_go_to_the_other_when_it_is_lost(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.rest.patch(scene.path("brokers", "b", "status"), {"status": {"ready": False}})
        for _ in range(3):
            await scene.reconcile(after=31)
            await scene.land()

        assert set(scene.owners().values()) == {"a"}

    play(cluster(bundles=2, a=0.5, b=0.5), story)


def test_when_every_broker_object_is_gone_no_bundle_is_touched(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        before = scene.versions("bundles")

        for name in scene.load.brokers.names:
            scene.rest.delete(scene.path("brokers", name))
        for _ in range(3):
            await scene.reconcile(after=31)

        assert scene.versions("bundles") == before
        assert [reason for reason, _ in scene.events()] == ["NoBrokers"]

    play(LEVEL, story)


def test_a_wall_clock_that_jumps_ahead_makes_no_broker_lost_and_no_move_overdue(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        scene.rest.patch(scene.path("brokers", "c", "status"), {"status": {"ready": False}})
        await scene.reconcile(after=1)
        before = scene.desired_owners()

        scene.wall_step += 3600
        await scene.reconcile(after=1)

        assert scene.desired_owners() == before
        assert not {reason for reason, _ in scene.events()} & {"TimedOut", "Assigned", "BrokerLost"}

    play(HOT, story)


def test_a_wall_clock_that_jumps_back_does_not_stop_the_cycles(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        first = scene.status()["lastCycle"]["time"]

        scene.wall_step -= 3600
        await scene.cycle()

        assert scene.status()["lastCycle"]["time"] < first

    play(LEVEL, story)


def test_while_the_source_is_silent_unowned_bundles_get_owners_and_the_cycle_gives_up(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab_operator.loop.cycle.MEASURE_WITHIN", 1.0)
    monkeypatch.setattr("trimtab_operator.loop.cycle.RECONCILE_EVERY", 0.1)
    monkeypatch.setattr("trimtab_operator.reconcile.bundles.ASSIGN_WITHIN", 0.1)

    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        scene.source = Silent(scene.load)
        [orphan] = [name for name, owner in scene.owners().items() if owner == "b"][:1]
        scene.give(orphan, "")
        scene.rest.patch(scene.path("bundles", orphan, "status"), {"status": {"owner": "", "state": "Free"}})

        await scene.cycle()

        assert scene.desired_owners()[orphan]
        assert scene.condition("DataTrusted") == ("False", "SourceUnavailable")

    play(LEVEL, story)


def test_a_bundle_whose_namespace_is_gone_asks_for_no_measurement(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        stray = next(iter(scene.names.values()))
        await scene.reconcile()
        scene.give(stray, "")
        scene.rest.patch(scene.path("bundles", stray, "status"), {"status": {"owner": ""}})
        scene.rest.delete(scene.path("topicnamespaces", "public-a"))
        await scene.seen()
        counting = Counting(scene.load)
        scene.source = counting

        for _ in range(3):
            await scene.reconcile(after=11)

        assert counting.looks == 0
        assert scene.desired_owners()[stray] == ""

    play(LEVEL, story)


def test_outcomes_that_no_one_asks_for_do_not_pile_up() -> None:
    pending_moves = PendingMoves()
    for generation in range(30_000):
        pending_moves.update(wished(generation=generation, destination=f"y{generation}"), None, now=0)

    assert len(list(pending_moves.outcomes())) <= 10_000


def test_a_burst_of_changes_makes_one_turn(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        turns = Counting(scene.load)
        scene.source = turns
        scene.clock += 1
        stopped = asyncio.Event()
        running = asyncio.create_task(scene.loop.run(stopped))
        for name in scene.names.values():
            scene.rest.patch(scene.path("bundles", name), {"spec": {"owner": ""}})
            scene.rest.patch(scene.path("bundles", name, "status"), {"status": {"owner": ""}})
            await asyncio.sleep(0)
        await until("every bundle is wished on a broker", lambda: all(scene.desired_owners().values()))

        assert turns.looks <= 3
        stopped.set()
        await running

    play(LEVEL, story)
