"""What a history takes of a decision, and who takes it: the door for those who decide. Loads nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Entry:
    """of: epoch seconds of the decision that `record` (text) speaks of, to the millisecond. moves: planned."""

    of: float
    outcome: str
    moves: int
    record: str


@runtime_checkable
class KeepsDecisions(Protocol):
    """Load sources whose histories also take decisions."""

    def keep_decisions(self, policy: str, at: float, entries: Sequence[Entry]) -> None:
        """Write what was decided, and learnt, at `at` (epoch seconds) for `policy` (``namespace/name``).

        Blocks for some milliseconds. Raises `OSError` when the disk refuses.
        """
