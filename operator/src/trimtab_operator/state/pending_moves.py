"""Moves in flight: every open wish from the moment it is seen until its destination confirms it, and a little longer.

A wish is *open* while ``metadata.generation > status.observedGeneration``; it does not matter who wrote it. Nothing is
stored: after a restart the open wishes are read off the bundles again. A landed move is remembered until the window
of the rates has passed, because until then part of the bundle's traffic is still *measured* at its source: of a rate
over w seconds, the share 1 - t/w stems from before a move that landed t seconds ago.

Where moves are carried out a few at a time, the time in which one should be over begins with its turn: what waits for
others is not late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from trimtab_operator.kube.records import BundleRecord
from trimtab_strategies.model import Reason

Mine = Callable[[str], bool]
"""Whether a bundle, by name, is one's own."""

MOST_OUTCOMES = 10_000
"""Outcomes kept until somebody asks; while no policy runs nobody does, and the oldest are forgotten."""


def _all(_bundle: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class PendingMove:
    """One move. Times are seconds of a clock that does not jump; `source` is empty when nobody had the bundle.

    since: when its wish was seen. begun: when its turn came, where moves take turns.
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
        """Whether it should have been over. turns: whether moves wait for their turn, which this one's may yet do."""
        if self.begun is None and turns:
            return False
        return now - (self.since if self.begun is None else self.begun) > timeout


@dataclass(frozen=True, slots=True)
class MoveOutcome:
    """How a move ended: `LANDED`, `TIMED_OUT` (told once, the wish is still open) or `SUPERSEDED`."""

    pending: PendingMove
    reason: Reason


@dataclass(slots=True)
class PendingMoves:
    """Follows open wishes. Feed it every change of a bundle; ask it what is in the air."""

    open: dict[str, PendingMove] = field(default_factory=dict)
    landed: dict[str, PendingMove] = field(default_factory=dict)
    _outcomes: deque[MoveOutcome] = field(default_factory=lambda: deque(maxlen=MOST_OUTCOMES))
    _turns: bool = False

    def see(self, new: BundleRecord | None, old: BundleRecord | None, now: float) -> None:
        """Take note of a bundle as it is now (None: deleted) and as it was (None: not known)."""
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
            source = bundle.owner  # it was found there: nothing moves
        self.open[bundle.name] = PendingMove(bundle.name, source, bundle.owner, bundle.generation, now)

    def _touch_down(self, pending: PendingMove, bundle: BundleRecord, now: float) -> None:
        if bundle.status_owner != pending.destination:
            self._outcomes.append(MoveOutcome(pending, Reason.SUPERSEDED))
        elif pending.source != pending.destination:
            landed = replace(pending, landed=now)
            self.landed[bundle.name] = landed
            self._outcomes.append(MoveOutcome(landed, Reason.LANDED))

    def take_turns(self) -> None:
        """From now on somebody says of each move when its turn has come (`begin`): what began before begins anew."""
        if not self._turns:
            self._turns = True
            self.open = {bundle: replace(pending, begun=None) for bundle, pending in self.open.items()}

    def end_turns(self, now: float) -> None:
        """Nobody does any more: the time of those that wait begins now."""
        if self._turns:
            self._turns = False
            for bundle in self.open:
                self.begin(bundle, now)

    def begin(self, bundle: str, now: float) -> None:
        """The turn of its move has come; the first time counts."""
        if (pending := self.open.get(bundle)) is not None and pending.begun is None:
            self.open[bundle] = replace(pending, begun=now)

    def overdue(self, now: float, timeout: float, mine: Mine = _all, *, turns: bool = False) -> list[PendingMove]:
        """Open moves that take longer than `timeout` seconds; each is told as `TIMED_OUT` when it is found first.

        turns: whether moves take turns even if nobody has begun to give any.
        """
        turns = turns or self._turns
        late = [f for f in self.open.values() if f.late(now, timeout, turns=turns) and mine(f.bundle)]
        for pending in late:
            if not pending.overdue:
                self._outcomes.append(MoveOutcome(pending, Reason.TIMED_OUT))
                self.open[pending.bundle] = replace(pending, overdue=True)
        return late

    def forget_landed(self, now: float, window: float, mine: Mine = _all) -> None:
        """Drop landed moves whose load is wholly measured at the destination by now."""
        for name in [n for n, pending in self.landed.items() if pending.still_measured(now, window) <= 0 and mine(n)]:
            del self.landed[name]

    def moving(self) -> Iterator[PendingMove]:
        """Every move whose load may still be measured at its source: the open ones, then those landed lately."""
        yield from (pending for pending in self.open.values() if pending.source != pending.destination)
        yield from (pending for name, pending in self.landed.items() if name not in self.open)

    def outcomes(self, mine: Mine = _all) -> Iterable[MoveOutcome]:
        """Outcomes since the last call."""
        told, others = list[MoveOutcome](), list[MoveOutcome]()
        for outcome in self._outcomes:
            (told if mine(outcome.pending.bundle) else others).append(outcome)
        self._outcomes = deque(others, maxlen=MOST_OUTCOMES)
        return told
