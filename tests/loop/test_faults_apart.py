"""A defect in one part of a turn costs that part alone: bundles that nobody serves get owners all the same."""

from __future__ import annotations

from typing import Any

import pytest

from odd_sources import Broken
from policy_scene import Play, PolicyScene
from trimtab_operator.decision_log import store
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_strategies.model import Memory
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=2, a=0.5, b=0.5, c=0.5)


async def unassigned(scene: PolicyScene) -> str:
    """A bundle that nobody serves, and nobody is wished to."""
    name = min(scene.bundles())
    scene.rest.patch(scene.path("bundles", name), {"spec": {"owner": ""}})
    scene.rest.patch(scene.path("bundles", name, "status"), {"status": {"owner": "", "state": "Free"}})
    await scene.seen()
    return name


def test_a_source_with_a_defect_keeps_no_bundle_without_an_owner(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.source = Broken(scene.load)
        name = await unassigned(scene)
        await scene.whole_turn()

        assert scene.desired_owners()[name] in {"a", "b", "c"}
        assert scene.condition("Ready") == ("False", "InternalError")

    play(LEVEL, story)


def test_memory_that_the_placement_trips_over_keeps_no_bundle_without_an_owner(play: Play) -> None:
    garbage: dict[str, Any] = {"names": ["a"], "ema": "garbage", "usage": {"a": "much"}, "brokers": {"ema": "garbage"}}

    async def story(scene: PolicyScene) -> None:
        await scene.reconcile()
        scene.loop.memory.state = PolicyState(Memory(placement=garbage), epoch=1)
        name = await unassigned(scene)
        await scene.whole_turn(after=1)

        assert scene.desired_owners()[name] in {"a", "b", "c"}

    play(LEVEL, story)


def test_a_decision_that_cannot_be_recorded_is_offered_all_the_same(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("bundle")

    async def story(scene: PolicyScene) -> None:
        monkeypatch.setattr(store, "decision_record", broken)
        await scene.reconcile()

        assert scene.condition("ProposalReady") == ("True", "ProposalReady")

    play(cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2), story, mode="Approve")
