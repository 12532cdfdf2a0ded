"""`Plan`: what to do, the change it predicts, and what was held back and why.

It also names alternatives: other brokers for the first moves, and the largest bundles that stay on the busiest
brokers. Their number is limited. They answer people's questions about the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.model.reason import Reason

T = TypeVar("T")


def counted(count: int, noun: str) -> str:
    """``1 bundle``, ``2 bundles``: for texts that people read."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def some(items: Sequence[T], most: int = 5, between: str = ", ", words: Callable[[T], str] = str) -> str:
    """The first `most` items as `words`, and how many more there are: ``a, b and 3 more``."""
    more = len(items) - most
    return between.join(map(words, items[:most])) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class Move:
    """Give `bundle` to `destination`. `source` is empty when it had no owner.

    load: estimated percentage points of its source's CPU that the bundle causes (`explain` shows it), NaN if unknown.
    In an assignment, these are points of the destination's CPU.
    """

    bundle: str
    source: str
    destination: str
    reason: Reason
    load: float = float("nan")

    def __str__(self) -> str:
        return f"{self.bundle}: {self.source or '(none)'} -> {self.destination} ({self.reason})"


@dataclass(frozen=True, slots=True)
class Split:
    """Divide `bundle` at n `boundaries` (hashes strictly inside its range, ascending) into n + 1 children.

    source: the bundle's owner, empty if none. destinations: an owner for each child, ascending by range; empty if all
    stay.
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
    """An action that was considered and not taken. `subject` names a broker or bundle, or is empty for the cycle.

    count: number of brokers or bundles that this entry is about.
    """

    subject: str
    reason: Reason
    detail: str = ""
    count: int = 1


VERDICTS = frozenset({Reason.BALANCED, Reason.HIT_COUNT, Reason.AVERAGING})
"""Reasons that a shedder or a splitter gives for the whole cluster."""


@dataclass(frozen=True, slots=True)
class Considered:
    """Alternatives: candidates of the first moves, and the largest bundles that stay on the most relevant brokers."""

    candidates: tuple[Candidates, ...] = ()
    staying: tuple[Staying, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Total number of bundles of each of those brokers, by name."""


NOTHING_CONSIDERED = Considered()
"""The alternatives of a decision that examined no bundles."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves in the order in which they should be made, and the broker usage before and (as predicted) after.

    before, after: (n, 5) percent per broker and resource, also above 100, NaN if unknown; rows as in the `ClusterLoad`
                   that the plan was made from.
    brokers: the names of those rows.
    splits: made before the moves; a bundle that is split is not moved in the same plan.
    target_weights: the weight that each broker should carry, if the strategy uses weights; empty otherwise.
    carried: the weight that each of those brokers carries. The strategy sets the unit of both: bytes/s or msg/s.
    considered: the alternatives, for people who ask why.
    cause: why the shedder's moves are made, with figures; empty if their reasons say enough.
    verdict: why the shedder moves nothing; None if it moves something or did not run.
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
    verdict: HeldBack | None = None
    cause: str = ""

    @property
    def bundles(self) -> list[str]:
        """The bundles that are moved, in the order of the moves, then those that are split."""
        return [move.bundle for move in self.moves] + [split.bundle for split in self.splits]

    @property
    def named(self) -> list[str]:
        """The `bundles`, and those recorded as staying."""
        return [*self.bundles, *(stays.bundle for stays in self.considered.staying)]

    @property
    def empty(self) -> bool:
        """Whether the plan moves and splits nothing."""
        return not self.moves and not self.splits


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a strategy pair between cycles: JSON values only, so it survives a restart unchanged.

    shedder, placement, splitter: each strategy's own memory, in the form its module documents. Empty at the start.
    """

    shedder: Mapping[str, Any] = field(default_factory=dict)
    placement: Mapping[str, Any] = field(default_factory=dict)
    splitter: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a decision: the plan, and the memory for the next decision."""

    plan: Plan
    memory: Memory


@dataclass(frozen=True, slots=True)
class Rejected:
    """A broker that did not get a bundle. after: weighted usage (percent) it would have reached, NaN if unknown."""

    broker: str
    reason: Reason
    after: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """The possible destinations of one move.

    before: weighted usage (percent) of the source just before this move. after: weighted usage of the
    destination with the bundle. rejected: the least used of the other brokers, by usage. others: the remaining brokers,
    by reason.
    """

    bundle: str
    before: float
    after: float
    rejected: tuple[Rejected, ...]
    others: Mapping[Reason, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Staying:
    """A bundle that stays. load: percentage points of its broker's CPU that the bundle causes, NaN if unknown."""

    bundle: str
    broker: str
    reason: Reason
    load: float
    detail: str = ""
