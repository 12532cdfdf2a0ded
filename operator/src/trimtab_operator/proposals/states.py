"""The states of a proposal and their transitions: one table, which the code executes and the docs draw.

The names are those of Strimzi's KafkaRebalance. A transition that is not in the table can't happen. A command without a
transition is refused with the text of `REFUSALS`. If the operator stops after it executed a command and before it
answered, it reads the command again. The second time, the command changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from trimtab_operator.resources.policy_status import ProposalState


class Event(StrEnum):
    """Events of a proposal. The value is the label of the arrow in the drawing."""

    OFFER = "a cycle plans something"
    APPROVE = "approve"
    CARRY_OUT = "approve -f"
    REFRESH = "refresh"
    STOP = "stop"
    EXPIRE = "expired"
    SUPERSEDE = "superseded"
    COMPLETE = "all landed"
    FAIL = "all ended, some failed"


BECAME = {
    Event.OFFER: "Offered",
    Event.APPROVE: "Approved",
    Event.CARRY_OUT: "Approved",
    Event.EXPIRE: "Expired",
    Event.SUPERSEDE: "Superseded",
    Event.REFRESH: "Refreshed",
    Event.STOP: "Stopped",
}
"""Events that the metric `trimtab_proposals_total` counts, and the label of each."""


_S = ProposalState

_E = Event


TRANSITIONS: Mapping[ProposalState, Mapping[Event, ProposalState]] = {
    _S.PENDING_PROPOSAL: {
        _E.OFFER: _S.PROPOSAL_READY,
        _E.CARRY_OUT: _S.REBALANCING,
        _E.REFRESH: _S.PENDING_PROPOSAL,
        _E.STOP: _S.STOPPED,
    },
    _S.PROPOSAL_READY: {
        _E.APPROVE: _S.REBALANCING,
        _E.CARRY_OUT: _S.REBALANCING,
        _E.REFRESH: _S.PENDING_PROPOSAL,
        _E.STOP: _S.STOPPED,
        _E.EXPIRE: _S.PENDING_PROPOSAL,
        _E.SUPERSEDE: _S.PENDING_PROPOSAL,
    },
    _S.REBALANCING: {
        _E.APPROVE: _S.REBALANCING,
        _E.STOP: _S.STOPPED,
        _E.COMPLETE: _S.READY,
        _E.FAIL: _S.NOT_READY,
    },
    _S.READY: {
        _E.OFFER: _S.PROPOSAL_READY,
        _E.CARRY_OUT: _S.REBALANCING,
        _E.REFRESH: _S.PENDING_PROPOSAL,
        _E.STOP: _S.STOPPED,
    },
    _S.NOT_READY: {
        _E.OFFER: _S.PROPOSAL_READY,
        _E.CARRY_OUT: _S.REBALANCING,
        _E.REFRESH: _S.PENDING_PROPOSAL,
        _E.STOP: _S.STOPPED,
    },
    _S.STOPPED: {
        _E.CARRY_OUT: _S.REBALANCING,
        _E.REFRESH: _S.PENDING_PROPOSAL,
        _E.STOP: _S.STOPPED,
    },
}
"""Next state, by state and event."""


COMMANDS: Mapping[str, Event] = {"approve": _E.APPROVE, "refresh": _E.REFRESH, "stop": _E.STOP}
"""Values of the annotation ``trimtab.dev/rebalance``. `approve` with a saved plan is the event `CARRY_OUT`."""


APPROVALS = frozenset({_E.APPROVE, _E.CARRY_OUT})

_UNDER_WAY = "a proposal is being carried out: wait, or stop it first"

REFUSALS: Mapping[ProposalState, Mapping[Event, str]] = {
    _S.PENDING_PROPOSAL: {_E.APPROVE: "there is no proposal now: the next cycle that would move something offers one"},
    _S.REBALANCING: dict.fromkeys((_E.CARRY_OUT, _E.REFRESH), _UNDER_WAY),
    _S.READY: {_E.APPROVE: "the last proposal was carried out already: wait for the next one, or refresh"},
    _S.NOT_READY: {_E.APPROVE: "the last proposal has ended, with failures: wait for the next one, or refresh"},
    _S.STOPPED: {_E.APPROVE: "stopped: refresh makes a new proposal, which can then be approved"},
}
"""Text of the refusal, by state and command."""


def after(state: ProposalState, event: Event) -> ProposalState | None:
    """The state after `event` in `state`; None without a transition."""
    return TRANSITIONS[state].get(event)


def may(state: ProposalState, event: Event) -> bool:
    """Whether `state` has a transition for `event`."""
    return event in TRANSITIONS[state]
