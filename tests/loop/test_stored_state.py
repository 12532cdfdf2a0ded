"""A policy's memory on a real API server: foreign, too large, with a name too long; and an epoch for each start."""

from __future__ import annotations

from typing import Any

import pytest

from plan_clusters import HOT, LEVEL
from policy_environment import PolicyEnvironment, RunPolicy
from trimtab_operator.kube.client import ConflictError
from trimtab_operator.kube.naming import LONGEST
from trimtab_operator.state.strategy_state import PolicyState, PolicyStateStore
from trimtab_strategies.model import Memory

pytestmark = pytest.mark.apiserver


def put(env: PolicyEnvironment, text: str, **more: Any) -> None:
    """Another client writes this where the policy's memory is."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trimtab-memory-main"}, **more}
    env.rest.create(f"/api/v1/namespaces/{env.namespace}/configmaps", {**body, "data": {"memory.json": text}})


@pytest.mark.parametrize("text", ["", "not json", '{"version": 1, "moves": ["x"], "shedder": {}, "placement": {}}'])
def test_a_memory_that_is_not_ours_is_reported_and_the_policy_starts_again(text: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        put(env, text)

        await env.reconcile()

        assert env.condition("Ready") == ("True", "Cycled")
        [note] = [note for reason, note in env.events() if reason == "InternalError"]
        assert "begins without its stored state" in note
        assert "delete the ConfigMap" in note
        assert env.memory()["epoch"] == 1

    run_policy(LEVEL, scenario)


def test_memory_that_a_strategy_trips_over_is_dropped_and_reported_and_the_policy_goes_on(
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        put(env, PolicyState(Memory({"brokers": {"ema": "garbage"}})).to_json())

        await env.whole_turn()

        assert env.condition("Ready") == ("True", "Cycled")
        assert any("the strategy state is dropped" in note for _, note in env.events())
        assert env.memory()["shedder"]["brokers"]["ema"] != "garbage"

    run_policy(HOT, scenario)


def test_what_was_moved_is_reported_when_the_memory_cannot_be_stored(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        put(env, PolicyState().to_json(), immutable=True)

        await env.reconcile()

        assert env.status()["lastCycle"]["moved"] > 0
        assert {reason for reason, _ in env.events()} == {"Overloaded", "InternalError"}
        assert any("would not survive a restart" in note for _, note in env.events())

        await env.cycle()
        assert env.condition("Ready") == ("True", "Cycled")

    run_policy(HOT, scenario)


def test_a_policy_with_the_longest_name_remembers_too(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        names = ["p" * LONGEST, "p" * (LONGEST - 1) + "q"]
        for epoch, name in enumerate(names, start=1):
            store = PolicyStateStore(env.cluster.api, env.namespace, name, "0b5f1e2c-0000-4000-8000-000000000000")
            assert await store.load() == PolicyState()
            await store.save(PolicyState(epoch=epoch))

        found = [await PolicyStateStore(env.cluster.api, env.namespace, name, "uid").load() for name in names]

        assert [remembered.epoch for remembered in found] == [1, 2]

    run_policy(LEVEL, scenario)


def test_a_memory_that_did_not_change_is_not_written_and_a_deleted_one_comes_back(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        store = PolicyStateStore(env.cluster.api, env.namespace, "main", env.loop.uid)
        await store.save(PolicyState(epoch=1))
        env.requests.clear()

        await store.save(PolicyState(epoch=1))
        assert not env.requests

        env.rest.delete(f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-memory-main")
        await store.save(PolicyState(epoch=2))
        assert env.memory()["epoch"] == 2

    run_policy(LEVEL, scenario)


def test_what_a_later_leader_remembers_is_not_overwritten_by_an_earlier_one(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        early, late = (PolicyStateStore(env.cluster.api, env.namespace, "main", env.loop.uid) for _ in range(2))
        await early.save(PolicyState(epoch=1))
        await late.load()
        await late.save(PolicyState(epoch=2))

        with pytest.raises(ConflictError, match="epoch 2"):
            await early.save(PolicyState(epoch=1, moves=((1.0, 1),)))

        assert env.memory()["epoch"] == 2

    run_policy(LEVEL, scenario)


def test_a_new_policy_does_not_remember_what_an_earlier_one_of_its_name_did(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert env.memory()["moves"]
        env.rest.delete(env.path("balancingpolicies", "main"))
        env.cluster.leave("main")
        env.loop = env.add_policy(mode="DryRun")
        await env.reconcile(after=1)

        path = f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-memory-main"
        assert (env.memory()["moves"], env.memory()["epoch"]) == ([], 2)
        assert env.rest.get(path)["metadata"]["ownerReferences"][0]["uid"] == env.loop.uid

    run_policy(HOT, scenario)


def test_a_memory_that_a_person_edited_is_written_over(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        store = PolicyStateStore(env.cluster.api, env.namespace, "main", env.loop.uid)
        await store.save(PolicyState(epoch=1))
        path = f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-memory-main"
        env.rest.patch(path, {"metadata": {"labels": {"seen-by": "me"}}})

        await store.save(PolicyState(epoch=1, moves=((1.0, 1),)))

        assert env.memory()["moves"] == [[1.0, 1]]
        assert env.rest.get(path)["metadata"]["labels"] == {"seen-by": "me"}

    run_policy(LEVEL, scenario)
