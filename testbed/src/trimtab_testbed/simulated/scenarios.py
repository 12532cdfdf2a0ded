"""Scenarios as data: a cluster, its load, the first owners, the policy, and when the scenario counts as solved."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from trimtab_strategies.hash_ring import default_boundaries, range_text
from trimtab_testbed.simulated.load import BrokerShape, BundleLoad

GIB = 1 << 30
MIB = 1 << 20

_BYTES_PER_CORE = 100 * MIB  # bytes/s that one core carries, in and out together
_SKEW = 0.6  # sigma of the log-normal distribution of bundle sizes: the largest tenth carries a quarter of the load


class UnknownScenarioError(ValueError):
    """A name that no scenario has; the text lists the names that exist."""


@dataclass(frozen=True, slots=True)
class StartingBroker:
    """A broker and its CPU usage at the start, in percent of its limit."""

    shape: BrokerShape
    cpu: float


@dataclass(frozen=True, slots=True)
class NamespaceShape:
    """A topic namespace of `bundles` equal bundles, with messages of `message_bytes`, each read by `readers`."""

    tenant: str
    name: str
    bundles: int
    message_bytes: int = 1024
    readers: float = 2.0

    @property
    def full_name(self) -> str:
        """``tenant/name``."""
        return f"{self.tenant}/{self.name}"

    @property
    def bundle_names(self) -> tuple[str, ...]:
        """``tenant/name/0xLLLLLLLL_0xUUUUUUUU`` of each bundle, in the order of the ring."""
        edges = default_boundaries(self.bundles).tolist()
        return tuple(f"{self.full_name}/{range_text(lower, upper)}" for lower, upper in pairwise(edges))


@dataclass(frozen=True, slots=True)
class Solved:
    """When a scenario is solved: the CPU range (highest minus lowest, points) stays below `cpu_range` for `seconds`."""

    cpu_range: float = 15.0
    seconds: float = 12.0


@dataclass(frozen=True)
class ClusterScenario:
    """A cluster at its start.

    seed:    determines the size of each bundle; the same seed gives the same cluster everywhere.
    largest: the most CPU that one bundle costs, in percent of the weakest broker's CPU.
    policy:  spec of the BalancingPolicy, without its source and brokers.
    """

    name: str
    summary: str
    brokers: tuple[StartingBroker, ...]
    namespaces: tuple[NamespaceShape, ...]
    seed: int
    largest: float
    policy: Mapping[str, Any]
    solved: Solved = field(default_factory=Solved)

    def stage(self) -> tuple[tuple[BundleLoad, ...], Mapping[str, str]]:
        """The load of each bundle, and the name of its first owner by bundle name."""
        shapes = [(namespace, name) for namespace in self.namespaces for name in namespace.bundle_names]
        chance = random.Random(self.seed)  # noqa: S311 - a repeatable world, no secret
        wanted = {b.shape.name: b.cpu / 100 * b.shape.cores * b.shape.strength - b.shape.idle for b in self.brokers}
        smallest = min(b.shape.cores * b.shape.strength for b in self.brokers)
        costs = _skewed(chance, len(shapes), sum(wanted.values()), self.largest / 100 * smallest)
        chance.shuffle(costs)
        loads = tuple(_load(chance, shape, name, cost) for (shape, name), cost in zip(shapes, costs, strict=True))
        return loads, MappingProxyType(_fill(loads, wanted))


def _skewed(chance: random.Random, count: int, total: float, largest: float) -> list[float]:
    """`count` sizes that sum to `total`, skewed, none above `largest`, descending."""
    if total > count * largest:
        raise ValueError(
            f"{count} bundles of at most {largest:.3g} cores can't add up to {total:.3g}: allow larger ones"
        )
    sizes = sorted((chance.lognormvariate(0, _SKEW) for _ in range(count)), reverse=True)
    for at in range(count):  # from the largest down: the smaller ones share what a capped one cannot carry
        factor = (total - sum(sizes[:at])) / sum(sizes[at:])
        sizes[at:] = [size * factor for size in sizes[at:]]
        if sizes[at] <= largest:
            break
        sizes[at] = largest
    return sizes


def _fill(loads: tuple[BundleLoad, ...], wanted: Mapping[str, float]) -> dict[str, str]:
    """Assign the bundles, the largest first, each to the broker that is then furthest below its `wanted` cores."""
    lacking, owners = dict(wanted), dict[str, str]()
    for load in sorted(loads, key=lambda load: -load.cores):
        owner = max(lacking, key=lambda name: lacking[name])
        owners[load.name] = owner
        lacking[owner] -= load.cores
    return owners


def _load(chance: random.Random, shape: NamespaceShape, name: str, cores: float) -> BundleLoad:
    throughput = cores * _BYTES_PER_CORE * chance.uniform(0.95, 1.05)  # bundles differ a little in what they cost
    inward = throughput / (1 + shape.readers)
    topics = chance.randint(4, 24)
    return BundleLoad(
        name=name,
        rate_in=inward / shape.message_bytes,
        rate_out=(throughput - inward) / shape.message_bytes,
        throughput_in=inward,
        throughput_out=throughput - inward,
        topics=topics,
        producers=topics * 2,
        consumers=round(topics * shape.readers),
        cores=cores,
        period=chance.uniform(20, 60),
        phase=chance.uniform(0, 1),
    )


def brokers(
    *cpu: float, cores: float = 4.0, memory: float = 8 * GIB, strong: Mapping[int, float] = MappingProxyType({})
) -> tuple[StartingBroker, ...]:
    """Brokers ``pulsar-broker-0`` and so on with this CPU usage (percent). strong: strength by number, 1 by default."""
    return tuple(
        StartingBroker(BrokerShape(f"pulsar-broker-{number}", cores, memory, strong.get(number, 1.0)), percent)
        for number, percent in enumerate(cpu)
    )


_DEMO_POLICY: Mapping[str, Any] = MappingProxyType(
    {
        "mode": "Auto",
        "interval": "5s",
        "shedder": {
            "type": "ThresholdShedder",
            # for a demo that lasts a minute: short averages; moves from busy brokers, and to brokers that have room
            "thresholdShedder": {"threshold": 5, "historyPercent": 20, "minThroughput": "1Mi", "lowerBoundary": True},
        },
        "placement": {
            "type": "LeastResourceUsageWithWeight",
            "leastResourceUsageWithWeight": {"averageDifference": 4, "historyPercent": 20},
        },
        "limits": {"maxMovesPerCycle": 6, "maxMovesPerBroker": 3},
    }
)

LEARNING_POLICY: Mapping[str, Any] = MappingProxyType(
    {
        "mode": "Auto",
        "interval": "3s",
        "shedder": {
            "type": "WeightedBalancer",
            # short windows: with the default, learning takes 15 minutes, here a few cycles
            "weightedBalancer": {"window": "9s", "stabilization": "12s"},
        },
        "placement": {"type": "LeastResourceUsageWithWeight"},
        "limits": {"coolDown": "10s", "maxMovesPerCycle": 8, "maxMovesPerBroker": 8},
    }
)
"""A policy that quickly learns what each broker can carry."""

SCENARIOS: Mapping[str, ClusterScenario] = MappingProxyType(
    {
        scenario.name: scenario
        for scenario in (
            ClusterScenario(
                name="skewed-96",
                summary="six equal brokers, 96 bundles of skewed load, CPU from 25 to 80 %",
                brokers=brokers(80, 42, 66, 25, 54, 31),
                namespaces=(
                    NamespaceShape("shop", "orders", 32, message_bytes=2048),
                    NamespaceShape("shop", "payments", 16, message_bytes=1024, readers=3),
                    NamespaceShape("fleet", "telemetry", 32, message_bytes=512, readers=1),
                    NamespaceShape("media", "events", 16, message_bytes=4096),
                ),
                seed=96,
                largest=6.0,
                policy=_DEMO_POLICY,
            ),
            ClusterScenario(
                name="mixed-48",
                summary="four brokers at 60 %, one at 30 %: it is twice as strong, and no setting says so",
                brokers=brokers(60, 60, 30, 60, 60, strong={2: 2.0}),
                namespaces=(NamespaceShape("shop", "orders", 32), NamespaceShape("fleet", "telemetry", 16, readers=1)),
                seed=48,
                largest=10.0,
                policy=LEARNING_POLICY,
                solved=Solved(cpu_range=10.0, seconds=15.0),
            ),
            ClusterScenario(
                name="uneven-8",
                summary="three brokers and eight bundles, for a quick demo",
                brokers=brokers(60, 20, 10, cores=2.0, memory=4 * GIB),
                namespaces=(NamespaceShape("t", "n", 8),),
                seed=8,
                largest=20.0,
                policy=_DEMO_POLICY,
                solved=Solved(cpu_range=25.0, seconds=6.0),
            ),
        )
    }
)
"""Every scenario by its name."""


def scenario(name: str) -> ClusterScenario:
    """The scenario called `name`; raises `UnknownScenarioError`."""
    if name not in SCENARIOS:
        raise UnknownScenarioError(f"there is no scenario {name!r}: use one of {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
