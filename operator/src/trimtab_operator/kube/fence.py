"""`Fence`: the one place where writes leave the process, and where they are stopped once we no longer lead.

It is a deadline, not a flag: a process that was paused for longer than its Lease lasts must send nothing when it goes
on, before any task of it had a turn to notice. So each write looks at the clock itself, when its connection is there
and its first byte is about to be sent. What had already been sent can't be called back: for that there are
resourceVersions, and the epoch that the API server never lets go back (`resources.bundle`).

The clock is one that also counts the time in which the machine slept, where there is such a clock.
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
"""Methods that change nothing: a standby may use them."""

_CLOSED = float("-inf")


def awake_or_not() -> float:
    """Seconds that never jump, and go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


@dataclass(slots=True)
class Fence:
    """Closed at first. clock: seconds; only what it says counts, not what the event loop has got round to."""

    clock: Callable[[], float] = awake_or_not
    _until: float = field(default=_CLOSED)

    @property
    def left(self) -> float:
        """Seconds until it closes, unless it is extended; 0 when it is closed."""
        return max(0.0, self._until - self.clock())

    def extend(self, until: float) -> None:
        """Let writes out until `until` on its clock."""
        self._until = until

    def close(self) -> None:
        """Let nothing out any more."""
        self._until = _CLOSED

    def check(self, what: str) -> None:
        """Raise `FencedError` when closed. what: the write, in words."""
        if not self.left:
            raise FencedError(f"{what} was not sent: this process does not lead")

    def requests(self) -> type[aiohttp.ClientRequest]:
        """What an `aiohttp.ClientSession` is to make its requests of (`request_class`), so that each write passes here.

        A write that finds the fence closed ends in `FencedError`.
        """
        fence = self

        class FencedRequest(aiohttp.ClientRequest):
            async def send(self, conn: Connection) -> aiohttp.ClientResponse:
                fence._pass(self)
                return await super().send(conn)

            async def write_bytes(
                self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
            ) -> None:
                # A turn of the event loop later than `send`; until here nothing has gone out, headers neither.
                try:
                    fence._pass(self)
                except FencedError as error:
                    if conn.protocol is not None:
                        conn.protocol.set_exception(error)  # it reaches whoever waits for the answer
                    conn.close()
                    return
                await super().write_bytes(writer, conn, content_length)

        return FencedRequest

    def _pass(self, request: Any) -> None:
        if request.method not in READS:
            self.check(f"{request.method} {request.url.path}")
