"""Every change of a bundle's owner as this process saw it, and who wished it: what flaps and rivals show in.

Nothing is stored: after a restart the watching begins anew, as what happened meanwhile can't be told apart any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.state.pending_moves import Mine
from trimtab_strategies.model import Reason

EVACUATIONS = frozenset({Reason.DRAINED, Reason.ROLLING_OUT})
"""Why a bundle leaves a broker that a person wants empty, or restarts. That is no balancing: it waits for no window."""


HOUR = 3600.0

KEPT_FOR = 24 * HOUR
"""Seconds for which a bundle's changes are kept: no cool-down that makes sense is longer."""


PRUNE_EVERY = 60.0
"""Seconds between two looks at what is too long ago."""


BATCH = 120.0
"""Seconds from the first wish that somebody writes over the policy's within which further ones belong to one batch."""


MOST_CHANGES = 8
"""Changes kept of one bundle."""


MOST_NEWS = 10_000
"""Changes kept until somebody asks; while no policy runs nobody does, and the oldest are forgotten."""


BALANCING = frozenset(
    {Reason.OVERLOADED, Reason.UNDERLOADED}
    | {Reason.TOPICS, Reason.SESSIONS, Reason.MSG_RATE, Reason.BANDWIDTH}  # a child that was cut out
)
"""Why the policy moves a bundle to balance. Whatever else it does (new owners for what nobody serves, draining) follows
from what happened to brokers, and may well go back and forth with them."""


class ChangeKind(Enum):
    """What a change was."""

    MOVED = "Moved"
    """To the broker that the policy wished, to balance; or that brokers agreed on where nobody wishes anything."""
    DESIRED = "Desired"
    """To the broker that a person wished."""
    EXTERNAL = "External"
    """To another one, which nobody wished, while the broker it left was alive."""
    REVERTED = "Reverted"
    """So, and back to where the policy had moved it from within the hour."""
    OVERRULED = "Overruled"
    """Not of the owner: somebody wrote another wish over one that the policy had written within the hour. A person who
    moves bundles does so, in one batch."""
    OVERWRITTEN = "Overwritten"
    """So, and of the same bundle again within a day; or the first of a further batch within the hour."""


@dataclass(frozen=True, slots=True)
class OwnershipChange:
    """One change at `at` (epoch seconds): `bundle` left the broker `left` (a wish: for it) for `taken`."""

    bundle: str
    left: str
    taken: str
    at: float
    kind: ChangeKind


@dataclass(slots=True)
class OwnershipChanges:
    """Watches changes of bundles. alive: whether a broker, by name, is ready."""

    alive: Callable[[str], bool]
    _history: dict[str, tuple[OwnershipChange, ...]] = field(default_factory=dict)
    _left: dict[str, str] = field(default_factory=dict)
    _ours: dict[str, OwnershipChange] = field(default_factory=dict)
    _overruled: dict[str, float] = field(default_factory=dict)
    _batch_at: float = -inf
    _pruned_at: float = 0.0
    _news: deque[OwnershipChange] = field(default_factory=lambda: deque(maxlen=MOST_NEWS))

    def see(self, old: BundleRecord | None, new: BundleRecord | None, now: float) -> None:
        """Take note of a bundle as it was (None: not known) and as it is now (None: deleted)."""
        if new is None:
            for known in (self._history, self._left, self._ours, self._overruled):
                known.pop(old.name if old else "", None)
        elif old is not None:
            if _overwritten(old, new, now):
                self._news.append(OwnershipChange(new.name, old.owner, new.owner, now, self._overruling(new.name, now)))
            if old.status_owner != new.status_owner:
                self._see_owner(old, new, now)

    def _see_owner(self, old: BundleRecord, new: BundleRecord, now: float) -> None:
        if not new.status_owner:
            self._left[new.name] = old.status_owner
            return
        left = self._left.pop(new.name, old.status_owner)
        # what a lost broker leaves behind is taken in by others: nobody flaps, and nobody fights
        if left in {"", new.status_owner} or not self.alive(left):
            return
        if _housed(new):
            self._ours.pop(new.name, None)
            return
        change = OwnershipChange(new.name, left, new.status_owner, now, self._kind(new, now))
        self._history[new.name] = (*self.history(new.name), change)[-MOST_CHANGES:]
        self._news.append(change)
        if change.kind is ChangeKind.MOVED and new.owner:
            self._ours[new.name] = change
        else:
            self._ours.pop(new.name, None)

    def _kind(self, bundle: BundleRecord, now: float) -> ChangeKind:
        if bundle.owner in {"", bundle.status_owner}:
            return ChangeKind.MOVED if bundle.assigned_owner == bundle.owner else ChangeKind.DESIRED
        ours = self._ours.get(bundle.name)
        reverted = ours is not None and ours.left == bundle.status_owner and now - ours.at <= HOUR
        return ChangeKind.REVERTED if reverted else ChangeKind.EXTERNAL

    def _overruling(self, bundle: str, now: float) -> ChangeKind:
        """Whether a wish over one of the policy's belongs to a person's batch, or to a contest."""
        before, self._overruled[bundle] = self._overruled.get(bundle, -inf), now
        if now - before <= KEPT_FOR:
            return ChangeKind.OVERWRITTEN
        if 0 <= now - self._batch_at <= BATCH:
            return ChangeKind.OVERRULED
        further, self._batch_at = now - self._batch_at <= HOUR, now
        return ChangeKind.OVERWRITTEN if further else ChangeKind.OVERRULED

    def history(self, bundle: str) -> tuple[OwnershipChange, ...]:
        """The changes of a bundle's owner, oldest first."""
        return self._history.get(bundle, ())

    def by_hand(self, mine: Mine, since: float) -> list[OwnershipChange]:
        """The moves that people wished of bundles that are one's own, after `since` (epoch seconds), oldest first."""
        found = [
            change
            for bundle, changes in self._history.items()
            for change in changes
            if change.kind is ChangeKind.DESIRED and change.at > since and mine(bundle)
        ]
        return sorted(found, key=lambda change: change.at)

    def forget(self, bundle: str) -> None:
        """Begin anew with a bundle: a person says that it is all right."""
        self._history.pop(bundle, None)

    def take(self, mine: Mine, now: float) -> Sequence[OwnershipChange]:
        """The changes since the last call of bundles that are one's own."""
        told, others = list[OwnershipChange](), list[OwnershipChange]()
        for change in self._news:
            (told if mine(change.bundle) else others).append(change)
        self._news = deque(others, maxlen=MOST_NEWS)
        self._prune(now)
        return told

    def _prune(self, now: float) -> None:
        """Forget what is long ago; not in every turn, as there may be 60,000 bundles."""
        if abs(now - self._pruned_at) < PRUNE_EVERY:
            return
        self._pruned_at = now
        for bundle in [name for name, changes in self._history.items() if now - changes[-1].at > KEPT_FOR]:
            del self._history[bundle]
        self._overruled = {bundle: at for bundle, at in self._overruled.items() if now - at <= KEPT_FOR}


def _housed(bundle: BundleRecord) -> bool:
    """Whether a bundle went where the operator wished it for another reason than to balance."""
    wished = bundle.owner and bundle.owner == bundle.status_owner == bundle.assigned_owner
    return bool(wished) and bundle.reason not in BALANCING


def _overwritten(old: BundleRecord, new: BundleRecord, now: float) -> bool:
    """Whether somebody wrote another wish over a fresh one of the policy's; the operator's own says that it is its."""
    ours = old.owner == old.assigned_owner and old.reason in BALANCING and now - old.assigned_at <= HOUR
    return ours and new.owner not in {"", old.owner} and new.assigned_owner != new.owner
