"""The selective balancer: counts only. Every consumer gets as many tasks as the others, whatever they weigh.

Idea. Keep what is placed, take away what is too much, give what is missing to the consumer with the fewest tasks,
the subscription with the fewest placements first; then let the fullest give to the emptiest while they differ by more
than one. When it helps. Tasks that are all alike. When it hurts. Everywhere else: weights play no role.

Source. Hermes 2.21.0, its selective work balancer (the default there). It leaves every tie to hash maps; here the first
by name is taken, so counts are equal to the original's where they are settled, and holders may differ.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_strategies.shedding.weighted.nodes import Workload


@dataclass(frozen=True, slots=True)
class Selection:
    """assignments: by subscription its consumers, ascending; those without any are left out. missing: placements that
    were wanted and not made. counts: tasks of each consumer.
    """

    assignments: Mapping[str, tuple[str, ...]]
    missing: int
    counts: Mapping[str, int]


def selective(work: Workload) -> Selection:
    """One balance of `work` by counts; profiles and loads are not looked at."""
    selecting = _Selecting(work)
    selecting.place()
    selecting.equalize()
    return selecting.result()


class _Selecting:
    """One balance under way: by consumer its subscriptions, by subscription its consumers."""

    def __init__(self, work: Workload) -> None:
        self.most = work.constraints.most
        self.wanted = {name: work.constraints.wanted(name) for name in sorted(work.subscriptions)}
        active = set(work.consumers)
        self.holders: dict[str, set[str]] = {}
        for name, wanted in self.wanted.items():
            kept = sorted({holder for holder in work.holders.get(name, ()) if holder in active})
            self.holders[name] = set(kept[:wanted])
        self.held: dict[str, set[str]] = {name: set() for name in sorted(work.consumers)}
        for name, holders in self.holders.items():
            for holder in holders:
                self.held[holder].add(name)

    def place(self) -> None:
        """Subscriptions with the fewest placements first, each to the consumer with the fewest tasks."""
        queue = [(len(self.holders[name]), name) for name, wanted in self.wanted.items()]
        heapq.heapify(queue)
        while queue:
            placed, name = heapq.heappop(queue)
            if placed >= self.wanted[name]:
                continue
            able = [c for c, held in self.held.items() if name not in held and len(held) < self.most]
            if able:
                self.give(name, min(able, key=lambda c: len(self.held[c])))
            if able or self.make_room(name):
                heapq.heappush(queue, (placed + 1, name))

    def make_room(self, name: str) -> bool:
        """Place a subscription where there is no room, by letting others leave for a consumer that has it already."""
        lacking = [c for c, held in self.held.items() if name not in held]
        full = min(lacking, key=lambda c: len(self.held[c]), default=None)
        if full is None:
            return False
        while len(self.held[full]) >= self.most:
            roomy = next((c for c, held in self.held.items() if len(held) < self.most), None)
            if roomy is None:
                return False
            self.transfer(min(self.held[full] - self.held[roomy]), full, roomy)
        self.give(name, full)
        return True

    def transfer(self, name: str, source: str, destination: str) -> None:
        """One placement changes hands."""
        self.held[source].remove(name)
        self.holders[name].remove(source)
        self.give(name, destination)

    def give(self, name: str, consumer: str) -> None:
        """One more placement."""
        self.holders[name].add(consumer)
        self.held[consumer].add(name)

    def equalize(self) -> None:
        """Transfer from the fullest to the emptiest until they differ by one."""
        while len(self.wanted) > 1 and self.held:
            fullest = max(self.held, key=lambda c: len(self.held[c]))
            emptiest = min(self.held, key=lambda c: len(self.held[c]))
            if len(self.held[fullest]) - len(self.held[emptiest]) <= 1:
                return
            self.transfer(min(self.held[fullest] - self.held[emptiest]), fullest, emptiest)

    def result(self) -> Selection:
        """What came of it."""
        assignments = {name: tuple(sorted(holders)) for name, holders in self.holders.items() if holders}
        missing = sum(wanted - len(self.holders[name]) for name, wanted in self.wanted.items())
        return Selection(assignments, missing, {name: len(held) for name, held in self.held.items()})
