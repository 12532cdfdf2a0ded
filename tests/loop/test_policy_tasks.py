"""Each policy has a loop as long as it exists, and a finalizer only while its deletion leaves something to restore."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from faulty_api import until
from manifests import topic_namespace
from policy_environment import PolicyEnvironment, RunPolicy, clusters_of, refit
from static_sources import StaticSources
from strategy_testing.clusters import cluster
from trimtab_operator import leadership
from trimtab_operator.aio import ended
from trimtab_operator.app import OperatorOptions, run_operator
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.leader_election import Candidacy, candidate
from trimtab_operator.loop import policy_tasks
from trimtab_operator.loop.policy_loop import PolicyLoop
from trimtab_operator.loop.policy_tasks import PolicyTasks
from trimtab_operator.resources.common import FINALIZER
from trimtab_operator.telemetry.metrics import Metrics

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=2, a=0.5, b=0.5)
SWITCHES_OFF: dict[str, Any] = {
    "mode": "Auto",
    "pulsar": {"adminUrl": "http://pulsar.messaging.svc:8080", "ownBalancing": "SwitchOff"},
}
OTHERS = "example.com/theirs"


@asynccontextmanager
async def led(env: PolicyEnvironment) -> AsyncIterator[None]:
    """An operator runs the policies of the namespace while the block runs, and Kopf watches them."""
    refit(env.cluster, clock=asyncio.get_running_loop().time)
    clusters, stop, fence = clusters_of(env.cluster), asyncio.Event(), Fence()
    watching = asyncio.create_task(leadership._run_kopf(clusters, env.cluster.api, fence, stop))
    running = asyncio.create_task(PolicyTasks(env.cluster, clusters.policies[env.namespace]).run())
    try:
        yield
    finally:
        stop.set()
        await ended(running)
        await watching


def finalizers(env: PolicyEnvironment) -> list[str]:
    found: list[str] = env.policy()["metadata"].get("finalizers") or []
    return found


def exists(env: PolicyEnvironment) -> bool:
    return "main" in env.versions("balancingpolicies")


def delete(env: PolicyEnvironment) -> None:
    env.rest.delete(env.path("balancingpolicies", "main"))


@pytest.mark.parametrize("operator", ["runs", "is gone"])
def test_a_policy_with_nothing_to_restore_is_deleted_at_once(operator: str, run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.cluster.link.switched_off = False
        async with led(env):
            await until("it has run", lambda: env.condition("Ready") == ("True", "Cycled"), 20)
            assert finalizers(env) == []
            if operator == "runs":
                delete(env)
                assert not exists(env)
                await until("its loop has ended", lambda: "main" not in env.cluster.policies.claims)
        if operator == "is gone":
            delete(env)
            assert not exists(env)

    run_policy(LEVEL, scenario, mode="DryRun")


def test_the_finalizer_comes_when_something_is_switched_off_and_goes_when_it_is_restored(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        link = env.cluster.link
        env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"finalizers": [OTHERS]}})
        async with led(env):
            link.switched_off = False
            await until("it has run", lambda: "main" in env.cluster.policies.claims)
            assert finalizers(env) == [OTHERS]

            link.switched_off = True
            await until("it is held", lambda: finalizers(env) == [OTHERS, FINALIZER])
            env.edit(mode="DryRun")
            await asyncio.sleep(1.5)
            assert finalizers(env) == [OTHERS, FINALIZER], "it is not restored yet"

            link.switched_off = False
            await until("it is free", lambda: finalizers(env) == [OTHERS])

    run_policy(LEVEL, scenario, **SWITCHES_OFF)


@pytest.mark.parametrize("spec", [{"mode": "Auto"}, {**SWITCHES_OFF, "mode": "DryRun"}], ids=["without Pulsar", "none"])
def test_a_finalizer_of_an_earlier_release_goes(spec: dict[str, Any], run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"finalizers": [FINALIZER]}})
        env.cluster.link.switched_off = None
        async with led(env):
            await asyncio.sleep(1.5)
            assert finalizers(env) == [FINALIZER], "nobody knows yet whether there is something to restore"
            env.cluster.link.switched_off = False
            await until("it is free", lambda: finalizers(env) == [])

    run_policy(LEVEL, scenario, **spec)


@pytest.mark.parametrize("begun", [True, False], ids=["while its loop runs", "before an operator runs"])
def test_a_deletion_waits_until_what_was_switched_off_is_restored(run_policy: RunPolicy, *, begun: bool) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.cluster.link.switched_off = True
        env.rest.patch(env.path("balancingpolicies", "main"), {"metadata": {"finalizers": [FINALIZER]}})
        if not begun:
            delete(env)
        async with led(env):
            if begun:
                await until("it runs", lambda: "main" in env.cluster.policies.claims)
                delete(env)
            await asyncio.sleep(1.5)
            assert exists(env)
            assert "main" not in env.cluster.policies.claims, "its loop has ended"

            env.cluster.link.switched_off = False
            await until("it is gone", lambda: not exists(env))

    run_policy(LEVEL, scenario, **SWITCHES_OFF)


def test_a_policy_that_is_replaced_gets_a_loop_of_its_own(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.cluster.link.switched_off = False
        async with led(env):
            await until("it has run", lambda: env.condition("Ready") == ("True", "Cycled"), 20)
            delete(env)
            env.create_policy("main", mode="DryRun", brokers={"names": ["a"]})
            await until("the new one runs", lambda: env.condition("Valid") != ("", ""), 20)
            await until("by its own spec", lambda: env.cluster.policies.claims["main"].names == ("a",))

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_deletion_that_the_watch_missed_ends_the_loop_all_the_same(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_tasks, "LIST_EVERY", 0.5)

    async def scenario(env: PolicyEnvironment) -> None:
        refit(env.cluster, clock=asyncio.get_running_loop().time)
        watched = {env.loop.uid: env.policy()}
        running = asyncio.create_task(PolicyTasks(env.cluster, watched).run())
        await until("it runs", lambda: "main" in env.cluster.policies.claims)
        await asyncio.sleep(1.5)
        assert "main" in env.cluster.policies.claims, "a list that has the policy ends nothing"

        delete(env)
        await until("its loop has ended", lambda: "main" not in env.cluster.policies.claims)
        await ended(running)

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_loop_that_crashes_starts_again_and_the_others_run_on(
    run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_tasks, "RESTART_AFTER", 0.5)
    real, began = PolicyLoop.run, list[str]()

    async def run(loop: PolicyLoop, stopped: asyncio.Event) -> None:
        began.append(loop.name)
        if began == ["main"]:
            raise RuntimeError("a defect")
        await real(loop, stopped)

    monkeypatch.setattr(PolicyLoop, "run", run)

    async def scenario(env: PolicyEnvironment) -> None:
        env.cluster.link.switched_off = False
        async with led(env):
            await until("it runs", lambda: "main" in env.cluster.policies.claims)
            env.create_policy("other", mode="DryRun", brokers={"names": ["b"]})
            await until("the other runs, too", lambda: "other" in env.cluster.policies.claims)
        assert began == ["main", "main", "other"]
        assert env.cluster.policies.claims == {}, "both loops have ended"

    run_policy(LEVEL, scenario, mode="DryRun", brokers={"names": ["a"]})


def test_kopf_writes_nothing_to_a_policy(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        env.cluster.link.switched_off = False
        before = env.policy()["metadata"]
        async with led(env):
            await until("it has run", lambda: env.condition("Ready") == ("True", "Cycled"), 20)
        after = env.policy()["metadata"]
        assert after.get("annotations") == before.get("annotations")
        assert {f["manager"] for f in after["managedFields"] if "subresource" not in f} == {
            f["manager"] for f in before["managedFields"]
        }

    run_policy(LEVEL, scenario, mode="DryRun")


def test_a_whole_operator_leads_decides_and_gives_its_lease_back_at_the_end(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        reach = (env.kubeconfig, None, env.namespace)
        options = OperatorOptions((env.namespace,), http_port=0)
        async with candidate(*reach, Candidacy(identity="trimtab-0")) as (api, elector):
            sources = StaticSources(env)
            operator = asyncio.create_task(run_operator(api, options, sources, Metrics(), elector))
            await until("it decides", lambda: "lastCycle" in env.status(), 30)
            assert env.condition("Led") == ("True", "Elected")
            assert finalizers(env) == []

            env.rest.create(env.path("topicnamespaces"), topic_namespace("t-new", tenant="t", name="new", bundles=2))
            await until("it cuts", lambda: len([n for n in env.bundles() if n.startswith("t-new-")]) == 2, 20)

            os.kill(os.getpid(), signal.SIGTERM)
            async with asyncio.timeout(10):
                await operator
        lease = env.rest.get(f"/apis/coordination.k8s.io/v1/namespaces/{env.namespace}/leases/trimtab")
        assert not lease["spec"].get("holderIdentity")
        assert "LeaderResigned" in {reason for reason, _ in env.events()}

    run_policy(LEVEL, scenario)
