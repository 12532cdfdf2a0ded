"""Hermes' nouns: consumers carry tasks of subscriptions, each of which wants to be on k of them.

A *consumer* is a worker, named by its id. A *subscription* is a unit of demand, named ``group.topic$name``. A *task* is
one placement of a subscription on a consumer; a consumer has a subscription at most once. Weights are operations per
second, cpu is a ratio (1 = every cpu busy), times are whole milliseconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

NEVER = -math.inf
"""The instant (ms) of what has not happened yet."""

UNDEFINED = -1.0
"""The cpu utilisation that stands for "unknown". Only this very number does; -0.5 would count as measured."""


class InvalidWorkError(ValueError):
    """Work that can't be balanced as it is given; the text names the value, what it must be, and where it stands."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a subscription: the weight of each of its tasks (ops/s), and when it was last moved (ms)."""

    weight: float = 0.0
    last_rebalance: float = NEVER

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise InvalidWorkError(f"a weight is {self.weight}: it must be a number of operations/s from 0 on")


UNKNOWN_PROFILE = Profile()
"""Of a subscription that nobody has reported: no weight, never moved."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """What a consumer reports: its cpu utilisation (ratio, -1 unknown) and the operations/s of each subscription."""

    cpu: float = UNDEFINED
    ops: Mapping[str, float] = field(default_factory=dict)

    @property
    def defined(self) -> bool:
        """Whether the cpu utilisation is known."""
        return self.cpu != UNDEFINED


def operations_per_second(count: int, elapsed: int) -> float:
    """The rate of `count` operations in `elapsed` ms as a consumer reports it: per whole second, and at least one."""
    return count / max(elapsed // 1000, 1)


UNKNOWN_LOAD = NodeLoad()
"""Of a consumer that has not reported."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """How many consumers each subscription gets, and how many subscriptions a consumer may have.

    active: consumers that there are; nobody gets more than that. per_subscription: k where nothing else is said.
    of_subscription, of_topic: k by name, the former first. A number below 1 means `per_subscription`, so one that is
    set for a subscription hides its topic's.
    """

    active: int
    per_subscription: int = 2
    most: int = 200
    of_subscription: Mapping[str, int] = field(default_factory=dict)
    of_topic: Mapping[str, int] = field(default_factory=dict)

    def wanted(self, subscription: str) -> int:
        """Number of consumers that `subscription` gets."""
        own = self.of_subscription.get(subscription)
        if own is None:
            own = self.of_topic.get(subscription.partition("$")[0], 0) if self.of_topic else 0
        return min(own if own > 0 else self.per_subscription, self.active)


@dataclass(frozen=True)
class Work:
    """Everything that one balance looks at.

    subscriptions, consumers: names of the active ones, in the order in which they were handed over.
    holders: by subscription the consumers that have it now; inactive ones and unknown subscriptions may be among them.
    profiles, loads: by name; who is missing is `UNKNOWN_PROFILE` or `UNKNOWN_LOAD`.

    Raises `InvalidWorkError` when a name comes twice.
    """

    now: float
    subscriptions: Sequence[str]
    consumers: Sequence[str]
    constraints: Constraints
    holders: Mapping[str, Sequence[str]] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    loads: Mapping[str, NodeLoad] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for kind, names in (("subscription", self.subscriptions), ("consumer", self.consumers)):
            if len(set(names)) != len(names):
                twice = next(name for k, name in enumerate(names) if name in names[:k])
                raise InvalidWorkError(f"{kind} {twice!r} is listed twice: name each once")

    def profile(self, subscription: str) -> Profile:
        """What is known of a subscription."""
        return self.profiles.get(subscription, UNKNOWN_PROFILE)

    def load(self, consumer: str) -> NodeLoad:
        """What a consumer reports."""
        return self.loads.get(consumer, UNKNOWN_LOAD)
