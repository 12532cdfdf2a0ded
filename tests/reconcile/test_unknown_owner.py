"""A name that belongs to no Broker moves nothing: the bundle stays where it is, and people read why."""

from __future__ import annotations

import pytest

from plan_clusters import LEVEL
from policy_environment import PolicyEnvironment, RunPolicy

pytestmark = pytest.mark.apiserver

LOST_AFTER = 31.0
"""Seconds after which a missing broker counts as lost, and a little more."""


def told(env: PolicyEnvironment) -> list[str]:
    return [note for reason, note in env.events() if reason == "UnknownBroker"]


def reason(env: PolicyEnvironment, bundle: str) -> str:
    return str(env.bundles()[bundle]["spec"]["assignment"]["reason"])


def test_a_typo_is_set_back_and_reported_on_the_bundle_once(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        name, owner = next((name, owner) for name, owner in env.owners().items() if owner == "a")
        env.give(name, "broker-tpyo")
        await env.reconcile()
        assert (env.desired_owners()[name], env.owners()[name]) == ("broker-tpyo", owner)

        for _ in range(3):
            await env.reconcile(after=LOST_AFTER)

        assert (env.desired_owners()[name], env.owners()[name], reason(env, name)) == ("a", "a", "UnknownBroker")
        assert told(env) == [
            "spec.owner broker-tpyo names no Broker: it stays on a. See the names with: kubectl get brokers"
        ]

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_bundle_without_owner_that_was_desired_for_an_unknown_broker_gets_one(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        name = next(iter(env.owners()))
        env.rest.patch(env.path("bundles", name, "status"), {"status": {"owner": "", "state": "Free"}})
        env.give(name, "broker-tpyo")
        await env.reconcile()

        await env.reconcile(after=LOST_AFTER)
        await env.land()
        await env.reconcile()

        assert env.owners()[name] in {"a", "b"}
        assert reason(env, name) == "UnknownBroker"
        [note] = told(env)
        assert note.startswith("spec.owner broker-tpyo names no Broker: it had no owner, and gets one. ")

    run_policy(LEVEL, scenario, mode="DryRun")
