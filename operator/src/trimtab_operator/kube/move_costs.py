"""`MoveCosts`: what the latest moves of a topic namespace's bundles cost its clients, as its object remembers it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

from trimtab_operator.kube.conditions import timestamp


@dataclass(frozen=True, slots=True)
class MoveCosts:
    """The latest moves that were measured, oldest first; none at all: nothing is known, and nothing is guessed."""

    latest: tuple[Interruption, ...] = ()

    @property
    def publish_gap(self) -> CostSummary | None:
        """How long publishers waited; None where none was measured."""
        return _summary([cost.publish_gap for cost in self.latest if cost.publish_gap is not None])

    @property
    def reconnect(self) -> CostSummary | None:
        """How long it took until all clients were back; None where nothing was measured."""
        return _summary([cost.reconnect for cost in self.latest])

    def after(self, cost: Interruption) -> Self:
        """With one more move, and without the oldest where there are more than `KEPT`."""
        return type(self)((*self.latest, cost)[-KEPT:])

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> Self:
        """As a TopicNamespace's status (JSON) has them."""
        found = (status.get("moveCost") or {}).get("latest") or ()
        return cls(tuple(Interruption(cost.get("publishGap"), cost["reconnect"]) for cost in found))

    def to_status(self, now: float) -> dict[str, Any]:
        """The status' field ``moveCost``, whole. now: epoch seconds."""
        return {
            "publishGap": _written(self.publish_gap),
            "reconnect": _written(self.reconnect),
            "latest": [
                {"publishGap": _rounded(cost.publish_gap), "reconnect": _rounded(cost.reconnect)}
                for cost in self.latest
            ],
            "measuredAt": timestamp(now),
        }


Measured = Mapping[str, MoveCosts]
"""What moves cost, by ``tenant/name``."""


KEPT = 20
"""Moves that are remembered, the latest."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """What one move cost, in seconds from when the owner was asked to let go until the last client was back.

    publish_gap: until the last publisher was; None where there was none. reconnect: the last client of any kind.
    """

    publish_gap: float | None
    reconnect: float


@dataclass(frozen=True, slots=True)
class CostSummary:
    """Seconds: the median of the moves that were measured, and the longest of these; moves: how many these were.

    They are a sample: of many that land together most are not measured, so a longer one may have gone unseen.
    """

    median: float
    longest: float
    moves: int

    def __str__(self) -> str:
        of = "one sampled move"
        if self.moves > 1:
            of = f"median of {self.moves} sampled moves, {told(self.longest)} the longest of these"
        return f"{told(self.median)} ({of})"


NOT_MEASURED = MoveCosts()
"""Of a namespace none of whose moves was measured yet."""


def told(seconds: float) -> str:
    """``0.13 s``, ``12 s``: two digits that count."""
    digits = max(0, 1 - math.floor(math.log10(seconds))) if seconds > 0 else 0
    return f"{seconds:.{min(digits, 3)}f} s"


def _summary(seconds: Sequence[float]) -> CostSummary | None:
    return CostSummary(median(seconds), max(seconds), len(seconds)) if seconds else None


def _written(summary: CostSummary | None) -> dict[str, Any] | None:
    if summary is None:
        return None
    return {"median": _rounded(summary.median), "longest": _rounded(summary.longest), "moves": summary.moves}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
