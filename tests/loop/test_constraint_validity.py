"""What can't be applied of a TopicNamespace's constraints shows in its condition `Valid`; on a real API server."""

from __future__ import annotations

import asyncio

import pytest

from asked_constraints import HOT, ask, describe, examine, valid
from faulty_api import until
from policy_environment import PolicyEnvironment, RunPolicy
from trimtab_operator import app
from trimtab_operator.kube.client import RefusedError

pytestmark = pytest.mark.apiserver


def test_a_zone_without_brokers_is_reported_until_one_has_it(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-a", zone="north")
        await examine(env)
        assert valid(env, "public-a") == ("", "", "")  # the pods of its brokers are missing, and may be in the zone
        for name in ("a", "b", "c"):
            await describe(env, name, failureDomain="south")
        await examine(env)
        problem = "no broker is in zone 'north'; the zones of the brokers are south"
        assert valid(env, "public-a") == ("False", "InvalidPolicy", problem)

        await describe(env, "b", failureDomain="north")
        await examine(env)
        assert valid(env, "public-a")[:2] == ("True", "Valid")

    run_policy(HOT, scenario)


def test_a_broker_that_is_primary_and_secondary_is_reported_until_that_is_mended(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-a", isolation={"primary": ["a", "b"], "secondary": ["[bc]"]})
        await examine(env)
        await env.reconcile()
        problem = "host 'b' is primary and secondary of the isolation policy: let only one pattern match it"
        assert valid(env, "public-a") == ("False", "InvalidPolicy", problem)
        assert env.held_back()["InvalidPolicy"] == 1

        await ask(env, "public-a", isolation={"secondary": ["c"]})
        await examine(env)
        await env.cycle()
        assert valid(env, "public-a")[:2] == ("True", "Valid")
        assert "InvalidPolicy" not in env.held_back()

    run_policy(HOT, scenario)


@pytest.mark.parametrize(
    ("primary", "words"),
    [
        ("a(", ["'a('", "is not a regular expression", "correct it"]),
        ("a-[0-9]", ["matches no broker", "'a-[0-9]'", "name hosts that exist"]),
    ],
    ids=["malformed", "nobody"],
)
def test_a_pattern_that_nothing_can_match_is_reported_naming_it(
    primary: str, words: list[str], run_policy: RunPolicy
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-a", isolation={"primary": [primary]})

        await examine(env)

        status, reason, message = valid(env, "public-a")
        assert (status, reason) == ("False", "InvalidPolicy")
        assert [word for word in words if word not in message] == []

    run_policy(HOT, scenario)


def test_what_was_reported_is_not_written_again_and_what_is_fine_is_not_reported(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-a", isolation={"primary": ["nobody"]})
        await ask(env, "public-b", isolation={"primary": ["b"]})
        await examine(env)
        before = env.versions("topicnamespaces")

        await examine(env)

        assert env.versions("topicnamespaces") == before
        assert valid(env, "public-b") == ("", "", "")

    run_policy(HOT, scenario)


def test_a_missing_broker_that_appears_mends_the_isolation(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-a", isolation={"primary": ["late"]})
        await examine(env)
        assert valid(env, "public-a")[0] == "False"

        made = env.rest.create(
            env.path("brokers"),
            {
                "apiVersion": "trimtab.dev/v1alpha1",
                "kind": "Broker",
                "metadata": {"name": "late"},
                "spec": {"pod": "late"},
            },
        )
        items = env.cluster.stores.brokers.items
        await until("the broker is seen", lambda: made["metadata"]["name"] in items)
        await examine(env)

        assert valid(env, "public-a")[0] == "True"

    run_policy(HOT, scenario)


def test_the_running_operator_tells_without_any_policy_and_one_refusal_is_not_the_others_trouble(
    run_policy: RunPolicy,
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.delete(env.path("balancingpolicies", "main"))
        for space in ("public-a", "public-b"):
            await ask(env, space, isolation={"primary": ["nobody"]})
        patch = env.cluster.api.patch

        async def refusing(ref, namespace, name, body, **how):  # noqa: ANN001, ANN003, ANN202  the client's own
            if name == "public-a":
                raise RefusedError("403 a webhook says no", status=403)
            return await patch(ref, namespace, name, body, **how)

        env.cluster.api.patch = refusing  # type: ignore[method-assign]
        running = asyncio.create_task(app.examine_topic_namespaces(env.cluster))
        await until("the problem is told", lambda: valid(env, "public-b")[0] == "False")
        running.cancel()
        await asyncio.wait({running})

        assert valid(env, "public-a") == ("", "", "")

    run_policy(HOT, scenario)


def test_a_condition_of_another_kind_is_kept(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        cut = {
            "type": "Ready",
            "status": "True",
            "reason": "Cut",
            "message": "",
            "lastTransitionTime": "2026-01-31T12:00:00Z",
        }
        env.rest.patch(env.path("topicnamespaces", "public-a", "status"), {"status": {"conditions": [cut]}})
        await ask(env, "public-a", isolation={"primary": ["nobody"]})

        await examine(env)

        found = env.rest.get(env.path("topicnamespaces", "public-a"))["status"]["conditions"]
        assert [(c["type"], c["status"]) for c in found] == [("Ready", "True"), ("Valid", "False")]

    run_policy(HOT, scenario)
