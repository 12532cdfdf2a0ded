"""Pending moves: every desired owner from the moment it is read until the destination confirms it, and a little longer.

A move is *pending* while ``metadata.generation > status.observedGeneration``, whichever client wrote it. Nothing is
stored: after a restart the pending moves are read from the bundles again. A landed move is kept until the window of the
rates has passed, because until then part of the bundle's traffic is still *measured* at its source. After a move that
landed t seconds ago, the share 1 - t/w of a rate over w seconds is from before the move.

The connection to a Pulsar cluster unloads a few bundles at a time, so moves wait for their turn. The time limit of a
move starts with its turn: a move that waits is not late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from trimtab_operator.kube.records import BundleRecord
from trimtab_strategies.model import Reason

Mine = Callable[[str], bool]
"""Whether a bundle, by name, belongs to the policy that asks."""

MOST_OUTCOMES = 10_000
"""Maximum number of outcomes kept for `outcomes`. While no policy runs, none are taken, and the oldest are dropped."""


def _all(_bundle: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class PendingMove:
    """One move. Times are monotonic seconds. source: empty when the bundle had no owner.

    since: when it was first read. begun: when its turn came, where moves take turns.
    """

    bundle: str
    source: str
    destination: str
    generation: int
    since: float
    landed: float | None = None
    overdue: bool = False
    begun: float | None = None

    def still_measured(self, now: float, window: float) -> float:
        """Ratio 0-1 of the bundle's load that rates over `window` seconds still show at the source."""
        if self.landed is None:
            return 1.0
        return min(1.0, max(0.0, 1.0 - (now - self.landed) / window))

    def late(self, now: float, timeout: float, *, turns: bool) -> bool:
        """Whether the move takes too long. turns: whether moves wait for their turn; one that waits is not late."""
        if self.begun is None and turns:
            return False
        return now - (self.since if self.begun is None else self.begun) > timeout


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """How a move ended: `LANDED`, `TIMED_OUT` (reported once, the move is still pending) or `SUPERSEDED`."""

    pending: PendingMove
    reason: Reason


@dataclass(slots=True)
class PendingMoves:
    """The pending moves of all bundles. `update` must be called for every change of a bundle."""

    open: dict[str, PendingMove] = field(default_factory=dict)
    landed: dict[str, PendingMove] = field(default_factory=dict)
    _outcomes: deque[MoveOutcome] = field(default_factory=lambda: deque(maxlen=MOST_OUTCOMES))
    _turns: bool = False

    def update(self, new: BundleRecord | None, old: BundleRecord | None, now: float) -> None:
        """Record a bundle as it is now (None: deleted) and as it was (None: not known)."""
        if new is None:
            if old is not None:
                self.open.pop(old.name, None)
                self.landed.pop(old.name, None)
        elif new.owner_pending:
            self._take_off(new, now)
        elif (pending := self.open.pop(new.name, None)) is not None:
            self._touch_down(pending, new, now)

    def _take_off(self, bundle: BundleRecord, now: float) -> None:
        before = self.open.get(bundle.name)
        if before is not None and before.generation == bundle.generation:
            return
        if before is not None and before.destination != bundle.owner:
            self._outcomes.append(MoveOutcome(before, Reason.SUPERSEDED))
        source = bundle.status_owner or (before.source if before else "")
        if bundle.merely_seen:
            source = bundle.owner  # the desired owner follows the observed owner: nothing moves
        self.open[bundle.name] = PendingMove(bundle.name, source, bundle.owner, bundle.generation, now)

    def _touch_down(self, pending: PendingMove, bundle: BundleRecord, now: float) -> None:
        if bundle.status_owner != pending.destination:
            self._outcomes.append(MoveOutcome(pending, Reason.SUPERSEDED))
        elif pending.source != pending.destination:
            landed = replace(pending, landed=now)
            self.landed[bundle.name] = landed
            self._outcomes.append(MoveOutcome(landed, Reason.LANDED))

    def take_turns(self) -> None:
        """From now on moves wait for their turn (`begin`), including those that are pending already."""
        if not self._turns:
            self._turns = True
            self.open = {bundle: replace(pending, begun=None) for bundle, pending in self.open.items()}

    def end_turns(self, now: float) -> None:
        """Moves no longer wait for their turn. The time limit of those that were waiting starts now."""
        if self._turns:
            self._turns = False
            for bundle in self.open:
                self.begin(bundle, now)

    def begin(self, bundle: str, now: float) -> None:
        """Begin the turn of a bundle's move. Only the first call counts."""
        if (pending := self.open.get(bundle)) is not None and pending.begun is None:
            self.open[bundle] = replace(pending, begun=now)

    def overdue(self, now: float, timeout: float, mine: Mine = _all, *, turns: bool = False) -> list[PendingMove]:
        """Pending moves that take longer than `timeout` seconds. Adds an outcome `TIMED_OUT` for each, once.

        turns: whether moves wait for their turn, even if `take_turns` was not called yet.
        """
        turns = turns or self._turns
        late = [f for f in self.open.values() if f.late(now, timeout, turns=turns) and mine(f.bundle)]
        for pending in late:
            if not pending.overdue:
                self._outcomes.append(MoveOutcome(pending, Reason.TIMED_OUT))
                self.open[pending.bundle] = replace(pending, overdue=True)
        return late

    def forget_landed(self, now: float, window: float, mine: Mine = _all) -> None:
        """Drop landed moves whose load is measured only at the destination by now."""
        for name in [n for n, pending in self.landed.items() if pending.still_measured(now, window) <= 0 and mine(n)]:
            del self.landed[name]

    def moving(self) -> Iterator[PendingMove]:
        """Moves whose load may still be measured at the source: the pending ones, then those that landed recently."""
        yield from (pending for pending in self.open.values() if pending.source != pending.destination)
        yield from (pending for name, pending in self.landed.items() if name not in self.open)

    def outcomes(self, mine: Mine = _all) -> Iterable[MoveOutcome]:
        """Outcomes since the last call."""
        own, others = list[MoveOutcome](), list[MoveOutcome]()
        for outcome in self._outcomes:
            (own if mine(outcome.pending.bundle) else others).append(outcome)
        self._outcomes = deque(others, maxlen=MOST_OUTCOMES)
        return own
