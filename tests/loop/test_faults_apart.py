"""A defect in one part of a reconcile affects that part alone: unowned bundles still get owners."""

from __future__ import annotations

from typing import Any

import pytest

from odd_sources import Broken
from plan_clusters import LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_operator.decision_log import store
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_strategies.model import Memory

pytestmark = pytest.mark.apiserver


async def unassigned(env: PolicyEnvironment) -> str:
    """A bundle without owner and desired owner."""
    name = min(env.bundles())
    env.rest.patch(env.path("bundles", name), {"spec": {"owner": ""}})
    env.rest.patch(env.path("bundles", name, "status"), {"status": {"owner": "", "state": "Free"}})
    await env.seen()
    return name


def test_a_source_with_a_defect_keeps_no_bundle_without_an_owner(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.source = Broken(env.load)
        name = await unassigned(env)
        await env.whole_turn()

        assert env.desired_owners()[name] in {"a", "b", "c"}
        assert env.condition("Ready") == ("False", "InternalError")

    run_policy(LEVEL_OF_THREE, scenario)


def test_memory_that_the_placement_trips_over_keeps_no_bundle_without_an_owner(run_policy: RunPolicy) -> None:
    garbage: dict[str, Any] = {"names": ["a"], "ema": "garbage", "usage": {"a": "much"}, "brokers": {"ema": "garbage"}}

    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        env.loop.memory.state = PolicyState(Memory(placement=garbage), epoch=1)
        name = await unassigned(env)
        await env.whole_turn(after=1)

        assert env.desired_owners()[name] in {"a", "b", "c"}

    run_policy(LEVEL_OF_THREE, scenario)


def test_a_decision_that_cannot_be_recorded_is_offered_all_the_same(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("bundle")

    async def scenario(env: PolicyEnvironment) -> None:
        monkeypatch.setattr(store, "decision_record", broken)
        await env.reconcile()

        assert env.condition("ProposalReady") == ("True", "ProposalReady")

    run_policy(cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2), scenario, mode="Approve")
