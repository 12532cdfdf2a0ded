"""Which brokers are lost: not ready, or unknown, for longer than the policy allows, as this process has seen it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class LostBrokers:
    """Since when each broker has been missing, in seconds of a clock that does not jump.

    Starts anew with the process: a restart waits again.
    """

    since: dict[str, float] = field(default_factory=dict)

    def see(self, present: Iterable[str], expected: Iterable[str], now: float) -> None:
        """Take note that of the `expected` brokers (those that exist or own something) only `present` are ready."""
        missing = set(expected) - set(present)
        self.since = {name: self.since.get(name, now) for name in missing}

    def lost(self, now: float, after: float) -> frozenset[str]:
        """Brokers that have been missing for more than `after` seconds."""
        return frozenset(name for name, since in self.since.items() if now - since > after)
