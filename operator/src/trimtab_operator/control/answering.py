"""What is said to a person, and why not: which command is refused, and what withdraws a proposal that waits. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab_operator.cluster.brokers import BrokerRecord
from trimtab_operator.control.proposal_states import COMMANDS, REFUSALS, Event, may
from trimtab_operator.control.proposal_store import Standing
from trimtab_operator.control.proposals import Proposal
from trimtab_operator.control.settings import Settings
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.proposal import REBALANCE_ANNOTATION
from trimtab_strategies.model import counted

_INSTEAD = {
    Mode.DRY_RUN: "set it to Approve, and approve what is proposed then",
    Mode.AUTO: "it moves by itself; `trimtab pause` ends that at once, Approve would ask before each proposal",
}
"""What a person may do who commands where no proposal waits for it."""
_QUOTED = 40
"""Characters of what a person wrote that an answer quotes."""


def refusal(word: str, pinned: str, standing: Standing, settings: Settings) -> str | None:
    """Why a command is not carried out; None when it is. pinned: id of the proposal that is meant, empty any."""
    event = COMMANDS.get(word)
    if event is None:
        return f"annotation {REBALANCE_ANNOTATION} is {word[:_QUOTED]!r}: write approve, refresh or stop"
    if settings.mode is not Mode.APPROVE:
        return f"spec.mode is {settings.mode}: {_INSTEAD[settings.mode]}"
    if event is Event.APPROVE and settings.paused:
        return "the policy is paused: resume it first"
    if not may(standing.state, event):
        why = REFUSALS[standing.state][event]
        return f"{standing.message}; {why}" if standing.message else why
    if event is Event.APPROVE and pinned and standing.kept is not None and pinned != standing.kept.id:
        return f"it is for proposal {pinned[:_QUOTED]}, and the one there is now is {standing.kept.id}"
    return None


def outdated(proposal: Proposal, generation: int, brokers: Mapping[str, BrokerRecord]) -> str | None:
    """Why what a proposal rests on is no longer so; None while it is.

    generation: of the policy now. brokers: those that it looks after.
    """
    if proposal.generation != generation:
        return "the policy was edited"
    for name in sorted(proposal.sources | proposal.destinations):
        broker = brokers.get(name)
        if broker is None or not broker.ready:
            return f"broker {name} is {'gone' if broker is None else 'not ready'}"
        if name in proposal.destinations and not broker.schedulable:
            return f"broker {name} takes no bundles any more (spec.schedulable)"
    return None


def in_short(proposal: Proposal) -> str:
    """How much it changes, and what that interrupts."""
    parts = [counted(len(proposal.moves), "move")]
    if proposal.splits:
        parts.append(counted(len(proposal.splits), "split"))
    return f"{' and '.join(parts)} (interrupts {proposal.cost})"
