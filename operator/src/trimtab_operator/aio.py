"""Helpers for asyncio: run at most so many awaitables at once, and end tasks cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

T = TypeVar("T")

U = TypeVar("U")


async def ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what is not done, and see it end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def at_most(count: int, what: Callable[[T], Awaitable[U]], items: Sequence[T]) -> list[U]:
    """``what(item)`` for each item, in their order, `count` of them under way at once however many there are.

    The first exception ends it and is raised.
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
