"""`MovePace`: how many moves may be pending to each broker, by the time that clients needed to reconnect there. Pure.

Additive increase, multiplicative decrease: a publish gap that is much longer than the usual one of the broker halves
the number. Each gap that is not adds one, until the policy's limit is reached. Only a sample of the moves is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Self

GROWN = 2.0
"""Ratio of a gap to the usual one from which it has grown."""

NOTICEABLE = 0.1
"""Seconds that it must be longer, too: below that, clocks and chance decide."""

FEWEST = 3
"""Measured gaps of a broker that make a usual one."""

KEPT = 20
"""Latest gaps kept of each broker."""


@dataclass(frozen=True, slots=True)
class MovePace:
    """windows: by broker, pending moves that it may get; brokers without one are at the policy's limit.

    gaps: by broker, seconds of the latest publish gaps after moves to it, oldest first.
    """

    windows: Mapping[str, float] = field(default_factory=dict)
    gaps: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def allowed(self, broker: str, limit: int) -> int:
        """Pending moves that `broker` may get at once: between 1 and `limit`."""
        return max(1, min(limit, int(self.windows.get(broker, limit))))

    def measured(self, broker: str, gap: float, limit: int) -> Self:
        """After a move to `broker` whose publishers were away for `gap` seconds. limit: of the policy."""
        before, usual = self.gaps.get(broker, ()), self.usual(broker)
        grown = usual is not None and gap >= GROWN * usual and gap - usual >= NOTICEABLE
        allowed = self.allowed(broker, limit)
        windows = {**self.windows, broker: float(max(1, allowed // 2) if grown else allowed + 1)}
        if windows[broker] >= limit:
            del windows[broker]
        return replace(self, windows=windows, gaps={**self.gaps, broker: (*before, gap)[-KEPT:]})

    def usual(self, broker: str) -> float | None:
        """Median of the measured gaps of `broker` in seconds; None: too few."""
        found = self.gaps.get(broker, ())
        return median(found) if len(found) >= FEWEST else None

    def only(self, brokers: frozenset[str]) -> Self:
        """The same of these brokers alone: others are gone."""
        gaps = {name: found for name, found in self.gaps.items() if name in brokers}
        return replace(self, windows={n: w for n, w in self.windows.items() if n in brokers}, gaps=gaps)
