"""The steps of a split on Bundle objects, each found by looking at what there is: nothing else has to be remembered.

forwards    lock the parent -> create the children -> (its owner takes them) -> delete the parent
            -> release the children -> move those that should go elsewhere -> done
backwards   remove the children -> unlock the parent -> undone

It is Pulsar's state machine: the parent goes from Owned to Splitting to Deleted, each child from Init to Owned, and all
children have an owner before the parent goes. While the parent exists it may be gone back to, whatever was done before;
once it is gone, there is only forwards. So whoever takes a split up after a crash does what is left, in either
direction, and at any moment each hash belongs to exactly one bundle that is served: the parent, or then one child.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from trimtab_operator.resources.bundle import PARENT, BundleState
from trimtab_strategies.model import Reason


class SplitExecutor(Protocol):
    """Carries splits out, whoever asked for them."""

    async def advance(self, order: SplitOrder, give_up: str = "") -> SplitProgress:
        """Do what can be done of `order` now; asked again, after a crash too, it goes on from where it was.

        give_up: why to go back if that is possible still; empty: not to. Raises `ApiError`.
        """


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """How far a split has come: done; or undone, so that the parent is as it was; or neither, and what it waits for.

    reason: why it is undone, where there is a word for it.
    """

    done: bool = False
    undone: bool = False
    text: str = ""
    reason: Reason | None = None


Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """A bundle to be cut out. lower, upper: ``0x%08x``; destination: who has it in the end, empty whoever had all."""

    bundle: str
    lower: str
    upper: str
    destination: str = ""


@dataclass(frozen=True, slots=True)
class SplitOrder:
    """What a split is to do.

    split:     name of the BundleSplit. bundle: of the parent. topic_namespace: of the TopicNamespace object.
    source:    the broker that owned the parent when it began; the children are its at first.
    policy, epoch, reason: written into the assignments of children that go elsewhere.
    """

    split: str
    bundle: str
    topic_namespace: str
    source: str
    children: tuple[Child, ...]
    policy: str = ""
    epoch: int = 0
    reason: str = str(Reason.ADMIN)


class SplitStep(StrEnum):
    """What is to be done next."""

    LOCK = "lock the parent"
    CREATE = "create the children"
    WAIT = "wait"
    DELETE = "delete the parent"
    RELEASE = "release the children"
    MOVE = "move children"
    DONE = "done"
    REMOVE = "remove the children"
    UNLOCK = "unlock the parent"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class SplitObservation:
    """The objects as they are now; None: there is none. children: in the order of the split's."""

    parent: Raw | None
    children: Sequence[Raw | None]


def next_step(order: SplitOrder, seen: SplitObservation, give_up: str = "") -> tuple[SplitStep, str]:
    """What is to be done next, and why it has to wait or go back. give_up: why it should, empty: it should not."""
    if seen.parent is None:
        return _without_parent(order, seen)
    if seen.parent["metadata"].get("deletionTimestamp"):  # a finalizer holds it; there is no way back any more
        return (SplitStep.CREATE, "") if None in seen.children else (SplitStep.WAIT, f"{order.bundle} is being deleted")
    if why := overtaken(order, seen.parent, seen) or give_up:
        return _backwards(order, seen.parent, seen), why
    if owner_pending(seen.parent):
        return SplitStep.WAIT, f"{order.bundle} has an open wish"
    if not split_of(seen.parent):
        return SplitStep.LOCK, ""
    return _before_parent_goes(order, seen)


def _before_parent_goes(order: SplitOrder, seen: SplitObservation) -> tuple[SplitStep, str]:
    if None in seen.children:
        return SplitStep.CREATE, ""
    children = zip(order.children, seen.children, strict=True)
    waiting = [child.bundle for child, found in children if found is not None and not _taken(found, order.source)]
    return (
        (SplitStep.WAIT, f"{order.source} has not taken {', '.join(waiting[:3])}")
        if waiting
        else (SplitStep.DELETE, "")
    )


def _without_parent(order: SplitOrder, seen: SplitObservation) -> tuple[SplitStep, str]:
    if None in seen.children:
        return SplitStep.CREATE, ""
    found = [child for child in seen.children if child is not None]
    if any(parent_of(child) for child in found):
        return SplitStep.RELEASE, ""
    moving = [raw for _, raw in to_move(order, seen)]
    if any(_taken(raw, order.source) for raw in moving):
        return SplitStep.MOVE, ""
    return (SplitStep.WAIT, f"{order.source} has not taken all children") if moving else (SplitStep.DONE, "")


def _backwards(order: SplitOrder, parent: Raw, seen: SplitObservation) -> SplitStep:
    if any(child is not None and parent_of(child) == order.bundle for child in seen.children):
        return SplitStep.REMOVE
    return SplitStep.UNLOCK if split_of(parent) == order.split else SplitStep.UNDONE


def overtaken(order: SplitOrder, parent: Raw, seen: SplitObservation) -> str:
    """Why the parent, or a child's name, is no longer this split's; empty if it is."""
    wished, owner = parent["spec"].get("owner") or "", owner_of(parent)
    if (other := split_of(parent)) not in {"", order.split}:
        return f"{order.bundle} is divided by {other}"
    if owner != order.source:
        return f"{order.bundle} went from {order.source} to {owner or 'nobody'}"
    if owner_pending(parent) and wished != order.source:
        return f"somebody wishes {order.bundle} on {wished}"
    for child in (raw for raw in seen.children if raw is not None):
        name, elsewhere = child["metadata"]["name"], child["spec"].get("owner") or order.source
        if parent_of(child) != order.bundle:
            return f"{name} exists already, and was not cut out of {order.bundle}"
        if elsewhere != order.source:
            return f"somebody wishes {name} on {elsewhere} before {order.bundle} is gone"
    return ""


def to_move(order: SplitOrder, seen: SplitObservation) -> list[tuple[Child, Raw]]:
    """The children that should go elsewhere and were not asked to yet, by anybody."""
    return [
        (child, raw)
        for child, raw in zip(order.children, seen.children, strict=True)
        if raw is not None and child.destination not in {"", order.source} and _as_created(raw, order)
    ]


def _as_created(child: Raw, order: SplitOrder) -> bool:
    assignment = child["spec"].get("assignment") or {}
    return child["spec"].get("owner") == order.source and assignment.get("reason") == Reason.SPLITTING


def _taken(child: Raw, source: str) -> bool:
    return owner_of(child) == source and not owner_pending(child)


def owner_of(bundle: Raw) -> str:
    """Who serves it, empty nobody."""
    return (bundle.get("status") or {}).get("owner") or ""


def split_of(bundle: Raw) -> str:
    """The split that has locked it, empty none."""
    return (bundle.get("status") or {}).get("split") or ""


def parent_of(bundle: Raw) -> str:
    """The bundle that it is being cut out of, empty none."""
    return (bundle["metadata"].get("annotations") or {}).get(PARENT) or ""


def owner_pending(bundle: Raw) -> bool:
    """Whether somebody wished it an owner, and that was not carried out yet."""
    observed = (bundle.get("status") or {}).get("observedGeneration") or 0
    return bool(bundle["spec"].get("owner")) and bundle["metadata"]["generation"] > observed


def unlocked_state(parent: Raw) -> str:
    """The state of a parent that is no longer divided: what its broker wrote, if it did."""
    state = (parent.get("status") or {}).get("state") or str(BundleState.FREE)
    return str(BundleState.OWNED) if state == BundleState.SPLITTING else str(state)
