"""Regular expressions that people write: matched only when they can't take for ever.

Python's engine tries every way to match. A repetition within a repetition, such as ``(a+)+b``, takes years for a name
of thirty letters, and would hold up the whole operator meanwhile. Hosts need no such thing, so it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

MOST_REPEATS = 4
"""Repetitions without an upper bound in one pattern; each multiplies the time by the length of the name."""

_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:[:=!>]|<[=!]|P<\w+>|P=\w+\)|#[^)]*\)|[aiLmsux-]+[:)]))?"
    r"|\)|\||\{\d*,?\d*\}|[*+?]|.",
    re.DOTALL,
)
_UNBOUNDED = re.compile(r"[*+]|\{\d*,\}")
_REPEAT = re.compile(r"[*+]|\{\d*,?\d*\}")


def problem(pattern: str) -> str:
    """Why a pattern is not matched, in words; empty when it is."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression ({error}): correct it"
    return _risk(pattern)


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> re.Pattern[str] | None:
    """The pattern, or None when it has a `problem`."""
    return None if problem(pattern) else re.compile(pattern)


def _risk(pattern: str) -> str:
    """What could make a pattern take for ever. Groups and repetitions are all of the grammar that matters to it."""
    depth, left, unbounded = [False], False, 0
    for part in _parts_of(pattern):
        if part.startswith("(") and not part.endswith(")"):
            depth.append(False)
        elif part == ")" and len(depth) > 1:
            left = depth.pop()
            depth[-1] |= left
            continue
        elif part == "|":
            depth[-1] = True
        elif _REPEAT.fullmatch(part):
            if left:
                return f"repeats a group that itself repeats or chooses ({part} after it): that may take for ever"
            depth[-1] = True
            unbounded += bool(_UNBOUNDED.fullmatch(part))
        elif part.startswith("(?P=") or (part[:1] == "\\" and part[1:].isdigit()):
            return f"refers back ({part}): that may take for ever"
        left = False
    few = unbounded <= MOST_REPEATS
    return "" if few else f"has {unbounded} repetitions without a bound, at most {MOST_REPEATS} are matched in time"


def _parts_of(pattern: str) -> Iterator[str]:
    return (found.group() for found in _PART.finditer(pattern))
