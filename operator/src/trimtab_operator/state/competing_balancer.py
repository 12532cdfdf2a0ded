"""Somebody else moves bundles, too: how much of it is a fight, and when the policy gives way. Pure.

Two balancers of one cluster move bundles without end, and every move cuts clients off. So the one that can tell gives
way: after `limits.maxUndoneMoves` of its moves were undone within an hour the policy only advises, for half an hour at
first and twice as long each time it finds the other still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.conditions import epoch, timestamp
from trimtab_operator.resources.bundle import RELEASE
from trimtab_operator.state.ownership_changes import HOUR, ChangeKind, OwnershipChange

FIRST_RETREAT = 0.5 * HOUR
LONGEST_RETREAT = 8 * HOUR
FORGIVEN = 24 * HOUR
"""Seconds of peace after which a retreat is as short as the first one again."""

UNDOING = frozenset({ChangeKind.REVERTED, ChangeKind.OVERWRITTEN})
"""Changes that undo what the policy did."""


@dataclass(frozen=True, slots=True)
class Competition:
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

    def after(self, changes: Iterable[OwnershipChange], most: int, now: float) -> Competition:
        """What is known once `changes` were seen. most: undone moves within an hour that make a fight.

        What is undone during a retreat was moved before it, and has been answered by it.
        """
        if self.retreating(now):
            return Competition((), self.until, self.retreats)
        undone = (*self.undone, *(change.at for change in changes if change.kind in UNDOING))
        recent = tuple(at for at in undone if now - at < HOUR)
        if len(recent) < most:
            return Competition(recent, self.until, self.retreats)
        retreats = self.retreats + 1 if now - self.until < FORGIVEN else 1
        return Competition((), now + min(LONGEST_RETREAT, FIRST_RETREAT * 2 ** (retreats - 1)), retreats)


NO_COMPETITION = Competition()
"""Nobody undid anything."""


def advises_until(competition: Competition) -> str:
    """Until when a policy that gives way does so, and what ends that sooner: the predicate of a sentence."""
    return f'only advises until {timestamp(competition.until)}, or until it is annotated {RELEASE}="true"'


def who_took_back(last: OwnershipChange, own_balancing_off: str) -> str:
    """What undid a move that went back by itself, and where to look for it.

    own_balancing_off: that Pulsar's own balancing was verified to be off, in words; empty where that is not known.
    """
    what = f"lastly {last.bundle} went back to {last.taken}, which nobody wished"
    if not own_balancing_off:
        return f"{what}: switch off the brokers' own shedding"
    others = "somebody else unloads bundles, or brokers fail: look for unloads in the brokers' logs"
    return f"{what}: {own_balancing_off}, so {others}"


def writer_of_owner(bundle: Mapping[str, Any]) -> str:
    """Who wrote `spec.owner` of a Bundle object (as JSON) last, by its managedFields; empty when they don't say."""
    return owner_written(bundle)[0]


def owner_written(bundle: Mapping[str, Any]) -> tuple[str, float]:
    """Field manager that wrote `spec.owner` last, and when (epoch seconds); empty and NaN when nothing says."""
    entries = bundle["metadata"].get("managedFields") or ()
    wrote = [entry for entry in entries if "f:owner" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})]
    latest = max(wrote, key=lambda entry: str(entry.get("time", "")), default={"manager": ""})
    return str(latest.get("manager") or ""), epoch(latest.get("time"))
