"""Somebody else moves bundles, too: how much of it is a fight, and when the policy gives way. Pure.

Two hands on one wheel move bundles without end, and every move cuts clients off. So the one that can tell gives way:
after `limits.maxUndoneMoves` of its moves were undone within an hour the policy only advises, for half an hour at first
and twice as long each time it finds the other still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cluster.status import timestamp
from trimtab_operator.control.turnovers import HOUR, Change, Kind
from trimtab_operator.resources.bundle import RELEASE

FIRST_RETREAT = 0.5 * HOUR
LONGEST_RETREAT = 8 * HOUR
FORGIVEN = 24 * HOUR
"""Seconds of peace after which a retreat is as short as the first one again."""

UNDOING = frozenset({Kind.UNDONE, Kind.OVERWRITTEN})
"""Changes that undo what the policy did."""


@dataclass(frozen=True, slots=True)
class Fight:
    """What is known of a fight; times are epoch seconds.

    undone: when moves of the policy were undone, within the last hour. until: the end of the last retreat. retreats:
    how many there were without a day of peace between them.
    """

    undone: tuple[float, ...] = ()
    until: float = 0.0
    retreats: int = 0

    def retreating(self, now: float) -> bool:
        """Whether the policy only advises. A retreat that would be too long began by a clock that was wrong."""
        return self.until - LONGEST_RETREAT <= now < self.until

    def after(self, changes: Iterable[Change], most: int, now: float) -> Fight:
        """What is known once `changes` were seen. most: undone moves within an hour that make a fight.

        What is undone during a retreat was moved before it, and has been answered by it.
        """
        if self.retreating(now):
            return Fight((), self.until, self.retreats)
        undone = (*self.undone, *(change.at for change in changes if change.kind in UNDOING))
        recent = tuple(at for at in undone if now - at < HOUR)
        if len(recent) < most:
            return Fight(recent, self.until, self.retreats)
        retreats = self.retreats + 1 if now - self.until < FORGIVEN else 1
        return Fight((), now + min(LONGEST_RETREAT, FIRST_RETREAT * 2 ** (retreats - 1)), retreats)


PEACE = Fight()
"""Nobody undid anything."""


def advises_until(fight: Fight) -> str:
    """Until when a policy that gives way does so, and what ends that sooner: the predicate of a sentence."""
    return f'only advises until {timestamp(fight.until)}, or until it is annotated {RELEASE}="true"'


def writer_of_owner(bundle: Mapping[str, Any]) -> str:
    """Who wrote `spec.owner` of a Bundle object (as JSON) last, by its managedFields; empty when they don't say."""
    entries = bundle["metadata"].get("managedFields") or ()
    wrote = [entry for entry in entries if "f:owner" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})]
    latest = max(wrote, key=lambda entry: str(entry.get("time", "")), default={"manager": ""})
    return str(latest.get("manager") or "")
