"""Helpers for asyncio tasks, and settings that keep the event loop responsive.

Python's garbage collector examines every live container repeatedly to find reference cycles. With 60,000 records that
takes a tenth of a second and finds nothing, because no record is part of such a cycle. So the collector runs rarely,
and `freeze_heap` exempts the records that exist once the stores are complete. A replaced record is still freed, by its
reference count.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

log = logging.getLogger(__name__)

T = TypeVar("T")

U = TypeVar("U")

RESTART_AFTER = 5.0
"""Seconds until a background task that crashed is started again."""

CHECK_EVERY = 0.5
"""Seconds between two measurements of the event loop's delay."""

YOUNG, MIDDLE, OLD = 20_000, 20, 50
"""Thresholds of the collector. `YOUNG`: allocations minus frees before it examines the youngest containers (Python's
default: 700). `MIDDLE` and `OLD`: rounds before it also examines the older ones."""


async def ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel the tasks that are not done, and wait until all have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def at_most(count: int, what: Callable[[T], Awaitable[U]], items: Sequence[T]) -> list[U]:
    """Return the results of ``what(item)`` in the order of `items`. At most `count` calls run concurrently.

    The first exception cancels the other calls and is raised.
    """
    done: list[U | None] = [None] * len(items)
    left = iter(enumerate(items))

    async def work() -> None:
        for i, item in left:
            done[i] = await what(item)

    workers = [asyncio.create_task(work()) for _ in range(min(count, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
    return cast("list[U]", done)


def kept_running(name: str, run: Callable[[], Awaitable[None]], *, after: float | None = None) -> asyncio.Task[None]:
    """Start a task that calls `run` in a loop, even after errors, until the task is cancelled. Errors are logged.

    after: seconds until it is called again; `RESTART_AFTER` by default.
    """
    pause = RESTART_AFTER if after is None else after

    async def keep_running() -> None:
        while True:
            try:
                await run()
            except Exception:
                log.exception("%s ended, starting it again in %.0f s", name, pause)
            await asyncio.sleep(pause)

    return asyncio.create_task(keep_running(), name=name)


async def measure_delay(observe: Callable[[float], object], every: float = CHECK_EVERY) -> None:
    """Call `observe` every `every` seconds with the delay (seconds) of the event loop. Never returns.

    A blocked event loop delays the Lease, the watches and every policy.
    """
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + every
        await asyncio.sleep(every)
        observe(max(0.0, clock() - due))


def collect_seldom() -> None:
    """Make the collector run rarely, and exempt the objects loaded so far. Call it before the stores fill."""
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    gc.freeze()


def freeze_heap() -> None:
    """Exempt all existing objects from collection. Call it once the stores are complete."""
    gc.freeze()
