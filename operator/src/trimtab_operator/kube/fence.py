"""`Fence`: stops all writes of a process that no longer leads.

The fence is a deadline, not a flag. A process that was suspended for longer than its Lease lasts must send nothing when
it continues, even before any of its tasks notices how much time has passed. So each write compares the clock with the
deadline, once its connection is open and its first byte is about to be sent. A write that was already sent can't be
stopped. If it arrives after a write of a new leader, two other rules reject it: the resourceVersion, and the epoch,
which the API server never lets decrease (`resources.bundle`).

If the platform allows it, the clock also counts the time in which the machine sleeps.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

from trimtab_operator.kube.errors import FencedError

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.connector import Connection

READS = frozenset({"GET", "HEAD", "OPTIONS"})
"""HTTP methods that change nothing. A standby may use them."""

_CLOSED = float("-inf")


def boot_clock() -> float:
    """Monotonic seconds. If the platform allows it, they also count while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(slots=True)
class Fence:
    """A deadline for writes, closed at first. clock: seconds."""

    clock: Callable[[], float] = boot_clock
    _until: float = field(default=_CLOSED)

    @property
    def left(self) -> float:
        """Seconds until the fence closes unless it is extended; 0 when it is closed."""
        return max(0.0, self._until - self.clock())

    def extend(self, until: float) -> None:
        """Allow writes until `until` (seconds on `clock`)."""
        self._until = until

    def close(self) -> None:
        """Stop all writes from now on."""
        self._until = _CLOSED

    def check(self, what: str) -> None:
        """Raise `FencedError` when the fence is closed. what: text that describes the write."""
        if not self.left:
            raise FencedError(f"{what} was not sent: this process does not lead")

    def requests(self) -> type[aiohttp.ClientRequest]:
        """The `request_class` for an `aiohttp.ClientSession` whose writes must pass this fence.

        A write raises `FencedError` when the fence is closed.
        """
        fence = self

        class FencedRequest(aiohttp.ClientRequest):
            async def send(self, conn: Connection) -> aiohttp.ClientResponse:
                fence._pass(self)
                return await super().send(conn)

            async def write_bytes(
                self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
            ) -> None:
                # This runs one iteration of the event loop after `send`. Nothing has been sent yet, not even headers.
                try:
                    fence._pass(self)
                except FencedError as error:
                    if conn.protocol is not None:
                        conn.protocol.set_exception(error)  # the caller that awaits the answer gets it
                    conn.close()
                    return
                await super().write_bytes(writer, conn, content_length)

        return FencedRequest

    def _pass(self, request: Any) -> None:
        if request.method not in READS:
            self.check(f"{request.method} {request.url.path}")
