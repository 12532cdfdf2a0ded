"""Steps of a split on Bundle objects, as pure functions of these objects: no other state is kept.

forwards    remove children of an earlier attempt -> lock the parent -> create the children -> (the parent's owner takes
            them) -> delete the parent -> release the children -> move those that should go elsewhere -> done
backwards   unlock the parent -> remove the children -> undone

This is Pulsar's state machine: the parent goes from Owned to Splitting to Deleted, each child from Init to Owned. All
children have an owner before the parent is deleted. While the parent exists, a split can go back from any step. Once it
is gone, a split only goes forwards. So after a crash, a process can always finish a split: forwards from each step, or
backwards while the parent exists. The way back begins with a write to the parent. A delayed request to delete the
parent then fails, because the parent has changed. A split that begins again creates new children, so a delayed request
to remove the old ones fails, too. At any moment each hash belongs to exactly one served bundle: first the parent, later
one child.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from trimtab_operator.resources.bundle import PARENT, BundleState
from trimtab_strategies.model import Reason


class SplitExecutor(Protocol):
    """Carries out the splits of policies and people."""

    async def advance(self, order: SplitOrder, give_up: str = "") -> SplitProgress:
        """Do all steps of `order` that are possible now. The next call continues from there, even after a crash.

        give_up: why to go back if that is still possible; empty to go forwards. Raises `ApiError`.
        """


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """How far a split is: done, undone (the parent is as before), or neither.

    text: what it waits for, or why it is undone. reason: the member of `Reason` for why it is undone, or None.
    """

    done: bool = False
    undone: bool = False
    text: str = ""
    reason: Reason | None = None


Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Child:
    """A bundle to create. lower, upper: ``0x%08x``. destination: broker after the split; empty: the parent's owner."""

    bundle: str
    lower: str
    upper: str
    destination: str = ""


@dataclass(frozen=True, slots=True)
class SplitOrder:
    """What an accepted split is to do.

    split, bundle, topic_namespace: names of the BundleSplit, of the parent, and of its TopicNamespace object.
    source:    the broker that owned the parent at the start, and owns the children at first.
    policy, epoch, reason: written into the assignments of children that move to another broker.
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
    """The next step of a split."""

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
    """The objects as they are now, None for one that does not exist. children: in the order of the split's children."""

    parent: Raw | None
    children: Sequence[Raw | None]


def next_step(order: SplitOrder, seen: SplitObservation, give_up: str = "") -> tuple[SplitStep, str]:
    """The next step, and why the split has to wait or go back. give_up: why it should go back; empty to go forwards."""
    if seen.parent is None:
        return _without_parent(order, seen)
    if seen.parent["metadata"].get("deletionTimestamp"):  # a finalizer holds it; the split can't go back
        return (SplitStep.CREATE, "") if None in seen.children else (SplitStep.WAIT, f"{order.bundle} is being deleted")
    if why := overtaken(order, seen.parent, seen) or give_up:
        return _backwards(order, seen.parent, seen), why
    if owner_pending(seen.parent):
        return SplitStep.WAIT, f"{order.bundle} has a pending owner"
    if not split_of(seen.parent):
        left_over = any(child is not None for child in seen.children)
        return (SplitStep.REMOVE if left_over else SplitStep.LOCK), ""
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
    if split_of(parent) == order.split:
        return SplitStep.UNLOCK
    ours = any(child is not None and parent_of(child) == order.bundle for child in seen.children)
    return SplitStep.REMOVE if ours and not split_of(parent) else SplitStep.UNDONE


def parent_overtaken(order: SplitOrder, parent: Raw) -> str:
    """Why the parent no longer belongs to this split; empty if it does."""
    owner = owner_of(parent)
    if (other := split_of(parent)) not in {"", order.split}:
        return f"{order.bundle} is being split by {other}"
    if owner != order.source:
        return f"{order.bundle} went from {order.source} to {owner or 'no broker'}"
    if owner_pending(parent) and (desired := parent["spec"].get("owner") or "") != order.source:
        return f"{order.bundle} is to move to {desired or 'no broker'}"
    return ""


def overtaken(order: SplitOrder, parent: Raw, seen: SplitObservation) -> str:
    """Why the parent, or a child's name, no longer belongs to this split; empty if it does."""
    if why := parent_overtaken(order, parent):
        return why
    for child in (raw for raw in seen.children if raw is not None):
        name, elsewhere = child["metadata"]["name"], child["spec"].get("owner") or order.source
        if parent_of(child) != order.bundle:
            return f"{name} exists already, and is not a child of {order.bundle}"
        if elsewhere != order.source:
            return f"{name} is to move to {elsewhere} before {order.bundle} is gone"
    return ""


def to_move(order: SplitOrder, seen: SplitObservation) -> list[tuple[Child, Raw]]:
    """The children that should move, and whose desired owner no client has changed yet."""
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
    """The broker that serves a bundle; empty if none."""
    return (bundle.get("status") or {}).get("owner") or ""


def split_of(bundle: Raw) -> str:
    """The split that has locked a bundle; empty if none."""
    return (bundle.get("status") or {}).get("split") or ""


def parent_of(bundle: Raw) -> str:
    """The parent of a bundle that a running split has created; empty for other bundles."""
    return (bundle["metadata"].get("annotations") or {}).get(PARENT) or ""


def owner_pending(bundle: Raw) -> bool:
    """Whether a bundle has a desired owner that has not been carried out yet."""
    observed = (bundle.get("status") or {}).get("observedGeneration") or 0
    return bool(bundle["spec"].get("owner")) and bundle["metadata"]["generation"] > observed


def unlocked_state(parent: Raw) -> str:
    """The state of a parent after its split was undone: the state that its broker wrote meanwhile, or else `Owned`."""
    state = (parent.get("status") or {}).get("state") or str(BundleState.FREE)
    return str(BundleState.OWNED) if state == BundleState.SPLITTING else str(state)
