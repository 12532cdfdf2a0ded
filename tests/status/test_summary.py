"""`Ready` says first what keeps a policy from working."""

from __future__ import annotations

from typing import Any

import pytest

from plan_clusters import LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, RunPolicy
from trimtab_operator.kube.conditions import set_condition, timestamp
from trimtab_operator.resources.conditions import PolicyCondition
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.pulsar_link import OwnBalancerState
from trimtab_operator.status.summary import summarized

PULSAR = PulsarSpec(admin_url="http://pulsar:8080")
OWN = set_condition([], PolicyCondition.READY, "True", "Cycled", "last cycle: Balanced", 3, 0.0)[0]


def with_one(kind: PolicyCondition, status: str) -> list[dict[str, Any]]:
    return set_condition([OWN], kind, status, "Why", "because", 3, 0.0)


def ready(conditions: list[dict[str, Any]]) -> tuple[str, str, str]:
    found = next(one for one in conditions if one["type"] == "Ready")
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize(
    ("kind", "status", "mode", "expected"),
    [
        (PolicyCondition.LINKED, "False", "DryRun", "False"),
        (PolicyCondition.LINKED, "Unknown", "Auto", "Unknown"),
        (PolicyCondition.LINKED, "True", "Auto", "True"),
        (PolicyCondition.LED, "False", "Auto", "False"),
        (PolicyCondition.PULSAR_BALANCER_DISABLED, "False", "Auto", "False"),
        (PolicyCondition.PULSAR_BALANCER_DISABLED, "False", "DryRun", "True"),  # it only shows its plans
        (PolicyCondition.PULSAR_BALANCER_DISABLED, "Unknown", "Auto", "True"),
        (PolicyCondition.DATA_TRUSTED, "False", "Auto", "True"),  # the other brokers are balanced
        (PolicyCondition.HISTORY_WRITABLE, "False", "Auto", "True"),
    ],
)
def test_a_condition_without_which_a_policy_can_t_work_reaches_ready(
    kind: PolicyCondition, status: str, mode: str, expected: str
) -> None:
    shown = ready(summarized(with_one(kind, status), [OWN], OWN, mode, 9.0))
    if expected == "True":
        assert shown == ("True", "Cycled", "last cycle: Balanced")
    else:
        assert shown == (expected, "Why", f"{kind} is {status}: because")


def test_a_refusal_stays_and_the_time_is_that_of_the_last_change_of_what_is_shown() -> None:
    refused = {**OWN, "status": "False", "reason": "NoBrokers"}
    assert ready(summarized(with_one(PolicyCondition.LINKED, "False"), [], refused, "Auto", 9.0))[1] == "NoBrokers"
    first = summarized(with_one(PolicyCondition.LINKED, "False"), [OWN], OWN, "Auto", 60.0)
    again = summarized(with_one(PolicyCondition.LINKED, "False"), first, OWN, "Auto", 120.0)
    assert {one["lastTransitionTime"] for one in again if one["type"] == "Ready"} == {timestamp(60.0)}


@pytest.mark.apiserver
def test_ready_follows_the_connection_to_pulsar_between_two_cycles(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        link = env.cluster.link
        link.lead_to(PULSAR, "main")
        link.problem, link.own_balancer = "nothing listens at pulsar:8080", OwnBalancerState(disabled=True)
        link.ids = {name: f"{name}:8080" for name in env.load.brokers.names}
        await env.cycle()
        assert env.condition("Ready") == ("False", "SourceUnavailable")
        assert env.message("Ready").startswith("Linked is False: nothing listens at pulsar:8080")
        link.problem = ""
        await env.reconcile(after=1)
        assert env.condition("Ready") == ("True", "Cycled")
        link.problem = "it hangs"
        await env.reconcile(after=1)
        assert env.condition("Ready") == ("False", "SourceUnavailable")

    run_policy(LEVEL_OF_THREE, scenario, mode="Auto", pulsar={"adminUrl": "http://pulsar:8080"})


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("url", "problem", "reason", "told"),
    [
        ("http://pulsar.example.com:8080", "", "InvalidPolicy", "spec.pulsar.adminUrl: "),
        ("http://pulsar:8080", "nothing listens", "SourceUnavailable", "Pulsar can't be asked: nothing listens"),
    ],
)
def test_the_cause_comes_before_the_lack_of_brokers(
    run_policy: RunPolicy, url: str, problem: str, reason: str, told: str
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name in env.load.brokers.names:
            env.rest.delete(env.path("brokers", name))
        env.cluster.link.lead_to(PulsarSpec(admin_url=url), "main")
        env.cluster.link.problem = problem
        await env.reconcile(after=31)
        assert env.condition("Ready") == ("False", reason)
        assert env.message("Ready").startswith(told)
        assert env.status()["lastCycle"]["outcome"] == reason

    run_policy(LEVEL_OF_THREE, scenario, pulsar={"adminUrl": url})


@pytest.mark.apiserver
def test_a_refused_url_of_prometheus_comes_first_too(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        for name in env.load.brokers.names:
            env.rest.delete(env.path("brokers", name))
        await env.reconcile(after=31)
        assert env.condition("Ready") == ("False", "InvalidPolicy")
        assert env.message("Ready").startswith("spec.source.prometheus.url: ")
        assert "--allow-url" in env.message("Ready")

    source = {"prometheus": {"url": "https://mimir.example.com"}}
    run_policy(LEVEL_OF_THREE, scenario, source=source, brokers={"podLabels": {"app": "pulsar"}})
