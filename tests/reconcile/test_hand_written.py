"""A wish that a person writes with kubectl: whose it is, and that the reason of the wish before goes."""

from __future__ import annotations

from functools import partial

import pytest

from policy_scene import Play, PolicyScene, eager, played
from trimtab_strategies.testing import cluster
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)


@pytest.fixture
def play(trimtab_crds: ControlPlane, kube_namespace: str) -> Play:
    return partial(played, trimtab_crds, kube_namespace)


def shown(scene: PolicyScene, name: str) -> tuple[str, str, str]:
    """What the columns Desired, Reason and Policy of `kubectl get bundles -o wide` show."""
    spec = scene.bundles()[name]["spec"]
    return spec["owner"], spec["assignment"]["reason"], spec["assignment"].get("policy", "")


def test_a_hand_written_desired_owner_does_not_keep_the_reason_of_the_previous_one(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        moved = min(name for name, desired in scene.desired_owners().items() if desired != scene.owners()[name])
        await scene.land()
        assert shown(scene, moved)[1:] == ("Overloaded", "main")

        scene.edit(paused=True)
        scene.give(moved, "a")
        await scene.land()
        await scene.reconcile(after=1)
        await scene.land()

        assert shown(scene, moved) == ("a", "Admin", "")
        noted = scene.bundles()[moved]["metadata"]["generation"]
        await scene.reconcile(after=1)
        assert scene.bundles()[moved]["metadata"]["generation"] == noted, "it is written once"
        assert not any(reason == "TimedOut" for reason, _ in scene.events())

    play(HOT, story, **eager())
