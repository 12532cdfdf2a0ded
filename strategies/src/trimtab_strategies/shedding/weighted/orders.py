"""The two orders of consumers and tasks, and of the terms of sums.

`Java`: the order in which the hash maps and sets of the original, Hermes' balancer in Java, are iterated. There, this
order decides between consumers or tasks of equal weight. Only with this order does Trimtab decide exactly as Hermes
does. `Sorted`: consumers ascending by id, subscriptions ascending by name, ties in weight by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import numpy as np

from trimtab_strategies import java_compat
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.shedding.weighted.nodes import InvalidWorkError


class Iteration(StrEnum):
    """The order in which a balancer visits consumers and tasks."""

    JAVA = "Java"
    SORTED = "Sorted"


class Order(Protocol):
    """One of the two orders. A subscription's number is its position in the result of `subscriptions`."""

    def consumers(self, names: Collection[str]) -> list[str]:
        """Ids of consumers in iteration order. names: in the order of insertion."""

    def subscriptions(self, names: Sequence[str]) -> list[str]:
        """Subscriptions in iteration order. names: in the order in which they were passed."""

    def holders(self, subscription: str, consumers: Sequence[str]) -> list[str]:
        """The consumers that have a subscription. Those that come first keep it."""

    def tasks(self, arrived: IntArray, most: int) -> IntArray:
        """A consumer's tasks (numbers) in iteration order.

        arrived: the same tasks, in order of arrival. most: the largest number of tasks that it ever held at a time.
        """

    def queue(self, weights: FloatArray) -> IntArray:
        """Positions of unassigned tasks in the order in which they are placed. weights: their weights."""

    def reported(self, ops: Mapping[str, float]) -> list[float]:
        """The values of a report in the order in which they are added up. ops: subscription -> value."""


class SortedOrder:
    """Everything ascending by name."""

    def consumers(self, names: Collection[str]) -> list[str]:
        """Ascending."""
        return sorted(names)

    def subscriptions(self, names: Sequence[str]) -> list[str]:
        """Ascending."""
        return sorted(names)

    def holders(self, subscription: str, consumers: Sequence[str]) -> list[str]:  # noqa: ARG002 - the same for all
        """Ascending."""
        return sorted(set(consumers))

    def tasks(self, arrived: IntArray, most: int) -> IntArray:  # noqa: ARG002 - history does not matter
        """Ascending by number, which is by name."""
        return np.sort(arrived)

    def queue(self, weights: FloatArray) -> IntArray:
        """Heaviest first, then by name."""
        return np.argsort(-weights, kind="stable")

    def reported(self, ops: Mapping[str, float]) -> list[float]:
        """Ascending by name."""
        return [ops[name] for name in sorted(ops)]


class JavaOrder:
    """The order of Java's hash maps, hash sets and priority queues."""

    def __init__(self) -> None:
        self._spread = np.empty(0, dtype=np.uint32)

    def consumers(self, names: Collection[str]) -> list[str]:
        """The order of a hash map with the ids as keys."""
        return java_compat.hash_map_order(names)

    def subscriptions(self, names: Sequence[str]) -> list[str]:
        """The given order. This also sets the hash codes of the tasks."""
        self._spread = java_compat.spread(31 + subscription_hashes(names))
        return list(names)

    def holders(self, subscription: str, consumers: Sequence[str]) -> list[str]:
        """The order of a hash set of ids, filled in the order of a copied set of (consumer, subscription) pairs."""
        distinct = list(dict.fromkeys(consumers))
        own = int(subscription_hashes([subscription])[0])
        pairs = 31 * (31 + java_compat.string_hashes(distinct)) + own
        first = java_compat.hash_order(pairs, java_compat.copied_set_table(len(distinct)))
        return java_compat.hash_map_order([distinct[k] for k in first])

    def tasks(self, arrived: IntArray, most: int) -> IntArray:
        """The order of a set of tasks."""
        slots = self._spread[arrived] & np.uint32(java_compat.grown_table(most) - 1)
        order: IntArray = arrived[np.argsort(slots, kind="stable")]
        return order

    def queue(self, weights: FloatArray) -> IntArray:
        """The order of a heap, heaviest first."""
        return java_compat.poll_order(weights)

    def reported(self, ops: Mapping[str, float]) -> list[float]:
        """The order of a hash map with the subscriptions as keys."""
        names = list(ops)
        return [ops[names[k]] for k in java_compat.hash_order(subscription_hashes(names)).tolist()]


def order_of(iteration: Iteration) -> Order:
    """A new order of that kind."""
    return JavaOrder() if iteration is Iteration.JAVA else SortedOrder()


def subscription_hashes(names: Sequence[str]) -> IntArray:
    """Hermes' hash codes of subscriptions ``group.topic$name``. Raises `InvalidWorkError` for other forms."""
    parts = [_parts(name) for name in names]
    group, topic, own = (java_compat.string_hashes([part[k] for part in parts]) for k in range(3))
    of_topic = 31 * (31 + topic) + group
    hashes = 31 * (31 + own) + of_topic
    return (hashes & 0xFFFFFFFF).astype(np.uint32).view(np.int32).astype(np.int64)


def _parts(name: str) -> tuple[str, str, str]:
    topic, dollar, own = name.partition("$")
    group, dot, simple = topic.rpartition(".")
    if not dollar or not dot:
        raise InvalidWorkError(f"subscription {name!r} has no place in a hash map: name it group.topic$name")
    return group, simple, own
