"""Commands about a proposal: the annotations of a policy, why a command is refused, and its result.

An annotation is read from the API server and removed once its command is taken. The object that a handler gets may be
older, and still have an annotation whose command was taken already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trimtab_operator.kube.client import POLICIES, Api, ConflictError, NotFoundError
from trimtab_operator.proposals.states import COMMANDS, REFUSALS, Event, may
from trimtab_operator.proposals.store import Standing
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.policy_status import APPROVER_ANNOTATION, PROPOSAL_ANNOTATION, REBALANCE_ANNOTATION
from trimtab_operator.state.settings import Settings

_ANNOTATIONS = (REBALANCE_ANNOTATION, PROPOSAL_ANNOTATION, APPROVER_ANNOTATION)

_TRIES = 4
"""Number of attempts to remove an annotation while the policy is being edited."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A command. word: value of the annotation. pinned: id of the proposal that it is for; empty for any.

    by: name of the user who gave it; empty if the annotations name none.
    """

    word: str
    pinned: str = ""
    by: str = ""

    @classmethod
    def of(cls, policy: Mapping[str, Any]) -> Self | None:
        """The command in the annotations of a BalancingPolicy object, None without one."""
        annotations = policy["metadata"].get("annotations") or {}
        word = annotations.get(REBALANCE_ANNOTATION)
        if word is None:
            return None
        return cls(word, annotations.get(PROPOSAL_ANNOTATION, ""), annotations.get(APPROVER_ANNOTATION, ""))


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

_QUOTED = 40
"""Maximum number of characters of a command that its answer quotes."""


def refusal(word: str, pinned: str, standing: Standing, settings: Settings) -> str | None:
    """Why a command is refused; None when it is allowed. pinned: id of the proposal that it is for; empty for any."""
    event = COMMANDS.get(word)
    if event is None:
        return f"annotation {REBALANCE_ANNOTATION} is {word[:_QUOTED]!r}: write approve, refresh or stop"
    if settings.mode is not Mode.APPROVE:
        names = {"policy": settings.name, "namespace": settings.prometheus.namespace}
        return f"spec.mode is {settings.mode}: {_INSTEAD[settings.mode].format(**names)}"
    if event is Event.APPROVE and settings.paused:
        where = f"{settings.name} -n {settings.prometheus.namespace}"
        return f"the policy is paused: resume it first (trimtab resume {where})"
    if not may(standing.state, event):
        why = REFUSALS[standing.state][event]
        return f"{standing.message}; {why}" if standing.message else why
    if event is Event.APPROVE and pinned and standing.kept is not None and pinned != standing.kept.id:
        return f"it is for proposal {pinned[:_QUOTED]}, and the current one is {standing.kept.id}"
    return None
