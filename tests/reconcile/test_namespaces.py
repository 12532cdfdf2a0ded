"""A TopicNamespace is cut once into the bundles that Pulsar would begin with, and never takes those of another."""

from __future__ import annotations

from itertools import pairwise

import pytest

from manifests import topic_namespace
from policy_scene import Play, PolicyScene
from trimtab_operator.reconcile.namespaces import cut
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=1, a=0.5, b=0.5)


def ready(scene: PolicyScene, name: str) -> tuple[str, str, str]:
    [condition] = scene.rest.get(scene.path("topicnamespaces", name))["status"]["conditions"]
    return condition["status"], condition["reason"], condition["message"]


async def made(scene: PolicyScene, name: str, bundles: int) -> None:
    """A person creates the object, and the operator cuts it."""
    manifest = topic_namespace(name, tenant="t", name="new", bundles=bundles)
    await cut(scene.context, scene.rest.create(scene.path("topicnamespaces"), manifest))


def test_the_bundles_cover_the_ring_without_a_gap_and_the_status_says_so(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await made(scene, "t-new", bundles=3)

        found = [b for b in scene.bundles().values() if b["spec"]["topicNamespace"] == "t-new"]
        ranges = sorted((b["spec"]["range"]["lower"], b["spec"]["range"]["upper"]) for b in found)
        assert (ranges[0][0], ranges[-1][1], len(ranges)) == ("0x00000000", "0xffffffff", 3)
        assert all(before[1] == after[0] for before, after in pairwise(ranges))
        assert ready(scene, "t-new") == ("True", "Cut", "cut into 3 bundles")

    play(LEVEL, story)


def test_an_interrupted_cut_goes_on_and_a_finished_one_is_never_repeated(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await made(scene, "t-new", bundles=4)
        victim = next(name for name, b in scene.bundles().items() if b["spec"]["topicNamespace"] == "t-new")
        before = scene.versions("bundles")

        scene.rest.delete(scene.path("bundles", victim))
        await cut(scene.context, scene.rest.get(scene.path("topicnamespaces", "t-new")))
        assert victim not in scene.bundles()

        scene.rest.patch(scene.path("topicnamespaces", "t-new", "status"), {"status": {"conditions": None}})
        await cut(scene.context, scene.rest.get(scene.path("topicnamespaces", "t-new")))
        after = scene.versions("bundles")
        assert after.keys() == before.keys()
        assert {name for name in after if after[name] != before[name]} == {victim}

    play(LEVEL, story)


def test_a_second_object_for_the_same_namespace_learns_whose_the_bundles_are(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        await made(scene, "t-new", bundles=2)
        before = scene.versions("bundles")

        await made(scene, "again", bundles=2)

        assert ready(scene, "again") == (
            "False",
            "AlreadyCut",
            "its bundles belong to the TopicNamespace t-new: delete one",
        )
        assert scene.versions("bundles") == before

    play(LEVEL, story)


def test_a_namespace_that_pulsar_has_or_will_have_is_not_cut(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        before = scene.versions("bundles")
        found = topic_namespace("t-found", tenant="t", name="found", bundles=3)
        found["metadata"]["labels"] = {"trimtab.dev/discovered": "true"}
        await cut(scene.context, scene.rest.create(scene.path("topicnamespaces"), found))

        scene.context.link.spec = PulsarSpec(admin_url="http://pulsar.messaging.svc:8080")
        await made(scene, "t-new", bundles=2)

        assert scene.versions("bundles") == before

    play(LEVEL, story)
