"""Splits on a real API server: ordered by a person, carried out step by step, whatever comes in between.

After every single write each hash of the ring is served by exactly one bundle (`split_scene.check_served`).
"""

from __future__ import annotations

from typing import Any

import pytest

from policy_scene import Play, PolicyScene
from split_scene import Operator, condition, half, halves, leftovers, order, splits
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

LOAD = cluster(bundles={"a": [1] * 32, "b": [1]}, a=0.5, b=0.5, c=0.1)


def bundle(scene: PolicyScene, row: int = 0) -> str:
    return scene.names[scene.load.bundles.names[row]]


def halve(scene: PolicyScene, row: int = 0, name: str = "halve", **spec: Any) -> str:
    """A person orders a bundle to be halved; the bundle."""
    order(scene, name, **{"bundle": bundle(scene, row), "boundaries": [half(bundle(scene, row))], **spec})
    return bundle(scene, row)


def test_a_bundle_is_divided_as_a_person_asks(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        whole, operator = halve(scene), Operator(scene)

        await operator.round()
        parent, first = scene.bundles()[whole], scene.bundles()[halves(whole)[0]]
        assert (parent["status"]["state"], parent["status"]["split"]) == ("Splitting", "halve")
        assert (first["spec"]["owner"], first["spec"]["assignment"]["reason"]) == ("a", "Splitting")
        assert first["metadata"]["ownerReferences"][0]["kind"] == "TopicNamespace"

        status = await operator.finish("halve")

        assert status["phase"] == "Completed"
        assert condition(status, "Accepted") == ("True", "Accepted")
        assert condition(status, "Complete") == ("True", "Completed")
        assert [child["bundle"] for child in status["children"]] == halves(whole)
        assert whole not in scene.bundles()
        assert {name: scene.owners()[name] for name in halves(whole)} == dict.fromkeys(halves(whole), "a")
        assert not leftovers(scene)
        assert splits(scene)["halve"]["metadata"]["ownerReferences"][0]["name"] == "public-a"
        assert [reason for reason, _ in scene.events()] == ["Completed"]

    play(LOAD, story)
