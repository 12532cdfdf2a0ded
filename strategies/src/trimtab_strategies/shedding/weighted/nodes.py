"""Hermes' terms: consumers carry tasks of subscriptions, and each subscription needs k consumers.

A *consumer* is a worker, named by its id. A *subscription* is a unit of demand, named ``group.topic$name``. A *task* is
one placement of a subscription on a consumer. A consumer has a subscription at most once. Weights are operations per
second, cpu is a ratio (1 = every cpu busy), times are whole milliseconds since the epoch.

Profiles say how heavy each subscription is, averaged over time, and when it was last moved.

Idea. Reports vary, but weights should be steady. So a weight is an average of the reports that decays with elapsed
time, not with the number of reports. Formula. weight' = r * a + weight * (1 - a) with a = 1 - exp(-elapsed / window)
and r the largest report of any active consumer. A subscription that no consumer reports is removed. A subscription that
appears later starts at 0 and grows. Only in an empty store does the first report count in full.

Source. Hermes 2.21.0, profiles of the weighted balancer, with equal results to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

NEVER = -math.inf
"""The instant (ms) of an event that has not happened."""


UNDEFINED = -1.0
"""The cpu utilisation that stands for unknown. Only this exact number does: -0.5 would count as measured."""


class InvalidWorkError(ValueError):
    """Work that can't be balanced as given. The message names the value, its bound, and where it is."""


@dataclass(frozen=True, slots=True)
class Profile:
    """A subscription: the weight of each of its tasks (ops/s), and when it was last moved (ms)."""

    weight: float = 0.0
    last_rebalance: float = NEVER

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise InvalidWorkError(f"a weight is {self.weight}: it must be a number of operations/s, 0 or more")


UNKNOWN_PROFILE = Profile()
"""The profile of a subscription without a report: no weight, never moved."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """A consumer's report: its cpu utilisation (ratio, -1 if unknown) and the operations/s of each subscription."""

    cpu: float = UNDEFINED
    ops: Mapping[str, float] = field(default_factory=dict)

    @property
    def defined(self) -> bool:
        """Whether the cpu utilisation is known."""
        return self.cpu != UNDEFINED


UNKNOWN_LOAD = NodeLoad()
"""Load of a consumer without a report."""


@dataclass(frozen=True, slots=True)
class Constraints:
    """How many consumers each subscription gets, and how many subscriptions a consumer may have (`most`).

    active: number of consumers; no subscription gets more. per_subscription: the default for a subscription.
    of_subscription, of_topic: this number by name. A subscription's own number takes precedence over its topic's.
    Numbers below 1 mean `per_subscription`.
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
class Workload:
    """The input of one balancing run.

    subscriptions, consumers: names of the active ones, in the given order.
    holders: subscription -> consumers that have it now; may contain inactive ones and unknown subscriptions.
    profiles: subscription -> its profile. loads: consumer -> its load. A missing one is `UNKNOWN_PROFILE` or
    `UNKNOWN_LOAD`.

    Raises `InvalidWorkError` if a name is listed twice.
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
        """Profile of a subscription."""
        return self.profiles.get(subscription, UNKNOWN_PROFILE)

    def load(self, consumer: str) -> NodeLoad:
        """Report of a consumer."""
        return self.loads.get(consumer, UNKNOWN_LOAD)


@dataclass(frozen=True, slots=True)
class Profiles:
    """Profiles by subscription, and when they were last updated (ms)."""

    of: Mapping[str, Profile] = field(default_factory=dict)
    updated: float = NEVER


NO_PROFILES = Profiles()
"""An empty store."""


def smoothing(elapsed: float, window: float) -> float:
    """Share (0-1) of a new value in an average over `window` ms, `elapsed` ms after the last one (negative: 0).

    Raises `InvalidWorkError` when the window is not above 0.
    """
    if not window > 0:
        raise InvalidWorkError(f"a window is {window} ms: it must be above 0")
    return 1 - math.exp(-max(elapsed, 0) / window)


def blended(before: float, value: float, alpha: float) -> float:
    """One step of the average: `alpha` (0-1) of the new value, the rest of the previous average."""
    return value * alpha + before * (1 - alpha)


def averages(samples: Iterable[tuple[float, float]], window: float) -> list[float]:
    """The average after each of `samples` (instant in ms, value). The first average is the first value."""
    found: list[float] = []
    last = NEVER
    for now, value in samples:
        found.append(blended(found[-1], value, smoothing(_since(last, now), window)) if found else value)
        last = now
    return found


def _since(last: float, now: float) -> float:
    return math.inf if last == NEVER else now - last


def rebuilt(before: Profiles, loads: Mapping[str, NodeLoad], now: float, window: float) -> Profiles:
    """The profiles after the reports (`loads`) of the active consumers; `window` is in ms."""
    alpha = smoothing(_since(before.updated, now), window)
    found = dict[str, Profile]()
    for name, report in largest_reports(loads).items():
        known = before.of.get(name, UNKNOWN_PROFILE)
        found[name] = Profile(blended(known.weight, report, alpha), known.last_rebalance)
    return Profiles(found, now)


def largest_reports(loads: Mapping[str, NodeLoad]) -> dict[str, float]:
    """By subscription the largest operations/s that any consumer reports, at least 0."""
    found: dict[str, float] = {}
    for load in loads.values():
        for name, ops in load.ops.items():
            found[name] = max(found.get(name, 0.0), ops)
    return found


def stamped(profiles: Profiles, moved: Iterable[str], now: float) -> Profiles:
    """The profiles with `now` (ms) as last rebalance of the subscriptions that moved. No profile is added."""
    stamps = {name: Profile(profiles.of[name].weight, now) for name in moved if name in profiles.of}
    return Profiles({**profiles.of, **stamps}, profiles.updated)
