"""Regular expressions from users, matched against whole names of hosts and namespaces in bounded time.

Python's own engine tries every way to match. A pattern of thirty ``.?`` takes 14 s for one name, and each further
``.?`` doubles that. Meanwhile the whole operator would wait. RE2 takes time proportional to the length of the name. A
pattern must mean the same in Python and in RE2, and for ASCII names in Java. Others are refused. RE2 has no
look-arounds, but ``(?!broker-0$).*`` is how people write "all but this one". So look-aheads at the beginning are
patterns of their own, which are matched first.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

LARGEST = 2000
"""Maximum number of a pattern's characters."""

_SIGN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_FLAGS = re.compile(r"(?:\(\?[ims]+\))*")
_AHEAD = re.compile(r"\(\?[=!]")
_REPEATED = re.compile(r"[*+?{]")
_NESTED = re.compile(r"(?<!\\)(?:\\\\)*(?:\[|&&)")
_ODD_BOUNDS = re.compile(r"\{(?:,|[0-9]*,?[0-9]{5})")
_WIDE = re.compile(r"(?<!\\)(?:\\\\)*\\[uUN]")
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@dataclass(frozen=True, slots=True)
class LookAhead:
    """What a whole name must begin with, or if `negated` must not. pattern: RE2's."""

    pattern: Any
    negated: bool


@dataclass(frozen=True, slots=True)
class Matcher:
    """A pattern without a `problem`."""

    pattern: Any
    aheads: Sequence[LookAhead] = ()

    def fullmatch(self, text: str) -> bool:
        """Whether the whole of `text` matches."""
        if any((ahead.pattern.match(text) is None) is not ahead.negated for ahead in self.aheads):
            return False
        return self.pattern.fullmatch(text) is not None


def problem(pattern: str) -> str:
    """Why a pattern is not supported, in words; empty when it is."""
    found = _read(pattern)
    return found if isinstance(found, str) else ""


def compiled(pattern: str) -> Matcher | None:
    """The matcher of a pattern, or None when it has a `problem`."""
    found = _read(pattern)
    return None if isinstance(found, str) else found


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text matches, like Java's `String.matches`. A pattern that has a `problem` never matches."""
    return (found := compiled(pattern)) is not None and found.fullmatch(text)


@lru_cache(maxsize=1024)
def _read(pattern: str) -> Matcher | str:
    if said := _odd_part(pattern):
        return said
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            re.compile(pattern)
        return _matcher(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression ({error}): correct it"
    except re2.error as error:
        said = error.args[0].decode(errors="replace")
        fix = "write it without back-references, possessive or atomic parts, flags but i, m and s, and look-arounds"
        return f"can't be matched in bounded time ({said}): {fix} but look-aheads at the beginning"


def _odd_part(pattern: str) -> str:
    """Why a pattern is not supported although RE2 accepts it, in words; empty if there is no such reason."""
    if len(pattern) > LARGEST:
        return f"has {len(pattern)} characters, at most {LARGEST} are allowed: shorten it"
    if not pattern.isascii() or _WIDE.search(pattern):
        return "has letters that are not ASCII, which no broker's name has: remove them"
    classes = (sign for sign in _SIGN.findall(pattern) if len(sign) > 1 and sign[0] == "[")
    if nested := next((sign for sign in classes if _NESTED.search(sign, 1)), ""):
        return f"has a class in a class ({nested}): write one class, and \\[ or \\& for the characters"
    if odd := _ODD_BOUNDS.search(pattern):
        return (
            f"has the repetition {odd[0]}..., which engines read differently: write 0 for no lower bound, at most 1000"
        )
    return ""


def _matcher(pattern: str) -> Matcher:
    """The matcher of a pattern that Python accepts. Raises `re2.error`."""
    found = _FLAGS.match(pattern)
    flags = found[0] if found is not None else ""
    parts, negated = zip(*_divided(pattern[len(flags) :]), strict=True)
    *aheads, rest = [re2.compile(flags + part, options=_OPTIONS) for part in parts]
    return Matcher(rest, tuple(LookAhead(*ahead) for ahead in zip(aheads, negated, strict=False)))


def _divided(pattern: str) -> Iterator[tuple[str, bool]]:
    """The insides of the look-aheads at the beginning, each with whether it is negated, and then the rest."""
    while _AHEAD.match(pattern):
        inside, rest = _group(pattern)
        if _REPEATED.match(rest) or _has_alternatives(rest):
            break
        yield inside[len("(?!") :], inside.startswith("(?!")
        pattern = rest
    yield pattern, False


def _group(pattern: str) -> tuple[str, str]:
    """The group at the beginning, without its last parenthesis, and the rest of the pattern."""
    end = 0
    for sign, depth in _signs(pattern):
        end += len(sign)
        if not depth:
            break
    return pattern[: end - 1], pattern[end:]


def _has_alternatives(pattern: str) -> bool:
    """Whether a ``|`` divides the whole pattern."""
    return any(sign == "|" and not depth for sign, depth in _signs(pattern))


def _signs(pattern: str) -> Iterator[tuple[str, int]]:
    """Each sign of a pattern, with the number of groups that are open after it."""
    depth = 0
    for sign in _SIGN.findall(pattern):
        depth += (sign == "(") - (sign == ")")
        yield sign, depth
