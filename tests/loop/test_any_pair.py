"""Whatever strategies the registry knows run from a policy, and a change of them counts at the next cycle."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from policy_scene import Play, PolicyScene
from trimtab_strategies.registry import PLACEMENTS, SELECTIONS, SHEDDERS, SPLITTERS
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

UNEVEN = cluster(bundles={"a": [3, 2, 1, 1, 1, 1], "b": [1, 1], "c": [1]}, a=0.9, b=0.3, c=0.2)


def chosen(kind: str) -> dict[str, Any]:
    """The union member of that type, with its defaults; a merge-patch leaves nothing of another."""
    return {"type": kind}


def replaced(scene: PolicyScene, **spec: dict[str, Any]) -> None:
    """Put these strategies in the place of those that are there."""
    before = scene.policy()["spec"]
    scene.edit(**{field: {**dict.fromkeys(before.get(field, {})), **value} for field, value in spec.items()})


def test_every_pair_of_the_registry_runs_and_takes_over_at_the_next_cycle(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for shedder, placement in itertools.product(SHEDDERS, PLACEMENTS):
            replaced(scene, shedder=chosen(shedder), placement=chosen(placement))
            await scene.cycle()
            assert scene.condition("Ready") == ("True", "Cycled"), f"{shedder} with {placement}"
            assert scene.status()["observedGeneration"] == scene.policy()["metadata"]["generation"]
            assert scene.memory()["of"][:2] == [shedder, placement]
            await scene.land()

    play(UNEVEN, story)


def test_every_selection_and_every_splitter_runs(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        for selection, splitter in itertools.zip_longest(SELECTIONS, SPLITTERS, fillvalue=next(iter(SELECTIONS))):
            replaced(scene, selection=chosen(selection), split=chosen(splitter))
            await scene.cycle()
            assert scene.condition("Ready") == ("True", "Cycled"), f"{selection} with {splitter}"
            await scene.land()

    play(UNEVEN, story)


def test_a_shedder_knows_nothing_of_what_another_one_remembered(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        replaced(scene, shedder=chosen("AvgShedder"), placement=chosen("AvgShedder"))
        await scene.cycle()
        assert scene.memory()["shedder"]

        replaced(scene, shedder=chosen("OverloadShedder"), placement=chosen("RoundRobin"))
        await scene.cycle()
        assert scene.memory()["of"] == ["OverloadShedder", "RoundRobin", ""]
        assert "plan" not in json.dumps(scene.memory()["shedder"])

    play(UNEVEN, story)
