"""Automatic approval: each criterion of `spec.approval.auto`, and what becomes of proposals that meet or miss them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from approve_mode import APPROVE, ask, destinations, moved, offered, progress, proposal as shown
from plan_clusters import HOT
from policy_environment import PolicyEnvironment, RunPolicy, eager
from strategy_testing.clusters import NOW
from trimtab_operator.proposals.automatic import Findings, failed_criterion, predicted_gain
from trimtab_operator.proposals.model import Proposal
from trimtab_operator.resources.policy_status import AutoApproval
from trimtab_strategies.model import Move, Plan, Reason
from trimtab_strategies.protocols import Predictions

NAMES = tuple(f"t/n/0x{low:08x}_0x{low + 0x10000000:08x}" for low in range(0, 0x60000000, 0x10000000))
GOOD = Predictions(judged=10, right=0.9, off=1.0, within=3.0, step=1.0)
UNPROVEN = {"maxMoves": 100, "minGain": 0, "trustedPredictions": False}


def made(moves: int = 2, before: tuple[float, float] = (80, 40), after: tuple[float, float] = (62, 58)) -> Proposal:
    """A proposal that changes the CPU of two brokers; their memory stays at 30 and 20 %."""
    usage = np.full((2, 2, 5), math.nan)
    usage[0, :, 0], usage[1, :, 0] = before, after
    usage[:, :, 1] = (30, 20)
    planned = tuple(Move(name, "a", "b", Reason.OVERLOADED, 1.0) for name in NAMES[:moves])
    plan = Plan(planned, (), ("a", "b"), usage[0], usage[1], ())
    return Proposal.of(plan, None, names={}, generation=1, made_at=NOW, expires_after=900)


def test_a_small_proposal_with_a_clear_gain_and_right_predictions_meets_all_criteria() -> None:
    assert failed_criterion(AutoApproval(), made(), Findings(predictions=GOOD)) == ""


@pytest.mark.parametrize(
    ("proposal", "findings", "missed"),
    [
        (made(moves=6), Findings(predictions=GOOD), "6 moves, at most 5 (spec.approval.auto.maxMoves)"),
        (
            made(after=(79, 41)),
            Findings(predictions=GOOD),
            "a gain of 2.0 points, at least 5 wanted (spec.approval.auto.minGain)",
        ),
        (
            made(before=(math.nan, math.nan), after=(math.nan, math.nan)),
            Findings(predictions=GOOD),
            "a gain of 0.0 points, at least 5 wanted (spec.approval.auto.minGain)",
        ),
        (made(), Findings("no window is open", GOOD), "no window is open"),
        (
            made(),
            Findings(),
            "this shedder makes no predictions, 70% of at least 5 wanted (spec.approval.auto.trustedPredictions)",
        ),
        (
            made(),
            Findings(predictions=Predictions(4, 1.0, 0.5, 3.0, 1.0)),
            "4 predictions judged, 70% of at least 5 wanted (spec.approval.auto.trustedPredictions)",
        ),
        (
            made(),
            Findings(predictions=Predictions(10, 0.6, 4.0, 3.0, 0.5)),
            "60% of the last predictions were right, 70% of at least 5 wanted (spec.approval.auto.trustedPredictions)",
        ),
    ],
)
def test_a_criterion_that_is_missed_is_named_with_its_field(
    proposal: Proposal, findings: Findings, missed: str
) -> None:
    assert failed_criterion(AutoApproval(), proposal, findings) == missed


def test_the_gain_is_that_of_the_resource_with_the_largest_range() -> None:
    assert predicted_gain(made()) == pytest.approx(36.0)


def test_without_any_usage_no_gain_is_known() -> None:
    usage = np.full((2, 5), math.nan)
    plan = Plan((Move(NAMES[0], "a", "b", Reason.OVERLOADED, 1.0),), (), ("a", "b"), usage, usage, ())
    unknown = Proposal.of(plan, None, names={}, generation=1, made_at=NOW)

    assert predicted_gain(unknown) is None
    assert failed_criterion(AutoApproval(), unknown, Findings(predictions=GOOD)).startswith("an unknown gain")


def policy(**auto: Any) -> dict[str, Any]:
    return eager() | APPROVE | {"approval": {"auto": UNPROVEN | auto}}


@pytest.mark.apiserver
def test_what_meets_the_criteria_is_carried_out_without_a_person(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        found = shown(env)
        assert found["state"] == "Rebalancing"
        await env.reconcile(after=2)

        assert moved(env) == destinations(found)
        assert progress(env)["approvedBy"] == "spec.approval.auto"
        assert any("approved by spec.approval.auto" in text for _, text in env.events())

    run_policy(HOT, scenario, **policy())


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (policy(maxMoves=1), "at most 1 (spec.approval.auto.maxMoves)"),
        (policy(trustedPredictions=True), "this shedder makes no predictions"),
        (
            policy() | {"windows": [{"kind": "Deny", "start": "00:00", "duration": "168h"}]},
            "spec.windows: no window opens within a week",
        ),
    ],
)
def test_what_misses_one_waits_for_a_person_and_says_why(run_policy: RunPolicy, spec: dict[str, Any], why: str) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        found = await offered(env)
        await env.reconcile(after=2)

        assert moved(env) == {}
        assert "not approved by itself: " in found["message"]
        assert why in found["message"]

        ask(env, "approve", found["id"], by="alice@example.com")
        await env.reconcile(after=2)

        assert moved(env) != {}
        assert progress(env)["approvedBy"] == "alice@example.com"

    run_policy(HOT, scenario, **spec)
