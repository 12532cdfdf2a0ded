"""A policy's moves keep to disruption budgets, on a real API server."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from approve_mode import approved, progress
from faulty_api import until
from manifests import topic_namespace
from policy_environment import PolicyEnvironment, RunPolicy, refit
from strategy_testing.clusters import cluster
from trimtab_operator.budget.account import BudgetAccount
from trimtab_operator.kube.client import RefusedError
from trimtab_strategies.budget import HOUR, BudgetLedger

pytestmark = pytest.mark.apiserver

HOT = cluster(a=0.9, b=0.1, c=0.1, bundles={"a": [1] * 10, "b": [1], "c": [1]})
"""Twelve clients, one of each bundle: a move cuts 8.3 % of the policy's, and 10 % of those of public/a."""

ONE_MOVE = {"connectionsPercentPerHour": 10}
LIMITS = {"coolDown": "1s"}


def use(env: PolicyEnvironment, limit: str = "connectionsPercentPerHour") -> dict[str, Any]:
    """The line of the policy's status about `limit`."""
    (found,) = (line for line in env.status()["budget"]["limits"] if line["limit"] == limit)
    return dict(found)


def spaces(env: PolicyEnvironment, name: str = "public-a") -> dict[str, Any]:
    return dict(env.rest.get(env.path("topicnamespaces", name)))


def moved(env: PolicyEnvironment) -> int:
    """Number of bundles of public/a that are no longer wanted on a."""
    return sum(owner != "a" for name, owner in env.desired_owners().items() if name.startswith("public-a-"))


def forget(env: PolicyEnvironment) -> None:
    """Restart the operator: what was spent is only in the API server."""
    env.restart()
    refit(env.cluster, budget=BudgetAccount())


def test_a_budget_stops_the_second_move_says_until_when_and_frees_it_then(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert moved(env) == 1
        first = env.clock
        assert env.held_back()["DisruptionBudget"] >= 1
        assert use(env) | {"freesAt": ""} == {
            "limit": "connectionsPercentPerHour",
            "bound": 10,
            "spent": 8.33,
            "left": 1.67,
            "subject": "",
            "freesAt": "",
        }
        assert use(env)["freesAt"] == "1970-01-12T14:46:41Z"

        await env.land()
        forget(env)
        await env.cycle()
        assert moved(env) == 1, "what was spent survives a restart"

        env.clock = first + HOUR - 5
        await env.reconcile()
        assert moved(env) == 1
        env.clock = first + HOUR + 120
        await env.reconcile()
        assert moved(env) == 2

    run_policy(HOT, scenario, budget=ONE_MOVE, limits=LIMITS)


def test_a_namespace_keeps_its_own_budget_and_shows_what_is_left(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.patch(env.path("topicnamespaces", "public-a"), {"spec": {"budget": {"connectionsPercentPerHour": 20}}})
        await _seen(env)

        await env.reconcile()
        await env.reconcile(after=2)

        assert moved(env) == 2
        (line,) = spaces(env)["status"]["budget"]["limits"]
        assert (line["spent"], line["left"]) == (20, 0)
        assert "budget" not in env.status()

        env.rest.patch(env.path("topicnamespaces", "public-a"), {"spec": {"budget": None}})
        await _seen(env)
        await env.reconcile(after=2)
        assert "budget" not in spaces(env)["status"]

    run_policy(HOT, scenario, limits=LIMITS)


def test_equal_figures_are_shown_again_after_a_budget_or_its_namespace_was_removed(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        bounds = {"connectionsPercentPerHour": 20}
        quiet = topic_namespace("public-z", tenant="public", name="z", budget=bounds)
        gauge = partial(
            env.cluster.metrics.registry.get_sample_value,
            "trimtab_namespace_budget_spent_ratio",
            {"topic_namespace": "public/z", "limit": "connectionsPercentPerHour"},
        )

        async def turn() -> bool:
            await _seen(env)
            await env.reconcile(after=2)
            await _seen(env)
            return "budget" in spaces(env, "public-z").get("status", {})

        env.rest.create(env.path("topicnamespaces"), quiet)
        assert (await turn(), gauge()) == (True, 0)
        for budget in (None, bounds):
            env.rest.patch(env.path("topicnamespaces", "public-z"), {"spec": {"budget": budget}})
            assert await turn() is (budget is not None)

        env.rest.delete(env.path("topicnamespaces", "public-z"))
        env.rest.create(env.path("topicnamespaces"), quiet)
        assert (await turn(), gauge()) == (True, 0)

        env.rest.delete(env.path("topicnamespaces", "public-z"))
        await _seen(env)
        await env.reconcile(after=2)
        assert gauge() is None

    run_policy(HOT, scenario, limits=LIMITS)


async def _seen(env: PolicyEnvironment) -> None:
    """Wait until the store of topic namespaces shows what the API server has."""
    store = env.cluster.stores.topic_namespaces
    versions = env.versions("topicnamespaces")
    await until(
        "the store shows the namespaces",
        lambda: {name: record.resource_version for name, record in store.items.items()} == versions,
    )


def test_a_drain_goes_beyond_the_budget_and_says_so(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.patch(env.path("brokers", "a"), {"spec": {"schedulable": False}})

        await env.reconcile()
        assert moved(env) > 2
        await env.reconcile(after=2)

        assert "BudgetOverridden" in {reason for reason, _ in env.events()}
        await env.cycle()
        assert env.status()["budget"]["overridden"] >= 1
        assert use(env)["spent"] > use(env)["bound"]
        assert use(env)["left"] == 0

    run_policy(HOT, scenario, budget=ONE_MOVE, limits=LIMITS)


def test_a_persons_move_is_not_held_back_and_leaves_less_for_the_policy(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert moved(env) == 0
        bundle = next(name for name in env.names.values() if name.startswith("public-a-"))

        env.give(bundle, "b")
        await env.land()
        await env.reconcile(after=2)
        env.edit(mode="Auto")
        await env.cycle()

        assert moved(env) == 1
        assert use(env)["spent"] == pytest.approx(8.33)

    run_policy(HOT, scenario, mode="DryRun", budget=ONE_MOVE, limits=LIMITS)


def test_an_approved_move_keeps_its_place_until_the_budget_frees_it(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await approved(env)
        assert moved(env) == 1
        await env.land()
        await env.reconcile(after=3)
        assert "connectionsPercentPerHour of policy main is 10 %" in progress(env)["waits"]
        assert progress(env)["failed"] == 0
        assert "timeLeft" not in progress(env), "the pace so far does not say how long it waits"
        assert moved(env) == 1

        await env.reconcile(after=HOUR)

        assert moved(env) == 2

    run_policy(HOT, scenario, mode="Approve", budget={**ONE_MOVE, "movesInFlight": 5}, limits=LIMITS)


def test_moves_in_flight_are_bounded_by_namespace(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert moved(env) == 2
        await env.cycle()
        assert moved(env) == 2, "they have not landed"
        await env.land()
        await env.cycle()
        assert moved(env) > 2

    run_policy(HOT, scenario, budget={"movesInFlight": 2}, limits={**LIMITS, "moveTimeout": "1h"})


class FullAccount(BudgetAccount):
    """An account whose ConfigMap has no room left."""

    async def keep(self, ledger: BudgetLedger) -> None:
        raise RefusedError(f"{len(ledger.charges)} charges do not fit")


def test_nothing_moves_that_can_not_be_paid_for(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        refit(env.cluster, budget=FullAccount())

        await env.reconcile()

        assert moved(env) == 0
        assert env.held_back()["DisruptionBudget"] >= 1

    run_policy(HOT, scenario, budget=ONE_MOVE, limits=LIMITS)


def test_what_was_spent_can_not_be_read_so_nothing_moves_until_it_is_deleted(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        maps = f"/api/v1/namespaces/{env.namespace}/configmaps"
        env.rest.create(maps, {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "trimtab-budget"}})

        await env.reconcile()
        assert moved(env) == 0

        env.rest.delete(f"{maps}/trimtab-budget")
        await env.cycle()
        assert moved(env) == 1

    run_policy(HOT, scenario, budget=ONE_MOVE, limits=LIMITS)


def test_without_budgets_nothing_is_stored(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        found = env.rest.get(f"/api/v1/namespaces/{env.namespace}/configmaps")["items"]
        assert "trimtab-budget" not in {item["metadata"]["name"] for item in found}, json.dumps(found)[:500]

    run_policy(HOT, scenario, limits=LIMITS)
