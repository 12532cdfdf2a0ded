"""Caps: how many moves are left in a decision, in all and by broker.

One count for the whole decision: a child of a split that leaves its parent's owner is a move like any other, else
dividing and shedding together would send a broker twice what it may be sent.
"""

from __future__ import annotations

import numpy as np

from trimtab_strategies.model.load import IntArray


class Caps:
    """What is left of one decision's moves; brokers are rows."""

    def __init__(self, brokers: int, *, budget: int, per_broker: int) -> None:
        """Allow `budget` moves among so many brokers, at most `per_broker` from, and to, each of them."""
        self._budget, self._per_broker = budget, per_broker
        self._sent, self._received = np.zeros(brokers, dtype=np.int64), np.zeros(brokers, dtype=np.int64)

    @property
    def full(self) -> IntArray:
        """The brokers that take nothing more."""
        return np.flatnonzero(self._received >= self._per_broker)

    def allow(self, count: int = 1) -> bool:
        """Whether so many more moves may be made at all."""
        return count <= self._budget

    def may_send(self, broker: int, count: int = 1) -> bool:
        """Whether so many more may leave a broker."""
        return bool(self._sent[broker] + count <= self._per_broker)

    def may_receive(self, broker: int, count: int = 1) -> bool:
        """Whether a broker takes so many more."""
        return bool(self._received[broker] + count <= self._per_broker)

    def count(self, source: int, destination: int) -> None:
        """One move more."""
        self._budget -= 1
        self._sent[source] += 1
        self._received[destination] += 1
