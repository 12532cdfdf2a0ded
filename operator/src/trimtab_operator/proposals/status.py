"""Publishes the state of proposals: their part of the policy's status, three conditions, Events and metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.conditions import set_condition
from trimtab_operator.proposals.commands import Command
from trimtab_operator.proposals.model import blank
from trimtab_operator.proposals.progress import Execution
from trimtab_operator.proposals.store import Standing
from trimtab_operator.resources.conditions import ConditionReason, PolicyCondition
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_operator.status.conditions import shortened, waits
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import HeldBack, Reason

_STATES = {
    PolicyCondition.PROPOSAL_READY: ProposalState.PROPOSAL_READY,
    PolicyCondition.REBALANCING: ProposalState.REBALANCING,
}
"""Conditions of mode Approve, and the state in which each is True."""


@dataclass(frozen=True, slots=True)
class ProposalPublisher:
    """Publishes through the policy's `StatusPublisher`."""

    publisher: StatusPublisher

    async def status(
        self, standing: Standing | None, execution: Execution | None, generation: int, command: Command | None
    ) -> None:
        """Write the status. standing: None if the mode is not Approve. generation: the policy's, as read."""
        now = self.publisher.cluster.now()

        def made(previous: Mapping[str, Any]) -> dict[str, Any]:
            found = conditions(previous.get("conditions") or [], standing, command, generation, now)
            status: dict[str, Any] = {"conditions": found}
            if standing is not None:
                status["proposal"] = shown(standing)
            elif waits(previous):
                status["proposal"] = None
            if execution is not None:
                status["progress"] = execution.shown(now)
            return status

        await self.publisher.status(made)

    async def barred(self, refusal: HeldBack, generation: int) -> None:
        """Set `ProposalReady` to False because of `refusal`. generation: the policy's, as read."""
        now, kind, text = self.publisher.cluster.now(), PolicyCondition.PROPOSAL_READY, shortened(refusal.detail)

        def made(previous: Mapping[str, Any]) -> dict[str, Any]:
            found = [dict(condition) for condition in previous.get("conditions") or ()]
            if any(condition["type"] == kind for condition in found):
                found = set_condition(found, kind, "False", str(refusal.reason), text, generation, now)
            return {"conditions": found}

        await self.publisher.status(made)

    async def reached(self, state: ProposalState, message: str) -> None:
        """Post the Event of a new state."""
        kind = "Warning" if state is ProposalState.NOT_READY else "Normal"
        await self.publisher.event(kind, str(state), message)

    async def refused(self, command: Command) -> None:
        """Post the Event of a refused command."""
        await self.publisher.event("Warning", ConditionReason.REFUSED, shortened(command.text))

    async def round(self, execution: Execution, written: int, failures: Sequence[HeldBack]) -> None:
        """Count the moves that were written or failed in one round, and post Events for those that failed."""
        metrics, policy = self.publisher.cluster.metrics, self.publisher.policy
        if written:
            metrics.moves.labels(policy, _reason(execution), "Written").inc(written)
        for why in failures:
            metrics.held_back.labels(policy, str(why.reason)).inc()
        failed = [why for why in failures if why.reason is not Reason.TIMED_OUT]  # TIMED_OUT is reported as an outcome
        await self.publisher.failures([(str(why.reason), f"{why.subject}: not moved: {why.detail}") for why in failed])


def _reason(execution: Execution) -> str:
    """The reason of the proposal's moves, or of its splits if it has no moves."""
    moves, splits = execution.proposal.moves, execution.proposal.splits
    return str(moves[0].reason if moves else splits[0].reason)


def shown(standing: Standing) -> dict[str, Any]:
    """The field ``status.proposal``: the waiting proposal, or the approved one while it is carried out."""
    if (proposal := standing.proposal) is None and standing.state is ProposalState.REBALANCING:
        proposal = standing.kept
    message = shortened(standing.message)
    return blank(standing.state, message) if proposal is None else proposal.shown(standing.state, message)


def conditions(
    previous: Sequence[Mapping[str, Any]],
    standing: Standing | None,
    command: Command | None,
    generation: int,
    now: float,
) -> list[dict[str, Any]]:
    """The `previous` conditions with those of proposals set, or removed outside mode Approve. now: epoch seconds."""
    found = [dict(condition) for condition in previous if standing is not None or condition["type"] not in _STATES]
    if standing is not None:
        for kind, state in _STATES.items():
            holds = "True" if standing.state is state else "False"
            message = shortened(standing.message)
            found = set_condition(found, kind, holds, str(standing.state), message, generation, now)
    if command is not None:
        kind, taken, reason = PolicyCondition.COMMAND_TAKEN, "True", ConditionReason.TAKEN
        if command.refused:
            taken, reason = "False", ConditionReason.REFUSED
        # The condition of the last answer is removed first, so that `lastTransitionTime` changes with each answer.
        others = [condition for condition in found if condition["type"] != kind]
        found = set_condition(others, kind, taken, reason, shortened(command.text), generation, now)
    return found
