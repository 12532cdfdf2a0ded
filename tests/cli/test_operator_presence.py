"""`trimtab status` of a policy that no operator looks at."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from plan_clusters import LEVEL
from policy_environment import PolicyEnvironment, RunPolicy, run_scenario
from trimtab_operator.cli import main
from trimtab_operator.cli.cluster import leader, left_alone
from trimtab_operator.cli.commands.status_table import as_data, print_one, ready
from trimtab_operator.kube.conditions import micro_timestamp, timestamp
from trimtab_operator.loop.gates import REMIND
from trimtab_testbed.servers.kube import ControlPlane

NOW = 1_750_000_000.0


def policy(*, cycle: float | None = None, seen: int = 1, **spec: Any) -> dict[str, Any]:
    status = {} if cycle is None else {"lastCycle": {"time": timestamp(cycle)}, "observedGeneration": seen}
    return {"metadata": {"name": "main", "namespace": "messaging", "generation": 2}, "spec": spec, "status": status}


def lease(renewed: float, holder: str = "trimtab-1") -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "renewTime": micro_timestamp(renewed), "leaseDurationSeconds": 15}}


@pytest.mark.parametrize(
    ("found", "of", "said"),
    [
        (policy(), None, "there is no Lease trimtab, it has had no cycle yet, and generation 2 of it has not been"),
        (policy(), lease(NOW, holder=""), "no one holds the Lease trimtab"),
        (
            policy(cycle=NOW - 21),
            lease(NOW - 16, holder=""),
            "no one holds the Lease trimtab, its last cycle was 21s ago",
        ),
        (policy(cycle=NOW - 7200), lease(NOW - 7200), "trimtab-1 has not renewed the Lease trimtab since 2h ago, its"),
        (policy(cycle=NOW - 7200, seen=1), None, "generation 2 of it has not been read (observedGeneration is 1)"),
    ],
    ids=["never", "given back", "given back after the last cycle", "died", "edited since"],
)
def test_a_policy_without_an_operator_says_so_and_how_to_start_one(
    found: dict[str, Any], of: dict[str, Any] | None, said: str
) -> None:
    told = left_alone(found, of, NOW)

    assert said in told
    assert told.startswith("no operator manages this policy: ")
    assert told.endswith("trimtab run --namespace messaging")


@pytest.mark.parametrize(
    ("found", "of"),
    [
        (policy(), lease(NOW - 5)),
        (policy(cycle=NOW - 100), None),
        (policy(cycle=NOW - 15), lease(NOW - 10, holder="")),
        (policy(cycle=NOW - 20), lease(NOW - 3000, holder="")),
        (policy(cycle=NOW - REMIND - 5, interval="10s"), None),
        (policy(cycle=NOW - 1500, interval="10m"), None),
    ],
    ids=[
        "just started",
        "a Lease of another name",
        "just given back",
        "given back before the last cycle",
        "a refusal, reported once a minute",
        "a long interval",
    ],
)
def test_a_policy_with_an_operator_is_not_called_left_alone(found: dict[str, Any], of: dict[str, Any] | None) -> None:
    assert left_alone(found, of, NOW) == ""


def test_one_policy_begins_with_that_nobody_looks_at_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_one(as_data(policy(), left_alone(policy(), None, NOW)), "never")

    shown = " ".join(capsys.readouterr().out.split())  # as wide as the terminal, which tests do not choose
    assert "Operator none no operator manages this policy: there is no Lease trimtab" in shown


def test_ready_is_unknown_where_nobody_looks() -> None:
    found = policy() | {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Cycled"}]}}
    assert ready(as_data(found)) == "True"
    assert ready(as_data(found, "no operator manages this policy")) == "Unknown"
    assert ready(as_data(policy())) == "Unknown"


def test_the_state_of_a_proposal_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for state, meaning in {"ProposalReady": "waits for approval", "Ready": "all moves have landed"}.items():
        found = policy() | {"status": {"proposal": {"state": state, "id": "fa0f0895", "total": 2}}}
        print_one(as_data(found), "never")
        assert f"Proposal: {state} fa0f0895 ({meaning})" in capsys.readouterr().out


def pulsar_shown(capsys: pytest.CaptureFixture[str], **found: str) -> list[str]:
    """The lines about Pulsar in the output for a policy with these conditions."""
    conditions = [{"type": kind, "status": s, "reason": "Why", "message": f"of {kind}"} for kind, s in found.items()]
    print_one(as_data({**policy(), "status": {"conditions": conditions}}), "never")
    return capsys.readouterr().out.splitlines()[1:]


def test_status_shows_whether_pulsar_is_linked_and_its_own_balancer_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert pulsar_shown(capsys) == []
    assert pulsar_shown(capsys, Linked="True", PulsarBalancerDisabled="True") == [
        "  Pulsar: linked",
        "  Pulsar's own balancer: off",
    ]
    assert pulsar_shown(capsys, Linked="False", PulsarBalancerDisabled="False") == [
        "  Linked False: Why: of Linked",
        "  PulsarBalancerDisabled False: Why: of PulsarBalancerDisabled",
    ]


@pytest.mark.parametrize(
    ("of", "held_by"),
    [(lease(NOW - 5), "trimtab-1"), (lease(NOW - 16), ""), (lease(NOW, holder=""), ""), ({"spec": {}}, "")],
    ids=["held", "expired", "given back", "new"],
)
def test_an_operator_leads_while_it_renews_its_lease(of: dict[str, Any], held_by: str) -> None:
    assert leader(of, NOW) == held_by


@pytest.mark.apiserver
def test_status_of_a_policy_that_nobody_looks_at_is_a_finding(
    trimtab_crds: ControlPlane, kube_namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_policy: RunPolicy = partial(run_scenario, trimtab_crds, kube_namespace)

    async def scenario(env: PolicyEnvironment) -> None:
        words = ("status", "-n", env.namespace, "--kubeconfig", env.kubeconfig)
        assert await asyncio.to_thread(main, words) == 1
        assert f"start one for this namespace: trimtab run --namespace {env.namespace}" in capsys.readouterr().out
        assert await asyncio.to_thread(main, (*words, "-o", "json")) == 1
        assert "no Lease" in json.loads(capsys.readouterr().out)[0]["leftAlone"]

    run_policy(LEVEL, scenario)
