"""Regular expressions from users, matched against whole names of hosts and namespaces in bounded time.

Python's own engine tries every way to match. A pattern of thirty ``.?`` takes 14 s for one name, and each
further ``.?`` doubles that. Meanwhile the whole operator would wait. So this module parses the patterns, and an
`automaton` matches them in time proportional to the length of the name times the length of the pattern. A pattern means
what it means in Python. For ASCII names, Java gives it the same meaning. Constructs that need a backtracking engine, or
that Java reads differently, are refused.
"""

from __future__ import annotations

import re
from functools import lru_cache

from trimtab_strategies.filters.automaton import (
    Alternatives,
    Chain,
    Edge,
    Letter,
    Lookaround,
    Matcher,
    Part,
    Repeat,
    steps_of,
)

LARGEST = 2000
"""Maximum number of a pattern's characters, and of its steps with repetitions written out."""

DEEPEST = 50
"""Maximum depth of nested groups."""

_SIGN = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|N\{[^}]*\}|0[0-7]{0,2}|[0-7]{3}|[1-9][0-9]?|.)"
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|\(\?(?:P<\w+>|P=\w+\)|#[^)]*\)|<?[=!]|>|\(\w+\)|[aiLmsux]+\)|[aiLmsux]*(?:-[imsx]+)?:)"
    r"|(?:[*+?]|\{(?:[0-9]+|[0-9]*,[0-9]*)\})[?+]?"
    r"|.",
    re.DOTALL,
)
_REPEAT = re.compile(r"([*+?]|\{([0-9]*)(,?)([0-9]*)\})([?+]?)")
_BACK = re.compile(r"\(\?P=.*|\(\?\(.*|\\[1-9][0-9]?")
_COMMENT = re.compile(r"\(\?#.*", re.DOTALL)
_WHOLE = re.compile(r"\(\?([aiLmsux]+)\)")
_SCOPED = re.compile(r"\(\?([aiLmsux]*)(?:-([imsx]+))?:")
_NESTED = re.compile(r"(?<!\\)(?:\\\\)*(?:\[|&&)")
_EDGES = frozenset({"^", "$", r"\b", r"\B", r"\A", r"\Z", r"\z"})
_LOOKS = frozenset({"(?=", "(?!", "(?<=", "(?<!"})
_FLAGS = {
    "i": re.IGNORECASE,
    "m": re.MULTILINE,
    "s": re.DOTALL,
    "x": re.VERBOSE,
    "a": re.ASCII,
    "u": re.NOFLAG,
}
_KEPT = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.ASCII


_WIDE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u(?!00[0-7])|U(?!000000[0-7])|N)")
"""An escape for a letter outside ASCII. Such escapes are refused: a class of these letters takes seconds to build."""


class _UnsupportedError(ValueError):
    """A pattern that is not supported. The message says why and what to do, without the pattern."""


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
    found = compiled(pattern)
    return found is not None and found.fullmatch(text)


@lru_cache(maxsize=1024)
def _read(pattern: str) -> Matcher | str:
    if len(pattern) > LARGEST:
        return f"has {len(pattern)} characters, at most {LARGEST} are allowed: shorten it"
    if not pattern.isascii() or _WIDE.search(pattern):
        return "has letters that are not ASCII, which no broker's name has: remove them"
    try:
        signs = _signs_of(pattern)
        part = _PatternReader(signs).whole(re.compile(pattern).flags & _KEPT)
        steps = steps_of(part)
    except _UnsupportedError as error:
        return str(error)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression ({error}): correct it"
    if steps > LARGEST:
        written = f"takes {steps} steps with its repetitions written out, at most {LARGEST} are allowed"
        return f"{written}: lower their bounds, or use * or +"
    return Matcher(part)


def _signs_of(pattern: str) -> list[str]:
    """The tokens of a pattern. Raises `_UnsupportedError` for unsupported ones."""
    signs = [found.group() for found in _SIGN.finditer(pattern)]
    depth = 0
    for sign in signs:
        _check(sign)
        depth += (sign.startswith("(") and not sign.endswith(")")) - (sign == ")")
        if depth > DEEPEST:
            raise _UnsupportedError(f"has more than {DEEPEST} nested groups: remove some")
    return [sign for sign in signs if not _COMMENT.fullmatch(sign) and not _WHOLE.fullmatch(sign)]


def _check(sign: str) -> None:
    if _BACK.fullmatch(sign):
        raise _UnsupportedError(
            f"has a back-reference ({sign}), which can take unlimited time: write out the text it stands for"
        )
    if sign == "(?>" or ((repeat := _REPEAT.fullmatch(sign)) and repeat[5] == "+"):
        raise _UnsupportedError(f"is possessive or atomic ({sign}): write the plain repetition or group")
    if sign[0] == "[" and len(sign) > 1 and _NESTED.search(sign, 1):
        raise _UnsupportedError(f"has a class in a class ({sign}): write one class, and \\[ or \\& for the characters")
    if "x" in _switched_on(sign):
        raise _UnsupportedError(f"has the flag x ({sign}): write it without blanks and comments")


def _switched_on(sign: str) -> str:
    """Flags that a token switches on."""
    found = _SCOPED.fullmatch(sign) or _WHOLE.fullmatch(sign)
    return found[1] if found else ""


class _PatternReader:
    """Parser of the tokens of a pattern that Python accepts."""

    def __init__(self, signs: list[str]) -> None:
        self._signs, self._at = signs, 0

    def whole(self, flags: int) -> Part:
        """The whole pattern. flags: Python's flags for all of it."""
        return self._choice(flags)

    def _next(self) -> str:
        """The next token; empty at the end."""
        return self._signs[self._at] if self._at < len(self._signs) else ""

    def _take(self) -> str:
        sign = self._next()
        self._at += 1
        return sign

    def _choice(self, flags: int) -> Part:
        options = [self._chain(flags)]
        while self._next() == "|":
            self._take()
            options.append(self._chain(flags))
        return options[0] if len(options) == 1 else Alternatives(tuple(options))

    def _chain(self, flags: int) -> Part:
        parts = list[Part]()
        while self._next() not in {"", "|", ")"}:
            parts.append(self._repeated(self._single(self._take(), flags)))
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))

    def _repeated(self, part: Part) -> Part:
        if (found := _REPEAT.fullmatch(self._next())) is None:
            return part
        self._take()
        low, high = _bounds(found)
        return Repeat(part, low, high)

    def _single(self, sign: str, flags: int) -> Part:
        if sign.startswith("("):
            return self._group(sign, flags)
        if sign in _EDGES:
            return Edge(re.compile(sign, flags))
        return Letter(re.compile(sign, flags))

    def _group(self, sign: str, flags: int) -> Part:
        if scoped := _SCOPED.fullmatch(sign):
            flags = _changed(flags, scoped[1], scoped[2] or "")
        part = self._choice(flags)
        self._take()
        if sign not in _LOOKS:
            return part
        return Lookaround(part, behind="<" in sign, negated="!" in sign)


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    """The bounds of a repetition; None for no upper bound."""
    if plain := {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[1]):
        return plain
    low = int(found[2] or 0)
    return low, (int(found[4]) if found[4] else None) if found[3] else low


def _changed(flags: int, on: str, off: str) -> int:
    for flag in on:
        flags = (flags & ~re.ASCII if flag in "au" else flags) | _FLAGS[flag]
    for flag in off:
        flags &= ~_FLAGS[flag]
    return flags
