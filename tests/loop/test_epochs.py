"""What changes hands with the lead: an ever larger epoch, and what strategies remember; on a real API server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policy_scene import Play, PolicyScene
from trimtab_operator.leadership import announce, unused_epoch
from trimtab_pipeline.testing import StaticSource
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.testing import cluster
from trimtab_testbed.servers.kube_rest import KubeApiError

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
LEVEL = cluster(bundles=2, a=0.5, b=0.5)
PATIENT = {
    "type": "TransferShedder",
    "transferShedder": {"hitThreshold": 3, "history": 0, "delay": 0},
}


def assign(scene: PolicyScene, name: str, epoch: int) -> None:
    """A leader of that epoch gives the bundle to whom has it."""
    owner = scene.desired_owners()[name]
    assignment = {"owner": owner, "epoch": epoch, "reason": "Overloaded", "time": "2026-01-31T12:00:00Z"}
    scene.rest.patch(scene.path("bundles", name), {"spec": {"owner": owner, "assignment": assignment}})


def moves(scene: PolicyScene) -> dict[str, str]:
    """Bundles that are not wished on their first owner, and on whom they are."""
    load = scene.load
    first = {
        scene.names[full]: load.brokers.names[owner]
        for full, owner in zip(load.bundles.names, load.bundles.owner.tolist(), strict=True)
    }
    return {name: owner for name, owner in scene.desired_owners().items() if owner != first[name]}


def exchanged(load: ClusterLoad) -> ClusterLoad:
    """The load with its first two brokers in each other's place."""
    rows = [1, 0, *range(2, len(load.brokers))]
    brokers = replace(load.brokers, usage=load.brokers.usage[rows], traffic=load.brokers.traffic[rows])
    return replace(load, brokers=brokers)


def lead(scene: PolicyScene, identity: str, epoch: int) -> None:
    """Another process leads from now on, and knows nothing but what the API server holds."""
    scene.restart()
    scene.context.process.leader, scene.context.process.epoch = identity, epoch


def test_no_one_ever_wrote_and_the_first_epoch_is_1(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        assert await unused_epoch(scene.context) == 1

    play(LEVEL, story)


def test_an_unused_epoch_is_above_what_bundles_carry_though_all_memory_is_gone(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first, *_ = scene.names.values()
        assign(scene, first, 41)
        await scene.seen()

        assert await unused_epoch(scene.context) == 42

    play(LEVEL, story)


def test_an_unused_epoch_is_above_that_of_a_leader_who_wrote_no_bundle(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        lead(scene, "x", 7)
        await scene.reconcile()
        assert scene.memory()["epoch"] == 7

        assert await unused_epoch(scene.context) == 8

    play(LEVEL, story)


def test_every_assignment_and_memory_carries_the_leaders_epoch_and_the_policy_says_who_leads(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        lead(scene, "replica-x", 7)
        await scene.reconcile()

        moved = [
            found["spec"]["assignment"]["epoch"] for found in scene.bundles().values() if "assignment" in found["spec"]
        ]
        assert moved
        assert set(moved) == {7}
        [told] = [c for c in scene.status()["conditions"] if c["type"] == "Led"]
        assert (told["status"], told["message"]) == ("True", "replica-x leads, epoch 7")

    play(HOT, story)


def test_the_api_server_refuses_an_assignment_of_an_earlier_epoch(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first, *_ = scene.names.values()
        assign(scene, first, 5)
        assign(scene, first, 5)

        with pytest.raises(KubeApiError, match=r"assignment\.epoch never goes back"):
            assign(scene, first, 4)

        assign(scene, first, 6)

    play(LEVEL, story)


def test_a_person_may_still_move_a_bundle_and_take_the_assignment_away(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        first, *_ = scene.names.values()
        assign(scene, first, 5)

        scene.give(first, "b")
        scene.rest.patch(scene.path("bundles", first), {"spec": {"assignment": None}})
        assign(scene, first, 1)

        assert scene.desired_owners()[first] == "b"

    play(LEVEL, story)


def test_a_late_leader_learns_that_its_move_was_refused(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for name in scene.names.values():
            assign(scene, name, 9)
        await scene.land()
        lead(scene, "late", 8)

        await scene.cycle()

        assert scene.desired_owners() == scene.owners()
        assert any("assignment.epoch never goes back" in note for _, note in scene.events())

    play(HOT, story, limits={"coolDown": "1s"})


def test_hits_that_one_leader_counted_count_for_the_next(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        lead(scene, "x", 1)
        await scene.reconcile()
        await scene.cycle()
        assert scene.memory()["shedder"]["hits"] == 2

        lead(scene, "y", 2)
        await scene.cycle()
        assert scene.memory()["shedder"]["hits"] == 3
        assert scene.desired_owners() == scene.owners()

        await scene.cycle()
        assert moves(scene)  # more than three in a row; a leader who forgets would have seen two

    play(HOT, story, shedder=PATIENT)


def test_a_bundle_that_one_leader_moved_cools_down_under_the_next(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        lead(scene, "x", 1)
        await scene.reconcile()
        moved = moves(scene)
        await scene.land()
        scene.source = StaticSource(exchanged(scene.load))

        lead(scene, "y", 2)
        await scene.reconcile(after=120)

        assert moved
        assert moves(scene) == moved
        assert scene.status()["lastCycle"]["heldBack"]["CoolDown"] == len(moved)

    play(cluster(bundles={"a": [1] * 8, "b": []}, a=0.8, b=0.2), story)


def test_beginning_to_lead_is_reported_by_an_event_on_the_lease_and_a_metric(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        lease: Any = scene.rest.create(
            f"/apis/coordination.k8s.io/v1/namespaces/{scene.namespace}/leases",
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "trimtab"}, "spec": {}},
        )
        lead(scene, "x", 3)

        await announce(scene.context, lease)

        assert ("LeaderElected", "x leads, epoch 3") in scene.events()
        assert b"trimtab_leader 1.0" in scene.context.metrics.text()

    play(LEVEL, story)
