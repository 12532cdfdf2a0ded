"""Responses read within bounds: JSON of limited depth, bodies of limited size.

Python's JSON parser is recursive, and so is much of the code that uses its values, such as formatting a message. So a
body of brackets could raise an unexpected `RecursionError` anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

DEEPEST = 100
"""The deepest nesting of lists and objects; answers of Pulsar and Prometheus have about a dozen levels."""


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
    """The values in a JSON body. Raises `ValueError` for invalid JSON, `TooDeepError`."""
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
    """A body that arrives in `pieces`. Raises `TooLargeError` past `largest` bytes, without reading more."""
    found, size = list[bytes](), 0
    for piece in pieces:
        size += len(piece)
        if size > largest:
            raise TooLargeError(largest)
        found.append(piece)
    return b"".join(found)
