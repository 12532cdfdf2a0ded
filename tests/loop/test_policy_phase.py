"""The phases of a policy: every row of the table, the order of the rows, and the drawing of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trimtab_operator.loop import policy_loop
from trimtab_operator.loop.policy_phase import GATES, TABLE, Action, PhaseRow, PolicyFacts, phase_of
from trimtab_operator.resources.policy import Mode
from trimtab_strategies.model import HeldBack, Reason

HOLDS: dict[str, tuple[dict[str, Any], Action, Reason | None]] = {
    "invalid edit": ({"invalid": "why", "ran": True}, Action.REPAIR, Reason.INVALID_POLICY),
    "invalid": ({"invalid": "why"}, Action.REPORT, Reason.INVALID_POLICY),
    "overlapping": ({"overlap": "why"}, Action.REPORT, Reason.INVALID_POLICY),
    "conflicting": ({"conflict": "why"}, Action.REPORT, Reason.INVALID_POLICY),
    "not synced": ({"stale": "why"}, Action.REPORT, Reason.STORE_NOT_SYNCED),
    "refused URL": ({"no_brokers": "x", "refused_url": "why"}, Action.REPORT, Reason.INVALID_POLICY),
    "cut off": ({"no_brokers": "x", "cut_off": "why"}, Action.REPORT, Reason.SOURCE_UNAVAILABLE),
    "discovering": ({"no_brokers": "why", "discovering": "why"}, Action.WAIT, Reason.NO_BROKERS),
    "no brokers": ({"no_brokers": "why"}, Action.REPORT, Reason.NO_BROKERS),
    "warming up": ({"warm": False}, Action.CONFIRM, None),
    "between cycles": ({"due": False}, Action.CONFIRM, None),
    "paused": ({"paused": True}, Action.REFUSE, Reason.PAUSED),
    "unknown brokers": ({"unknown_brokers": "why"}, Action.REFUSE, Reason.UNKNOWN_BROKER),
    "dry run": ({"mode": Mode.DRY_RUN}, Action.SHOW, Reason.DRY_RUN),
    "approve": ({"mode": Mode.APPROVE}, Action.SHOW, Reason.NOT_APPROVED),
    "approved plan": ({"approved": True}, Action.DRAIN, Reason.IN_FLIGHT),
    "stood down": ({"contested": "why"}, Action.DRAIN, Reason.COMPETING_BALANCER),
    "unreachable": ({"unreachable": "why"}, Action.DRAIN, Reason.SOURCE_UNAVAILABLE),
    "two balancers": ({"own_balancer": "why"}, Action.DRAIN, Reason.PULSAR_BALANCER_ACTIVE),
    "outside window": ({"closed": "why"}, Action.DRAIN, Reason.OUTSIDE_WINDOW),
    "auto": ({}, Action.APPLY, None),
}
"""By name of each phase: facts that bring it about, and what then happens."""

OWN_TEXT = {"paused", "dry run", "approve", "approved plan"}
"""Phases whose detail is the same for every policy."""


QUALIFIED = {"invalid edit"}
"""Phases that are a later one with one more fact."""


def test_each_row_is_tried_here() -> None:
    assert [row.name for row in TABLE] == list(HOLDS)


@pytest.mark.parametrize("name", HOLDS)
def test_a_row_holds_by_its_own_facts(name: str) -> None:
    facts, action, reason = HOLDS[name]

    phase = phase_of(PolicyFacts(**facts))

    assert (phase.name, phase.action) == (name, action)
    if reason is None:
        assert phase.held is None
    else:
        assert phase.held is not None
        assert (phase.held.subject, phase.held.reason) == ("", reason)
        assert name in OWN_TEXT or phase.held == HeldBack("", reason, "why")


@pytest.mark.parametrize("row", range(len(TABLE)), ids=[row.name for row in TABLE])
def test_an_earlier_row_counts_before_all_later_ones(row: int) -> None:
    facts = PolicyFacts()
    for later in reversed(TABLE[row:]):
        if later.name not in QUALIFIED or later is TABLE[row]:
            facts = replace(facts, **HOLDS[later.name][0])

    assert phase_of(facts).name == TABLE[row].name


@pytest.mark.parametrize("row", GATES, ids=[row.name for row in GATES])
def test_a_gate_asks_only_what_becomes_of_a_plan(row: PhaseRow) -> None:
    """While a cycle measured, the policy may have become due again, or its stores stale: its plan is judged alone."""
    facts = PolicyFacts(**{"stale": "why", "due": False, "paused": True, **HOLDS[row.name][0]})

    assert phase_of(facts, GATES).name == row.name


def test_the_docstring_draws_the_table() -> None:
    lines = [line for line in (policy_loop.__doc__ or "").splitlines() if line.startswith("| ")][1:]
    drawn = [(cells[1].strip(), cells[4].strip()) for cells in (line.split("|") for line in lines)]

    assert drawn == [(row.name, str(row.reason or "")) for row in TABLE]
