"""What a fuzzer calls: a reader of foreign input as a function of bytes, and the errors it may raise."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SLOWEST = 1.0
"""Seconds of processor time that one input may take."""

BETWEEN = b"\n--\n"
"""Separates the texts of an input that consists of several."""


class SlowReadError(AssertionError):
    """An input that takes longer than `SLOWEST`."""


@dataclass(frozen=True, slots=True)
class Target:
    """One reader.

    read:     reads bytes, and uses what it read as the program does.
    refusals: the documented errors; any other error is a bug.
    seeds:    valid inputs, from which a fuzzer starts.
    """

    name: str
    read: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    seeds: Callable[[], Sequence[bytes]]

    def warm_up(self) -> None:
        """Read an empty input and a seed, without a time limit, so that the imports of the reader are done."""
        for data in (b"", *self.seeds()[:1]):
            self._accepts(data)

    def check(self, data: bytes, slowest: float = SLOWEST) -> bool:
        """Read `data`; returns whether it was accepted. Raises `SlowReadError`, and errors that are not `refusals`.

        slowest: seconds of processor time.
        """
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns about values that are then refused
            accepted = self._accepts(data)
        if (took := time.process_time() - began) > slowest:
            raise SlowReadError(f"{self.name}: {len(data)} bytes took {took:.1f} s of processor time")
        return accepted

    def _accepts(self, data: bytes) -> bool:
        try:
            self.read(data)
        except self.refusals:
            return False
        return True


def parts(data: bytes, count: int) -> list[str]:
    """The first `count` texts of an input; missing ones are empty."""
    found = [part.decode("utf-8", "replace") for part in data.split(BETWEEN)[:count]]
    return found + [""] * (count - len(found))


def peak() -> int:
    """The most bytes that this process has occupied since `reset_peak`."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def reset_peak() -> int:
    """Forget the peak; returns the bytes that the process occupies now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()
