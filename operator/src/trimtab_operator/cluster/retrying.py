"""When a request is tried again, and after how long."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_CHANCE = random.SystemRandom()


def backoff(first: float = 0.1, factor: float = 2.0, longest: float = 5.0) -> Iterator[float]:
    """Seconds to wait before each further attempt: growing, and jittered so that clients don't come back as one."""
    ceiling = first
    while True:
        yield _CHANCE.uniform(ceiling / 2, ceiling)
        ceiling = min(longest, ceiling * factor)


@dataclass(slots=True)
class Patience:
    """The time one request may take with all its retries.

    seconds: bound on the sum of the waits; clock: monotonic seconds.
    """

    seconds: float
    clock: Callable[[], float] = time.monotonic
    _until: float = field(init=False)
    _waits: Iterator[float] = field(init=False)

    def __post_init__(self) -> None:
        self._until = self.clock() + self.seconds
        self._waits = backoff(longest=2.0)

    async def wait(self, at_least: float = 0.0) -> bool:
        """Wait for the next attempt (`at_least`: what Retry-After asked for); False when that would take too long."""
        pause = max(next(self._waits), at_least)
        if self.clock() + pause > self._until:
            return False
        await asyncio.sleep(pause)
        return True
