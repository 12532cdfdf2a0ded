"""Whether what a policy remembers changed in more than a few digits: an idle cluster is not to be written to. Pure.

Averages move a little with every cycle. Whoever takes over from a memory that is ten minutes behind in that decides the
same; a hit, a move, a plan or a broker more is stored at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STORE_EVERY = 600.0
"""Seconds after which also what drifted is stored."""

LITTLE = 0.02
"""Ratio of a number, or of 1 if that is more, by which it may have moved."""

A_MOMENT = 1e8
"""Numbers beyond it are times (epoch seconds); they may be older by `STORE_EVERY`."""


def drifted(before: Any, after: Any) -> bool:
    """Whether two JSON values differ in nothing but fractions that moved a little. Whole numbers count something."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() == after.keys() and all(drifted(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(drifted, before, after))
    if isinstance(before, float) and isinstance(after, float):
        return _close(before, after)
    return bool(before == after)


def _close(before: float, after: float) -> bool:
    if before == after:  # infinite, too
        return True
    if before > A_MOMENT and after > A_MOMENT:
        return abs(after - before) <= STORE_EVERY
    return abs(after - before) <= LITTLE * max(1.0, abs(before))
