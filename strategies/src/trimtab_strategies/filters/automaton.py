"""Matches regular expressions in time linear in the text: all possible matches are followed in parallel.

A backtracking engine, such as Python's or Java's, tries the possible matches one by one, and their number can double
with each letter. Here a pattern is a graph of steps, and each letter leads from the set of reached steps to the next
set (Thompson's construction). So one letter costs at most one visit to each step, whatever the pattern is. Transitions
are cached, so similar names cost little more than one look-up per letter.

Tests between letters (``^``, ``\\b``, look-arounds) are evaluated first, for all places of the text: a look-behind in
one pass from the left, a look-ahead in one pass of the reversed pattern from the right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

KEPT = 1024
"""Maximum number of transitions that a graph caches. When the cache is full, it is emptied."""

_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter that the pattern `among` matches."""

    among: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Edge:
    """A place between letters where `here`, a pattern that consumes no letter, matches."""

    here: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Lookaround:
    """A place where a match of `part` begins, or ends if `behind` is set. If `negated` is set: where no match does."""

    part: Part
    behind: bool
    negated: bool


@dataclass(frozen=True, slots=True)
class Chain:
    """All `parts` in order."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of `options`."""

    options: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`part` from `low` to `high` times; None: any number of times from `low` on."""

    part: Part
    low: int
    high: int | None


Part = Letter | Edge | Lookaround | Chain | Alternatives | Repeat
"""A part of a pattern."""


def steps_of(part: Part) -> int:
    """Number of steps of `part` with its repetitions written out. One letter costs at most that many visits.

    Never 0: a repeated empty part costs memory and time, too.
    """
    match part:
        case Chain(parts):
            return 1 + sum(map(steps_of, parts))
        case Alternatives(parts):
            return 1 + len(parts) + sum(map(steps_of, parts))
        case Repeat(inner, low, None):
            return 2 + (low + 1) * steps_of(inner)
        case Repeat(inner, low, int(high)):
            return 1 + high * steps_of(inner) + 2 * (high - low)
        case Lookaround(inner):
            return 2 + steps_of(inner)
    return 1


class Matcher:
    """Matches whole texts against `part`. The caller must limit the depth of `part`, and its steps (`steps_of`)."""

    def __init__(self, part: Part) -> None:
        self.steps = steps_of(part)
        bits: dict[Edge | Lookaround, int] = {}
        for test in _tests_in(part):
            bits.setdefault(test, 1 << len(bits))
        self._tests = [(bit, test, _graph_of(test, bits)) for test, bit in bits.items()]
        self._graph = _Graph(part, bits)

    @property
    def visits(self) -> int:
        """Visits to steps so far: the cost of matching."""
        return self._graph.visits + sum(graph.visits for _, _, graph in self._tests if graph is not None)

    def fullmatch(self, text: str) -> bool:
        """Whether the whole of `text` matches."""
        return self._graph.whole(text, self._holding(text))

    def _holding(self, text: str) -> Sequence[int]:
        """The tests that hold at each place of `text`, as bits."""
        holds = [0] * (len(text) + 1)
        for bit, test, graph in self._tests:  # a nested test comes before its outer one
            for place, true in enumerate(_places(test, graph, text, holds)):
                holds[place] |= bit * true
        return holds


def _tests_in(part: Part) -> Iterator[Edge | Lookaround]:
    """All tests, each after the ones it depends on."""
    match part:
        case Edge():
            yield part
        case Lookaround(inner):
            yield from _tests_in(inner)
            yield part
        case Repeat(inner):
            yield from _tests_in(inner)
        case Chain(parts) | Alternatives(parts):
            for inner in parts:
                yield from _tests_in(inner)


def _graph_of(test: Edge | Lookaround, bits: Mapping[Edge | Lookaround, int]) -> _Graph | None:
    return _Graph(test.part, bits, backward=not test.behind) if isinstance(test, Lookaround) else None


def _places(test: Edge | Lookaround, graph: _Graph | None, text: str, holds: Sequence[int]) -> Iterator[bool]:
    """Whether `test` holds, at each place of `text`."""
    if isinstance(test, Lookaround) and graph is not None:
        yield from (found is not test.negated for found in graph.places(text, holds))
    elif isinstance(test, Edge):
        yield from (test.here.match(text, place) is not None for place in range(len(text) + 1))


class _Graph:
    """The steps of one pattern. With `backward` it is read from the right. Step 0 is the end.

    A step may consume a letter. Other steps lead on without a letter, some only where all tests in `needs` (bits) hold.
    """

    def __init__(self, part: Part, bits: Mapping[Edge | Lookaround, int], *, backward: bool = False) -> None:
        self._letters: list[re.Pattern[str] | None] = []
        self._onward: list[tuple[int, ...]] = []
        self._needs: list[int] = []
        self._bits, self._backward = bits, backward
        self._begin = frozenset({self._lead(part, self._add())})
        self._moves: dict[tuple[frozenset[int], int, str], tuple[bool, frozenset[int]]] = {}
        self.visits = 0

    def _add(self, *onward: int, letter: re.Pattern[str] | None = None, needs: int = 0) -> int:
        self._letters.append(letter)
        self._onward.append(onward)
        self._needs.append(needs)
        return len(self._onward) - 1

    def _lead(self, part: Part, to: int) -> int:
        """The first step of a path through `part` to step `to`."""
        match part:
            case Letter(among):
                return self._add(to, letter=among)
            case Edge() | Lookaround():
                return self._add(to, needs=self._bits[part])
            case Chain(parts):
                for inner in parts if self._backward else reversed(parts):
                    to = self._lead(inner, to)
                return to
            case Alternatives(options):
                return self._add(*(self._lead(option, to) for option in options))
            case Repeat():
                return self._lead_often(part, to)

    def _lead_often(self, part: Repeat, to: int) -> int:
        end = to
        if part.high is None:
            to = self._add()
            self._onward[to] = (self._lead(part.part, to), end)
        else:
            for _ in range(part.high - part.low):
                to = self._add(self._lead(part.part, to), end)
        for _ in range(part.low):
            to = self._lead(part.part, to)
        return to

    def whole(self, text: str, holds: Sequence[int]) -> bool:
        """Whether all of `text` matches. holds: the tests that hold at each place, as bits."""
        steps = self._begin
        for place, letter in enumerate(text):
            if not steps:
                return False
            _, steps = self._move(steps, holds[place], letter)
        return self._move(steps, holds[len(text)], "")[0]

    def places(self, text: str, holds: Sequence[int]) -> list[bool]:
        """For each place of `text`: whether a match ends there (backward: begins there)."""
        order = 1 if not self._backward else -1
        found, steps = [], _NONE
        for letter, held in zip([*text[::order], ""], holds[::order], strict=True):
            ended, steps = self._move(steps | self._begin, held, letter)
            found.append(ended)
        return found[::order]

    def _move(self, steps: frozenset[int], held: int, letter: str) -> tuple[bool, frozenset[int]]:
        """Whether the end is reachable from `steps` without a letter, and the steps that `letter` leads to."""
        if (known := self._moves.get((steps, held, letter))) is None:
            if len(self._moves) >= KEPT:
                self._moves.clear()
            reached = self._reached(steps, held)
            known = 0 in reached, self._taken(reached, letter) if letter else _NONE
            self._moves[steps, held, letter] = known
        return known

    def _reached(self, steps: frozenset[int], held: int) -> set[int]:
        reached, todo = set[int](), list(steps)
        while todo:
            step = todo.pop()
            self.visits += 1
            if step not in reached and not self._needs[step] & ~held:
                reached.add(step)
                todo += () if self._letters[step] else self._onward[step]
        return reached

    def _taken(self, reached: set[int], letter: str) -> frozenset[int]:
        taking = ((step, self._letters[step]) for step in reached)
        return frozenset(self._onward[step][0] for step, among in taking if among and among.fullmatch(letter))
