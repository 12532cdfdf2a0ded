"""Queries that run side by side, within the time of one shard."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from queue import SimpleQueue
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

AT_ONCE = 3
"""Queries of a shard that run at the same time. More would only wait for each other inside the server."""


def side_by_side(jobs: Mapping[K, Callable[[], T]], most: int = AT_ONCE) -> dict[K, T]:
    """The results of `jobs`, at most `most` at a time. Raises the first error; the jobs that wait are then left out.

    The threads are daemons, so the program's exit does not wait for a server that does not answer.
    """
    waiting, done = deque(jobs.items()), SimpleQueue[tuple[K, T | None, BaseException | None]]()

    def work() -> None:
        while True:
            try:
                key, job = waiting.popleft()
            except IndexError:
                return
            try:
                done.put((key, job(), None))
            except BaseException as error:  # noqa: BLE001  (the caller raises it)
                waiting.clear()
                done.put((key, None, error))

    for number in range(min(most, len(jobs))):
        threading.Thread(target=work, name=f"query-{number}", daemon=True).start()
    found: dict[K, T] = {}
    for _ in jobs:
        key, value, error = done.get()
        if error is not None:
            raise error
        found[key] = value  # type: ignore[assignment]
    return {key: found[key] for key in jobs}
