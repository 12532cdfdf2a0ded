"""Shows that a long task is running: a spinner on a terminal, a line every few seconds elsewhere.

Without a terminal it needs only the standard library, so programs can be built while packages are being installed.
"""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.status import Status

LINE_EVERY = 4.0
"""Seconds between two lines when the output is not a terminal."""


class ProgressLine:
    """A context manager that shows one long task on stderr. `update` may be called from any thread."""

    def __init__(self, task: str) -> None:
        self._task, self._detail = task, ""
        self._status = _spinner(task) if sys.stderr.isatty() else None
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
        self._began = 0.0
        self._outcome = "done"

    def update(self, detail: str) -> None:
        """Set the detail that the next refresh shows."""
        self._detail = detail

    def gave_up(self, why: str) -> None:
        """Make the final line say that the task failed, and why."""
        self._outcome = why

    @property
    def seconds(self) -> float:
        """Seconds since the task began."""
        return time.monotonic() - self._began

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        if self._status is not None:
            self._status.start()
        else:
            self._line(f"{self._task} ...")
        self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._done.set()
        self._ticker.join()
        if self._status is not None:
            self._status.stop()
        if kind is None:
            self._line(f"{self._task}: {self._outcome} in {self.seconds:.0f} s")

    def _tick(self) -> None:
        every = 0.2 if self._status is not None else LINE_EVERY
        while not self._done.wait(every):
            text = f"{self._task}: {self.seconds:.0f} s" + (f", {self._detail}" if self._detail else "")
            if self._status is not None:
                self._status.update(text)
            else:
                self._line(text)

    def _line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _spinner(task: str) -> Status | None:
    try:
        from rich.console import Console  # noqa: PLC0415  see the module
    except ModuleNotFoundError:
        return None
    return Console(stderr=True).status(task)
