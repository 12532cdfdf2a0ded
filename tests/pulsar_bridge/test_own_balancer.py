"""Pulsar's own balancer: Pulsar's own balancing is verified, switched off where that is allowed, and put back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from faulty_api import until
from plan_clusters import LEVEL
from policy_environment import PolicyEnvironment, run_scenario
from pulsar_in_memory import InMemoryPulsar
from trimtab_operator.pulsar.client.dynamic_config import SHEDDING, SPLITTING, FoundSettings
from trimtab_operator.pulsar.own_balancer import controller as wheels
from trimtab_operator.pulsar.own_balancer.controller import OwnBalancerController
from trimtab_operator.pulsar.own_balancer.restore import found_settings_store
from trimtab_operator.state.settings import Settings
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

Scenario = Callable[[PolicyEnvironment, InMemoryPulsar, OwnBalancerController], Awaitable[None]]
Steer = Callable[..., None]


@pytest.fixture
def steer(trimtab_crds: ControlPlane, kube_namespace: str, monkeypatch: pytest.MonkeyPatch) -> Steer:
    """Runs a scenario with an `OwnBalancerController`, and a policy of that mode that may switch off, or may not."""
    monkeypatch.setattr(wheels, "TRY_AFTER", 0.0)

    def run(scenario: Scenario, mode: str = "Auto", own: str = "SwitchOff", **brokers: dict[str, str]) -> None:
        pulsar = InMemoryPulsar()
        for name in ("a", "b"):
            pulsar.broker(name, **brokers.get(name, {}))

        async def whole(env: PolicyEnvironment) -> None:
            take(env)
            await scenario(env, pulsar, OwnBalancerController(env.cluster, pulsar))  # type: ignore[arg-type]

        spec = {"pulsar": {"adminUrl": "http://pulsar:8080", "ownBalancing": own}}
        run_scenario(trimtab_crds, kube_namespace, LEVEL, whole, mode=mode, **spec)

    return run


def take(env: PolicyEnvironment, name: str = "main") -> None:
    """What the loop and the runner do with the policy as it is now."""
    settings = Settings.of(env.policy(name))
    env.cluster.policies.claims[name], env.cluster.policies.settings[name] = settings.claim, settings
    env.cluster.share_out()
    env.cluster.link.spec, env.cluster.link.policy = settings.pulsar, name


async def kept(env: PolicyEnvironment) -> Any:
    found = await stored(env)
    return None if found is None else found.overrides


async def stored(env: PolicyEnvironment) -> FoundSettings | None:
    return await found_settings_store(env.cluster.api, env.namespace).load()


def test_what_is_on_is_switched_off_once_it_was_kept(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        await balancer.check()

        assert pulsar.dynamic == {SHEDDING: "false", SPLITTING: "false"}
        assert await kept(env) == {SHEDDING: None, SPLITTING: None}
        state = env.cluster.link.own_balancer
        assert (state.disabled, state.text) == (True, "Pulsar's own shedding and automatic split are off on 2 brokers")
        assert [reason for reason, _ in env.events()] == ["SwitchedOff"]

        await balancer.check()
        assert len(pulsar.written) == 2

    steer(scenario)


@pytest.mark.parametrize(("mode", "own"), [("DryRun", "SwitchOff"), ("Auto", "Verify"), ("Approve", "Verify")])
def test_nothing_is_touched_where_that_is_not_allowed(steer: Steer, mode: str, own: str) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        await balancer.check()

        assert pulsar.written == []
        assert await kept(env) is None
        state = env.cluster.link.own_balancer
        assert state.disabled is False
        assert state.text.startswith(
            f"{SPLITTING} is on at all 2 brokers; {SHEDDING} is on at all 2 brokers: set these"
        )
        assert "ownBalancing: SwitchOff" in state.text

    steer(scenario, mode, own)


def test_a_single_broker_that_differs_is_found(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, _pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        await balancer.check()
        state = env.cluster.link.own_balancer
        assert state.disabled is False
        assert state.text.startswith(f"{SHEDDING} is on at b: ")

    off = {"sheds": "false", "splits": "false"}
    steer(scenario, own="Verify", a=off, b={**off, "sheds": "true"})


def test_what_is_off_everywhere_is_left_alone_and_nothing_is_kept(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        await balancer.check()
        assert pulsar.written == []
        assert await kept(env) is None
        assert env.cluster.link.own_balancer.disabled is True

    off = {"sheds": "false", "splits": "banana"}
    steer(scenario, a=off, b=off)


def test_a_broker_that_cannot_be_read_is_not_known(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        await balancer.check()
        pulsar.deaf.add("b")
        await balancer.check()
        state = env.cluster.link.own_balancer
        assert state.disabled is None
        assert "b (b does not answer)" in state.text

    steer(scenario)


@pytest.mark.parametrize("edit", [{"mode": "DryRun"}, {"pulsar": {"ownBalancing": "Verify"}}])
def test_it_is_put_back_once_no_policy_moves_any_more(steer: Steer, edit: dict[str, Any]) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        pulsar.dynamic[SPLITTING] = "TRUE"
        await balancer.check()
        assert pulsar.dynamic == {SHEDDING: "false", SPLITTING: "false"}

        env.edit(**edit)
        take(env)
        await OwnBalancerController(env.cluster, pulsar).check()  # type: ignore[arg-type]  another client for another spec

        assert pulsar.dynamic == {SPLITTING: "TRUE"}
        assert await kept(env) is None
        assert env.cluster.link.own_balancer.disabled is False

    steer(scenario)


def test_it_stays_off_for_a_policy_whose_loop_has_not_begun_yet(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        await balancer.check()
        env.create_policy("other", **{key: env.policy()["spec"][key] for key in ("mode", "pulsar")})
        env.edit(mode="DryRun")
        take(env)

        await balancer.check()  # as an operator that was started again, and has seen the first policy only
        assert pulsar.dynamic == {SHEDDING: "false", SPLITTING: "false"}

        env.rest.patch(env.path("balancingpolicies", "other"), {"spec": {"mode": "DryRun"}})
        take(env, "other")
        await balancer.check()
        assert pulsar.dynamic == {}

    steer(scenario)


def test_who_switches_it_on_again_is_answered_twice_and_then_no_more(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        await balancer.check()
        for _ in range(2):
            pulsar.dynamic[SHEDDING] = "true"
            await OwnBalancerController(env.cluster, pulsar).check()  # type: ignore[arg-type]  an operator that was started again
            assert pulsar.dynamic[SHEDDING] == "false"
            assert env.cluster.link.own_balancer.disabled is True

        for value in ("true", "tRue"):
            pulsar.dynamic[SHEDDING] = value
            await balancer.check()
            assert pulsar.dynamic[SHEDDING] == value
            assert env.cluster.link.own_balancer.disabled is False
            assert "only shows plans" in env.cluster.link.own_balancer.text
        assert env.cluster.metrics.registry.get_sample_value("trimtab_pulsar_own_balancing_undone_total") == 3

        env.clock += 3700
        await balancer.check()
        assert pulsar.dynamic[SHEDDING] == "false"
        assert (await kept(env))[SHEDDING] is None

    steer(scenario)


def test_a_switch_that_was_left_on_does_not_count_again_and_is_switched_off_after_an_hour(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        await balancer.check()
        for _ in range(3):
            env.clock += 600
            pulsar.dynamic[SHEDDING] = "true"
            await balancer.check()
        assert pulsar.dynamic[SHEDDING] == "true"

        env.clock += 2390  # the first of the three times is 3590 s ago
        await balancer.check()
        assert pulsar.dynamic[SHEDDING] == "true"

        env.clock += 20
        await balancer.check()
        assert pulsar.dynamic[SHEDDING] == "false"
        assert env.cluster.link.own_balancer.disabled is True
        assert env.cluster.metrics.registry.get_sample_value("trimtab_pulsar_own_balancing_undone_total") == 3

    steer(scenario)


def test_a_write_that_failed_is_written_again_and_no_one_is_blamed(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        async def failing(writes: int) -> None:
            pulsar.failing = writes
            for _ in range(writes):
                await balancer._check_safely()
                assert "metadata store is slow" in env.cluster.link.own_balancer.text
            await balancer.check()
            assert pulsar.dynamic == {SHEDDING: "false", SPLITTING: "false"}
            assert env.cluster.link.own_balancer.disabled is True

        await failing(4)
        assert "PulsarBalancerActive" not in [reason for reason, _ in env.events()]

        pulsar.dynamic[SHEDDING] = "true"
        await failing(4)
        assert [reason for reason, _ in env.events()].count("PulsarBalancerActive") == 1

    steer(scenario)


@pytest.mark.parametrize(
    "edit",
    [{"auth": {"token": {"secretKeyRef": {"name": "new", "key": "token"}}}}, {"adminUrl": "http://pulsar-proxy:8080"}],
)
def test_what_is_kept_is_asked_as_the_policy_says_now(steer: Steer, edit: dict[str, Any]) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        await balancer.check()
        env.edit(pulsar=edit)
        take(env)
        await balancer.check()
        assert (found := await stored(env)) is not None
        assert found.pulsar != env.cluster.link.spec  # not by the client of what it said before

        pulsar.deaf = {"a", "b"}
        restarted = OwnBalancerController(env.cluster, pulsar)  # type: ignore[arg-type]
        await restarted.check()
        assert await stored(env) == found  # nor before it is known to serve

        pulsar.deaf = {"b"}
        pulsar.broker("c")
        await restarted.check()
        assert await stored(env) == replace(found, pulsar=env.cluster.link.spec, brokers=frozenset("abc"))

    steer(scenario)


def test_a_configmap_that_another_client_deletes_is_written_again_as_long_as_it_is_needed(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        path = f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-pulsar-found"
        pulsar.dynamic[SPLITTING] = "TRUE"
        await balancer.check()
        found = await stored(env)

        env.rest.delete(path)
        await balancer.check()
        assert await stored(env) == found

        env.rest.delete(path)
        env.edit(mode="DryRun")
        take(env)
        await balancer.check()
        assert pulsar.dynamic == {SPLITTING: "TRUE"}
        assert await stored(env) is None
        assert env.cluster.link.switched_off is False

    steer(scenario)


def test_what_was_seen_of_one_cluster_is_not_reported_of_the_next(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        async def brokers() -> frozenset[str]:
            env.edit(pulsar={"adminUrl": "http://other:8080"})  # while this one is looked at
            settings = Settings.of(env.policy())
            env.cluster.link.lead_to(settings.pulsar, "main")
            return frozenset("ab")

        pulsar.brokers = brokers  # type: ignore[method-assign]
        await balancer.check()

        assert env.cluster.link.own_balancer.disabled is None

    off = {"sheds": "false", "splits": "false"}
    steer(scenario, a=off, b=off)


def test_a_policy_that_is_refused_switches_nothing_off(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        env.edit(brokers={"names": ["a"]})
        await env.reconcile()
        pulsar_spec = {"adminUrl": "http://pulsar:8080", "ownBalancing": "SwitchOff"}
        other = env.add_policy("other", brokers={"names": ["b"]}, pulsar=pulsar_spec)
        await other.reconcile()
        assert env.condition("Valid", "other")[0] == "False"

        await balancer.check()

        assert pulsar.written == []
        assert env.cluster.link.own_balancer.disabled is False

    steer(scenario, mode="DryRun", own="Verify")


def test_a_cluster_that_does_not_answer_is_reported_and_examined_again(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        pulsar.ids.clear()
        running = asyncio.create_task(balancer.run())
        await until("that is told", lambda: "no active broker" in env.cluster.link.own_balancer.text)
        pulsar.broker("a")
        env.edit(interval="61s")
        take(env)
        await until("the broker is read", lambda: env.cluster.link.own_balancer.disabled)
        running.cancel()

    steer(scenario)


def test_a_damaged_configmap_is_reported_and_nothing_is_touched(steer: Steer) -> None:
    async def scenario(env: PolicyEnvironment, pulsar: InMemoryPulsar, balancer: OwnBalancerController) -> None:
        path = f"/api/v1/namespaces/{env.namespace}/configmaps"
        meta = {"name": "trimtab-pulsar-found"}
        env.rest.create(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"found.json": "x"}})
        await balancer._check_safely()
        assert pulsar.written == []
        assert env.cluster.link.own_balancer.disabled is None
        assert "not what Trimtab writes" in env.cluster.link.own_balancer.text

    steer(scenario)
