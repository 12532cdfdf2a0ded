"""Responses read within bounds: JSON of limited depth, bodies of limited size.

Python's JSON parser is recursive, and so is much of the code that uses its values, such as formatting a message. So a
body of brackets could raise an unexpected `RecursionError` anywhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

DEEPEST = 100
"""The deepest nesting of lists and objects; answers of Pulsar and Prometheus have about a dozen levels."""

INFLATED = 200
"""Most times that a body may be larger than its compressed form. Answers about topics reach 40, zeros 1,000."""
_SMALL = 2**20  # bytes of an unpacked body that are always accepted
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


class TooDeepError(ValueError):
    """JSON whose lists and objects are nested deeper than `DEEPEST`."""

    def __init__(self) -> None:
        super().__init__(f"lists and objects are nested deeper than {DEEPEST} levels: see what sent or wrote them")


class HalfLetterError(ValueError):
    """JSON with half of a surrogate pair. UTF-8 can't encode it, so neither a log nor the API server accepts it."""

    def __init__(self) -> None:
        super().__init__("a text holds half of a surrogate pair: see what sent or wrote it")


class TooLargeError(ValueError):
    """A body of more than `largest` bytes."""

    def __init__(self, largest: int) -> None:
        bound = f"{largest >> 20} MiB" if largest >= 2**20 else f"{largest >> 10} KiB"
        super().__init__(f"the answer is larger than {bound}: see what the url leads to")


class InflatedError(TooLargeError):
    """A compressed body that becomes more than `INFLATED` times as large."""

    def __init__(self) -> None:
        ValueError.__init__(
            self, f"the answer is compressed to less than 1/{INFLATED} of its size: see what the url leads to"
        )


def json_of(body: str | bytes) -> Any:
    """The values in a JSON body; bytes are UTF-8.

    Raises `ValueError` for invalid JSON, `TooDeepError`, `HalfLetterError`.
    """
    text = body if isinstance(body, str) else body.decode()
    try:
        found = json.loads(text)
    except RecursionError:
        raise TooDeepError from None
    level = [found]
    for _ in range(DEEPEST + 1):
        level = [inner for value in level for inner in _inner(value)]
        if not level:
            break
    else:
        raise TooDeepError
    if _HALF.search(text) is not None:
        _check_letters(found)
    return found


def _check_letters(found: Any) -> None:
    """Raise `HalfLetterError` if a text holds half of a surrogate pair. Two halves make a letter."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise HalfLetterError from None


def _inner(value: Any) -> list[Any]:
    """Lists and objects within a value."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return []
    return [inner for inner in value if isinstance(inner, (dict, list))]


def joined(pieces: Iterable[bytes], largest: int, arrived: Callable[[], int] | None = None) -> bytes:
    """A body that arrives in `pieces`. Raises `TooLargeError` past `largest` bytes, without reading more.

    arrived: the number of compressed bytes from which the pieces so far come. Raises `InflatedError` if that is little.
    """
    found, size = list[bytes](), 0
    for piece in pieces:
        size += len(piece)
        if size > largest:
            raise TooLargeError(largest)
        if arrived is not None and size > max(_SMALL, INFLATED * arrived()):
            raise InflatedError
        found.append(piece)
    return b"".join(found)
