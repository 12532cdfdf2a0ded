"""2,000 bundles on a real API server: an idle cycle costs one write, and a large plan keeps to its caps."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from bulk_environment import BulkEnvironment
from odd_sources import Meanwhile
from policy_environment import PolicyEnvironment, Scenario
from strategy_testing.clusters import cluster
from trimtab_operator.loop.preview import preview
from trimtab_strategies.model import ClusterLoad
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=500, a=0.5, b=0.5, c=0.5, d=0.5)
HOT = cluster(bundles=500, a=0.9, b=0.9, c=0.1, d=0.1)
PER_CYCLE, PER_BROKER, TAKEN = 60, 40, 5


class Crowd(BulkEnvironment):
    """An environment that knows which bundles its policy has moved."""

    def moved(self) -> list[str]:
        """Destinations of the bundles that the policy has moved."""
        specs = [found["spec"] for found in self.bundles().values()]
        return [spec["owner"] for spec in specs if spec.get("assignment", {}).get("policy") == "main"]


def run_scenario(plane: ControlPlane, namespace: str, load: ClusterLoad, scenario: Scenario, **spec: Any) -> None:
    async def whole() -> None:
        async with asyncio.timeout(90):
            await Crowd(plane, namespace, load).run_policy(scenario, spec)

    asyncio.run(whole())


def test_an_idle_cycle_over_2_000_bundles_writes_nothing_but_one_status(
    trimtab_crds: ControlPlane, kube_namespace: str
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()  # says for the first time what brokers carry
        before = env.versions("bundles")
        env.requests.clear()

        await env.cycle()

        assert len(before) == len(LEVEL.bundles)
        assert {verb: n for verb, n in env.requests.items() if verb in {"create", "patch", "delete"}} == {"patch": 1}
        assert env.versions("bundles") == before
        assert env.status()["lastCycle"]["moved"] == 0

    run_scenario(trimtab_crds, kube_namespace, LEVEL, scenario)


def test_a_large_plan_keeps_to_its_caps_and_leaves_what_others_changed_meanwhile(
    trimtab_crds: ControlPlane, kube_namespace: str
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        assert isinstance(env, Crowd)
        foreseen = await preview(env.cluster, "main")
        taken = [env.names[move.bundle] for move in foreseen.plan.moves[:TAKEN]]
        env.source = Meanwhile(env.load, lambda: [env.give(name, "b") for name in taken])

        await env.reconcile()

        last, moved = env.status()["lastCycle"], env.moved()
        assert last["moved"] == len(moved) == PER_CYCLE - TAKEN
        assert last["heldBack"]["Conflict"] == TAKEN
        assert last["heldBack"]["CycleCap"] >= 1
        assert max(Counter(moved).values()) <= PER_BROKER
        assert {env.desired_owners()[name] for name in taken} == {"b"}

    caps = {"maxMovesPerCycle": PER_CYCLE, "maxMovesPerBroker": PER_BROKER}
    run_scenario(trimtab_crds, kube_namespace, HOT, scenario, limits=caps)
