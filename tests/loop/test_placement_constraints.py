"""What namespaces, brokers and policies ask for decides where bundles may go; on a real API server."""

from __future__ import annotations

import pytest

from asked_constraints import HOT, ask, describe, start_pod, where
from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster, with_bundles

pytestmark = pytest.mark.apiserver

NEW = cluster(bundles=1, unowned=4, a=0.6, b=0.5, c=0.0)
PAIR = with_bundles(
    cluster(bundles={"a": [1], "b": [1]}, a=0.9, b=0.8, c=0.0, d=0.9), owner=dict.fromkeys(range(2), -1)
)


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


def test_a_namespace_moves_within_its_zone(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name, zone in {"a": "north", "b": "north", "c": "south"}.items():
            await describe(env, name, failureDomain=zone)
        await ask(env, "public-a", zone="north")

        await env.reconcile()

        assert set(where(env, "public-a")) == {"a", "b"}

    run_policy(HOT, scenario)


def test_bundles_of_a_spread_namespace_get_owners_evenly(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await ask(env, "public-new", spread=True)

        await env.reconcile()

        assert sorted(where(env, "public-new").values()) == [1, 1, 2]

    run_policy(NEW, scenario)


def test_a_broker_that_started_lately_receives_fewer_bundles(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name, age in {"a": 1e5, "b": 1e5, "c": 60.0}.items():
            await start_pod(env, name, env.cluster.now() - age)

        await env.reconcile()

        assert where(env, "public-a")["c"] == 1
        assert env.held_back()["RampingUp"] == 1

    run_policy(HOT, scenario, limits={"rampUp": "10m"})


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
