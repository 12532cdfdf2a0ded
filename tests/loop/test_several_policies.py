"""Several policies in one Kubernetes namespace: each over its own brokers, none over another's."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from faulty_api import until
from manifests import topic_namespace
from policy_environment import PolicyEnvironment, RunPolicy, eager
from static_sources import StaticSource
from strategy_testing.clusters import cluster
from trimtab_operator.loop.gates import REMIND
from trimtab_operator.state.cluster import ClusterState
from trimtab_pipeline.api import Observation, SourceUnavailableError, Topology

pytestmark = pytest.mark.apiserver

TWO_PAIRS = cluster(bundles={"a": [1] * 8, "b": [1], "c": [1] * 8, "d": [1]}, a=0.8, b=0.2, c=0.8, d=0.2)
FIRST, SECOND = {"names": ["a", "b"]}, {"names": ["c", "d"]}


async def add_bundle(env: PolicyEnvironment) -> None:
    """There is a bundle `new-bundle`, the only one of its namespace, without an owner."""
    env.rest.create(env.path("topicnamespaces"), topic_namespace("t-new", tenant="t", name="new"))
    await until("its namespace is known", lambda: "t-new" in env.cluster.stores.topic_namespaces.items)
    full = "t/new/0x00000000_0xffffffff"
    env.names[full] = "new-bundle"
    env.add_bundle(full, "")


def test_each_policy_moves_bundles_of_its_own_brokers_alone(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        before = env.owners()
        second = env.add_policy("second", **eager(), brokers=SECOND)
        await env.cycle()
        left = {before[name] for name, desired in env.desired_owners().items() if desired != before[name]}
        assert left == {"a"}

        await second.reconcile()
        await env.seen()

        moved = {(before[name], desired) for name, desired in env.desired_owners().items() if desired != before[name]}
        assert moved == {("a", "b"), ("c", "d")}
        assert env.condition("Ready") == env.condition("Ready", "second") == ("True", "Cycled")
        policies = {
            env.bundles()[name]["spec"]["assignment"]["policy"]
            for name in before
            if env.desired_owners()[name] in {"b", "d"} and before[name] in {"a", "c"}
        }
        assert policies == {"main", "second"}

    run_policy(TWO_PAIRS, scenario, brokers=FIRST)


def test_a_second_policy_that_shares_a_broker_is_refused_naming_both_until_it_does_not(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second", **eager(), brokers={"names": ["b", "c", "d"]})
        await env.cycle()
        await second.reconcile()

        assert env.condition("Valid", "second") == ("False", "InvalidPolicy")
        message = env.message("Valid", "second")
        assert "policies main and second would both balance b:" in message
        assert env.condition("Ready") == ("True", "Cycled")

        env.rest.patch(env.path("balancingpolicies", "second"), {"spec": {"brokers": SECOND}})
        await second.reconcile()
        assert env.condition("Ready", "second") == ("True", "Cycled")

    run_policy(TWO_PAIRS, scenario, brokers=FIRST)


def test_bundles_of_a_lost_broker_stay_among_the_brokers_of_its_policy(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second", **eager(maxLostBrokersPercent=60), brokers=SECOND)
        await env.reconcile()
        await second.reconcile()
        orphans = [name for name, owner in env.owners().items() if owner == "c"]
        env.rest.patch(env.path("brokers", "c", "status"), {"status": {"ready": False}})
        for _ in range(3):
            await env.reconcile(after=31)
            await second.reconcile()
            await env.land()

        assert {env.owners()[name] for name in orphans} == {"d"}

    run_policy(TWO_PAIRS, scenario, brokers=FIRST)


def test_a_new_bundle_is_housed_once_by_the_oldest_policy(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second", **eager(), brokers=SECOND)
        await add_bundle(env)
        for _ in range(2):
            await env.reconcile(after=2)
            await second.reconcile()
            await env.seen()

        assert env.desired_owners()["new-bundle"] in {"a", "b"}
        assert env.bundles()["new-bundle"]["metadata"]["generation"] == 2

    run_policy(TWO_PAIRS, scenario, brokers=FIRST)


def test_a_look_at_the_brokers_goes_through_no_bundles(run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second", mode="DryRun", brokers=SECOND)
        await second.reconcile()
        await env.reconcile()
        await env.reconcile(after=5)
        monkeypatch.setattr(ClusterState, "caretaker", lambda _, record: asked.append(record.name) or "main")
        await env.reconcile(after=5)

        assert asked == []

    run_policy(TWO_PAIRS, scenario, brokers=FIRST, mode="DryRun")


NOWHERE = {"windows": [{"start": "22:00", "duration": "1h", "timeZone": "Nowhere/Land"}]}
"""A mistake that the API server can't see."""


def test_a_mistake_in_the_older_policy_does_not_set_a_younger_one_loose(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second", **eager())
        env.edit(**NOWHERE)
        await env.reconcile()
        await second.reconcile()

        assert env.condition("Valid") == env.condition("Valid", "second") == ("False", "InvalidPolicy")
        assert env.desired_owners() == env.owners()

    run_policy(TWO_PAIRS, scenario, brokers=FIRST)


def test_others_give_owners_to_new_bundles_while_the_oldest_policy_cannot_be_run(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second", **eager(), brokers=SECOND)
        env.edit(**NOWHERE)
        await env.reconcile()
        await add_bundle(env)
        await env.seen()
        await second.reconcile()

        assert env.desired_owners()["new-bundle"] in {"c", "d"}

    run_policy(TWO_PAIRS, scenario, brokers=FIRST)


def test_a_policy_that_is_edited_wrongly_still_gives_owners_to_its_bundles(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        env.edit(**NOWHERE)
        await add_bundle(env)
        await env.reconcile(after=1)

        assert env.condition("Valid") == ("False", "InvalidPolicy")
        assert env.desired_owners()["new-bundle"] in {"a", "b"}

    run_policy(TWO_PAIRS, scenario, mode="DryRun", brokers=FIRST)


class Away(StaticSource):
    """Does not answer."""

    def observe(self, topology: Topology, at: float) -> Future[Observation]:  # noqa: ARG002  (a protocol)
        outcome: Future[Observation] = Future()
        outcome.set_exception(SourceUnavailableError("connection refused"))
        return outcome


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "a spec that can't be read": (NOWHERE, "InvalidPolicy: spec.windows.0.timeZone: "),
    "a URL that is not allowed": ({"source": {"prometheus": {"url": "http://203.0.113.9"}}}, "InvalidPolicy: spec.sou"),
    "a broker that does not exist": (
        {"brokers": {"names": ["a", "ghost"]}},
        "UnknownBroker: spec.brokers.names: no ",
    ),
    "a pause": ({"paused": True}, "Paused: spec.paused or "),
    "a source that does not answer": ({}, "SourceUnavailable)"),
}


@pytest.mark.parametrize("ran", [False, True], ids=["from the start", "after it ran"])
@pytest.mark.parametrize(("fault", "why"), FAULTS.values(), ids=FAULTS.keys())
def test_the_younger_policy_says_why_the_older_one_that_keeps_its_brokers_does_not_run(
    run_policy: RunPolicy, fault: dict[str, Any], why: str, *, ran: bool
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second, working = env.add_policy("second", **eager()), env.source
        if ran:
            await env.cycle()
            await second.reconcile()
            assert "main is older and continues;" in env.message("Valid", "second")
        env.source = working if fault else Away(TWO_PAIRS)
        env.edit(**fault)
        await env.cycle()
        await second.reconcile()

        env.clock += REMIND
        await second.reconcile()
        said = env.message("Valid", "second")
        assert f"main is older and keeps them, although it does not run ({why}" in said
        assert "; correct or delete main, or give them spec.brokers that don't overlap" in said
        assert "continues" not in said

        env.source = working
        env.edit(windows=None, paused=None, brokers=FIRST, source={"prometheus": {"url": "http://prometheus:9090"}})
        await env.cycle()
        env.clock += REMIND
        await second.reconcile()
        assert "main is older and continues;" in env.message("Valid", "second")

    run_policy(TWO_PAIRS, scenario, brokers=FIRST)


def gauges(env: PolicyEnvironment) -> list[bytes]:
    """The metrics that say how things are, and not how often something happened."""
    lines = env.cluster.metrics.text().splitlines()
    counted = (b"_total", b"_created", b"_bucket", b"_count", b"_sum")
    return [line for line in lines if not any(word in line for word in counted)]


def test_when_a_policy_goes_its_brokers_are_free_for_another(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        second = env.add_policy("second", **eager())
        await env.cycle()
        await second.reconcile()
        assert env.condition("Valid", "second") == ("False", "InvalidPolicy")

        env.cluster.leave("main")
        assert b'policy="main"' not in b"".join(gauges(env))
        await second.reconcile()
        assert env.condition("Ready", "second") == ("True", "Cycled")

    run_policy(TWO_PAIRS, scenario, brokers=FIRST)
