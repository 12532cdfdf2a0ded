"""The two passes that bring consumers towards their targets: the original's, and one without its defects.

Both go through the overloaded consumers once, the furthest above its target first, and relieve each by moving tasks out
(to even the counts) and by swapping heavy tasks for light ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_strategies.weights.exchange import (
    Sides,
    acceptable,
    best_exchange,
    best_move,
    first_acceptable,
    hopeless,
)
from trimtab_strategies.weights.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Aim:
    """What a pass brings about. targets: per consumer (n,), ops/s. limit: tasks that each should have at most.

    min_change: percent of a consumer's weight that a swap must take off it. most: tasks that each may have at most;
    the original does not look at it here. receives: per consumer (n,) whether it may get tasks.
    """

    targets: Sequence[float]
    limit: int
    min_change: float
    most: float = np.inf
    receives: Sequence[bool] = ()


def overloaded(ledger: Ledger, aim: Aim) -> list[int]:
    """Consumers above their target or with too many tasks, the furthest above first; as they are now."""
    found = [c for c in range(len(ledger)) if ledger.book[c] > aim.targets[c] or ledger.count(c) > aim.limit]
    return sorted(found, key=lambda c: -max(ledger.book[c] - aim.targets[c], 0.0))


def sides(ledger: Ledger, aim: Aim, source: int, destination: int) -> Sides:
    """Where two consumers stand."""
    book, targets = ledger.book, aim.targets
    return Sides(book[source], targets[source], book[destination], targets[destination], aim.min_change)


def original_pass(ledger: Ledger, aim: Aim) -> None:
    """As Hermes does it, phantom swaps included."""
    for source in overloaded(ledger, aim):
        for destination in range(len(ledger)):
            if destination == source:
                continue
            _move_out(ledger, aim, source, destination)
            _swap(ledger, aim, source, destination)
            if _balanced(ledger, aim, source):
                break


def _balanced(ledger: Ledger, aim: Aim, consumer: int) -> bool:
    """Exactly, to the last bit."""
    return ledger.book[consumer] == aim.targets[consumer] and ledger.count(consumer) <= aim.limit


def _may_move_out(ledger: Ledger, aim: Aim, source: int, destination: int) -> bool:
    return ledger.count(source) >= aim.limit and ledger.count(destination) < aim.limit


def _move_out(ledger: Ledger, aim: Aim, source: int, destination: int) -> None:
    """Tasks in iteration order, each that fits below the destination's target, while the counts ask for it."""
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
    """The first acceptable pairs, heavy tasks outside, light ones inside.

    After a pair the walk goes on with the same heavy task, which has left already: the phantom swap. The original asks
    after every pair, accepted or not, whether the source is balanced; as a refused pair changes nothing, that matters
    only for the very first one.
    """
    if hopeless(sides(ledger, aim, source, destination), ledger.ranked(source).weights, _weights(ledger, destination)):
        return
    heavy, light = ledger.swappable(source, destination), ledger.swappable(destination, source)
    back, back_weights = light.tasks, light.weights
    if not len(heavy.tasks) or not len(back):
        return
    row = column = 0
    now = sides(ledger, aim, source, destination)
    if _balanced(ledger, aim, source) and not acceptable(now, heavy.weights[:1], back_weights[:1])[0]:
        return
    while len(back):
        now = sides(ledger, aim, source, destination)
        pair = first_acceptable(now, heavy.weights, back_weights, row, column)
        if pair is None:
            return
        row, column = pair
        ledger.swap(int(heavy.tasks[row]), source, int(back[column]), destination)
        back, back_weights = np.delete(back, column), np.delete(back_weights, column)
        if _balanced(ledger, aim, source):
            return


def _weights(ledger: Ledger, consumer: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return ledger.ranked(consumer).weights


def corrected_pass(ledger: Ledger, aim: Aim) -> None:
    """Without the original's defects: every step takes something from the squared distances to the targets.

    Destinations come by room, the largest first. A consumer with too many tasks gives away the one that fits best;
    swaps are the best pair of all, and only while the source is above its target. What has changed hands stays where it
    is, and so does what was moved lately.
    """
    for source in overloaded(ledger, aim):
        for destination in _by_room(ledger, aim, source):
            while _moved_best(ledger, aim, source, destination):
                pass
        for destination in _by_room(ledger, aim, source):
            while _swapped_best(ledger, aim, source, destination):
                pass


def _by_room(ledger: Ledger, aim: Aim, source: int) -> Iterator[int]:
    """Other consumers below their target that may receive, the one with the most room first."""
    room = {c: aim.targets[c] - ledger.book[c] for c in range(len(ledger)) if c != source}
    receiving = [c for c, left in room.items() if left > 0 and (not aim.receives or aim.receives[c])]
    yield from sorted(receiving, key=lambda c: -room[c])


def _moved_best(ledger: Ledger, aim: Aim, source: int, destination: int) -> bool:
    room = ledger.count(destination) < min(aim.limit, aim.most)
    if not room or ledger.count(source) <= aim.limit:
        return False
    heavy = ledger.swappable(source, destination)
    best = best_move(sides(ledger, aim, source, destination), heavy.weights)
    if best is None:
        return False
    task = int(heavy.tasks[best])
    ledger.stable[task] = False
    ledger.move(task, source, destination)
    return True


def _swapped_best(ledger: Ledger, aim: Aim, source: int, destination: int) -> bool:
    now = sides(ledger, aim, source, destination)
    if now.excess <= 0 or now.room <= 0 or now.room < now.least:
        return False
    heavy, light = ledger.swappable(source, destination), ledger.swappable(destination, source)
    pair = best_exchange(now, heavy.weights, light.weights)
    if pair is None:
        return False
    task, returned = int(heavy.tasks[pair[0]]), int(light.tasks[pair[1]])
    ledger.stable[[task, returned]] = False
    ledger.swap(task, source, returned, destination)
    return True
