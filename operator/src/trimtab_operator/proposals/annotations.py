"""The annotations by which people command a policy: read from the API server itself, and taken off once they are taken.

What a handler is shown of a policy may be a moment old, and then still has an annotation that was taken already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trimtab_operator.kube.client import POLICIES, Api, ConflictError, NotFoundError
from trimtab_operator.resources.policy_status import PROPOSAL_ANNOTATION, REBALANCE_ANNOTATION

_TRIES = 4
"""Attempts at removing an annotation while somebody edits the policy."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A command. word: what it says; pinned: id of the proposal that is meant, empty any."""

    word: str
    pinned: str = ""

    @classmethod
    def of(cls, policy: Mapping[str, Any]) -> Self | None:
        """The command that a BalancingPolicy object carries, None without one."""
        annotations = policy["metadata"].get("annotations") or {}
        word = annotations.get(REBALANCE_ANNOTATION)
        return None if word is None else cls(word, annotations.get(PROPOSAL_ANNOTATION, ""))


async def take_off(api: Api, policy: Mapping[str, Any], asked: Asked) -> None:
    """Remove the annotations, unless somebody wrote another command meanwhile. Raises `ApiError`.

    policy: the object as it was read.
    """
    namespace, name = policy["metadata"]["namespace"], policy["metadata"]["name"]
    for _ in range(_TRIES):
        if Asked.of(policy) != asked:
            return
        gone = {REBALANCE_ANNOTATION: None, PROPOSAL_ANNOTATION: None}
        meta = {"resourceVersion": policy["metadata"]["resourceVersion"], "annotations": gone}
        try:
            await api.patch(POLICIES, namespace, name, {"metadata": meta})
        except NotFoundError:
            return
        except ConflictError:
            policy = await api.get(POLICIES, namespace, name)
        else:
            return
