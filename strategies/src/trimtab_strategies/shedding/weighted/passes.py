"""The pass without the original's defects: every step takes something from the squared distances to the targets.

A consumer is relieved when it is at least the significant change above its target, until it is within half of that: so
noise moves nothing, and many small exchanges can add up to what a single one could not do. Destinations come by room,
the largest first. Tasks move without return where the numbers allow it; then heavy ones are swapped for light ones,
the heaviest for the lightest, so that few are enough. Neither end gets beyond its target. What has changed hands stays
where it is, and so does what was moved lately.

Who asks is filled in the same way from the other side: one strong consumer among many is far below its target while
none of the others is noticeably above. All of them then give a little, the furthest above first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import numpy as np

from trimtab_strategies.model.load import FloatArray
from trimtab_strategies.weights.aim import Aim
from trimtab_strategies.weights.exchange import Sides, best_exchange, best_move, nearest
from trimtab_strategies.weights.ledger import Ledger, Ranked

CRUMB = 0.25
"""Ratio of a consumer's excess; room for less than that is not used unless it fits an average task."""


def corrected_pass(ledger: Ledger, aim: Aim) -> None:
    """Relieve every overloaded consumer once, then fill every one that asks; see the module."""
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
    """One pass under way."""

    def __init__(self, ledger: Ledger, aim: Aim) -> None:
        self.ledger, self.aim = ledger, aim
        self._ranked: dict[int, Ranked] = {}

    def relieve(self, source: int) -> None:
        """Move, then swap, with one destination after the other until the source is near enough to its target."""
        steps = (self.move, self.swap) if self.aim.open_to(source) else (self.move,)
        for step in steps:
            for destination in takewhile(lambda _: self.needs_more(source), self.by_room(source)):
                step(source, destination)

    def is_above(self, consumer: int, percent: float) -> bool:
        """Whether a consumer is this percentage of its target above it."""
        target = self.aim.targets[consumer]
        excess = self.ledger.book[consumer] - target
        return excess > 0 and excess * 100 >= percent * target

    def needs_more(self, consumer: int) -> bool:
        """Whether a consumer under relief needs more of it."""
        return self.is_above(consumer, self.aim.min_change / 2)

    def by_room(self, source: int) -> Iterator[int]:
        """Other consumers below their target that may receive, the one with the most room first."""
        room = np.array(self.aim.targets) - self.ledger.book
        open_to = [c for c in np.flatnonzero(room > 0).tolist() if c != source and self.aim.open_to(c)]
        yield from sorted(open_to, key=lambda c: -room[c])

    def asking(self) -> list[int]:
        """Consumers that ask and may receive, the one with the most room first."""
        room = np.array(self.aim.targets) - self.ledger.book
        found = [c for c, asks in enumerate(self.aim.asks) if asks and self.aim.open_to(c) and self.lacks(c, 1)]
        return sorted(found, key=lambda c: -room[c])

    def lacks(self, consumer: int, part: float) -> bool:
        """Whether a consumer is this part (ratio) of the significant change below its target."""
        target = self.aim.targets[consumer]
        room = target - self.ledger.book[consumer]
        return room > 0 and room * 100 >= self.aim.min_change * part * target

    def fill(self, destination: int) -> None:
        """Take from one consumer above its target after the other, until the destination is near enough to its own."""
        excess = np.array(self.ledger.book) - self.aim.targets
        sources = sorted(np.flatnonzero(excess > 0).tolist(), key=lambda c: -excess[c])
        for source in takewhile(lambda _: self.lacks(destination, 0.5), sources):
            self.give(source, destination)

    def give(self, source: int, destination: int) -> None:
        """What brings the source to its target, or nearest to it; by swaps where the numbers allow no move."""
        heavy, sides = self.candidates(source, destination), self.aim.between(self.ledger, source, destination)
        vacant = self.vacancies(source, destination)
        if vacant > 0:
            fits = np.flatnonzero((heavy.weights <= sides.wished) & (heavy.weights > 0))[:vacant]
            fits = fits[np.cumsum(heavy.weights[fits]) <= sides.wished]
            if not len(fits):
                best = nearest(sides, heavy.weights)
                fits = np.array([] if best is None else [best], dtype=np.int64)
            self.send(heavy.tasks[fits].tolist(), source, destination)
        elif self.aim.open_to(source):
            self.swap_best(source, destination)

    def candidates(self, source: int, destination: int) -> Ranked:
        """Stable tasks of `source` that `destination` lacks, heaviest first. They only get fewer during a pass."""
        ranked = self._ranked.get(source) or self.ledger.ranked(source)
        kept = self.ledger.stable[ranked.tasks]
        self._ranked[source] = ranked if kept.all() else Ranked(ranked.tasks[kept], ranked.weights[kept])
        return self.ledger.lacking(self._ranked[source], destination)

    def vacancies(self, source: int, destination: int) -> int:
        """How many tasks may move without return."""
        ledger, aim = self.ledger, self.aim
        vacant = min(int(aim.limit * (1 + aim.spread)), aim.most) - ledger.count(destination)
        return int(vacant if aim.spread else min(vacant, ledger.count(source) - aim.limit))

    def move(self, source: int, destination: int) -> None:
        """The heaviest tasks that together fit both the excess and the room, then the one that fits the rest best."""
        vacant = self.vacancies(source, destination)
        if vacant <= 0:
            return
        heavy = self.candidates(source, destination)
        sides = self.aim.between(self.ledger, source, destination)
        if not _worthwhile(sides, heavy.weights):
            return
        wished = sides.wished
        fits = np.flatnonzero((heavy.weights <= wished) & (heavy.weights > 0))[:vacant]
        fits = fits[np.cumsum(heavy.weights[fits]) <= wished]
        self.send(heavy.tasks[fits].tolist(), source, destination)
        if len(fits) < vacant and self.needs_more(source):
            self.move_best(source, destination)

    def send(self, tasks: list[int], source: int, destination: int) -> None:
        """Move these tasks, which then stay."""
        self.ledger.stable[tasks] = False
        for task in tasks:
            self.ledger.move(task, source, destination)

    def move_best(self, source: int, destination: int) -> bool:
        """Move the single task that is of most use; whether there was one."""
        heavy = self.candidates(source, destination)
        best = best_move(self.aim.between(self.ledger, source, destination), heavy.weights)
        if best is not None:
            self.send([int(heavy.tasks[best])], source, destination)
        return best is not None

    def swap(self, source: int, destination: int) -> None:
        """The heaviest for the lightest while that fits both ends, then the pair that fits the rest best."""
        heavy, light = self.candidates(source, destination), self.candidates(destination, source)
        sides = self.aim.between(self.ledger, source, destination)
        if not _worthwhile(sides, heavy.weights):
            return
        count = _fitting(sides, heavy.weights, light.weights)
        self.exchange(heavy.tasks[:count].tolist(), light.tasks[::-1][:count].tolist(), source, destination)
        if self.needs_more(source):
            self.swap_best(source, destination)

    def swap_best(self, source: int, destination: int) -> None:
        """Swap the pair of tasks that is of most use, if there is one."""
        heavy, light = self.candidates(source, destination), self.candidates(destination, source)
        best = best_exchange(self.aim.between(self.ledger, source, destination), heavy.weights, light.weights)
        if best is not None:
            self.exchange([int(heavy.tasks[best[0]])], [int(light.tasks[best[1]])], source, destination)

    def exchange(self, tasks: list[int], returned: list[int], source: int, destination: int) -> None:
        """Swap these tasks pair by pair, which then stay."""
        self.ledger.stable[tasks + returned] = False
        for task, back in zip(tasks, returned, strict=True):
            self.ledger.swap(task, source, back, destination)

    def even(self, source: int) -> None:
        """Single tasks, for the numbers' sake, as long as the weights gain from it as well."""
        for destination in self.by_room(source):
            while self.vacancies(source, destination) > 0 and self.move_best(source, destination):
                pass


def _worthwhile(sides: Sides, heavy: FloatArray) -> bool:
    """Whether the room is a fair part of the excess, or at least fits a task: else many moves would fill in crumbs."""
    return len(heavy) > 0 and sides.room >= min(sides.excess * CRUMB, float(heavy.mean()))


def _fitting(sides: Sides, heavy: FloatArray, light: FloatArray) -> int:
    """How many swaps of the heaviest for the lightest fit both ends together."""
    count = min(len(heavy), len(light))
    change = heavy[:count] - light[::-1][:count]
    return int(np.count_nonzero((change > 0) & (np.cumsum(change) <= sides.wished)))
