"""The steps of a split that Pulsar carries out, each found by looking at Pulsar's boundaries and at the objects. Pure.

forwards    lock the parent -> have Pulsar cut it -> create the children -> delete the parent -> release the children
            -> wish those elsewhere that should go elsewhere -> done
backwards   (only while Pulsar has not cut) unlock the parent -> undone

Pulsar merges nothing: once it has cut, only forwards is left, also where it cut elsewhere than was ordered (somebody
else was faster, or it refused a part). The objects then follow what Pulsar has, and the split ends as not done. The
mirror creates and deletes the same objects for the same reason, so each of them may be there, or gone, at any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from trimtab_operator.kube.records import SEEN
from trimtab_operator.splits.steps import Child, Raw, SplitOrder, owner_of, owner_pending, parent_of, split_of
from trimtab_strategies.model import Reason, some

FEW = 2
"""Loaded topics that a bundle must have; Pulsar divides none that has fewer."""


class PulsarSplitStep(StrEnum):
    """What is to be done next."""

    LOCK = "lock the parent"
    CUT = "have Pulsar cut it"
    CREATE = "create the children"
    DELETE = "delete the parent"
    RELEASE = "release the children"
    MOVE = "move children"
    UNLOCK = "unlock the parent"
    WAIT = "wait"
    DONE = "done"
    UNDONE = "undone"


@dataclass(frozen=True, slots=True)
class PulsarSplitObservation:
    """All there is now. whole: range of the parent. parent: its object, None there is none.

    edges: those that Pulsar has from one end of the parent to the other, both among them; empty: it has no bundle
    there, or one that reaches beyond. children: objects, by the range between two edges, of those that there are; where
    Pulsar has no edge inside and the parent is gone, by the ranges that were ordered.
    """

    whole: tuple[int, int]
    parent: Raw | None
    edges: tuple[int, ...]
    children: Mapping[tuple[int, int], Raw] = field(default_factory=dict)

    @property
    def cut(self) -> bool:
        """Whether Pulsar has divided the bundle."""
        return len(self.edges) > 2  # noqa: PLR2004  the two ends of a whole one

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """The bundles that Pulsar has in the place of the parent."""
        return list(pairwise(self.edges))


def wanted(order: SplitOrder, whole: tuple[int, int]) -> tuple[int, ...]:
    """All edges that are to be there in the end."""
    return tuple(sorted({*whole, *(int(child.lower, 16) for child in order.children)}))


def ordered(order: SplitOrder) -> list[tuple[int, int]]:
    """The ranges that are to be there in the end."""
    return [(int(child.lower, 16), int(child.upper, 16)) for child in order.children]


def gone(parent: Raw | None) -> bool:
    """Whether there is no such object, or one that somebody has deleted and a finalizer holds."""
    return parent is None or bool(parent["metadata"].get("deletionTimestamp"))


def within(boundaries: Sequence[int], lower: int, upper: int) -> tuple[int, ...]:
    """The edges from `lower` to `upper` of a ring's; empty when one of these is no edge."""
    return tuple(b for b in boundaries if lower <= b <= upper) if {lower, upper} <= set(boundaries) else ()


def next_step(order: SplitOrder, seen: PulsarSplitObservation, give_up: str = "") -> tuple[PulsarSplitStep, str]:
    """What is to be done next, and why it has to wait or go back. give_up: why it should, empty: it should not."""
    if not seen.edges:
        return _backwards(order, seen), f"Pulsar has no bundle of exactly the range of {order.bundle}"
    if not seen.cut:
        return _whole(order, seen, give_up)
    if _to_cut(order, seen) and not give_up and seen.parent is not None:
        return PulsarSplitStep.CUT, ""
    return _cut(order, seen, give_up)


def _whole(order: SplitOrder, seen: PulsarSplitObservation, give_up: str) -> tuple[PulsarSplitStep, str]:
    if seen.parent is None or gone(seen.parent):
        if seen.children and not give_up:  # the broker that answered has not heard of the split yet
            return PulsarSplitStep.WAIT, f"Pulsar's boundaries of {order.bundle} are older than its children"
        return PulsarSplitStep.UNDONE, f"{order.bundle} was deleted before Pulsar divided it"
    if why := _overtaken(order, seen.parent) or give_up:
        return _backwards(order, seen), why
    if split_of(seen.parent) == order.split:
        return PulsarSplitStep.CUT, ""  # a wish that came after the lock is for where it is, and nobody else ends it
    return (
        (PulsarSplitStep.WAIT, f"{order.bundle} has an open wish")
        if owner_pending(seen.parent)
        else (PulsarSplitStep.LOCK, "")
    )


def _overtaken(order: SplitOrder, parent: Raw) -> str:
    """Why the bundle is not this split's any more, as long as Pulsar has not cut it."""
    owner = owner_of(parent)
    if (other := split_of(parent)) not in {"", order.split}:
        return f"{order.bundle} is divided by {other}"
    if owner != order.source:
        return f"{order.bundle} went from {order.source} to {owner or 'nobody'}"
    if owner_pending(parent) and (wished := parent["spec"].get("owner") or "") != order.source:
        return f"somebody wishes {order.bundle} on {wished or 'nobody'}"
    return ""


def _backwards(order: SplitOrder, seen: PulsarSplitObservation) -> PulsarSplitStep:
    locked = seen.parent is not None and split_of(seen.parent) == order.split
    return PulsarSplitStep.UNLOCK if locked else PulsarSplitStep.UNDONE


def _to_cut(order: SplitOrder, seen: PulsarSplitObservation) -> list[int]:
    """Positions that are left to cut; none when Pulsar has cut anywhere else than was ordered."""
    edges = set(wanted(order, seen.whole))
    return sorted(edges - set(seen.edges)) if set(seen.edges) <= edges else []


def _cut(order: SplitOrder, seen: PulsarSplitObservation, give_up: str) -> tuple[PulsarSplitStep, str]:
    """Once Pulsar has cut: the objects follow, whatever came of it."""
    if any(found not in seen.children or untold(seen.children[found]) for found in seen.ranges):
        return PulsarSplitStep.CREATE, ""
    if seen.parent is not None:
        gone = seen.parent["metadata"].get("deletionTimestamp")
        return (PulsarSplitStep.WAIT, f"{order.bundle} is being deleted") if gone else (PulsarSplitStep.DELETE, "")
    if any(parent_of(child) for child in seen.children.values()):
        return PulsarSplitStep.RELEASE, ""
    if seen.edges != wanted(order, seen.whole):
        at = some([f"0x{edge:08x}" for edge in seen.edges[1:-1]])
        why = give_up or "its bundles are now as Pulsar has them"
        return PulsarSplitStep.UNDONE, f"Pulsar divided {order.bundle} at {at}, and not as ordered: {why}"
    return (PulsarSplitStep.MOVE, "") if to_move(order, seen) else (PulsarSplitStep.DONE, "")


def untold(child: Raw) -> bool:
    """Whether it was created here, and who made it died before it said who owns it."""
    reason = (child["spec"].get("assignment") or {}).get("reason")
    return reason == Reason.SPLITTING and not child.get("status", {}).get("observedGeneration")


def cuts(order: SplitOrder, seen: PulsarSplitObservation) -> dict[tuple[int, int], list[int]]:
    """What Pulsar is still to cut: by range of a bundle that it has, the positions inside."""
    left = _to_cut(order, seen)
    found = {(lower, upper): [p for p in left if lower < p < upper] for lower, upper in seen.ranges}
    return {key: positions for key, positions in found.items() if positions}


def one_of(positions: Sequence[int], lower: int, upper: int, topics: Iterable[int]) -> int:
    """Which position to cut first where only one is taken at a time.

    Both parts that come of it can be cut further, if that is needed and possible: that takes two topics.
    """
    places = list(topics)

    def can_go_on(position: int) -> bool:
        left, right = sum(p < position for p in places), sum(p >= position for p in places)
        more_left, more_right = any(p < position for p in positions), any(p > position for p in positions)
        return (not more_left or left >= FEW) and (not more_right or right >= FEW)

    assert all(lower < position < upper for position in positions), (lower, positions, upper)
    return next((position for position in positions if can_go_on(position)), positions[0])


def to_move(order: SplitOrder, seen: PulsarSplitObservation) -> list[tuple[Child, Raw]]:
    """The children that should go elsewhere, and that nobody has asked to go anywhere yet."""
    found = []
    for child in order.children:
        raw = seen.children.get((int(child.lower, 16), int(child.upper, 16)))
        if raw is not None and child.destination and child.destination != owner_of(raw) and _as_created(raw):
            found.append((child, raw))
    return found


def _as_created(child: Raw) -> bool:
    """Whether its wish is still the one it was created with, here or by the mirror."""
    reason = (child["spec"].get("assignment") or {}).get("reason")
    return reason in SEEN | {Reason.SPLITTING, None} and not owner_pending(child)
