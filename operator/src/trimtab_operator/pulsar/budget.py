"""`Budget`: so many requests a second, whoever makes them; those who come too early wait in line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Budget:
    """At most `rate` requests a second in the long run, and `rate` at once after a second of silence.

    clock: seconds that never jump, the event loop's if left out. Each request books its turn when it comes, so they
    are served in order.
    """

    rate: float
    clock: Callable[[], float] | None = None
    _next: float = field(default=float("-inf"))

    def book(self, now: float) -> float:
        """Seconds that a request which comes at `now` must wait."""
        at = max(self._next, now - 1.0 + 1.0 / self.rate)
        self._next = at + 1.0 / self.rate
        return max(0.0, at - now)

    async def wait(self) -> float:
        """Wait for one's turn; the seconds it took."""
        clock = self.clock or asyncio.get_running_loop().time
        if (delay := self.book(clock())) > 0:
            await asyncio.sleep(delay)
        return delay
