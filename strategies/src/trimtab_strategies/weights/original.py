"""The pass of the original: Hermes' own way to bring consumers towards their targets, phantom swaps included.

It goes through the overloaded consumers once, the furthest above its target first, and through all others for each:
tasks move out to even the numbers, then heavy ones are swapped for light ones. A swap must take the significant change
off the overloaded one.
"""

from __future__ import annotations

import numpy as np

from trimtab_strategies.model.load import FloatArray
from trimtab_strategies.weights.aim import Aim
from trimtab_strategies.weights.exchange import acceptable, first_acceptable, hopeless
from trimtab_strategies.weights.ledger import Ledger


def original_pass(ledger: Ledger, aim: Aim) -> None:
    """As Hermes does it, phantom swaps included."""
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
    if hopeless(aim.between(ledger, source, destination), ledger.ranked(source).weights, _weights(ledger, destination)):
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


def _weights(ledger: Ledger, consumer: int) -> FloatArray:
    return ledger.ranked(consumer).weights
