"""Commands about a proposal: the annotations of a policy, why a command is refused, and its result.

An annotation is read from the API server and removed once its command is taken. The object that a handler gets may be
older, and still have an annotation whose command was taken already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trimtab_operator.budget.left import full_name
from trimtab_operator.kube.client import POLICIES, Api, ConflictError, NotFoundError
from trimtab_operator.kube.naming import object_name
from trimtab_operator.proposals.model import Proposal, cost
from trimtab_operator.proposals.progress import in_words
from trimtab_operator.proposals.saved_plan import InvalidPlanError, MovePlan, plan_id, received
from trimtab_operator.proposals.states import APPROVALS, COMMANDS, REFUSALS, Event, may
from trimtab_operator.proposals.store import Standing
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.policy_status import (
    APPROVER_ANNOTATION,
    PLAN_ANNOTATION,
    PROPOSAL_ANNOTATION,
    REBALANCE_ANNOTATION,
    ProposalState,
)
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_strategies.model import Move, Reason, counted, some

_ANNOTATIONS = (REBALANCE_ANNOTATION, PROPOSAL_ANNOTATION, APPROVER_ANNOTATION, PLAN_ANNOTATION)
"""The annotations of a command, in the order of the fields of `Asked`."""

_TRIES = 4
"""Number of attempts to remove an annotation while the policy is being edited."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A command. word: value of the annotation. pinned: id of the proposal that it is for; empty for any.

    by: name of the user who gave it; empty if the annotations name none. plan: the saved plan to approve, as it was
    sent; empty for a proposal of the policy.
    """

    word: str
    pinned: str = ""
    by: str = ""
    plan: str = ""

    @classmethod
    def of(cls, policy: Mapping[str, Any]) -> Self | None:
        """The command in the annotations of a BalancingPolicy object, None without one."""
        annotations = policy["metadata"].get("annotations") or {}
        if REBALANCE_ANNOTATION not in annotations:
            return None
        return cls(*(annotations.get(name, "") for name in _ANNOTATIONS))

    def event(self, standing: Standing) -> Event | None:
        """The event that the command is; None for an unknown word.

        A plan that is carried out already was read before: then it is approved a second time, which changes nothing.
        """
        event, kept = COMMANDS.get(self.word), standing.kept
        if event is not Event.APPROVE or not self.plan:
            return event
        again = standing.state is ProposalState.REBALANCING and kept is not None and kept.id == plan_id(self.plan)
        return Event.APPROVE if again else Event.CARRY_OUT


def left_behind(policy: Mapping[str, Any]) -> bool:
    """Whether a policy has annotations of a command that a person removed: the next approval must not inherit them."""
    annotations = policy["metadata"].get("annotations") or {}
    return Asked.of(policy) is None and not annotations.keys().isdisjoint(_ANNOTATIONS)


async def take_off(api: Api, policy: Mapping[str, Any], asked: Asked | None) -> None:
    """Remove the annotations, unless another command was written meanwhile. Raises `ApiError`.

    policy: the object as it was read. asked: the command; None: there is none.
    """
    namespace, name = policy["metadata"]["namespace"], policy["metadata"]["name"]
    for _ in range(_TRIES):
        if Asked.of(policy) != asked:
            return
        gone = dict.fromkeys(_ANNOTATIONS)
        meta = {"resourceVersion": policy["metadata"]["resourceVersion"], "annotations": gone}
        try:
            await api.patch(POLICIES, namespace, name, {"metadata": meta})
        except NotFoundError:
            return
        except ConflictError:
            policy = await api.get(POLICIES, namespace, name)
        else:
            return


@dataclass(frozen=True, slots=True)
class Command:
    """The result of a command. word: value of the annotation. text: what was done, or why it was refused."""

    word: str
    text: str
    refused: bool = False


_INSTEAD = {
    Mode.DRY_RUN: "set it to Approve, and approve what is proposed then",
    Mode.AUTO: (
        "it moves by itself; `trimtab pause {policy} -n {namespace}` stops that immediately, and in mode Approve each "
        "proposal waits for a person"
    ),
}
"""Advice for a command in a mode without proposals."""

_SHOWN_ONLY = "it only shows what it would do; set it to Approve or Auto, and approve the plan then"

_QUOTED = 40
"""Maximum number of characters of a command that its answer quotes."""


def refusal(asked: Asked, standing: Standing, settings: Settings) -> str | None:
    """Why a command is refused; None when it is allowed."""
    if (event := asked.event(standing)) is None:
        return f"annotation {REBALANCE_ANNOTATION} is {asked.word[:_QUOTED]!r}: write approve, refresh or stop"
    # in mode Auto, only a saved plan is approved, and stopped
    in_auto = event is Event.CARRY_OUT or standing.state is ProposalState.REBALANCING
    if settings.mode is not Mode.APPROVE and not (in_auto and settings.mode is Mode.AUTO):
        names = {"policy": settings.name, "namespace": settings.prometheus.namespace}
        instead = _SHOWN_ONLY if event is Event.CARRY_OUT else _INSTEAD[settings.mode].format(**names)
        return f"spec.mode is {settings.mode}: {instead}"
    if event in APPROVALS and settings.paused:
        where = f"{settings.name} -n {settings.prometheus.namespace}"
        return f"the policy is paused: resume it first (trimtab resume {where})"
    return _refused_by_state(event, asked.pinned, standing)


def _refused_by_state(event: Event, pinned: str, standing: Standing) -> str | None:
    """Why the state of the proposals does not allow `event`. pinned: id of the proposal that it is for."""
    kept, execution = standing.kept, standing.execution
    if not may(standing.state, event):
        why = REFUSALS[standing.state][event]
        return f"{standing.message}; {why}" if standing.message else why
    if event is Event.CARRY_OUT and execution is not None and execution.in_flight:
        return f"the last proposal still has {counted(execution.in_flight, 'pending move')}: wait until they have ended"
    if event is Event.APPROVE and pinned and kept is not None and pinned != kept.id:
        return f"it is for proposal {pinned[:_QUOTED]}, and the current one is {kept.id}"
    return None


def proposal_of(sent: str, cluster: ClusterState, settings: Settings) -> Proposal:
    """The proposal that a policy's annotation carries.

    Raises `InvalidPlanError` for a plan of another policy, one that is too old, and unknown bundles or brokers. Whether
    a move is still possible is checked when it is written.
    """
    plan, now = received(sent), cluster.now()
    if (plan.namespace, plan.policy) != (cluster.namespace, settings.name):
        raise InvalidPlanError(f"is for policy {plan.policy} in namespace {plan.namespace}")
    if not plan.moves:
        raise InvalidPlanError("has no moves")
    made_at = now if plan.made_at is None else plan.made_at.timestamp()
    if now - made_at > (most := settings.approval_expires_after):
        raise InvalidPlanError(
            f"was made {in_words(now - made_at)} ago, and may be at most {in_words(most)} old (approval.expiresAfter): "
            "save a new one, or remove madeAt from the file if you accept its age"
        )
    names, moves = tuple(object_name(move.bundle) for move in plan.moves), _moves(plan, cluster, settings.name)
    unknown = cost([move.bundle for move in moves], None)
    return Proposal(plan_id(sent), settings.generation, made_at, math.inf, moves, (), names, (), (), (), unknown)


def _moves(plan: MovePlan, cluster: ClusterState, policy: str) -> tuple[Move, ...]:
    """The moves, with bundles as Pulsar spells them. Raises `InvalidPlanError` for unknown bundles and brokers."""
    items, brokers, lost = cluster.stores.bundles.items, cluster.brokers_of(policy), list[str]()
    moves = list[Move]()
    for move in plan.moves:
        record = items.get(object_name(move.bundle))
        if record is None:
            lost.append(move.bundle)
        else:
            full = full_name(cluster, record) or move.bundle
            moves.append(Move(full, move.source, move.destination, Reason.APPROVED))
    if lost:
        raise InvalidPlanError(f"names bundles that were split or deleted, or never existed: {some(lost)}")
    ends = {end for move in moves for end in (move.source, move.destination) if end}
    if strange := sorted(ends - brokers.keys()):
        raise InvalidPlanError(f"names brokers that are gone, or that the policy does not select: {some(strange)}")
    return tuple(moves)
