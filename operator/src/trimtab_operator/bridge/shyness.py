"""`Shyness`: what failed is tried again ever later: an unload cuts clients off, whatever comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

FIRST, LONGEST = 2.0, 120.0
"""Seconds after the first failure, and at most."""

FORGET_AFTER = 3600.0
"""Seconds after which a failure no longer counts."""


@dataclass(slots=True)
class Shyness:
    """By bundle and destination. clock: seconds that never jump."""

    clock: Callable[[], float]
    _failures: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)

    def may(self, bundle: str, destination: str) -> bool:
        """Whether it may be tried now."""
        times, last = self._failures.get((bundle, destination), (0, 0.0))
        return times == 0 or self.clock() >= last + min(LONGEST, FIRST * 2.0 ** (times - 1))

    def failed(self, bundle: str, destination: str) -> None:
        """It was tried in vain."""
        now = self.clock()
        self._failures = {key: seen for key, seen in self._failures.items() if now - seen[1] < FORGET_AFTER}
        times, _ = self._failures.get((bundle, destination), (0, 0.0))
        self._failures[bundle, destination] = times + 1, now

    def forget(self, bundle: str, destination: str) -> None:
        """It went well."""
        self._failures.pop((bundle, destination), None)
