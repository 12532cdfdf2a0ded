"""What others send, read with a bound: JSON of a bounded depth, bodies of a bounded size.

Python's reader of JSON is recursive, and so is much of what is done with its values, such as writing them down in a
message. So a body of brackets would end the process with a `RecursionError`, which nobody expects.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

DEEPEST = 100
"""Lists and objects within each other; what Pulsar and Prometheus answer has a dozen."""


class TooDeepError(ValueError):
    """JSON whose lists and objects are nested deeper than `DEEPEST`."""

    def __init__(self) -> None:
        super().__init__(f"lists and objects are nested deeper than {DEEPEST} levels: see what sends or wrote that")


class TooLargeError(ValueError):
    """A body of more than `largest` bytes."""

    def __init__(self, largest: int) -> None:
        bound = f"{largest >> 20} MiB" if largest >= 2**20 else f"{largest >> 10} KiB"
        super().__init__(f"the answer is larger than {bound}: see what the url leads to")


def json_of(body: str | bytes) -> Any:
    """The values in a body of JSON. Raises `ValueError` for what is none, `TooDeepError`."""
    try:
        found = json.loads(body)
    except RecursionError:
        raise TooDeepError from None
    level = [found]
    for _ in range(DEEPEST + 1):
        level = [inner for value in level for inner in _inner(value)]
        if not level:
            return found
    raise TooDeepError


def _inner(value: Any) -> list[Any]:
    """Lists and objects within a value."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return []
    return [inner for inner in value if isinstance(inner, (dict, list))]


def joined(pieces: Iterable[bytes], largest: int) -> bytes:
    """A body that comes in `pieces`. Raises `TooLargeError` past `largest` bytes, without asking for more."""
    found, size = list[bytes](), 0
    for piece in pieces:
        size += len(piece)
        if size > largest:
            raise TooLargeError(largest)
        found.append(piece)
    return b"".join(found)
