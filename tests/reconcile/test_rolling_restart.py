"""A StatefulSet's rolling restart on the real API server: ten pods, ten brokers, and the loop that moves bundles."""

from __future__ import annotations

import pytest

from faulty_api import until
from policy_environment import PolicyEnvironment, RunPolicy
from restarting_pods import RestartingPods
from strategy_testing.clusters import cluster
from trimtab_operator.app import discover_once
from trimtab_operator.reconcile.bundles import APPEARS_WITHIN

pytestmark = [pytest.mark.apiserver, pytest.mark.long]

BROKERS = 10
LOAD = cluster(bundles=3, **{f"p-{i}": 0.4 for i in range(BROKERS)})
COARSE = {"type": "ThresholdShedder", "thresholdShedder": {"threshold": 15, "historyPercent": 0, "minThroughput": 0}}
"""Leaves alone what one bundle more would be: 13 points."""


def test_every_bundle_moves_out_of_the_way_once_and_nothing_is_ever_without_a_broker(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        pods = RestartingPods(env)
        for i in range(BROKERS):
            await pods.start(f"p-{i}", "old")
            await pods.becomes_ready(f"p-{i}")
        await pods.act()
        assert not pods.moved, "new pods move nothing"

        for i in reversed(range(BROKERS)):
            name = f"p-{i}"
            await pods.end(name)
            assert name not in env.owners().values(), "emptied while it still serves"
            await pods.gone(name)
            await pods.start(name, "new")
            await pods.act()
            await env.cycle()
            assert env.condition("Balanced") == ("False", "RollingOut")
            await pods.ready(name)

        for _ in range(3):
            await env.cycle()
            await pods.act()
        assert env.condition("Balanced")[1] != "RollingOut"
        assert sum(pods.moved.values()) <= 1.1 * len(LOAD.bundles)
        assert pods.peak <= 0.85
        assert set(env.cluster.lost_brokers.since) == set()

    run_policy(LOAD, scenario, shedder=COARSE)


@pytest.mark.parametrize(("seconds", "where"), [(1.0, {"p-2"}), (APPEARS_WITHIN, {"p-0"})])
def test_bundles_of_a_pod_that_ends_wait_a_moment_for_the_one_that_was_ready_just_now(
    run_policy: RunPolicy, seconds: float, where: set[str]
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        pods = RestartingPods(env)
        for name in ("p-0", "p-1", "p-2"):
            await pods.start(name, "old")
            await pods.becomes_ready(name)
        await pods.act()
        await pods.end("p-2")
        await pods.gone("p-2")
        await pods.start("p-2", "new")
        await pods.act()
        own = {name for name, owner in env.owners().items() if owner == "p-1"}

        await pods.becomes_ready("p-2")
        env.rest.delete(pods.path("p-1"))
        await until("the next pod ends", lambda: env.cluster.stores.pods.items["p-1"].deleted)
        await env.reconcile(after=1)
        assert {env.desired_owners()[name] for name in own} == {"p-1"}, "its Broker does not say yet that it is ready"

        if seconds < APPEARS_WITHIN:
            await discover_once(env.cluster)
        await env.reconcile(after=seconds)
        assert {env.desired_owners()[name] for name in own} == where

    run_policy(cluster(bundles=3, **{f"p-{i}": 0.2 for i in range(3)}), scenario, shedder=COARSE)


def test_an_open_move_to_a_pod_that_ends_is_withdrawn(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        pods = RestartingPods(env)
        await pods.start("b", "old")
        await pods.ready("b")
        moving = next(name for name, owner in env.owners().items() if owner == "a")
        env.give(moving, "b")
        await env.reconcile()
        env.rest.delete(pods.path("b"))
        await until("the pod ends", lambda: env.cluster.stores.pods.items["b"].deleted)
        await env.reconcile(after=1)

        assert env.desired_owners()[moving] == "a"

    run_policy(cluster(a=0.3, b=0.3, c=0.3), scenario)
