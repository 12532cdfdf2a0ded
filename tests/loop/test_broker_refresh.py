"""Between two decisions the brokers are looked at, and what can't wait brings the next decision forward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from manifests import policy
from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy
from static_sources import StaticSource
from strategy_testing.clusters import cluster
from trimtab_operator.state.settings import InvalidPolicyError, Settings
from trimtab_pipeline.api import SourceUnavailableError

apiserver = pytest.mark.apiserver


def settings(**spec: Any) -> Settings:
    made = policy("main", **spec)
    made["metadata"]["namespace"] = "messaging"
    return Settings.of(made)


def overload(percent: float) -> Mapping[str, Any]:
    return {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": percent}}


@pytest.mark.parametrize(
    ("spec", "seconds"), [({}, 10), ({"brokerInterval": "7s"}, 7), ({"interval": "3s"}, 3)], ids=["", "said", "short"]
)
def test_brokers_are_read_every_ten_seconds_unless_the_policy_says_else(spec: dict[str, Any], seconds: float) -> None:
    assert settings(**spec).broker_interval == seconds


def test_brokers_cannot_be_looked_at_less_often_than_decided_about() -> None:
    with pytest.raises(InvalidPolicyError, match="brokerInterval must not exceed interval"):
        settings(interval="30s", brokerInterval="31s")


def test_the_overload_line_is_the_shedders_own_else_85_percent() -> None:
    assert settings(shedder=overload(70)).overload_line == 0.7
    assert settings().overload_line == 0.85


def moved(env: PolicyEnvironment) -> int:
    return int(env.status()["lastCycle"].get("moved", 0))


def last_decision(env: PolicyEnvironment) -> str:
    return str(env.status()["lastCycle"]["time"])


@apiserver
def test_a_broker_s_load_is_kept_fresh_between_decisions(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        decided = last_decision(env)
        env.source = StaticSource(cluster(a=0.6, b=0.5, c=0.5))
        await env.reconcile(after=5)
        assert env.rest.get(env.path("brokers", "a"))["status"]["load"]["cpu"] == 50
        await env.reconcile(after=5)
        assert env.rest.get(env.path("brokers", "a"))["status"]["load"]["cpu"] == 60
        assert last_decision(env) == decided

    run_policy(cluster(a=0.5, b=0.5, c=0.5), scenario, mode="DryRun")


@apiserver
def test_a_broker_that_crosses_the_line_brings_the_decision_forward_once(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        decided = last_decision(env)
        env.source = StaticSource(cluster(a=0.9, b=0.5, c=0.5))
        await env.reconcile(after=10)
        await env.reconcile()
        early = last_decision(env)
        assert early > decided
        for _ in range(3):
            await env.reconcile(after=10)
        await env.reconcile(after=5)
        assert last_decision(env) == early

    run_policy(cluster(a=0.5, b=0.5, c=0.5), scenario, mode="DryRun")


@apiserver
def test_decisions_brought_forward_count_no_interval_unless_they_act(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        for _ in range(3):
            env.source = StaticSource(env.load)
            await env.reconcile(after=10)
            env.source = StaticSource(hot)
            before = last_decision(env)
            await env.reconcile(after=10)
            await env.reconcile()
            assert last_decision(env) > before, "it was not brought forward"
            assert moved(env) == 0
        await env.cycle()
        assert moved(env) == 0
        await env.cycle()
        assert moved(env) > 0

    hot = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1]}, a=0.95, b=0.2, c=0.2)
    calm = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1]}, a=0.2, b=0.2, c=0.2)
    run_policy(calm, scenario, mode="Auto", shedder={"type": "AvgShedder", "avgShedder": {"hitCountHigh": 2}})


@apiserver
def test_a_broker_that_dies_brings_the_decision_forward_even_without_metrics(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        env.rest.patch(env.path("brokers", "c", "status"), {"status": {"ready": False}})
        broken = StaticSource(env.load)
        broken.error = SourceUnavailableError("http://prometheus:9090 refused the connection")
        env.source = broken
        await env.reconcile(after=10)
        await env.reconcile()
        assert env.condition("DataTrusted") == ("False", "SourceUnavailable")

    run_policy(cluster(a=0.5, b=0.5, c=0.5), scenario, mode="DryRun")


def broker_columns(env: PolicyEnvironment, name: str) -> tuple[int, float]:
    """Bundles and CPU % of a broker, as `kubectl get brokers` shows them."""
    status = env.rest.get(env.path("brokers", name))["status"]
    return status["bundles"], status["load"]["cpu"]


@apiserver
def test_columns_are_kept_fresh_while_the_policy_is_paused_and_decide_nothing(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        env.edit(paused=True)
        await env.cycle()
        decided = last_decision(env)
        env.source = StaticSource(cluster(a=0.9, b=0.5, c=0.5))
        await env.reconcile(after=10)
        await env.reconcile()

        assert broker_columns(env, "a")[1] == 90
        assert last_decision(env) == decided, "who is paused decides nothing early, either"

    run_policy(cluster(a=0.5, b=0.5, c=0.5), scenario)


def moves_in_columns(env: PolicyEnvironment) -> tuple[int, int]:
    """Proposed and In Flight of the policy, as `kubectl get bpol` shows them."""
    status = env.status()
    return status["proposal"]["total"], status["inFlight"]


@apiserver
def test_columns_follow_moves_as_they_land_and_not_a_cycle_later(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        decided, moving = last_decision(env), moved(env)
        assert moving >= 2
        assert moves_in_columns(env) == (moving, moving)
        assert broker_columns(env, "a")[0] == 8

        first = next(name for name, desired in env.desired_owners().items() if desired != env.owners()[name])
        confirm(env, first)
        await env.reconcile(after=2)
        assert moves_in_columns(env) == (moving - 1, moving - 1)
        assert first not in {move["bundle"] for move in env.status()["proposal"]["moves"]}

        await env.land()
        await env.reconcile(after=2)
        assert moves_in_columns(env) == (0, 0)
        assert env.status()["proposal"]["moves"] == []
        assert broker_columns(env, "a")[0] == 8 - moving
        assert last_decision(env) == decided

    run_policy(HOT, scenario)


def confirm(env: PolicyEnvironment, bundle: str) -> None:
    """The broker that is to have the bundle serves it."""
    found = env.bundles()[bundle]
    status = {"owner": found["spec"]["owner"], "observedGeneration": found["metadata"]["generation"]}
    env.rest.patch(env.path("bundles", bundle, "status"), {"status": status})


@apiserver
def test_what_is_only_shown_stays_proposed_whatever_lands(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        proposed = env.status()["proposal"]["total"]
        env.give(min(env.desired_owners()), "c")
        await env.reconcile(after=2)
        assert moves_in_columns(env) == (proposed, 1)

        await env.land()
        await env.reconcile(after=2)
        assert moves_in_columns(env) == (proposed, 0)

    run_policy(HOT, scenario, mode="DryRun")


@apiserver
def test_bundles_of_brokers_are_counted_even_if_nothing_can_be_measured(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        broken = StaticSource(env.load)
        broken.error = SourceUnavailableError("http://prometheus:9090 refused the connection")
        env.source = broken
        env.edit(paused=True)
        await env.reconcile(after=1)
        await env.land()
        await env.reconcile(after=10)

        assert broker_columns(env, "a")[0] == len(env.cluster.served["a"]) < 8

    run_policy(HOT, scenario)
