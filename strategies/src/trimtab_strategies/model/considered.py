"""What a decision weighed up besides what it did: other brokers for a bundle that moves, and bundles that stay.

For people who ask why. It is bounded: the first moves, and the largest bundles of the busiest brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab_strategies.model.reason import Reason


@dataclass(frozen=True, slots=True)
class Rejected:
    """A broker that did not get a bundle. after: weighted usage (percent) it would have been at, NaN unknown."""

    broker: str
    reason: Reason
    after: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """Where the bundle of one move might have gone.

    before: weighted usage (percent) of the source at that point of the plan; after: of the destination, with it.
    rejected: the least used of the other brokers, those first. others: the rest, by the reason of each.
    """

    bundle: str
    before: float
    after: float
    rejected: tuple[Rejected, ...]
    others: Mapping[Reason, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Staying:
    """A bundle that stays with its broker. load: percent points of the broker's CPU that it causes, NaN unknown."""

    bundle: str
    broker: str
    reason: Reason
    load: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Considered:
    """candidates: of the first moves. staying: the largest bundles of the brokers that matter most, those first."""

    candidates: tuple[Candidates, ...] = ()
    staying: tuple[Staying, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many bundles each of those brokers has in all, by name."""


NOTHING_CONSIDERED = Considered()
"""Of a decision that was not made by looking at bundles."""
