"""Random brokers, bundles, resources and rates. They depend only on the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

Value = TypeVar("Value")
Fields = dict[str, Any]

RESOURCES = ("cpu", "bandwidth_in", "bandwidth_out", "direct_memory", "memory")
BROKER_COUNTS = (0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 6, 6, 8, 8, 10, 10, 13, 17, 17, 24, 40)
NAMESPACES = ("t/n", "t/n2", "public/default", "tenant-a/ns-1", "shop/orders.eu")
FULL_RING = 0xFFFFFFFF


class Draw(random.Random):
    """A source of random scenarios, seeded by a text, so that it is the same on every machine."""

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def pick(self, *values: Value) -> Value:
        return self.choice(values)

    def some(self, values: Sequence[Value], probability: float) -> list[Value]:
        """Each of the values with this probability, in their order."""
        return [value for value in values if self.chance(probability)]

    def subset(self, values: Sequence[Value], least: int = 1) -> list[Value]:
        """At least `least` of the values, in random order."""
        return self.sample(list(values), self.randint(min(least, len(values)), len(values)))

    def amount(self, low: float, high: float) -> float:
        """A number in this range with a random number of digits, evenly spread over the orders of magnitude."""
        value = low * (high / low) ** self.random()
        return round(value, self.pick(0, 1, 3, 6))

    def settings(self, probability: float, **choices: Sequence[Any]) -> Fields:
        """Each of the named settings with this probability, at one of the values it may have."""
        return {name: self.choice(values) for name, values in choices.items() if self.chance(probability)}

    def broker_names(self, count: int) -> list[str]:
        """Broker names of one of the usual spellings."""
        kind = self.randrange(4)
        spellings = [
            [f"broker-{k}:8080" for k in range(count)],
            [f"10.{self.randrange(4)}.0.{k + 1}:8080" for k in range(count)],
            [f"pulsar-broker-{k}.pulsar-broker.messaging.svc.cluster.local:8080" for k in range(count)],
            [f"node{self.getrandbits(32):08x}{k}:8080" for k in range(count)],
        ]
        return spellings[kind]

    def bundle_names(self, count: int) -> list[str]:
        """Bundle names over a few namespaces, each cut into equal ranges."""
        spaces = self.subset(NAMESPACES)
        of_each: dict[str, int] = dict.fromkeys(spaces, 0)
        for _ in range(count):
            of_each[self.choice(spaces)] += 1
        return [f"{space}/{text}" for space, many in of_each.items() for text in ranges(many)]

    def resource(self, percent: float) -> list[float | str]:
        """Usage and limit of a resource at about this percent. Sometimes it can't be read or has no limit."""
        if self.chance(0.02):
            return self.pick(["NaN", 100.0], [round(percent, 1), 0.0], [round(percent, 1), -1.0], [0.0, 100.0])
        limit = self.pick(100.0, 100.0, 100.0, 200.0, 400.0, 1000.0, 3.0, 1e7)
        return [round(percent * limit / 100, self.pick(0, 2, 4, 6)), limit]

    def resources(self, level: float) -> Fields:
        """Resources of a broker at about this level, in percent; some stay unset."""
        used: Fields = {"cpu": self.resource(level)} if not self.chance(0.04) else {}
        for name in RESOURCES[1:]:
            if self.chance(0.4):
                used[name] = self.resource(level * self.uniform(0.1, 1.05))
        return used

    def level(self) -> float:
        """A level of usage in percent: often a round number, sometimes 0 or above 100."""
        return self.pick(
            float(self.randrange(0, 21) * 5),
            float(self.randint(0, 100)),
            self.uniform(0, 100),
            self.uniform(20, 60),
            self.pick(0.0, 100.0, 120.0, self.uniform(100, 250)),
        )

    def weights(self) -> Fields:
        if not self.chance(0.35):
            return {}
        return self.settings(
            0.5,
            loadBalancerCPUResourceWeight=(0.0, 0.5, 1.0, 2.0),
            loadBalancerDirectMemoryResourceWeight=(0.1, 0.5, 1.0),
            loadBalancerBandwidthInResourceWeight=(0.0, 0.5, 1.0),
            loadBalancerBandwidthOutResourceWeight=(0.0, 0.5, 1.5),
        )

    def traffic(self, *, scale: float = 1.0) -> Fields:
        """Rates (msg/s) and throughputs (bytes/s) of one bundle, in and out; some have none at all."""
        keys = [f"msg_{what}_{way}" for what in ("rate", "throughput") for way in ("in", "out")]
        if self.chance(0.06):
            return dict.fromkeys(keys, 0.0)
        rate, size, fan = self.amount(1, 5000) * scale, self.pick(100, 512, 1024, 4096, 65536), self.pick(0, 1, 1, 2, 5)
        digits = self.pick(1, 3, 6)
        values = (rate, rate * fan, rate * size, rate * fan * size)
        return {key: round(value, digits) for key, value in zip(keys, values, strict=True)}


def ranges(count: int) -> list[str]:
    """The ring cut into `count` equal ranges, as Pulsar cuts and writes them."""
    edges = [k * (2**32 // count) for k in range(count)] + [FULL_RING]
    return [f"0x{low:08x}_0x{high:08x}" for low, high in pairwise(edges)]


def totals(bundles: Sequence[Fields]) -> Fields:
    """Sums over bundles, as a broker reports them."""
    keys = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
    return {key: round(sum(bundle[key] for bundle in bundles), 6) for key in keys}
