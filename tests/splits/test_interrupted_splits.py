"""Splits on a real API server in whose middle the operator dies, or a bundle, a broker or the split itself goes.

After every single write each hash of the ring is served by exactly one bundle (`declarative_splits.check_served`).
"""

from __future__ import annotations

import itertools

import pytest

from declarative_splits import (
    SPLIT_LOAD,
    DiedError,
    SplitOperator,
    failed,
    halve,
    halves,
    leftovers,
    split_status,
)
from policy_environment import PolicyEnvironment, RunPolicy
from trimtab_operator.kube.client import ApiUnavailableError, RefusedError
from trimtab_operator.splits.controller import SPLIT_WITHIN
from trimtab_operator.splits.declarative import DeclarativeSplitExecutor
from trimtab_operator.splits.steps import SplitOrder, SplitProgress

pytestmark = pytest.mark.apiserver


def test_a_split_goes_on_wherever_the_operator_died(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for writes in itertools.count():
            name, row = f"split-{writes}", writes
            whole = halve(env, row, name, destinations=["", "c"])
            mortal = SplitOperator(env, dies_after=writes)
            try:
                status = await mortal.finish(name)
            except DiedError:
                status = await SplitOperator(env).finish(name)
            else:
                break
            assert status["phase"] == "Completed", writes
            assert whole not in env.bundles()
            owners = [env.owners()[child] for child in halves(whole)]
            assert owners == ["a", "c"], writes
            assert not leftovers(env)
        assert writes > 8

    run_policy(SPLIT_LOAD, scenario)


def test_a_split_goes_back_wherever_the_operator_died(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for writes in itertools.count():
            name = f"split-{writes}"
            whole = halve(env, writes, name)
            before = SplitOperator(env)
            await before.round()  # the children are there, and no broker takes them
            mortal = SplitOperator(env, dies_after=writes)
            try:
                await mortal.round()
                await mortal.round(after=SPLIT_WITHIN + 1)
            except DiedError:
                after = SplitOperator(env)
                await after.round()
                await after.round(after=SPLIT_WITHIN + 1)
            assert failed(env, name) == ("Complete", "TimedOut"), writes
            assert not set(halves(whole)) & set(env.bundles())
            assert env.bundles()[whole]["status"]["state"] == "Owned"
            assert not leftovers(env)
            if mortal.life.alive:
                break
        assert writes > 3

    run_policy(SPLIT_LOAD, scenario)


def test_who_moves_the_parent_in_the_middle_gets_it_whole(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)
        await operator.round()
        env.give(whole, "b")

        await operator.round()

        assert failed(env) == ("Complete", "Superseded")
        assert f"{whole} is to move to b" in split_status(env, "halve")["message"]
        await env.land()
        assert env.owners()[whole] == "b"
        assert not leftovers(env)

    run_policy(SPLIT_LOAD, scenario)


def test_a_parent_that_is_deleted_in_the_middle_leaves_its_children(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)
        await operator.round()
        await env.land()
        env.rest.delete(env.path("bundles", whole))

        assert (await operator.finish("halve"))["phase"] == "Completed"

        assert {env.owners()[name] for name in halves(whole)} == {"a"}
        assert not leftovers(env)

    run_policy(SPLIT_LOAD, scenario)


def test_a_split_that_is_deleted_in_the_middle_leaves_its_bundle_whole(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)
        await operator.round()
        env.rest.delete(env.path("bundlesplits", "halve"))

        await operator.round()

        assert env.owners()[whole] == "a"
        assert env.bundles()[whole]["status"]["state"] == "Owned"
        assert not leftovers(env)
        assert not set(halves(whole)) & set(env.bundles())

    run_policy(SPLIT_LOAD, scenario)


def test_a_bundle_that_the_api_server_refuses_holds_up_no_other(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        refused, whole, operator = halve(env, 0, "one"), halve(env, 1, "two"), SplitOperator(env)
        await operator.round()
        for name in ("one", "two"):
            env.rest.delete(env.path("bundlesplits", name))
        advance = DeclarativeSplitExecutor.advance

        async def refuses(executor: DeclarativeSplitExecutor, order: SplitOrder, give_up: str) -> SplitProgress:
            if order.bundle == refused:
                raise RefusedError("admission webhook denied the request", status=403)
            return await advance(executor, order, give_up)

        monkeypatch.setattr(DeclarativeSplitExecutor, "advance", refuses)
        await operator.round()

        assert not set(halves(whole)) & set(env.bundles())
        assert set(halves(refused)) <= set(env.bundles())

    run_policy(SPLIT_LOAD, scenario)


def test_a_split_that_is_deleted_after_its_bundle_leaves_the_children_as_others(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)
        await operator.round()
        await env.land()
        for plural, name in (("bundles", whole), ("bundlesplits", "halve")):
            env.rest.delete(env.path(plural, name))

        await operator.round()

        assert {env.owners()[name] for name in halves(whole)} == {"a"}
        assert not leftovers(env)

    run_policy(SPLIT_LOAD, scenario)


def test_the_owner_of_a_parent_is_lost_in_the_middle_and_another_gets_it_whole(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)
        await env.reconcile()
        await operator.round()
        env.rest.patch(env.path("brokers", "a", "status"), {"status": {"ready": False}})
        await env.reconcile()

        await env.reconcile(after=31)
        await env.reconcile()
        await operator.round(lost="a")
        await env.land()
        await operator.round()

        assert failed(env)[0] == "Complete"
        assert env.owners()[whole] in {"b", "c"}
        assert not set(halves(whole)) & set(env.bundles())
        assert not leftovers(env)

    run_policy(SPLIT_LOAD, scenario, mode="DryRun", limits={"lostAfter": "30s", "maxLostBrokersPercent": 100})


def test_an_api_server_that_is_away_costs_time_alone(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        whole, operator = halve(env), SplitOperator(env)
        for _ in range(12):
            operator.life.error = ApiUnavailableError("away")
            operator.life.writes = 1
            await operator.round()
            operator.life.writes = None
            await env.land()

        assert split_status(env, "halve")["phase"] == "Completed"
        assert set(halves(whole)) <= set(env.bundles())
        assert not leftovers(env)

    run_policy(SPLIT_LOAD, scenario)
