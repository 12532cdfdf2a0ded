"""What an approved proposal writes: the bundle that was checked, no more moves than allowed, and no move twice."""

from __future__ import annotations

import asyncio

import pytest

from approve_mode import APPROVE, approved, ask, moved, offered, progress
from faulty_api import until
from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from strategy_testing.clusters import cluster
from trimtab_operator.actuators import DeclarativeActuator, apply_moves
from trimtab_strategies.model import Move, Reason, Split

pytestmark = pytest.mark.apiserver

MANY = cluster(bundles={"a": [1] * 12, "b": [1], "c": [1]}, a=0.9, b=0.1, c=0.1)


async def between(env: PolicyEnvironment) -> asyncio.Task[None]:
    """A round of the proposal that has checked its moves, and waits for the account of budgets, which is locked."""
    lock = env.cluster.budget.lock
    await lock.acquire()
    env.clock += 2
    await env.seen()
    round_ = asyncio.create_task(env.loop.reconcile())
    await until("the round has checked its moves", lambda: lock._waiters)
    return round_


def test_a_bundle_that_a_person_pins_after_the_check_stays_where_it_is(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        ask(env, "approve", found["id"])
        round_ = await between(env)
        first = found["moves"][0]["bundle"]
        env.rest.patch(env.path("bundles", first), {"spec": {"pinned": True}})
        await env.seen()

        env.cluster.budget.lock.release()
        await round_

        assert first not in moved(env)
        await env.reconcile(after=2)
        await env.reconcile(after=2)
        assert first not in moved(env)

    run_policy(HOT, scenario, **APPROVE, budget={"movesInFlight": 5})


def test_a_move_that_lands_makes_room_for_one_more(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await approved(env)
        assert found["total"] >= 5
        for landed in range(found["total"] - 2):
            assert len(moved(env)) == landed + 2
            pending = next(name for name, owner in moved(env).items() if env.owners()[name] != owner)
            env.rest.patch(
                env.path("bundles", pending, "status"),
                {
                    "status": {
                        "owner": env.desired_owners()[pending],
                        "state": "Owned",
                        "observedGeneration": env.bundles()[pending]["metadata"]["generation"],
                    }
                },
            )
            await env.reconcile(after=2)
        assert progress(env)["landed"] == found["total"] - 2

    limits = {"maxMovesInFlight": 2, "maxMovesPerBroker": 20, "maxMovesPerCycle": 20, "moveTimeout": "300s"}
    run_policy(MANY, scenario, **{**eager(**limits), **APPROVE})


def test_a_write_that_meets_another_version_is_not_made(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        records = {full: env.cluster.stores.bundles.items[name] for full, name in env.names.items()}
        full = next(full for full, record in records.items() if record.owner == "a")
        env.rest.patch(env.path("bundles", records[full].name), {"metadata": {"labels": {"by": "another-client"}}})
        actuator = DeclarativeActuator(env.cluster.api, env.namespace, "main", 1, env.cluster.now)

        (written,) = await apply_moves([Move(full, "a", "b", Reason.OVERLOADED, 0.0)], records, actuator)

        assert written.reason is Reason.CONFLICT
        assert not moved(env)
        freed = await actuator.free(records[full])
        assert freed.reason is Reason.CONFLICT
        assert env.owners()[records[full].name] == "a"

    run_policy(HOT, scenario)


def test_a_split_that_exists_already_is_not_requested_again(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        record = next(iter(env.cluster.stores.bundles.items.values()))
        middle = (int(record.lower, 16) + int(record.upper, 16)) // 2
        split = Split(env.load.bundles.names[0], record.status_owner, (middle,), Reason.BANDWIDTH)
        actuator = DeclarativeActuator(env.cluster.api, env.namespace, "main", 1, env.cluster.now)

        assert (await actuator.request_split(record, split)).reason is None
        assert (await actuator.request_split(record, split)).reason is Reason.CONFLICT

    run_policy(HOT, scenario)
