"""Whatever strategies the registry knows run from a policy, and a change of them counts at the next cycle."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_strategies.registry import PLACEMENTS, SELECTIONS, SHEDDERS, SPLITTERS

pytestmark = pytest.mark.apiserver

UNEVEN = cluster(bundles={"a": [3, 2, 1, 1, 1, 1], "b": [1, 1], "c": [1]}, a=0.9, b=0.3, c=0.2)


def chosen(kind: str) -> dict[str, Any]:
    """The union member of that type, with its defaults; a merge-patch leaves nothing of another."""
    return {"type": kind}


def replaced(env: PolicyEnvironment, **spec: dict[str, Any]) -> None:
    """Put these strategies in the place of those that are there."""
    before = env.policy()["spec"]
    env.edit(**{field: {**dict.fromkeys(before.get(field, {})), **value} for field, value in spec.items()})


def test_every_pair_of_the_registry_runs_and_takes_over_at_the_next_cycle(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for shedder, placement in itertools.product(SHEDDERS, PLACEMENTS):
            replaced(env, shedder=chosen(shedder), placement=chosen(placement))
            await env.cycle()
            assert env.condition("Ready") == ("True", "Cycled"), f"{shedder} with {placement}"
            assert env.status()["observedGeneration"] == env.policy()["metadata"]["generation"]
            assert env.memory()["of"][:2] == [shedder, placement]
            await env.land()

    run_policy(UNEVEN, scenario)


def test_every_selection_and_every_splitter_runs(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for selection, splitter in itertools.zip_longest(SELECTIONS, SPLITTERS, fillvalue=next(iter(SELECTIONS))):
            replaced(env, selection=chosen(selection), split=chosen(splitter))
            await env.cycle()
            assert env.condition("Ready") == ("True", "Cycled"), f"{selection} with {splitter}"
            await env.land()

    run_policy(UNEVEN, scenario)


def test_a_shedder_knows_nothing_of_what_another_one_remembered(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        replaced(env, shedder=chosen("AvgShedder"), placement=chosen("AvgShedder"))
        await env.cycle()
        assert env.memory()["shedder"]

        replaced(env, shedder=chosen("OverloadShedder"), placement=chosen("RoundRobin"))
        await env.cycle()
        assert env.memory()["of"] == ["OverloadShedder", "RoundRobin", ""]
        assert "plan" not in json.dumps(env.memory()["shedder"])

    run_policy(UNEVEN, scenario)
