"""How the command line shows disruption budgets."""

from __future__ import annotations

from typing import Any

import pytest

from explained_decisions import of_bundle
from plan_clusters import HOT_OF_FOUR
from recorded_decisions import decided
from trimtab_operator.cli.commands.status_table import as_data, print_one
from trimtab_operator.decision_log.record import StayView
from trimtab_strategies.model import Reason

WHY = "connectionsPercentPerHour of policy main is 10 %, 8.3 % spent and it costs 8.3 %: it fits from 12:00 on"


def shown(capsys: pytest.CaptureFixture[str], **status: Any) -> str:
    print_one(as_data({"metadata": {"name": "main"}, "spec": {}, "status": status}), "never")
    return capsys.readouterr().out


def test_status_lists_what_is_spent_what_is_left_and_when_it_is_free_again(capsys: pytest.CaptureFixture[str]) -> None:
    use = {"limit": "connectionsPercentPerHour", "bound": 10, "spent": 8.33, "left": 1.67}
    text = shown(capsys, budget={"limits": [{**use, "freesAt": "2026-01-31T12:00:00Z"}], "overridden": 3})

    assert "connectionsPercentPerHour" in text
    assert "8.33" in text
    assert "1.67" in text
    assert "2026-01-31T12:00:00Z" in text
    assert "3 moves beyond the budget in the last hour" in text


def test_status_of_an_approved_proposal_says_what_its_moves_wait_for(capsys: pytest.CaptureFixture[str]) -> None:
    progress = {"proposal": "p", "percent": 50, "done": 1, "landed": 1, "failed": 0, "inFlight": 0, "total": 2}
    text = shown(capsys, progress={**progress, "waits": f"1 move held back: b: {WHY}"})

    assert "1 move held back: b: connectionsPercentPerHour of policy main is 10 %" in text


def test_why_not_names_the_budget_its_bound_what_is_spent_and_when_it_frees() -> None:
    record = decided(HOT_OF_FOUR)
    kept = record.stays[0]
    stay = StayView(**{**kept.model_dump(), "reason": Reason.DISRUPTION_BUDGET, "detail": WHY})

    answer = of_bundle(record.model_copy(update={"stays": (stay,), "moves": ()}), stay.name, stay.broker).why_not()

    assert answer is not None
    assert answer.reason is Reason.DISRUPTION_BUDGET
    assert WHY in answer.headline
    assert any("spec.budget" in step for step in answer.otherwise)
