"""Automatic approval in mode Approve: the criteria of `spec.approval.auto`, judged when a proposal is made.

It is a middle way between Approve and Auto: small plans with a clear gain are carried out. A person decides on the
others.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_operator.proposals.model import Proposal
from trimtab_operator.resources.policy_status import AutoApproval
from trimtab_strategies.model import counted
from trimtab_strategies.protocols import Predictions

BY_CRITERIA = "spec.approval.auto"
"""Recorded instead of the name of a user who approved."""

RIGHT = 0.7
"""Minimum ratio of right predictions for the predictions to be trusted."""

LEAST_JUDGED = 5
"""Minimum number of judged predictions for the predictions to be trusted."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What is judged besides the proposal. closed: why `spec.windows` do not allow a move now; empty if they do.

    predictions: how good the shedder's last ones were; None if it makes none.
    """

    closed: str = ""
    predictions: Predictions | None = None


def failed_criterion(criteria: AutoApproval, proposal: Proposal, findings: Findings) -> str:
    """The first criterion that `proposal` fails, in words; empty if it meets all."""
    if findings.closed:
        return findings.closed
    size = len(proposal.names)
    if size > criteria.max_moves:
        return f"{counted(size, 'move')}, at most {criteria.max_moves} (spec.approval.auto.maxMoves)"
    gain = predicted_gain(proposal)
    if gain is None or gain < criteria.min_gain:
        found = "an unknown gain" if gain is None else f"a gain of {gain:.1f} points"
        return f"{found}, at least {criteria.min_gain:g} wanted (spec.approval.auto.minGain)"
    return _untrusted(findings.predictions) if criteria.trusted_predictions else ""


def predicted_gain(proposal: Proposal) -> float | None:
    """Percentage points by which the moves narrow the largest range of usage; None if no usage is known."""
    ranges = proposal.ranges
    if not ranges:
        return None
    before, after = max((one["before"]["highest"] - one["before"]["lowest"], _width(one["after"])) for one in ranges)
    return float(before - after)


def _width(found: dict[str, float]) -> float:
    return found["highest"] - found["lowest"]


def _untrusted(found: Predictions | None) -> str:
    wanted = f"{RIGHT:.0%} of at least {LEAST_JUDGED} wanted (spec.approval.auto.trustedPredictions)"
    if found is None:
        return f"this shedder makes no predictions, {wanted}"
    if found.judged < LEAST_JUDGED:
        return f"{counted(found.judged, 'prediction')} judged, {wanted}"
    return "" if found.right >= RIGHT else f"{found.right:.0%} of the last predictions were right, {wanted}"
