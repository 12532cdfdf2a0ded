"""What comes and goes: brokers that are lost at once, bundles deleted while they move, brokers that never come back."""

from __future__ import annotations

from typing import Any

import pytest

from faulty_api import until
from policy_scene import Play, PolicyScene
from trimtab_operator.app import discover_once
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1]}, a=0.8, b=0.2, c=0.2)
FIVE = cluster(bundles=2, a=0.3, b=0.3, c=0.3, d=0.3, e=0.3)
LABELS = {"app": "pulsar"}


async def ready(scene: PolicyScene, brokers: str, *, is_ready: bool) -> None:
    for name in brokers:
        scene.rest.patch(scene.path("brokers", name, "status"), {"status": {"ready": is_ready}})
    await scene.seen()


def held_back(scene: PolicyScene, reason: str) -> float:
    found = scene.context.metrics.registry.get_sample_value(
        "trimtab_held_back_total", {"policy": "main", "reason": reason}
    )
    return found or 0.0


def test_a_mass_failure_stops_everything_says_so_everywhere_and_ends_by_itself(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.cycle()
        before = scene.desired_owners()
        await ready(scene, "abc", is_ready=False)
        await scene.reconcile(after=1)
        await scene.cycle()

        assert scene.desired_owners() == before
        assert scene.condition("Ready") == scene.condition("Acting") == ("False", "MassFailure")
        told = [note for reason, note in scene.events() if reason == "MassFailure"]
        assert any("3 of 5 brokers are lost: their bundles stay where they are" in note for note in told)
        assert any("3 of 5 brokers are not ready, more than 40% (limits.maxLostBrokers)" in note for note in told)
        assert held_back(scene, "MassFailure") >= 1

        count = len(told)
        await scene.cycle()
        assert len([reason for reason, _ in scene.events() if reason == "MassFailure"]) == count, "it is told once"

        await ready(scene, "abc", is_ready=True)
        await scene.cycle()
        assert scene.condition("Ready") == ("True", "Cycled")
        assert scene.condition("Acting") == ("True", "Acting")
        assert scene.desired_owners() == before

    play(FIVE, story)


async def moving(scene: PolicyScene) -> list[str]:
    """Names of the bundles that a cycle moves, on their way."""
    await scene.reconcile()
    flying = sorted(scene.context.pending_moves.open)
    assert flying
    assert scene.status()["inFlight"] == len(flying)
    return flying


def test_a_bundle_that_is_deleted_while_it_moves_ends_its_move_and_is_not_created_again(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        gone, *others = await moving(scene)
        scene.rest.delete(scene.path("bundles", gone))
        await scene.cycle()
        await scene.land()
        await scene.cycle()

        assert gone not in scene.bundles()
        assert set(others) <= set(scene.bundles())
        assert gone not in scene.context.pending_moves.open
        assert gone not in scene.context.pending_moves.landed
        assert scene.condition("Ready")[0] == "True"
        assert "InternalError" not in {reason for reason, _ in scene.events()}

    play(HOT, story)


def test_a_namespace_that_is_deleted_while_its_bundles_move_leaves_nothing_behind(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        flying = await moving(scene)
        scene.rest.delete(scene.path("topicnamespaces", "public-a"))
        spaces = scene.context.stores.topic_namespaces.items
        await until("the store shows it", lambda: "public-a" not in spaces)
        await scene.reconcile(after=1)  # its bundles are still there for a moment
        half = [name for name in scene.bundles() if name.startswith("public-a-")]
        for name in half[::2]:
            scene.rest.delete(scene.path("bundles", name))
        await scene.reconcile(after=90)  # past the time-out of the moves
        for name in half[1::2]:
            scene.rest.delete(scene.path("bundles", name))
        await scene.cycle()

        assert flying
        assert not [name for name in scene.bundles() if name.startswith("public-a-")]
        assert not set(scene.context.pending_moves.open) | set(scene.context.pending_moves.landed)
        assert scene.status()["inFlight"] == 0
        assert "InternalError" not in {reason for reason, _ in scene.events()}

    play(HOT, story)


async def discovered(scene: PolicyScene, name: str) -> None:
    """A pod, and the Broker that is made for it."""
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": LABELS}}
    body["spec"] = {"containers": [{"name": "broker", "image": "none"}]}
    scene.rest.create(f"/api/v1/namespaces/{scene.namespace}/pods", body)
    await until("the pod is seen", lambda: name in scene.context.stores.pods.items)
    await look(scene)


async def look(scene: PolicyScene, *, after: float = 0.0) -> set[str]:
    """Compare pods and Brokers; the Brokers there are then."""
    scene.clock += after
    await scene.seen()
    scene.context.share_out()
    await discover_once(scene.context)
    await scene.seen()
    return set(scene.versions("brokers"))


def test_a_discovered_broker_is_forgotten_once_its_pod_is_gone_for_good_and_it_owns_nothing(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        for name in ("idle", "busy", "mine"):
            await discovered(scene, name)
        scene.rest.patch(scene.path("brokers", "mine"), {"spec": {"weight": 2}})
        (kept, *_) = scene.bundles()
        scene.rest.patch(scene.path("bundles", kept, "status"), {"status": {"owner": "busy", "state": "Owned"}})
        for name in ("idle", "busy", "mine"):
            scene.rest.delete(f"/api/v1/namespaces/{scene.namespace}/pods/{name}?gracePeriodSeconds=0")
        await until("the pods are gone", lambda: not scene.context.stores.pods.items)

        everybody = {"a", "b", "c", "idle", "busy", "mine"}
        assert await look(scene) == everybody
        assert await look(scene, after=600) == everybody
        assert await look(scene, after=2) == everybody - {"idle"}, "a, b and c were not made by discovery"
        assert await look(scene, after=86400) == everybody - {"idle"}

    play(HOT, story, mode="DryRun", brokers={"podLabels": LABELS}, limits={"forgetAfter": "10m"})
