"""Every change of a bundle's owner since this process started, and who requested it.

Competing balancers are detected from these changes. Nothing is stored: what happened while no process watched can't be
attributed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.state.pending_moves import Mine
from trimtab_strategies.model import SPLIT_REASONS, Reason

HOUR = 3600.0

KEPT_FOR = 24 * HOUR
"""Seconds for which changes by people are kept."""

PRUNE_EVERY = 60.0
"""Seconds between two removals of old changes."""

BATCH = 120.0
"""Length of a batch in seconds, from the first desired owner that is overwritten."""


MOST_CHANGES = 8
"""Maximum number of changes by people kept of one bundle."""


MOST_NEWS = 10_000
"""Maximum number of changes kept for `take`. While no policy runs, none are taken, and the oldest are dropped."""


BALANCING = frozenset({Reason.OVERLOADED, Reason.UNDERLOADED, *SPLIT_REASONS})
"""Reasons of moves that balance load. Other moves (drains, new owners of unassigned bundles) follow what happens to
brokers, and may go back and forth with them."""


class ChangeKind(Enum):
    """Kind of a change."""

    MOVED = "Moved"
    """The bundle moved to the desired owner that the policy chose to balance load. Or it had no desired owner, and the
    brokers moved it themselves."""
    DESIRED = "Desired"
    """The bundle moved to the desired owner that a person chose."""
    EXTERNAL = "External"
    """The bundle moved to another broker than its desired owner, although the broker that it left was there."""
    REVERTED = "Reverted"
    """As `EXTERNAL`, and back to the broker from which the policy had moved it less than an hour before."""
    OVERRULED = "Overruled"
    """Another client overwrote a desired owner that the policy had written less than an hour before. A person who moves
    some bundles in one batch causes this."""
    OVERWRITTEN = "Overwritten"
    """As `OVERRULED`, but for the second time within a day for this bundle, or in a second batch within an hour."""


@dataclass(frozen=True, slots=True)
class OwnershipChange:
    """The owner of `bundle`, or its desired owner, changed from `left` to `taken` at the time `at` (epoch seconds)."""

    bundle: str
    left: str
    taken: str
    at: float
    kind: ChangeKind


@dataclass(slots=True)
class OwnershipChanges:
    """Records changes of bundles.

    left_behind: whether the former owner of a bundle (as it is now), by name, was away when the bundle left it.
    """

    left_behind: Callable[[BundleRecord, str], bool]
    _manual: dict[str, tuple[OwnershipChange, ...]] = field(default_factory=dict)
    _left: dict[str, str] = field(default_factory=dict)
    _ours: dict[str, OwnershipChange] = field(default_factory=dict)
    _overruled: dict[str, float] = field(default_factory=dict)
    _batch_at: float = -inf
    _pruned_at: float = 0.0
    _news: deque[OwnershipChange] = field(default_factory=lambda: deque(maxlen=MOST_NEWS))

    def update(self, old: BundleRecord | None, new: BundleRecord | None, now: float) -> None:
        """Record a bundle as it was (None: not known) and as it is now (None: deleted)."""
        if new is None:
            for known in (self._manual, self._left, self._ours, self._overruled):
                known.pop(old.name if old else "", None)
        elif old is not None:
            if _overwritten(old, new, now):
                self._news.append(OwnershipChange(new.name, old.owner, new.owner, now, self._overruling(new.name, now)))
            if old.status_owner != new.status_owner:
                self._owner_changed(old, new, now)

    def _owner_changed(self, old: BundleRecord, new: BundleRecord, now: float) -> None:
        if not new.status_owner:
            self._left[new.name] = old.status_owner
            return
        left = self._left.pop(new.name, old.status_owner)
        if left in {"", new.status_owner}:
            return
        # Other brokers take the bundles of a broker that is away: that is no competition.
        # A bundle that lands where it is wanted was moved.
        if new.owner != new.status_owner and self.left_behind(new, left):
            return
        if _moved_without_balancing(new):
            self._ours.pop(new.name, None)
            return
        change = OwnershipChange(new.name, left, new.status_owner, now, self._kind(new, now))
        if change.kind is ChangeKind.DESIRED:
            self._manual[new.name] = (*self._manual.get(new.name, ()), change)[-MOST_CHANGES:]
        self._news.append(change)
        if change.kind is ChangeKind.MOVED and new.owner:
            self._ours[new.name] = change
        else:
            self._ours.pop(new.name, None)

    def _kind(self, bundle: BundleRecord, now: float) -> ChangeKind:
        if bundle.owner in {"", bundle.status_owner}:
            return ChangeKind.DESIRED if bundle.asked_by_person else ChangeKind.MOVED
        ours = self._ours.get(bundle.name)
        reverted = ours is not None and ours.left == bundle.status_owner and now - ours.at <= HOUR
        return ChangeKind.REVERTED if reverted else ChangeKind.EXTERNAL

    def _overruling(self, bundle: str, now: float) -> ChangeKind:
        """Whether an overwritten desired owner belongs to a person's batch, or to a competition."""
        before, self._overruled[bundle] = self._overruled.get(bundle, -inf), now
        if now - before <= KEPT_FOR:
            return ChangeKind.OVERWRITTEN
        if 0 <= now - self._batch_at <= BATCH:
            return ChangeKind.OVERRULED
        further, self._batch_at = now - self._batch_at <= HOUR, now
        return ChangeKind.OVERWRITTEN if further else ChangeKind.OVERRULED

    def manual_moves(self, mine: Mine, since: float) -> list[OwnershipChange]:
        """Moves by people after `since` (epoch seconds), of bundles for which `mine` holds, oldest first."""
        found = [
            change
            for bundle, changes in self._manual.items()
            for change in changes
            if change.at > since and mine(bundle)
        ]
        return sorted(found, key=lambda change: change.at)

    def take(self, mine: Mine, now: float) -> Sequence[OwnershipChange]:
        """The changes since the last call, of bundles for which `mine` holds."""
        own, others = list[OwnershipChange](), list[OwnershipChange]()
        for change in self._news:
            (own if mine(change.bundle) else others).append(change)
        self._news = deque(others, maxlen=MOST_NEWS)
        self._prune(now)
        return own

    def _prune(self, now: float) -> None:
        """Drop old changes, but not in every reconcile, because there may be 60,000 bundles."""
        if abs(now - self._pruned_at) < PRUNE_EVERY:
            return
        self._pruned_at = now
        for bundle in [name for name, changes in self._manual.items() if now - changes[-1].at > KEPT_FOR]:
            del self._manual[bundle]
        self._overruled = {bundle: at for bundle, at in self._overruled.items() if now - at <= KEPT_FOR}


def _moved_without_balancing(bundle: BundleRecord) -> bool:
    """Whether a bundle moved to the operator's desired owner for another reason than balance."""
    landed = bundle.owner and bundle.owner == bundle.status_owner
    return bool(landed) and not bundle.asked_by_person and bundle.reason not in BALANCING


def _overwritten(old: BundleRecord, new: BundleRecord, now: float) -> bool:
    """Whether another client overwrote a recent desired owner of the policy. Our own writes carry an assignment."""
    ours = old.owner == old.assigned_owner and old.reason in BALANCING and now - old.assigned_at <= HOUR
    return ours and new.owner not in {"", old.owner} and new.assigned_owner != new.owner
