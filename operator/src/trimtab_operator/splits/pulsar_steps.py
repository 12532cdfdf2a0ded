"""Steps of a split that Pulsar carries out, as pure functions of Pulsar's boundaries and the Bundle objects.

forwards    lock the parent -> have Pulsar cut it -> create the children -> delete the parent -> release the children
            -> set the desired owner of children that should move -> done
backwards   (only while Pulsar has not cut) unlock the parent -> undone

Pulsar can't merge bundles. Once it has cut the bundle, the split only goes forwards, even if Pulsar cut it at other
positions than ordered (another client was faster, or Pulsar refused a part). The objects then follow Pulsar's bundles,
and the split fails. The sync with Pulsar creates and deletes the same objects, so each may exist or not at any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from trimtab_operator.kube.records import SEEN
from trimtab_operator.splits.steps import (
    Child,
    Raw,
    SplitOrder,
    owner_of,
    owner_pending,
    parent_of,
    parent_overtaken,
    split_of,
)
from trimtab_strategies.model import Reason, some

FEW = 2
"""Number of loaded topics that a bundle must have. Pulsar splits no bundle with fewer."""


class PulsarSplitStep(StrEnum):
    """The next step of a split."""

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
    """Pulsar's bundles and the Bundle objects now. whole: range of the parent. parent: its Bundle, None if gone.

    edges: Pulsar's boundaries from one end of the parent to the other, both included. They are empty if Pulsar has no
    bundle there, or one that is larger than the parent. children: range between two edges -> the child there, if
    it exists. If Pulsar has no edge inside the parent and the parent is gone, the ordered ranges are the keys.
    """

    whole: tuple[int, int]
    parent: Raw | None
    edges: tuple[int, ...]
    children: Mapping[tuple[int, int], Raw] = field(default_factory=dict)

    @property
    def cut(self) -> bool:
        """Whether Pulsar has divided the bundle."""
        return len(self.edges) > 2  # noqa: PLR2004  (an undivided bundle has its two ends)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of the bundles that Pulsar has in place of the parent."""
        return list(pairwise(self.edges))


def wanted(order: SplitOrder, whole: tuple[int, int]) -> tuple[int, ...]:
    """All edges after the split, if it goes as ordered."""
    return tuple(sorted({*whole, *(int(child.lower, 16) for child in order.children)}))


def ordered(order: SplitOrder) -> list[tuple[int, int]]:
    """The ranges of the bundles after the split, if it goes as ordered."""
    return [(int(child.lower, 16), int(child.upper, 16)) for child in order.children]


def gone(parent: Raw | None) -> bool:
    """Whether the object does not exist, or is being deleted (a finalizer may hold it)."""
    return parent is None or bool(parent["metadata"].get("deletionTimestamp"))


def within(boundaries: Sequence[int], lower: int, upper: int) -> tuple[int, ...]:
    """The boundaries from `lower` to `upper`, both included; empty if one of the two is not a boundary."""
    return tuple(b for b in boundaries if lower <= b <= upper) if {lower, upper} <= set(boundaries) else ()


def next_step(order: SplitOrder, seen: PulsarSplitObservation, give_up: str = "") -> tuple[PulsarSplitStep, str]:
    """The next step, and why the split has to wait or go back. give_up: why it should go back; empty to go forwards."""
    if not seen.edges:
        return _backwards(order, seen), f"Pulsar has no bundle of exactly the range of {order.bundle}"
    if not seen.cut:
        return _whole(order, seen, give_up)
    if _to_cut(order, seen) and not give_up and seen.parent is not None:
        return PulsarSplitStep.CUT, ""
    return _cut(order, seen, give_up)


def _whole(order: SplitOrder, seen: PulsarSplitObservation, give_up: str) -> tuple[PulsarSplitStep, str]:
    if seen.parent is None or gone(seen.parent):
        if seen.children and not give_up:  # the broker that answered does not know of the split yet
            return PulsarSplitStep.WAIT, f"Pulsar's boundaries of {order.bundle} are older than its children"
        return PulsarSplitStep.UNDONE, f"{order.bundle} was deleted before Pulsar split it"
    if why := parent_overtaken(order, seen.parent) or give_up:
        return _backwards(order, seen), why
    if split_of(seen.parent) == order.split:
        # A pending desired owner is no reason to wait. It is the broker that already has the bundle. While the bundle
        # is locked, no other controller confirms this owner, so it would stay pending.
        return PulsarSplitStep.CUT, ""
    if owner_pending(seen.parent):
        return PulsarSplitStep.WAIT, f"{order.bundle} has a pending owner"
    return PulsarSplitStep.LOCK, ""


def _backwards(order: SplitOrder, seen: PulsarSplitObservation) -> PulsarSplitStep:
    locked = seen.parent is not None and split_of(seen.parent) == order.split
    return PulsarSplitStep.UNLOCK if locked else PulsarSplitStep.UNDONE


def _to_cut(order: SplitOrder, seen: PulsarSplitObservation) -> list[int]:
    """Positions that Pulsar still has to cut; none if it has cut at a position that was not ordered."""
    edges = set(wanted(order, seen.whole))
    return sorted(edges - set(seen.edges)) if set(seen.edges) <= edges else []


def _cut(order: SplitOrder, seen: PulsarSplitObservation, give_up: str) -> tuple[PulsarSplitStep, str]:
    """The next step once Pulsar has cut the bundle: the objects follow Pulsar's bundles."""
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
    """Whether a split (not the sync) created this child, and the status of the child has no owner yet."""
    reason = (child["spec"].get("assignment") or {}).get("reason")
    return reason == Reason.SPLITTING and not child.get("status", {}).get("observedGeneration")


def cuts(order: SplitOrder, seen: PulsarSplitObservation) -> dict[tuple[int, int], list[int]]:
    """Positions that Pulsar still has to cut, by the range of the bundle that they are in."""
    left = _to_cut(order, seen)
    found = {(lower, upper): [p for p in left if lower < p < upper] for lower, upper in seen.ranges}
    return {key: positions for key, positions in found.items() if positions}


def one_of(positions: Sequence[int], lower: int, upper: int, topics: Iterable[int]) -> int:
    """The position to cut first, if Pulsar accepts only one at a time.

    If possible, each part that must be cut again keeps two topics: Pulsar splits no bundle with fewer.
    """
    places = list(topics)

    def can_go_on(position: int) -> bool:
        left, right = sum(p < position for p in places), sum(p >= position for p in places)
        more_left, more_right = any(p < position for p in positions), any(p > position for p in positions)
        return (not more_left or left >= FEW) and (not more_right or right >= FEW)

    assert all(lower < position < upper for position in positions), (lower, positions, upper)
    return next((position for position in positions if can_go_on(position)), positions[0])


def to_move(order: SplitOrder, seen: PulsarSplitObservation) -> list[tuple[Child, Raw]]:
    """The children that should move, and whose desired owner no client has changed yet."""
    found = []
    for child in order.children:
        raw = seen.children.get((int(child.lower, 16), int(child.upper, 16)))
        if raw is not None and child.destination and child.destination != owner_of(raw) and _as_created(raw):
            found.append((child, raw))
    return found


def _as_created(child: Raw) -> bool:
    """Whether a child still has the desired owner that it was created with, by a split or by the sync with Pulsar."""
    reason = (child["spec"].get("assignment") or {}).get("reason")
    return reason in SEEN | {Reason.SPLITTING, None} and not owner_pending(child)
