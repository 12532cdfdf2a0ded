"""Points in time as a person writes and reads them; always UTC."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from datetime import UTC, datetime

from trimtab_operator.resources.common import seconds

Moment = Callable[[float], float]
"""A point in time (epoch s), once it is known what time it is: some are told as so long ago."""

HELP = "2026-11-21T15:00:00Z, or so long before the newest cycle: 90s, 5m, 1h30m"
"""How to write one, for --help."""


def moment(text: str) -> Moment:
    """The type of an argument. Raises `argparse.ArgumentTypeError`."""
    try:
        return _ago(seconds(text))
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write {HELP}") from error
    at = (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return lambda _: at


def _ago(length: float) -> Moment:
    return lambda now: now - length


def written(at: float) -> str:
    """``2026-11-21 15:00:00`` of epoch seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(at: float) -> str:
    """``2026-11-21T15:00:00.000Z`` of epoch seconds."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def length(span: float) -> str:
    """A duration in its two largest units: ``45s``, ``2m 5s``, ``3h 2m``, ``4d 1h``; ``-`` for NaN."""
    if math.isnan(span):
        return "-"
    parts: list[str] = []
    left = round(span)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def size(count: float) -> str:
    """Bytes with a unit: ``512 B``, ``1.5 KiB``, ``8.4 GiB``; ``-`` for NaN."""
    if math.isnan(count):
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:  # noqa: PLR2004
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
