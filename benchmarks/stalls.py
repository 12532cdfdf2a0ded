"""Stalls of an event loop: the delay of a heartbeat, and the part of the delay in which this process computed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import numpy as np

BEAT = 0.005
"""Seconds between two beats."""


@dataclass(slots=True)
class Heart:
    """Milliseconds by which each beat was late.

    by_clock: the whole delay, which on a shared machine is mostly waiting for a core. computed: the part of it in which
    any thread of this process was computing. Only this part remains on a dedicated machine. awake: whether beats count.
    """

    by_clock: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)
    awake: bool = True

    async def beat(self) -> None:
        """Beat until cancelled."""
        while True:
            clock, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(BEAT)
            if not self.awake:
                continue
            late = max(0.0, time.perf_counter() - clock - BEAT)
            self.by_clock.append(late * 1000)
            self.computed.append(min(late, time.process_time() - cpu) * 1000)

    def worst(self) -> dict[str, float]:
        """The maximum and the 99th percentile of both delays, in ms."""
        named = (("stall", self.by_clock), ("stall_computed", self.computed))
        found = {f"{name}_max_ms": max(values, default=0.0) for name, values in named}
        return found | {f"{name}_p99_ms": float(np.percentile(values or [0.0], 99)) for name, values in named}


async def until(what: Callable[[], object], within: float = 300.0) -> None:
    """Wait until `what` returns something true; `TimeoutError` after `within` seconds."""
    deadline = time.monotonic() + within
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within:g} s")
        await asyncio.sleep(0.01)


@asynccontextmanager
async def heartbeat() -> AsyncIterator[Heart]:
    """A heart that beats while the block runs."""
    heart = Heart()
    task = asyncio.create_task(heart.beat())
    try:
        yield heart
    finally:
        task.cancel()


@contextmanager
def heartbeat_beside() -> Iterator[Heart]:
    """A heart that beats in an event loop of its own, in another thread, while the block runs."""
    heart, loop = Heart(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    beating = asyncio.run_coroutine_threadsafe(heart.beat(), loop)
    try:
        yield heart
    finally:
        beating.cancel()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(BEAT), loop).result()  # until it has ended
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
