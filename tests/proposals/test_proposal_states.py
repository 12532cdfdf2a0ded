"""The table of proposal states is whole: every state meets every event by a transition, a refusal, or never."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from trimtab_operator.proposals.states import APPROVALS, COMMANDS, REFUSALS, TRANSITIONS, Event, after, may
from trimtab_operator.resources.policy_status import ProposalState as State

EVERY = list(itertools.product(State, Event))
ASKED = APPROVALS.union(COMMANDS.values())
PAGE = Path(__file__).parents[2] / "docs" / "proposals.md"
MEANINGS = PAGE.read_text().split("| state | means |\n")[1].split("\n\n")[0]

NEVER = {
    **{
        (state, event): "only a proposal that waits can lapse"
        for state in State
        for event in (Event.EXPIRE, Event.SUPERSEDE)
    },
    **{(state, event): "only what is carried out can end" for state in State for event in (Event.COMPLETE, Event.FAIL)},
    (State.PROPOSAL_READY, Event.OFFER): "what is shown stays until it is answered",
    (State.REBALANCING, Event.OFFER): "one at a time",
    (State.STOPPED, Event.OFFER): "stop lasts until refresh",
}


@pytest.mark.parametrize(("state", "event"), EVERY, ids=lambda value: value.name)
def test_each_event_has_a_transition_a_refusal_or_a_reason_never_to_come(state: State, event: Event) -> None:
    if (to := after(state, event)) is not None:
        assert to in State
        assert event not in REFUSALS.get(state, {})
        assert may(state, event)
    elif event in ASKED:
        assert REFUSALS[state][event]
    else:
        assert (state, event) in NEVER
        assert not may(state, event)


def test_only_what_is_in_the_table_is_refused_by_name() -> None:
    refused = {(state, event) for state, texts in REFUSALS.items() for event in texts}

    assert refused == {(s, e) for s, e in EVERY if e in ASKED and not may(s, e)}


def test_nothing_is_carried_out_but_what_was_approved() -> None:
    ways = {
        (state, event) for state, to in TRANSITIONS.items() for event, end in to.items() if end is State.REBALANCING
    }

    plans = {(state, Event.CARRY_OUT) for state in State if state is not State.REBALANCING}
    assert ways == {(State.PROPOSAL_READY, Event.APPROVE), (State.REBALANCING, Event.APPROVE), *plans}


@pytest.mark.parametrize("state", State)
def test_stop_leads_to_stopped_from_everywhere(state: State) -> None:
    assert after(state, Event.STOP) is State.STOPPED


@pytest.mark.parametrize(("state", "event"), [(s, e) for s, e in EVERY if e in COMMANDS.values() and may(s, e)])
def test_a_command_that_is_taken_twice_does_nothing_more(state: State, event: Event) -> None:
    once = after(state, event)

    assert once is not None
    assert after(once, event) is once


@pytest.mark.parametrize("state", State)
def test_every_state_can_be_left_and_reached_and_is_explained(state: State) -> None:
    reached = {end for to in TRANSITIONS.values() for end in to.values()}

    assert state in reached
    assert set(TRANSITIONS[state].values()) - {state}
    assert re.search(rf"^\| `{state}` \| .+ \|$", MEANINGS, re.MULTILINE)
