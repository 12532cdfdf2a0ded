"""What namespaces, brokers and policies ask for decides where bundles may go; on a real API server."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from faulty_api import until
from policy_environment import PolicyEnvironment, RunPolicy
from trimtab_operator import app
from trimtab_operator.kube.client import RefusedError
from trimtab_operator.reconcile.namespaces import Examiner
from trimtab_strategies.testing import cluster, with_bundles

pytestmark = pytest.mark.apiserver

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.0)
NEW = cluster(bundles=1, unowned=4, a=0.6, b=0.5, c=0.0)
PAIR = with_bundles(
    cluster(bundles={"a": [1], "b": [1]}, a=0.9, b=0.8, c=0.0, d=0.9), owner=dict.fromkeys(range(2), -1)
)


async def ask(env: PolicyEnvironment, space: str, **spec: Any) -> None:
    """A person edits the TopicNamespace, and the operator has seen it."""
    found = env.rest.patch(env.path("topicnamespaces", space), {"spec": spec})
    await shown(env.cluster.stores.topic_namespaces.items, space, found)


async def describe(env: PolicyEnvironment, name: str, **spec: Any) -> None:
    """A person says what a broker is, and the operator has seen it."""
    found = env.rest.patch(env.path("brokers", name), {"spec": spec})
    await shown(env.cluster.stores.brokers.items, name, found)


async def shown(items: Any, name: str, found: Any) -> None:
    version = found["metadata"]["resourceVersion"]
    await until(f"the store shows {name}", lambda: items[name].resource_version == version)


async def examine(env: PolicyEnvironment) -> None:
    """The operator looks at what is asked; what it writes has been seen."""
    await Examiner(env.cluster).examine()
    versions = env.versions("topicnamespaces")
    items = env.cluster.stores.topic_namespaces.items
    await until("the store shows them", lambda: {n: r.resource_version for n, r in items.items()} == versions)


def where(env: PolicyEnvironment, space: str) -> Counter[str]:
    """Number of bundles of a namespace by desired owner."""
    found = env.bundles().values()
    return Counter(b["spec"].get("owner", "") for b in found if b["spec"]["topicNamespace"] == space)


def valid(env: PolicyEnvironment, space: str) -> tuple[str, str, str]:
    conditions = env.rest.get(env.path("topicnamespaces", space)).get("status", {}).get("conditions", [])
    return next(((c["status"], c["reason"], c["message"]) for c in conditions if c["type"] == "Valid"), ("", "", ""))


def test_a_namespace_isolated_to_two_brokers_is_never_moved_elsewhere(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-a", isolation={"primary": ["a", "b.*"]})

        for _ in range(3):
            await env.cycle()
            await env.land()

        assert set(where(env, "public-a")) == {"a", "b"}

    run_policy(HOT, scenario, limits={"coolDown": "1s"})


def test_without_isolation_the_same_bundles_go_to_the_least_used_broker(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        assert where(env, "public-a")["c"] > 0

    run_policy(HOT, scenario)


def test_a_namespace_without_isolation_keeps_off_the_brokers_of_others(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-c", isolation={"primary": ["c"]})

        await env.reconcile()

        assert set(where(env, "public-a")) == {"a", "b"}

    run_policy(HOT, scenario)


def test_an_unowned_bundle_goes_to_a_broker_its_namespace_names(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-new", isolation={"primary": ["a|b"]})

        await env.reconcile()

        assert set(where(env, "public-new")) == {"a", "b"}

    run_policy(NEW, scenario)


def test_an_unowned_bundle_that_no_broker_may_have_waits_with_a_reason(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-new", isolation={"primary": ["nobody"]})

        await env.reconcile()

        assert set(where(env, "public-new")) == {""}
        told = dict(env.events())
        assert "no broker may have it" in told["Isolation"]
        assert told["InvalidPolicy"] == "public/new: isolation matches no broker with 'nobody': name hosts that exist"

    run_policy(NEW, scenario)


def test_secondary_brokers_serve_while_too_few_primary_ones_can(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-new", isolation={"primary": ["a"], "secondary": ["b"]})
        env.rest.patch(env.path("brokers", "a", "status"), {"status": {"ready": False}})

        await env.reconcile()

        assert set(where(env, "public-new")) == {"b"}

    run_policy(NEW, scenario)


def test_namespaces_of_a_group_are_kept_on_different_brokers(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for space in ("public-a", "public-b"):
            await ask(env, space, antiAffinityGroup="shop")

        await env.reconcile()

        assert len({*where(env, "public-a"), *where(env, "public-b")} - {""}) == 2

    run_policy(PAIR, scenario)


def test_without_a_group_both_go_to_the_least_used_broker(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        assert {*where(env, "public-a"), *where(env, "public-b")} == {"c"}

    run_policy(PAIR, scenario)


def test_a_group_is_spread_over_failure_domains_first(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for space in ("public-a", "public-b"):
            await ask(env, space, antiAffinityGroup="shop")
        for name, zone in {"a": "north", "b": "south", "c": "south", "d": "south"}.items():
            await describe(env, name, failureDomain=zone)

        await env.reconcile()

        owners = {*where(env, "public-a"), *where(env, "public-b")}
        assert "a" in owners, "the most used broker, as it is the only one of its zone"
        assert len(owners) == 2

    run_policy(PAIR, scenario, selection={"type": "Extensible", "extensible": {"failureDomains": True}})


def test_a_namespace_that_is_not_balanced_stays_where_it_is(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-a", balanced=False)

        await env.reconcile()

        assert where(env, "public-a") == {"a": 8}
        assert env.held_back()["Excluded"] == 8

    run_policy(HOT, scenario)


def test_a_namespace_that_is_not_balanced_still_gets_owners(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-new", balanced=False)

        await env.reconcile()

        assert "" not in where(env, "public-new")

    run_policy(NEW, scenario)


def test_the_extensible_selection_counts_topics(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        assert where(env, "public-a") == {"a": 7, "c": 1}
        assert env.held_back()["TopicLimit"] > 0

    run_policy(HOT, scenario, selection={"type": "Extensible", "extensible": {"maxTopics": 1}})


def test_the_modular_selection_distributes_a_namespace_evenly(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()

        owners = where(env, "public-a")
        assert owners["b"] > 0
        assert abs(owners["b"] - owners["c"]) <= 1

    run_policy(HOT, scenario, selection={"type": "Modular"})


def test_a_selection_that_prefers_later_versions_leaves_out_the_older_broker(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name, version in {"a": "4.2.4", "b": "4.2.4", "c": "4.0.8"}.items():
            await describe(env, name, version=version)

        await env.reconcile()

        assert set(where(env, "public-a")) == {"a", "b"}

    run_policy(HOT, scenario, selection={"type": "Extensible", "extensible": {"preferLaterVersions": True}})


def test_a_broker_that_does_not_name_its_load_manager_passes_and_another_one_does_not(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await describe(env, "b", failureDomain="north")
        await describe(env, "c", loadManager="Theirs")

        await env.reconcile()

        assert set(where(env, "public-a")) == {"a", "b"}

    run_policy(HOT, scenario, selection={"type": "Extensible", "extensible": {"loadManager": "Ours"}})


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
