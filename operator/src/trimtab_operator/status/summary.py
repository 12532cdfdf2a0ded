"""`Led`, and `Ready` as the summary of a policy's conditions: what keeps the policy from working comes first. Pure.

A cycle decides `Ready` by what it did. Other conditions come from elsewhere: whether this process leads, whether Pulsar
answers, and whether Pulsar's own balancer is off. A policy is not ready while one of them keeps it from working,
whatever its last cycle did: ``kubectl wait --for=condition=Ready`` waits for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab_operator.kube.conditions import Condition, condition_of, set_condition
from trimtab_operator.resources.conditions import ConditionReason, PolicyCondition
from trimtab_operator.resources.policy import Mode
from trimtab_operator.state.cluster import ClusterState
from trimtab_strategies.model import Reason

_NEEDED = {
    PolicyCondition.LED: frozenset(Mode),
    PolicyCondition.LINKED: frozenset(Mode),
    PolicyCondition.PULSAR_BALANCER_DISABLED: frozenset({Mode.AUTO}),
}
"""Conditions that must not be False -> the modes that need them. In other modes, Pulsar's own balancer may be on."""
_AWAITED = PolicyCondition.LINKED
"""The condition that must not be Unknown either: until it is known, the brokers are not known either."""


def led(cluster: ClusterState, conditions: Iterable[Mapping[str, Any]], generation: int) -> list[Condition]:
    """`conditions` of a policy at `generation`, with `Led` if there is an elected leader.

    If that leader is deposed, `Acting` says so, too.
    """
    process, former, found = cluster.process, cluster.policies.former, [dict(condition) for condition in conditions]
    if process.deposed:
        for kind in (PolicyCondition.LED, PolicyCondition.ACTING):
            found = set_condition(found, kind, "False", Reason.DEPOSED, process.deposed, generation, cluster.now())
    elif process.leader:
        text, kind = f"{process.term}; {former}" if former else str(process.term), PolicyCondition.LED
        found = set_condition(found, kind, "True", ConditionReason.ELECTED, text, generation, cluster.now())
    return found


def summarized(
    conditions: Iterable[Mapping[str, Any]],
    previous: Iterable[Mapping[str, Any]],
    own: Mapping[str, Any] | None,
    mode: str,
    now: float,
) -> list[Condition]:
    """`conditions` with `Ready` as their summary. previous: the conditions that are shown now.

    own: `Ready` as the last cycle decided it; None if no cycle has ended. mode: of the policy. now: epoch seconds.
    """
    found = [dict(condition) for condition in conditions]
    own = own or next((one for one in found if one["type"] == PolicyCondition.READY), None)
    if own is None:
        return found
    shown = next((dict(one) for one in previous if one["type"] == PolicyCondition.READY), None)
    if shown is not None:  # so that the time of the last transition is that of what people see
        found = [shown if one["type"] == PolicyCondition.READY else one for one in found]
    verdict = (own["status"], own["reason"], own["message"])
    if own["status"] == "True":
        verdict = _hindrance(found, mode) or verdict
    return set_condition(found, PolicyCondition.READY, *verdict, own["observedGeneration"], now)


def _hindrance(conditions: Iterable[Mapping[str, Any]], mode: str) -> tuple[str, str, str] | None:
    """Status, reason and message of the first condition that keeps a policy of this mode from working; None: none."""
    known = list(conditions)
    for kind, modes in _NEEDED.items():
        status, reason, message, _ = condition_of(known, kind)
        if mode in modes and (status == "False" or (status == "Unknown" and kind is _AWAITED)):
            return status, reason, f"{kind} is {status}: {message}"
    return None
