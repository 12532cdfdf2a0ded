"""The story that every balancer of `side_by_side.py` gets: who serves what at first, what is sent, and what changes.

Three brokers, 36 topics in 24 bundles, Zipf's rates. The 14 bundles with the most messages are on the first broker.
Half-way the hot topics are others: those of the broker that then serves the most topics, whoever that has become, so
that all balancers meet a change that is equally hard on the placement they chose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

NAMESPACE = "contest/story"
BROKERS = 3
BUNDLES = 24
TOPICS = 36
CROWDED = 14
"""Bundles that the first broker serves at first; the others share the rest."""

RATE = 600.0
"""Messages/s of all topics together."""

SIZE = 512
"""Bytes of a message."""


class Topic(NamedTuple):
    """A topic's name, and the row of its bundle in the order of the ranges."""

    name: str
    bundle: int


def rates(topics: int = TOPICS, total: float = RATE) -> list[float]:
    """Messages/s by rank: the k-th sends a k-th of what the first does (Zipf), `total` together."""
    shares = [1 / (rank + 1) for rank in range(topics)]
    return [total * share / sum(shares) for share in shares]


def bundle_of(topic: int) -> int:
    """Row of the bundle of the `topic`-th topic: one each, and a second one for the first ones."""
    return topic % BUNDLES


def first_owner(bundle: int) -> int:
    """Row of the broker that serves a bundle at first; the first rows are the bundles with the most messages."""
    return 0 if bundle < CROWDED else 1 + bundle % 2


def shifted(topics: Sequence[Topic], owners: Mapping[int, int]) -> dict[str, float]:
    """Messages/s of each topic after the change. owners: row of the broker by row of the bundle."""
    served = [owners.get(topic.bundle, -1) for topic in topics]
    crowded = max(range(BROKERS), key=lambda broker: (served.count(broker), -broker))
    order = sorted(range(len(topics)), key=lambda k: (served[k] != crowded, k))
    return {topics[k].name: rate for k, rate in zip(order, rates(len(topics)), strict=True)}
