"""A name that belongs to no Broker moves nothing: the bundle stays where it is, and people read why."""

from __future__ import annotations

import pytest

from policy_scene import Play, PolicyScene
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=2, a=0.5, b=0.5)
LOST_AFTER = 31.0
"""Seconds after which a broker that nobody has seen counts as lost, and a little more."""


def told(scene: PolicyScene) -> list[str]:
    return [note for reason, note in scene.events() if reason == "UnknownBroker"]


def reason(scene: PolicyScene, bundle: str) -> str:
    return str(scene.bundles()[bundle]["spec"]["assignment"]["reason"])


def test_a_typo_is_set_back_and_reported_on_the_bundle_once(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        name, owner = next((name, owner) for name, owner in scene.owners().items() if owner == "a")
        scene.give(name, "broker-tpyo")
        await scene.reconcile()
        assert (scene.desired_owners()[name], scene.owners()[name]) == ("broker-tpyo", owner)

        for _ in range(3):
            await scene.reconcile(after=LOST_AFTER)

        assert (scene.desired_owners()[name], scene.owners()[name], reason(scene, name)) == ("a", "a", "UnknownBroker")
        assert told(scene) == [
            "spec.owner broker-tpyo names no Broker: it stays on a. See the names with: kubectl get brokers"
        ]

    play(LEVEL, story, mode="DryRun")


def test_a_bundle_without_owner_that_was_desired_for_an_unknown_broker_gets_one(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        name = next(iter(scene.owners()))
        scene.rest.patch(scene.path("bundles", name, "status"), {"status": {"owner": "", "state": "Free"}})
        scene.give(name, "broker-tpyo")
        await scene.reconcile()

        await scene.reconcile(after=LOST_AFTER)
        await scene.land()
        await scene.reconcile()

        assert scene.owners()[name] in {"a", "b"}
        assert reason(scene, name) == "UnknownBroker"
        [note] = told(scene)
        assert note.startswith("spec.owner broker-tpyo names no Broker: it had no owner, and gets one. ")

    play(LEVEL, story, mode="DryRun")
