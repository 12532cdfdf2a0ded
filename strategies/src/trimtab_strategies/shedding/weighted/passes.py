"""The two passes that bring consumers (brokers) towards their targets: a corrected one, and Hermes' own.

The corrected pass. Each step reduces the squared distances to the targets. The pass relieves a consumer that exceeds
its target by at least the significant change, until the excess is below half of that. So noise moves nothing, and many
small exchanges can add up. The consumer with the most room is the first destination. While the numbers of tasks allow
it, tasks (bundles) move one way. Then the pass swaps the heaviest tasks for the lightest, so few swaps are enough.
Neither consumer passes its target. A task that moved in this pass, or recently, stays.

Then the pass fills each consumer in `asks`: all consumers above their targets give a little, the furthest above first.
This is for cases in which one strong consumer among many is far below its target, while no other is much above its own.

Hermes' pass (`original_pass`), including its phantom swaps. It visits each overloaded consumer once, the furthest above
its target first. For each of them it visits all other consumers. It moves tasks out to even out the numbers of tasks,
then swaps heavy tasks for light ones. A swap must relieve the overloaded consumer by the significant change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.params import Defect
from trimtab_strategies.shedding.weighted.exchange import (
    Sides,
    acceptable,
    best_exchange,
    best_move,
    first_acceptable,
    hopeless,
    nearest,
)
from trimtab_strategies.shedding.weighted.ledger import Ledger, Ranked

DEFECTS = (
    Defect(
        "After a swap the task that has left is offered again, so weight counts as moved that never moved (phantom"
        " swaps).",
        "A task that has moved stays where it is.",
    ),
    Defect(
        "A consumer with exactly the allowed number of tasks gives some away, in hash order, even ones just moved.",
        "Only a consumer with more tasks gives one away: the one that fits best, unless it moved recently.",
    ),
    Defect(
        "Each single swap must change the weight by some percent: with hundreds of small tasks none ever does.",
        "The distance of a consumer from its target counts, so small exchanges add up.",
    ),
    Defect(
        "Any other consumer may be the partner of a swap, and the first acceptable pair is taken.",
        "Consumers with the most room come first, the heaviest task is swapped for the lightest, and neither consumer"
        " passes its target.",
    ),
    Defect("The limit of tasks per consumer is ignored for tasks that are already placed.", "It always applies."),
    Defect(
        "Tasks without a report weigh nothing, so all of them go to one consumer.",
        "They weigh as much as the average task.",
    ),
    Defect(
        "New tasks go to the lightest consumer, even if it is the weakest.",
        "They go to the consumer with the most room below its target.",
    ),
    Defect(
        "The controller adds a cpu error to a share of about 1/n: its loop gain grows with the number of consumers.",
        "The error is relative to the mean, and the loop gain is the same for any number.",
    ),
    Defect(
        "No score falls below 0.01, so with a hundred consumers all targets are about equal.",
        "The floor is a fraction of 1/n.",
    ),
    Defect(
        "The first correction after a change of leader is not smoothed.",
        "Averages start at the share of the weight that a consumer carries.",
    ),
)
"""Defects of Hermes' pass; `Compatibility.CORRECTED` fixes each."""


@dataclass(frozen=True, slots=True)
class Aim:
    """What a pass aims at: target weights, and bounds on the numbers of tasks. See the module.

    targets:    weight that each consumer should carry (n,), ops/s.
    limit:      number of tasks that each consumer should have at most, to keep these numbers even.
    min_change: the significant change, percent.
    most:       number of tasks that no consumer may exceed.
    spread:     ratio by which a consumer may exceed `limit` to take weight off another one. With 0 the numbers of tasks
                are also kept even. Hermes has no such bound.
    receives:   consumers that may get tasks (mask, n); empty: all.
    gives:      consumers to be relieved (mask, n); empty: all. Hermes always relieves all.
    asks:       consumers to be filled by every consumer above its target, even one slightly above it (mask, n); empty:
                none. Hermes fills none in this way.
    """

    targets: Sequence[float]
    limit: int
    min_change: float
    most: float = np.inf
    spread: float = 0.0
    receives: Sequence[bool] = ()
    gives: Sequence[bool] = ()
    asks: Sequence[bool] = ()

    def open_to(self, consumer: int) -> bool:
        """Whether a consumer may get tasks."""
        return not self.receives or self.receives[consumer]

    def between(self, ledger: Ledger, source: int, destination: int) -> Sides:
        """The books and targets of two consumers."""
        book, targets = ledger.book, self.targets
        return Sides(book[source], targets[source], book[destination], targets[destination], self.min_change)

    def overloaded(self, ledger: Ledger) -> list[int]:
        """Consumers now above their target or with too many tasks, the furthest above first."""
        found = [c for c in range(len(ledger)) if ledger.book[c] > self.targets[c] or ledger.count(c) > self.limit]
        return sorted(found, key=lambda c: -max(ledger.book[c] - self.targets[c], 0.0))


CRUMB = 0.25
"""Room below this ratio of a consumer's excess is used only if an average task fits into it."""


def corrected_pass(ledger: Ledger, aim: Aim) -> None:
    """Relieve every overloaded consumer once, then fill every consumer in `asks`; see the module."""
    relief = _Relief(ledger, aim)
    for source in aim.overloaded(ledger):
        if aim.gives and not aim.gives[source]:
            continue
        if relief.is_above(source, aim.min_change):
            relief.relieve(source)
        if not aim.spread:
            relief.even(source)
    for destination in relief.asking():
        relief.fill(destination)


class _Relief:
    """State of one pass."""

    def __init__(self, ledger: Ledger, aim: Aim) -> None:
        self.ledger, self.aim = ledger, aim
        self._ranked: dict[int, Ranked] = {}

    def relieve(self, source: int) -> None:
        """Move tasks to one destination after the other, then swap, until the source is near enough to its target."""
        steps = (self.move, self.swap) if self.aim.open_to(source) else (self.move,)
        for step in steps:
            for destination in takewhile(lambda _: self.needs_more(source), self.by_room(source)):
                step(source, destination)

    def is_above(self, consumer: int, percent: float) -> bool:
        """Whether a consumer exceeds its target by at least this percentage of the target."""
        target = self.aim.targets[consumer]
        excess = self.ledger.book[consumer] - target
        return excess > 0 and excess * 100 >= percent * target

    def needs_more(self, consumer: int) -> bool:
        """Whether a consumer that gives tasks away is still too far above its target."""
        return self.is_above(consumer, self.aim.min_change / 2)

    def by_room(self, source: int) -> Iterator[int]:
        """The other consumers that are below their target and may receive, the one with the most room first."""
        room = np.array(self.aim.targets) - self.ledger.book
        open_to = [c for c in np.flatnonzero(room > 0).tolist() if c != source and self.aim.open_to(c)]
        yield from sorted(open_to, key=lambda c: -room[c])

    def asking(self) -> list[int]:
        """Consumers in `asks` that are far enough below their targets and may receive, the most room first."""
        room = np.array(self.aim.targets) - self.ledger.book
        found = [c for c, asks in enumerate(self.aim.asks) if asks and self.aim.open_to(c) and self.lacks(c, 1)]
        return sorted(found, key=lambda c: -room[c])

    def lacks(self, consumer: int, part: float) -> bool:
        """Whether a consumer is below its target by at least this part (ratio) of the significant change."""
        target = self.aim.targets[consumer]
        room = target - self.ledger.book[consumer]
        return room > 0 and room * 100 >= self.aim.min_change * part * target

    def fill(self, destination: int) -> None:
        """Take tasks from consumers above their target, one after the other, until the destination is near its own."""
        excess = np.array(self.ledger.book) - self.aim.targets
        sources = sorted(np.flatnonzero(excess > 0).tolist(), key=lambda c: -excess[c])
        for source in takewhile(lambda _: self.lacks(destination, 0.5), sources):
            self.give(source, destination)

    def give(self, source: int, destination: int) -> None:
        """Move the tasks that bring the source nearest to its target; swap if the numbers of tasks allow no move."""
        heavy, sides = self.candidates(source, destination), self.aim.between(self.ledger, source, destination)
        vacant = self.vacancies(source, destination)
        if vacant > 0:
            fits = np.flatnonzero((heavy.weights <= sides.wanted) & (heavy.weights > 0))[:vacant]
            fits = fits[np.cumsum(heavy.weights[fits]) <= sides.wanted]
            if not len(fits):
                best = nearest(sides, heavy.weights)
                fits = np.array([] if best is None else [best], dtype=np.int64)
            self.send(heavy.tasks[fits].tolist(), source, destination)
        elif self.aim.open_to(source):
            self.swap_best(source, destination)

    def candidates(self, source: int, destination: int) -> Ranked:
        """Stable tasks of `source` that `destination` does not have, heaviest first.

        The ranking is kept, and only shortened, because a pass never makes a task stable.
        """
        ranked = self._ranked.get(source) or self.ledger.ranked(source)
        kept = self.ledger.stable[ranked.tasks]
        self._ranked[source] = ranked if kept.all() else Ranked(ranked.tasks[kept], ranked.weights[kept])
        return self.ledger.lacking(self._ranked[source], destination)

    def vacancies(self, source: int, destination: int) -> int:
        """How many tasks may move without a task in return."""
        ledger, aim = self.ledger, self.aim
        vacant = min(int(aim.limit * (1 + aim.spread)), aim.most) - ledger.count(destination)
        return int(vacant if aim.spread else min(vacant, ledger.count(source) - aim.limit))

    def move(self, source: int, destination: int) -> None:
        """Move the heaviest tasks that together fit the excess and the room, then the one that best fits the rest."""
        vacant = self.vacancies(source, destination)
        if vacant <= 0:
            return
        heavy = self.candidates(source, destination)
        sides = self.aim.between(self.ledger, source, destination)
        if not _worthwhile(sides, heavy.weights):
            return
        wanted = sides.wanted
        fits = np.flatnonzero((heavy.weights <= wanted) & (heavy.weights > 0))[:vacant]
        fits = fits[np.cumsum(heavy.weights[fits]) <= wanted]
        self.send(heavy.tasks[fits].tolist(), source, destination)
        if len(fits) < vacant and self.needs_more(source):
            self.move_best(source, destination)

    def send(self, tasks: list[int], source: int, destination: int) -> None:
        """Move these tasks. They do not move again."""
        self.ledger.stable[tasks] = False
        for task in tasks:
            self.ledger.move(task, source, destination)

    def move_best(self, source: int, destination: int) -> bool:
        """Move the single task that helps most. Returns whether there was one."""
        heavy = self.candidates(source, destination)
        best = best_move(self.aim.between(self.ledger, source, destination), heavy.weights)
        if best is not None:
            self.send([int(heavy.tasks[best])], source, destination)
        return best is not None

    def swap(self, source: int, destination: int) -> None:
        """Swap the heaviest for the lightest while that fits both consumers, then the pair that best fits the rest."""
        heavy, light = self.candidates(source, destination), self.candidates(destination, source)
        sides = self.aim.between(self.ledger, source, destination)
        if not _worthwhile(sides, heavy.weights):
            return
        count = _fitting(sides, heavy.weights, light.weights)
        self.exchange(heavy.tasks[:count].tolist(), light.tasks[::-1][:count].tolist(), source, destination)
        if self.needs_more(source):
            self.swap_best(source, destination)

    def swap_best(self, source: int, destination: int) -> None:
        """Swap the pair of tasks that helps most, if there is one."""
        heavy, light = self.candidates(source, destination), self.candidates(destination, source)
        best = best_exchange(self.aim.between(self.ledger, source, destination), heavy.weights, light.weights)
        if best is not None:
            self.exchange([int(heavy.tasks[best[0]])], [int(light.tasks[best[1]])], source, destination)

    def exchange(self, tasks: list[int], returned: list[int], source: int, destination: int) -> None:
        """Swap these tasks pair by pair. They do not move again."""
        self.ledger.stable[tasks + returned] = False
        for task, back in zip(tasks, returned, strict=True):
            self.ledger.swap(task, source, back, destination)

    def even(self, source: int) -> None:
        """Move single tasks to even out the numbers of tasks, as long as that also improves the weights."""
        for destination in self.by_room(source):
            while self.vacancies(source, destination) > 0 and self.move_best(source, destination):
                pass


def _worthwhile(sides: Sides, heavy: FloatArray) -> bool:
    """Whether the room is a large enough part of the excess, or an average task fits into it.

    This test prevents many tiny moves.
    """
    return len(heavy) > 0 and sides.room >= min(sides.excess * CRUMB, float(heavy.mean()))


def _fitting(sides: Sides, heavy: FloatArray, light: FloatArray) -> int:
    """How many swaps of the heaviest tasks for the lightest, taken together, fit both consumers."""
    count = min(len(heavy), len(light))
    change = heavy[:count] - light[::-1][:count]
    return int(np.count_nonzero((change > 0) & (np.cumsum(change) <= sides.wanted)))


def original_pass(ledger: Ledger, aim: Aim) -> None:
    """Hermes' pass, including its phantom swaps."""
    for source in aim.overloaded(ledger):
        for destination in range(len(ledger)):
            if destination == source or not aim.open_to(destination):
                continue
            _move_out(ledger, aim, source, destination)
            if aim.open_to(source):
                _swap(ledger, aim, source, destination)
            if _balanced(ledger, aim, source):
                break


def _balanced(ledger: Ledger, aim: Aim, consumer: int) -> bool:
    """Whether a consumer needs no relief. The comparison is exact, as in Hermes."""
    return ledger.book[consumer] == aim.targets[consumer] and ledger.count(consumer) <= aim.limit


def _may_move_out(ledger: Ledger, aim: Aim, source: int, destination: int) -> bool:
    return ledger.count(source) >= aim.limit and ledger.count(destination) < aim.limit


def _move_out(ledger: Ledger, aim: Aim, source: int, destination: int) -> None:
    """Move tasks that fit below the destination's target, in iteration order, while the counts require it."""
    if not _may_move_out(ledger, aim, source, destination):
        return
    tasks = ledger.leavable(source, destination)
    weights, target = ledger.weight[tasks], aim.targets[destination]
    place = 0
    while _may_move_out(ledger, aim, source, destination):
        fits = np.flatnonzero(ledger.book[destination] + weights[place:] <= target)
        if not len(fits):
            return
        place += int(fits[0])
        ledger.move(int(tasks[place]), source, destination)
        place += 1


def _swap(ledger: Ledger, aim: Aim, source: int, destination: int) -> None:
    """Swap the first acceptable pairs: the outer loop is over heavy tasks, the inner one over light tasks.

    After a swap the loop continues with the same heavy task, which has already left: the phantom swap. Hermes
    checks after every pair, accepted or not, whether the source is balanced. A refused pair changes nothing, so this
    check matters only for the first pair.
    """
    of_source, of_destination = (ledger.ranked(consumer).weights for consumer in (source, destination))
    if hopeless(aim.between(ledger, source, destination), of_source, of_destination):
        return
    heavy, light = ledger.swappable(source, destination), ledger.swappable(destination, source)
    back, back_weights = light.tasks, light.weights
    if not len(heavy.tasks) or not len(back):
        return
    row = column = 0
    now = aim.between(ledger, source, destination)
    if _balanced(ledger, aim, source) and not acceptable(now, heavy.weights[:1], back_weights[:1])[0]:
        return
    while len(back):
        now = aim.between(ledger, source, destination)
        pair = first_acceptable(now, heavy.weights, back_weights, row, column)
        if pair is None:
            return
        row, column = pair
        ledger.swap(int(heavy.tasks[row]), source, int(back[column]), destination)
        back, back_weights = np.delete(back, column), np.delete(back_weights, column)
        if _balanced(ledger, aim, source):
            return
