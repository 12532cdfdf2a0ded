"""What a pass over the consumers is to bring about, and who is in need of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_strategies.weights.exchange import Sides
from trimtab_strategies.weights.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Aim:
    """See the module.

    targets:    weight that each consumer should carry (n,), ops/s.
    limit:      number of tasks that each should have at most, to keep the numbers even.
    min_change: percent; see the passes.
    most:       number of tasks that none may exceed.
    spread:     ratio by which a consumer may exceed `limit` to take weight off another one. With 0 the numbers are kept
                even for their own sake, too. The original knows no such thing.
    receives:   which consumers may get tasks (n,); empty: all.
    gives:      which consumers are to be relieved (n,); empty: all. The original knows no such thing.
    asks:       which consumers are to be filled by whoever is above its target, be it only a little (n,); empty: none.
                The original knows no such thing.
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
        """Where two consumers stand."""
        book, targets = ledger.book, self.targets
        return Sides(book[source], targets[source], book[destination], targets[destination], self.min_change)

    def overloaded(self, ledger: Ledger) -> list[int]:
        """Consumers above their target or with too many tasks, the furthest above first; as they are now."""
        found = [c for c in range(len(ledger)) if ledger.book[c] > self.targets[c] or ledger.count(c) > self.limit]
        return sorted(found, key=lambda c: -max(ledger.book[c] - self.targets[c], 0.0))
