"""Translates bundles to the terms of `nodes`, and back: bundle weights, their order, and transfers as unloads.

In Hermes' words a bundle is a *task*, and a broker is a *consumer*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property

import numpy as np

from trimtab_strategies import java_compat
from trimtab_strategies.model import RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, BrokerTraits, ClusterLoad, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.protocols import Unload
from trimtab_strategies.shedding.weighted.ledger import Transfer
from trimtab_strategies.shedding.weighted.orders import JavaOrder, SortedOrder, subscription_hashes


class Measure(StrEnum):
    """The unit of a bundle's weight."""

    THROUGHPUT = "Throughput"
    MESSAGE_RATE = "MessageRate"


class Weighing(StrEnum):
    """The average that a bundle's weight is taken from."""

    SHORT = "Short"
    LONG = "Long"


COLUMNS = {Measure.THROUGHPUT: (THROUGHPUT_IN, THROUGHPUT_OUT), Measure.MESSAGE_RATE: (RATE_IN, RATE_OUT)}
"""Columns of traffic that make up a weight."""


def bundle_weights(cluster: ClusterLoad, measure: Measure, weighing: Weighing) -> FloatArray:
    """Weight of each bundle (m,), bytes/s or msg/s in and out; NaN where it is unknown or invalid."""
    traffic = cluster.bundles.short if weighing is Weighing.SHORT else cluster.bundles.long
    into, out = COLUMNS[measure]
    with np.errstate(over="ignore", invalid="ignore"):
        weight = traffic[:, into] + traffic[:, out]
        return np.where((weight >= 0) & np.isfinite(weight), weight, np.nan)


def fixed_weights(traits: Mapping[str, BrokerTraits]) -> dict[str, float]:
    """The weights that users fixed, by broker name. 1 is the average of the other brokers."""
    return {name: of.weight for name, of in traits.items() if 0 <= of.weight < np.inf}


class SortedBundles(SortedOrder):
    """Bundles ascending by name. With `ties_only` they are sorted (which is slow) only if some have the same weight."""

    def __init__(self, names: Sequence[str], weight: FloatArray, *, ties_only: bool) -> None:
        self._names, self._weight, self._ties_only = names, weight, ties_only

    def tasks(self, arrived: IntArray, most: int) -> IntArray:
        """The tasks in `arrived`, ascending by name; in the order of rows if `ties_only` and no two weigh the same."""
        rows = super().tasks(arrived, most)
        if self._ties_only and len(np.unique(self._weight[rows])) == len(rows):
            return rows
        return by_name(rows, self._names)


class JavaBundles(JavaOrder):
    """The order of Hermes' hash sets. There, ``tenant/namespace/range`` is named ``tenant.namespace$range``."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self._names = names

    @cached_property
    def _of_tasks(self) -> IntArray:
        called = (name.replace("/", ".", 1).replace("/", "$", 1) for name in self._names)
        return 31 + subscription_hashes(list(called))

    def tasks(self, arrived: IntArray, most: int) -> IntArray:
        """The tasks in `arrived`, in the order in which a Java set returns them."""
        order: IntArray = arrived[java_compat.hash_order(self._of_tasks[arrived], java_compat.grown_table(most))]
        return order


def by_name(rows: IntArray, names: Sequence[str]) -> IntArray:
    """The rows, ascending by their names."""
    return np.array(sorted(rows.tolist(), key=names.__getitem__), dtype=np.int64)


def unloads_of(transfers: Iterable[Transfer], rows: IntArray) -> tuple[Unload, ...]:
    """The net effect of `transfers`, as unloads with destinations. rows: the row of each consumer's broker.

    A swap whose bundles did not move again becomes one unload with a returned bundle. Every other bundle whose owner
    changed moves to its final owner. A bundle that moved back is not moved.
    """
    steps = list(transfers)
    net = _net(steps)
    found: list[Unload] = []
    moves: dict[tuple[int, int], list[int]] = {}
    for step in steps:
        there, back = (step.source, step.destination), (step.destination, step.source)
        if step.returned >= 0 and net.get(step.task) == there and net.get(step.returned) == back:
            del net[step.task], net[step.returned]
            found.append(_unload(rows, there, [step.task], [step.returned]))
    for task, way in net.items():
        moves.setdefault(way, []).append(task)
    return (*(_unload(rows, way, tasks, []) for way, tasks in moves.items()), *found)


def _net(steps: Iterable[Transfer]) -> dict[int, tuple[int, int]]:
    """Task that moved -> the consumer that had it first, and the consumer that has it now."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step in steps:
        if not step.phantom:
            first.setdefault(step.task, step.source)
            last[step.task] = step.destination
        if step.returned >= 0:
            first.setdefault(step.returned, step.destination)
            last[step.returned] = step.source
    return {task: (start, last[task]) for task, start in first.items() if start != last[task]}


def _unload(rows: IntArray, way: tuple[int, int], tasks: list[int], returned: list[int]) -> Unload:
    source, destination = (int(rows[end]) for end in way)
    leaves, returns = (np.array(of, dtype=np.int64) for of in (tasks, returned))
    return Unload(source, leaves, Reason.OVERLOADED, destination, returns)


def cooled(cluster: ClusterLoad, seconds: float) -> BoolArray:
    """Which bundles (m,) were not moved within the last `seconds`."""
    moved = cluster.bundles.last_unload
    cooled_down: BoolArray = np.isnan(moved) | (cluster.now > moved + seconds)
    return cooled_down
