"""`MoveCosts`: how long the latest moves of a namespace's bundles interrupted clients. Stored in its TopicNamespace."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Self

from trimtab_operator.kube.conditions import timestamp


@dataclass(frozen=True, slots=True)
class MoveCosts:
    """The latest measured moves, oldest first. If there are none, nothing is known."""

    latest: tuple[Interruption, ...] = ()

    @property
    def publish_gap(self) -> CostSummary | None:
        """Interruption of publishers; None if none was measured."""
        return _summary([cost.publish_gap for cost in self.latest if cost.publish_gap is not None])

    @property
    def reconnect(self) -> CostSummary | None:
        """Time until all clients had reconnected; None if none was measured."""
        return _summary([cost.reconnect for cost in self.latest])

    def after(self, cost: Interruption) -> Self:
        """These costs with one more move, at most the latest `KEPT`."""
        return type(self)((*self.latest, cost)[-KEPT:])

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> Self:
        """Read the costs from a TopicNamespace's status (JSON)."""
        found = (status.get("moveCost") or {}).get("latest") or ()
        return cls(tuple(Interruption(cost.get("publishGap"), cost["reconnect"]) for cost in found))

    def to_status(self, now: float) -> dict[str, Any]:
        """The whole field ``status.moveCost``. now: epoch seconds."""
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
"""Costs of moves, by namespace (``tenant/name``)."""


KEPT = 20
"""Number of latest moves that are kept."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """How long one move interrupted clients, in seconds from the unload request.

    publish_gap: until the last publisher reconnected; None without publishers. reconnect: until the last client did.
    """

    publish_gap: float | None
    reconnect: float


@dataclass(frozen=True, slots=True)
class CostSummary:
    """Median and longest of the measured moves, in seconds. moves: how many were measured.

    The measured moves are a sample: when many moves land together, most are not measured. A move that was not measured
    may have interrupted clients for longer.
    """

    median: float
    longest: float
    moves: int

    def __str__(self) -> str:
        of = "one sampled move"
        if self.moves > 1:
            of = f"median of {self.moves} sampled moves, {in_seconds(self.longest)} the longest of these"
        return f"{in_seconds(self.median)} ({of})"


NOT_MEASURED = MoveCosts()
"""A namespace without measured moves."""


def in_seconds(seconds: float) -> str:
    """`seconds` with two significant digits: ``0.13 s``, ``12 s``."""
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
