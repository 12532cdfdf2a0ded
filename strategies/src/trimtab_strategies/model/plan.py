"""`Plan`: what to do, the change it predicts, and what was held back and why.

It also names alternatives: other brokers for the first moves, and the largest bundles that stay on the busiest
brokers. That part is bounded. It is for people who ask why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.model.reason import Reason

T = TypeVar("T")


def counted(count: int, noun: str) -> str:
    """``1 bundle``, ``2 bundles``: for what people read."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def some(items: Sequence[T], most: int = 5, between: str = ", ", words: Callable[[T], str] = str) -> str:
    """The first `most` of what people can't read all of, in `words`, and how many more: ``a, b and 3 more``."""
    more = len(items) - most
    return between.join(map(words, items[:most])) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Move:
    """Give `bundle` to `destination`. `source` is empty when nobody owned it.

    load: percent points of its source's CPU that the bundle is believed to cause (what `explain` shows), NaN unknown.
    """

    bundle: str
    source: str
    destination: str
    reason: Reason
    load: float = float("nan")

    def __str__(self) -> str:
        return f"{self.bundle}: {self.source or '(nobody)'} -> {self.destination} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Split:
    """Divide `bundle` at `boundaries` (hashes strictly inside its range, ascending): n of them make n + 1 children.

    source: its owner, empty nobody. destinations: an owner for each child, ascending by range; empty when all stay.
    """

    bundle: str
    source: str
    boundaries: tuple[int, ...]
    reason: Reason
    destinations: tuple[str, ...] = ()

    def __str__(self) -> str:
        at = ", ".join(f"0x{boundary:08x}" for boundary in self.boundaries)
        return f"{self.bundle}: split at {at} ({self.reason})"


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Something that was considered and not done. `subject` names a broker or bundle, or is empty for the cycle.

    count: how many brokers or bundles it speaks of.
    """

    subject: str
    reason: Reason
    detail: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class Considered:
    """candidates: of the first moves. staying: the largest bundles of the brokers that matter most, those first."""

    candidates: tuple[Candidates, ...] = ()
    staying: tuple[Staying, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many bundles each of those brokers has in all, by name."""


NOTHING_CONSIDERED = Considered()
"""Of a decision that was not made by looking at bundles."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves in the order in which they are to be made, and the broker usage before and after (as predicted).

    before, after: (n, 5) percent 0-100+ per broker and resource, NaN unknown; rows as in the `ClusterLoad` it was
                   made from.
    brokers: the names of those rows.
    splits: made before the moves; a bundle that is split is not moved in the same plan.
    target_weights: per broker the weight it should carry, where the strategy has such a notion; empty otherwise.
    carried: per broker of those the weight it carries, in the same unit (bytes/s or msg/s, as the strategy weighs).
    considered: what else was weighed up, for people who ask why.
    """

    moves: tuple[Move, ...]
    held_back: tuple[HeldBack, ...]
    brokers: tuple[str, ...]
    before: FloatArray
    after: FloatArray
    splits: tuple[Split, ...] = ()
    target_weights: Mapping[str, float] = field(default_factory=dict)
    carried: Mapping[str, float] = field(default_factory=dict)
    considered: Considered = NOTHING_CONSIDERED

    @property
    def bundles(self) -> list[str]:
        """The bundles that are moved, in the order of the moves, then those that are split."""
        return [move.bundle for move in self.moves] + [split.bundle for split in self.splits]

    @property
    def named(self) -> list[str]:
        """The same, and the bundles that are noted down as staying."""
        return [*self.bundles, *(stays.bundle for stays in self.considered.staying)]

    @property
    def empty(self) -> bool:
        """Whether the plan moves and splits nothing."""
        return not self.moves and not self.splits


@dataclass(frozen=True, slots=True)
class Memory:
    """What a strategy pair remembers between cycles: JSON values only, so it survives a restart unchanged.

    shedder, placement, splitter: each strategy's own memory, in the form its module documents. Empty at the start.
    """

    shedder: Mapping[str, Any] = field(default_factory=dict)
    placement: Mapping[str, Any] = field(default_factory=dict)
    splitter: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a decision returns: the plan, and the memory to hand back in at the next one."""

    plan: Plan
    memory: Memory


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
