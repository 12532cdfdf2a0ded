"""The annotations by which people command a policy: read from the API server itself, and taken off once they are taken.

What a handler is shown of a policy may be a moment old, and then still has an annotation that was taken already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from trimtab_operator.cluster.api import POLICIES, Api, ConflictError, NotFoundError
from trimtab_operator.resources.bundle import RELEASE
from trimtab_operator.resources.proposal import PROPOSAL_ANNOTATION, REBALANCE_ANNOTATION

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


async def take_release(api: Api, policy: Mapping[str, Any]) -> bool:
    """Whether a person wants the retreat before a rival ended; the annotation that says so is taken off.

    policy: the object, perhaps as it was a moment ago. Where somebody edits it just now, it stays for the next look.
    Raises `ApiError`.
    """
    if not _released(policy):
        return False
    namespace, name, uid = (policy["metadata"][key] for key in ("namespace", "name", "uid"))
    try:
        now = await api.get(POLICIES, namespace, name)
        if now["metadata"]["uid"] != uid or not _released(now):
            return False
        meta = {"resourceVersion": now["metadata"]["resourceVersion"], "annotations": {RELEASE: None}}
        await api.patch(POLICIES, namespace, name, {"metadata": meta})
    except (ConflictError, NotFoundError):
        return False
    return True


def _released(policy: Mapping[str, Any]) -> bool:
    return (policy["metadata"].get("annotations") or {}).get(RELEASE) == "true"
