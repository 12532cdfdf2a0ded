"""What was switched off is put back when no policy is left, also by an operator that was not there when it went."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from plan_clusters import LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, refit
from pulsar_in_memory import InMemoryPulsar
from pulsar_settings import SettingsBrokers, defaults, settings_brokers
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.kube.errors import FencedError
from trimtab_operator.pulsar.client.dynamic_config import SHEDDING, SPLITTING, FoundSettings
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.own_balancer.controller import OwnBalancerController
from trimtab_operator.pulsar.own_balancer.restore import BalancerRelease, found_settings_store, release_balancer
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.resources.urls import AllowedUrls, RefusedUrlError
from trimtab_operator.state.settings import Settings

pytestmark = pytest.mark.apiserver


async def left_behind(env: PolicyEnvironment, brokers: SettingsBrokers) -> BalancerRelease:
    """What an operator has kept that is no more; the one that is there now."""
    brokers.dynamic[SHEDDING] = "false"
    found = FoundSettings(PulsarSpec(admin_url=brokers.url)).noting([SHEDDING], {})
    await found_settings_store(env.cluster.api, env.namespace).save(found)
    refit(env.cluster, urls=AllowedUrls.of(["http://127.0.0.1:*"]))
    return BalancerRelease(env.cluster, lambda _write: None)


def moving(url: str) -> dict[str, Any]:
    return {"mode": "Auto", "pulsar": {"adminUrl": url, "ownBalancing": "SwitchOff"}}


def test_it_is_put_back_where_no_policy_has_it_off(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        with settings_brokers(defaults()) as brokers:
            release = await left_behind(env, brokers)
            await release.check()
            assert brokers.dynamic == {}
            assert await found_settings_store(env.cluster.api, env.namespace).load() is None
            assert env.cluster.link.switched_off is False

    run_policy(LEVEL, scenario)


def test_a_configmap_that_names_another_setting_changes_nothing_in_pulsar(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        with settings_brokers(defaults()) as brokers:
            release = await left_behind(env, brokers)
            path = f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-pulsar-found"
            stored = json.loads(env.rest.get(path)["data"]["found.json"])
            stored["overrides"]["superUserRoles"] = "eve"
            env.rest.patch(path, {"data": {"found.json": json.dumps(stored)}})
            brokers.dynamic["superUserRoles"] = "false"  # as if it had been switched off
            with pytest.raises(UnreadableContentError, match="ConfigMap trimtab-pulsar-found: it names superUserRoles"):
                await release.check()
            assert brokers.dynamic == {SHEDDING: "false", "superUserRoles": "false"}

    run_policy(LEVEL, scenario)


def test_it_is_put_back_though_its_configmap_went_with_the_namespace(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        with settings_brokers(defaults()) as brokers:
            release, store = (
                await left_behind(env, brokers),
                found_settings_store(env.cluster.api, env.namespace),
            )
            link = env.cluster.link
            link.found, link.switched_off = await store.load(), True
            await store.delete()

            await release.check()

            assert brokers.dynamic == {}
            assert (link.found, link.switched_off) == (None, False)

    run_policy(LEVEL, scenario)


def test_a_policy_that_is_refused_does_not_keep_it_off(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        with settings_brokers(defaults()) as brokers:
            release = await left_behind(env, brokers)
            other = env.add_policy("other", **moving(brokers.url))
            await env.reconcile()
            await other.reconcile()
            assert env.condition("Valid", "other")[0] == "False"  # the older one has the brokers, and no Pulsar

            await release.check()

            assert brokers.dynamic == {}

    run_policy(LEVEL, scenario)


@pytest.mark.parametrize(("mode", "left"), [("DryRun", {}), ("Auto", {SHEDDING: "false"})])
def test_it_is_put_back_although_the_cluster_that_is_named_now_does_not_answer(
    run_policy: RunPolicy, mode: str, left: dict[str, str]
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        with settings_brokers(defaults()) as brokers:
            release, link = await left_behind(env, brokers), env.cluster.link
            env.edit(**{**moving("http://127.0.0.1:1"), "mode": mode})
            await env.reconcile()
            assert link.linked
            link.problem = "http://127.0.0.1:1 refused the connection"

            await release.check()

            assert brokers.dynamic == left

    run_policy(LEVEL, scenario)


@pytest.mark.parametrize("way", ["it answers", "it is gone"])
def test_another_cluster_is_left_alone_until_it_is_put_back_in_the_one_before(run_policy: RunPolicy, way: str) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        context, pulsar = env.cluster, InMemoryPulsar()
        pulsar.broker("other")
        with settings_brokers(defaults()) as brokers:
            release = await left_behind(env, brokers)
            context.policies.settings["main"] = Settings.of(env.policy())
            context.link.lead_to(context.policies.settings["main"].pulsar, "main")
            balancer = OwnBalancerController(context, pulsar)  # type: ignore[arg-type]

            await balancer.check()
            assert pulsar.written == []
            assert context.link.own_balancer.disabled is False
            assert f"of the cluster at {brokers.url} must be restored first" in context.link.own_balancer.text
            if way == "it answers":
                await release.check()
                assert brokers.dynamic == {}

        if way == "it is gone":
            with pytest.raises(PulsarError):
                await release.check()
            await balancer.check()
            assert pulsar.written == []
            await found_settings_store(context.api, env.namespace).delete()  # as the condition says
        await balancer.check()
        assert pulsar.dynamic == {SHEDDING: "false", SPLITTING: "false"}
        assert context.link.own_balancer.disabled is True
        await release.check()
        assert context.link.switched_off is True

    run_policy(LEVEL, scenario, **moving("http://other:8080"))


def test_a_cluster_without_switches_on_is_balanced_while_another_is_to_be_put_back(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        context, pulsar = env.cluster, InMemoryPulsar()
        with settings_brokers(defaults()) as brokers:
            await left_behind(env, brokers)
        context.link.lead_to(Settings.of(env.policy()).pulsar, "main")
        balancer = OwnBalancerController(context, pulsar)  # type: ignore[arg-type]
        await balancer.check()
        assert (context.link.own_balancer.disabled, context.link.elsewhere) == (
            None,
            False,
        )  # without brokers nothing is known

        pulsar.broker("other", sheds="false", splits="false")
        await balancer.check()

        assert (context.link.own_balancer.disabled, context.link.elsewhere) == (True, True)
        assert "trimtab restore" in context.link.own_balancer.text

    run_policy(LEVEL, scenario, **moving("http://other:8080"))


def test_a_policy_whose_loop_has_not_begun_yet_keeps_it_off_until_it_is_deleted(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        with settings_brokers(defaults()) as brokers:
            release = await left_behind(env, brokers)
            path = env.path("balancingpolicies", "other")
            env.create_policy("other", **moving(brokers.url))
            env.rest.patch(path, {"metadata": {"finalizers": ["trimtab.dev/finalizer"]}})
            await release.check()
            assert brokers.dynamic == {SHEDDING: "false"}

            env.rest.delete(path)  # its finalizer holds it
            await release.check()
            assert brokers.dynamic == {}

    run_policy(LEVEL, scenario)


def test_a_url_that_is_not_allowed_is_not_asked_and_who_does_not_lead_writes_nothing(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        with settings_brokers(defaults()) as brokers:
            release = await left_behind(env, brokers)
            release.fence = closed
            with pytest.raises(FencedError):
                await release.check()

            refit(env.cluster, urls=AllowedUrls.of(()))
            with pytest.raises(RefusedUrlError):
                await release.check()
            assert brokers.dynamic == {SHEDDING: "false"}

        refit(env.cluster, urls=AllowedUrls.of(["http://127.0.0.1:*"]))
        with pytest.raises(PulsarError):
            await release.check()
        assert await found_settings_store(env.cluster.api, env.namespace).load() is not None

    run_policy(LEVEL, scenario)


def closed(write: str) -> None:
    raise FencedError(f"{write}: this process does not lead")


@pytest.mark.parametrize("how", ["put back", "another policy", "never"])
def test_a_deletion_waits_until_it_is_put_back_or_a_policy_is_left(run_policy: RunPolicy, how: str) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        context = env.cluster
        refit(context, clock=asyncio.get_running_loop().time)
        context.link.switched_off = True
        context.link.found = FoundSettings(PulsarSpec(admin_url="http://pulsar:8080"))

        def end() -> None:
            if how == "put back":
                context.link.switched_off = False
            elif how == "another policy":
                other = Settings.of(env.create_policy("other", **moving("http://pulsar:8080")))
                context.policies.settings["other"] = other
                context.link.lead_to(other.pulsar, "other")

        begun = context.clock()
        asyncio.get_running_loop().call_later(0.3, end)
        assert await release_balancer(context, within=0.8) == (how != "never")
        assert context.clock() - begun >= 0.3
        assert (context.link.found is None) == (how == "never")  # what the ConfigMap says is left

    run_policy(LEVEL, scenario)
