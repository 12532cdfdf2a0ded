"""A competing balancer: when its changes count as competition, and when the policy stands down. Pure.

Two balancers that undo each other's moves never stop, and every move disconnects clients. So the policy stands down
after `limits.maxUndoneMoves` of its moves were undone within an hour: it only shows its plans. The first time lasts
half an hour. Each further time lasts twice as long as the one before, up to 8 hours. If the policy has not stood down
for a day, the next time lasts half an hour again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.conditions import epoch, timestamp
from trimtab_operator.resources.policy_status import RELEASE_ANNOTATION
from trimtab_operator.state.ownership_changes import HOUR, ChangeKind, OwnershipChange

FIRST_RETREAT = 0.5 * HOUR
LONGEST_RETREAT = 8 * HOUR
FORGIVEN = 24 * HOUR
"""Seconds without competition after which standing down starts with the shortest time again."""

UNDOING = frozenset({ChangeKind.REVERTED, ChangeKind.OVERWRITTEN})
"""Changes that undo what the policy did."""


@dataclass(frozen=True, slots=True)
class Competition:
    """The competition so far. Times are epoch seconds.

    undone: when moves of the policy were undone, within the last hour. until: the end of the last time that the policy
    stood down. retreats: how often it stood down, with less than a day between two times.
    """

    undone: tuple[float, ...] = ()
    until: float = 0.0
    retreats: int = 0

    def retreating(self, now: float) -> bool:
        """Whether the policy stands down at `now`. An end that is too far away is due to a wrong clock, and ignored."""
        return self.until - LONGEST_RETREAT <= now < self.until

    def after(self, changes: Iterable[OwnershipChange], most: int, now: float) -> Competition:
        """The competition after `changes`. most: undone moves within an hour that make the policy stand down.

        Moves that are undone while the policy stands down do not count: they were made before it stood down.
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
"""No move was undone."""


def advises_until(competition: Competition) -> str:
    """Until when a policy stands down, and what ends that sooner. The text is the predicate of a sentence."""
    return f'only advises until {timestamp(competition.until)}, or until it is annotated {RELEASE_ANNOTATION}="true"'


def who_took_back(last: OwnershipChange, own_balancing_off: str) -> str:
    """What may have undone a move, and how to find out.

    own_balancing_off: a text that says Pulsar's own balancer was verified to be off; empty where that is not known.
    """
    what = f"most recently {last.bundle} went back to {last.taken}, without a desired owner"
    if not own_balancing_off:
        return f"{what}: switch off the brokers' own shedding"
    others = "another client unloads bundles, or brokers fail: look for unloads in the brokers' logs"
    return f"{what}: {own_balancing_off}, so {others}"


def owner_written(bundle: Mapping[str, Any]) -> tuple[str, float]:
    """Field manager that last wrote `spec.owner` of a Bundle object (as JSON), and when (epoch seconds).

    Empty and NaN if managedFields lack it.
    """
    entries = bundle["metadata"].get("managedFields") or ()
    wrote = [entry for entry in entries if "f:owner" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})]
    latest = max(wrote, key=lambda entry: str(entry.get("time", "")), default={"manager": ""})
    return str(latest.get("manager") or ""), epoch(latest.get("time"))
