"""Explores every order of events of a model, breadth first, and reports how a state was reached.

A model has finitely many states for each bound on its faults. `explore` visits each state once. It checks the
invariants of states and events. Then it checks that calm events alone can lead from every state to a settled one. Calm
events are those that happen when nothing fails and people change nothing. The first violation that it finds has the
fewest events.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

State = tuple[Hashable, ...]


class Event(NamedTuple):
    """One event. text: in plain English. calm: whether it happens without faults. broken: what it violates, if any."""

    text: str
    state: State
    calm: bool = True
    broken: str = ""


class Model(Protocol):
    """A protocol to explore."""

    name: str

    def initial(self) -> State:
        """The state at the start."""

    def events(self, state: State) -> Iterable[Event]:
        """All events that can happen in a state, always in the same order."""

    def broken(self, state: State) -> str:
        """Which invariant a state violates, in words; empty for none."""

    def settled(self, state: State) -> bool:
        """Whether everything may stay as it is in this state."""


@dataclass(frozen=True, slots=True)
class CounterExample:
    """How an invariant was violated. story: the events, one line each."""

    broken: str
    story: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"{number:3}. {line}" for number, line in enumerate(self.story, start=1)]
        return "\n".join([f"violated: {self.broken}", *lines])


@dataclass(slots=True)
class Exploration:
    """What was explored. closed: whether every reachable state was visited. seconds: processor time."""

    states: int
    events: int
    depth: int
    seconds: float
    closed: bool
    found: CounterExample | None = None

    def __str__(self) -> str:
        bound = "all reachable states" if self.closed else "bounded"
        return (
            f"{self.states:>9,} states {self.events:>10,} events, depth {self.depth:3}, {self.seconds:6.1f} s, {bound}"
        )


@dataclass(slots=True)
class _Search:
    """The states seen so far, numbered in the order in which they were found, and the calm events between them."""

    model: Model
    numbers: dict[State, int] = field(default_factory=dict)
    states: list[State] = field(default_factory=list)
    parents: array[int] = field(default_factory=lambda: array("l"))
    depths: array[int] = field(default_factory=lambda: array("l"))
    sources: array[int] = field(default_factory=lambda: array("l"))
    targets: array[int] = field(default_factory=lambda: array("l"))
    events: int = 0
    expanded: int = 0

    def add(self, state: State, parent: int) -> int:
        number = len(self.states)
        self.numbers[state] = number
        self.states.append(state)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1 if parent >= 0 else 0)
        return number

    def run(self, most: int) -> CounterExample | None:
        """Expand states until none is left or `most` are known."""
        start = self.model.initial()
        self.add(start, -1)
        if why := self.model.broken(start):
            return CounterExample(why, ())
        while self.expanded < len(self.states) and len(self.states) < most:
            if (found := self._expand(self.expanded)) is not None:
                return found
            self.expanded += 1
        return self._stuck()

    def _expand(self, number: int) -> CounterExample | None:
        numbers, model = self.numbers, self.model
        for event in model.events(self.states[number]):
            self.events += 1
            target = numbers.get(event.state, -1)
            why = event.broken
            if target < 0:
                target = self.add(event.state, number)
                why = why or model.broken(event.state)
            if why:
                return CounterExample(why, (*self.story(number), event.text))
            if event.calm and target != number:
                self.sources.append(number)
                self.targets.append(target)
        return None

    def story(self, number: int) -> tuple[str, ...]:
        """The events that lead to a state."""
        lines = list[str]()
        while (parent := self.parents[number]) >= 0:
            state = self.states[number]
            lines.append(next(e.text for e in self.model.events(self.states[parent]) if e.state == state))
            number = parent
        return tuple(reversed(lines))

    def _stuck(self) -> CounterExample | None:
        """The first state from which calm events reach no settled state.

        States that were not expanded count as settled.
        """
        total = len(self.states)
        good = bytearray(total)
        pending = [n for n, state in enumerate(self.states) if n >= self.expanded or self.model.settled(state)]
        for number in pending:
            good[number] = 1
        first, following = _by_target(self.targets, total)
        while pending:
            edge = first[pending.pop()]
            while edge >= 0:
                if not good[source := self.sources[edge]]:
                    good[source] = 1
                    pending.append(source)
                edge = following[edge]
        if (stuck := good.find(0)) < 0:
            return None
        return CounterExample("from here no calm event leads to a settled state", self.story(stuck))


def _by_target(targets: Sequence[int], total: int) -> tuple[array[int], array[int]]:
    """For each state its first incoming event, and for each event the next one with the same target; -1 for none."""
    first, following = array("l", [-1]) * total, array("l", [-1]) * len(targets)
    for edge, target in enumerate(targets):
        following[edge], first[target] = first[target], edge
    return first, following


def explore(model: Model, most: int) -> Exploration:
    """Explore `model` until all its states or `most` of them are known, or an invariant is violated."""
    began, search = time.process_time(), _Search(model)
    found = search.run(most)
    seconds = time.process_time() - began
    closed = search.expanded == len(search.states)
    return Exploration(len(search.states), search.events, max(search.depths), seconds, closed, found)


def replayed(model: Model, story: Sequence[str]) -> str:
    """Let the events of `story` happen one after the other; returns what is violated then, empty for nothing.

    Raises `LookupError` if an event of the story can't happen.
    """
    state = model.initial()
    for line in story:
        event = next((e for e in model.events(state) if e.text == line), None)
        if event is None:
            raise LookupError(f"{line!r} can't happen here: the code now decides differently")
        state = event.state
        if why := event.broken or model.broken(state):
            return why
    return ""
