"""The ledger of one balancing run: the tasks (bundles) and the running weight of each consumer (broker).

Consumers and subscriptions are numbers here. All tasks of a subscription weigh the same, and a consumer has a
subscription at most once. So a subscription's number also names its task. The *book* is a consumer's running weight.
With Hermes' phantom swaps (see `passes`) it can differ from the sum of its tasks' weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.shedding.weighted.orders import Order

NO_TASK = -1


@dataclass(frozen=True, slots=True)
class Transfer:
    """One step: `task` goes from `source` to `destination`, which gives `returned` for it (-1: nothing).

    phantom: whether the task had left the source before, so that only the returned one really moves.
    """

    task: int
    source: int
    destination: int
    returned: int = NO_TASK
    phantom: bool = False


class Ranked(NamedTuple):
    """Tasks that may be exchanged, heaviest first, and their weights."""

    tasks: IntArray
    weights: FloatArray


class Ledger:
    """See the module. weight, stable: for each subscription (m,) its ops/s, and whether it may be swapped."""

    def __init__(self, consumers: int, weight: FloatArray, stable: BoolArray, order: Order) -> None:
        self.weight, self.stable = weight, stable.copy()
        self.book = [0.0] * consumers
        self._opened: dict[int, IntArray] = {}
        self._held: list[dict[int, None]] = [{} for _ in range(consumers)]
        self.transfers: list[Transfer] = []
        self.shared = False
        """Whether several consumers may have the same subscription."""
        self.movable: BoolArray | None = None
        """The tasks (mask, m) that may move; None: all."""
        self._order = order
        self._single = weight.tolist()
        self._most = [0] * consumers
        self._tasks: dict[int, IntArray] = {}
        self._ranked: dict[int, Ranked] = {}

    def __len__(self) -> int:
        return len(self.book)

    def count(self, consumer: int) -> int:
        """How many tasks a consumer has."""
        opened = self._opened.get(consumer)
        return len(self._held[consumer] if opened is None else opened)

    def held(self, consumer: int) -> dict[int, None]:
        """A consumer's tasks in order of arrival."""
        opened = self._opened.pop(consumer, None)
        if opened is not None:  # converted on first use: most consumers of a large cluster are never touched
            self._held[consumer] = dict.fromkeys(opened.tolist())
        return self._held[consumer]

    def open(self, consumer: int, tasks: IntArray, book: float) -> None:
        """Set a consumer's initial tasks, and the sum of their weights."""
        self._opened[consumer] = tasks
        self.book[consumer] = book
        self._most[consumer] = len(tasks)

    def take(self, consumer: int, task: int) -> None:
        """Add a task to a consumer. Its book grows even if it has the task already."""
        held = self.held(consumer)
        held.setdefault(task)
        self._most[consumer] = max(self._most[consumer], len(held))
        self.book[consumer] += self._single[task]
        self._forget(consumer)

    def give(self, consumer: int, task: int) -> None:
        """Remove a task from a consumer. Its book shrinks even if it does not have the task, but not below 0."""
        self.held(consumer).pop(task, None)
        self.book[consumer] = max(self.book[consumer] - self._single[task], 0.0)
        self._forget(consumer)

    def _forget(self, consumer: int) -> None:
        self._tasks.pop(consumer, None)
        self._ranked.pop(consumer, None)

    def move(self, task: int, source: int, destination: int) -> None:
        """Move a task."""
        self.give(source, task)
        self.take(destination, task)
        self.transfers.append(Transfer(task, source, destination))

    def swap(self, task: int, source: int, returned: int, destination: int) -> None:
        """Swap two tasks, and update the books in the same order as Hermes, because the order decides the rounding."""
        phantom = task not in self.held(source)
        self.give(source, task)
        self.take(source, returned)
        self.give(destination, returned)
        self.take(destination, task)
        self.transfers.append(Transfer(task, source, destination, returned, phantom))

    def tasks(self, consumer: int) -> IntArray:
        """A consumer's tasks in iteration order."""
        if consumer not in self._tasks:
            self._tasks[consumer] = self._order.tasks(self._arrived(consumer), self._most[consumer])
        return self._tasks[consumer]

    def _arrived(self, consumer: int) -> IntArray:
        if consumer in self._opened:
            return self._opened[consumer]
        held = self._held[consumer]
        return np.fromiter(held, dtype=np.int64, count=len(held))

    def leavable(self, source: int, destination: int) -> IntArray:
        """Tasks of `source` that `destination` does not have and that may move, in iteration order."""
        tasks = self.tasks(source)
        if self.movable is not None:
            tasks = tasks[self.movable[tasks]]
        return self._without(tasks, destination)

    def ranked(self, consumer: int) -> Ranked:
        """A consumer's stable tasks, heaviest first. Equally heavy ones are in iteration order."""
        if consumer not in self._ranked:
            tasks = self.tasks(consumer)
            tasks = tasks[self.stable[tasks]]
            tasks = tasks[np.argsort(-self.weight[tasks], kind="stable")]
            self._ranked[consumer] = Ranked(tasks, self.weight[tasks])
        return self._ranked[consumer]

    def swappable(self, source: int, destination: int) -> Ranked:
        """Stable tasks of `source` that `destination` does not have, heaviest first."""
        return self.lacking(self.ranked(source), destination)

    def lacking(self, ranked: Ranked, destination: int) -> Ranked:
        """Those of `ranked` that `destination` does not have."""
        if not self.shared:
            return ranked
        tasks = self._without(ranked.tasks, destination)
        return Ranked(tasks, self.weight[tasks])

    def _without(self, tasks: IntArray, destination: int) -> IntArray:
        if not self.shared:
            return tasks
        held = self.held(destination)
        return np.array([task for task in tasks.tolist() if task not in held], dtype=np.int64)
