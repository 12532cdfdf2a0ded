"""The load of simulated bundles: what a bundle costs, which topics it has, and how a broker's counters advance.

A broker uses the cores of an idle broker plus those of its bundles, divided by its strength, up to its limit. Memory is
a base plus its topics and half a second of traffic. Loads vary by a few percent, each bundle with its own period.

A bundle has a mean load and a number of topics on the hash ring. The name of the bundle seeds the draw of its topics,
so every process draws the same ones. The loads of a bundle's parts add up to its load, however it is split.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from trimtab_strategies.hash_ring import parse_bundle

_SWING = 0.03  # ratio by which a bundle's load varies around its mean

_BASE_MEMORY = 1.5 * (1 << 30)

_MEMORY_PER_TOPIC = 2 * (1 << 20)

_BUFFERED_SECONDS = 0.5

_OVERHEAD = 1.05  # ratio of bytes on the wire to payload


@dataclass(frozen=True, slots=True)
class BrokerShape:
    """A broker's hardware. cores, memory (bytes): its limits. strength: work of one core, in ordinary cores."""

    name: str
    cores: float
    memory: float
    strength: float = 1.0
    idle: float = 0.08

    def __post_init__(self) -> None:
        if min(self.cores, self.memory, self.strength) <= 0:
            raise ValueError(f"{self.name}: cores, memory and strength must be above 0")


@dataclass(frozen=True, slots=True)
class BundleLoad:
    """Mean load of a bundle: msg/s, bytes/s, counts, and the cores it costs on a broker of strength 1.

    period (seconds) and phase (ratio 0-1) describe how it varies around the mean.
    """

    name: str
    rate_in: float
    rate_out: float
    throughput_in: float
    throughput_out: float
    topics: int
    producers: int
    consumers: int
    cores: float
    period: float
    phase: float

    def swing(self, at: float) -> float:
        """Factor on the means at `at` (epoch seconds)."""
        return 1 + _SWING * math.sin(2 * math.pi * (at / self.period + self.phase))


@dataclass(frozen=True, slots=True)
class TrafficRates:
    """msg/s and bytes/s, in and out, and the cores that they cost."""

    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    cores: float = 0.0

    def __add__(self, other: TrafficRates) -> TrafficRates:
        return TrafficRates(
            self.rate_in + other.rate_in,
            self.rate_out + other.rate_out,
            self.throughput_in + other.throughput_in,
            self.throughput_out + other.throughput_out,
            self.cores + other.cores,
        )


def traffic(load: BundleLoad, at: float) -> TrafficRates:
    """Traffic of `load` at `at` (epoch seconds)."""
    factor = load.swing(at)
    return TrafficRates(
        load.rate_in * factor,
        load.rate_out * factor,
        load.throughput_in * factor,
        load.throughput_out * factor,
        load.cores * factor,
    )


class SimulatedBrokerLoad:
    """A broker's gauges and counters while it serves bundles of `catalogue`.

    Call `advance` with the time before reading counters and before the served bundles change. From one call to the
    next, counters grow at the rate of the later moment. cpu_seconds, received_bytes, sent_bytes: counters since `began`
    (epoch seconds).
    """

    def __init__(self, shape: BrokerShape, catalogue: Mapping[str, BundleLoad], began: float) -> None:
        self.shape = shape
        self.cpu_seconds = self.received_bytes = self.sent_bytes = 0.0
        self._catalogue = catalogue
        self._serving: set[str] = set()
        self._at = began

    def rehouse(self, shape: BrokerShape, at: float) -> None:
        """Continue on other hardware from `at` (epoch seconds) on."""
        self.advance(at)
        self.shape = shape

    @property
    def serving(self) -> frozenset[str]:
        """Names of the bundles that it serves now."""
        return frozenset(self._serving)

    def serve(self, bundle: str, at: float) -> None:
        """Start serving. A bundle that is not in the catalogue costs nothing. Idempotent."""
        self.advance(at)
        self._serving.add(bundle)

    def release(self, bundle: str, at: float) -> None:
        """Stop serving. Idempotent."""
        self.advance(at)
        self._serving.discard(bundle)

    def loads(self) -> Iterable[BundleLoad]:
        """Served bundles that are in the catalogue, by name."""
        return [self._catalogue[name] for name in sorted(self._serving) if name in self._catalogue]

    def total(self, at: float) -> TrafficRates:
        """Sum of the traffic of its bundles."""
        return sum((traffic(load, at) for load in self.loads()), TrafficRates())

    def cpu(self, at: float) -> float:
        """Cores in use, at most its limit."""
        return min(self.shape.cores, self.shape.idle / self.shape.strength + self.total(at).cores / self.shape.strength)

    def memory(self, at: float) -> float:
        """Working set in bytes, at most its limit."""
        total = self.total(at)
        buffered = _BUFFERED_SECONDS * (total.throughput_in + total.throughput_out)
        topics = sum(load.topics for load in self.loads())
        return min(self.shape.memory, _BASE_MEMORY + topics * _MEMORY_PER_TOPIC + buffered)

    def advance(self, at: float) -> None:
        """Advance the counters to `at` (epoch seconds); an earlier time changes nothing."""
        passed = at - self._at
        if passed <= 0:
            return
        total = self.total(at)
        self.cpu_seconds += self.cpu(at) * passed
        self.received_bytes += total.throughput_in * _OVERHEAD * passed
        self.sent_bytes += total.throughput_out * _OVERHEAD * passed
        self._at = at


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic: its position on the ring, and its share (ratio 0-1) of the bundle's load."""

    place: int
    share: float


def topics(load: BundleLoad) -> tuple[Topic, ...]:
    """The topics of a bundle of the scenario, ascending by position."""
    _, lower, upper = parse_bundle(load.name)
    chance = random.Random(load.name)  # noqa: S311 - a repeatable world, no secret
    places = sorted(chance.randrange(lower, upper) for _ in range(load.topics))
    weights = [chance.uniform(0.5, 1.5) for _ in places]
    return tuple(Topic(place, weight / sum(weights)) for place, weight in zip(places, weights, strict=True))


def part(whole: BundleLoad, name: str) -> BundleLoad:
    """The load of the bundle `name`, whose range lies within the range of `whole`."""
    _, lower, upper = parse_bundle(name)
    inside = [topic for topic in topics(whole) if lower <= topic.place < upper]
    share = sum(topic.share for topic in inside)
    return replace(
        _scaled(whole, share),
        name=name,
        topics=len(inside),
        producers=round(whole.producers * len(inside) / whole.topics),
        consumers=round(whole.consumers * len(inside) / whole.topics),
    )


def _scaled(load: BundleLoad, factor: float) -> BundleLoad:
    """`load` with its traffic and cost multiplied by `factor`."""
    return replace(
        load,
        rate_in=load.rate_in * factor,
        rate_out=load.rate_out * factor,
        throughput_in=load.throughput_in * factor,
        throughput_out=load.throughput_out * factor,
        cores=load.cores * factor,
    )


class Catalogue(Mapping[str, BundleLoad]):
    """The load of each bundle by Pulsar's name. Iteration yields the scenario's bundles. Look-up finds parts, too."""

    def __init__(self, loads: Iterable[BundleLoad]) -> None:
        """loads: the scenario's bundles."""
        self._first = {load.name: load for load in loads}
        self._known = dict(self._first)
        self._rings: dict[str, list[tuple[int, int, str]]] = {}
        for name in self._first:
            namespace, lower, upper = parse_bundle(name)
            self._rings.setdefault(namespace, []).append((lower, upper, name))
        for ring in self._rings.values():
            ring.sort()

    def __getitem__(self, name: str) -> BundleLoad:
        """Raises `KeyError` for a bundle that is neither one of the scenario's nor a part of one."""
        if name not in self._known:
            self._known[name] = part(self._first[self._whole(name)], name)
        return self._known[name]

    def scale(self, name: str, factor: float) -> None:
        """Multiply the traffic and cost of one of the scenario's bundles, and so of its parts, by `factor` above 0."""
        self._first[name] = _scaled(self._first[name], factor)
        self._known = dict(self._first)

    def __iter__(self) -> Iterator[str]:
        return iter(self._first)

    def __len__(self) -> int:
        return len(self._first)

    def _whole(self, name: str) -> str:
        try:
            namespace, lower, upper = parse_bundle(name)
        except ValueError as error:
            raise KeyError(name) from error
        ring = self._rings.get(namespace, [])
        at = bisect_right(ring, (lower, 1 << 33, "")) - 1
        if at < 0 or not ring[at][0] <= lower < upper <= ring[at][1]:
            raise KeyError(name)
        return ring[at][2]
