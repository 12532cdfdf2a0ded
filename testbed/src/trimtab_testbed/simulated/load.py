"""The load model: what a bundle costs, and how a broker's counters advance while it serves some. No clock, no I/O.

A broker uses its idle cores and those of its bundles, divided by its strength, up to its limit. Memory is a base plus
its topics and half a second of traffic. Loads swing by a few percent, each bundle at its own pace.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SWING = 0.03  # ratio by which a bundle's load swings around its mean
_BASE_MEMORY = 1.5 * (1 << 30)
_MEMORY_PER_TOPIC = 2 * (1 << 20)
_BUFFERED_SECONDS = 0.5
_OVERHEAD = 1.05  # ratio of bytes on the wire to payload


@dataclass(frozen=True, slots=True)
class BrokerShape:
    """One broker's hardware. cores, memory (bytes): its limits; strength: cores of work that one of its cores does."""

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

    period (seconds) and phase (ratio 0-1) say how it swings around that mean.
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
        """Factor on its means at `at` (epoch seconds)."""
        return 1 + _SWING * math.sin(2 * math.pi * (at / self.period + self.phase))


@dataclass(frozen=True, slots=True)
class Traffic:
    """msg/s and bytes/s, in and out, and the cores they cost."""

    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    cores: float = 0.0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.rate_in + other.rate_in,
            self.rate_out + other.rate_out,
            self.throughput_in + other.throughput_in,
            self.throughput_out + other.throughput_out,
            self.cores + other.cores,
        )


def traffic(load: BundleLoad, at: float) -> Traffic:
    """What `load` amounts to at `at` (epoch seconds)."""
    factor = load.swing(at)
    return Traffic(
        load.rate_in * factor,
        load.rate_out * factor,
        load.throughput_in * factor,
        load.throughput_out * factor,
        load.cores * factor,
    )


class BrokerLoad:
    """A broker's gauges and counters while it serves bundles of `catalogue`.

    Call `advance` with the time before reading counters and before serving changes: they grow at the rate of that
    moment since the last call. cpu_seconds, received_bytes, sent_bytes: counters since `began` (epoch seconds).
    """

    def __init__(self, shape: BrokerShape, catalogue: Mapping[str, BundleLoad], began: float) -> None:
        self.shape = shape
        self.cpu_seconds = self.received_bytes = self.sent_bytes = 0.0
        self._catalogue = catalogue
        self._serving: set[str] = set()
        self._at = began

    def rehouse(self, shape: BrokerShape, at: float) -> None:
        """Go on, on other hardware."""
        self.advance(at)
        self.shape = shape

    @property
    def serving(self) -> frozenset[str]:
        """Names of the bundles it serves now."""
        return frozenset(self._serving)

    def serve(self, bundle: str, at: float) -> None:
        """Begin to serve; a bundle the catalogue does not know costs nothing. Serving twice is serving once."""
        self.advance(at)
        self._serving.add(bundle)

    def release(self, bundle: str, at: float) -> None:
        """Stop serving, if it was served."""
        self.advance(at)
        self._serving.discard(bundle)

    def loads(self) -> Iterable[BundleLoad]:
        """Of what it serves, the bundles that the catalogue knows, by name."""
        return [self._catalogue[name] for name in sorted(self._serving) if name in self._catalogue]

    def total(self, at: float) -> Traffic:
        """Sum over its bundles."""
        return sum((traffic(load, at) for load in self.loads()), Traffic())

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
        """Let the counters grow up to `at` (epoch seconds); an earlier time changes nothing."""
        passed = at - self._at
        if passed <= 0:
            return
        total = self.total(at)
        self.cpu_seconds += self.cpu(at) * passed
        self.received_bytes += total.throughput_in * _OVERHEAD * passed
        self.sent_bytes += total.throughput_out * _OVERHEAD * passed
        self._at = at
