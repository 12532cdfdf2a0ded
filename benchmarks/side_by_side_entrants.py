"""The entrants of `side_by_side.py`, and the scenario that each of them gets.

The entrants are Pulsar's own balancers, and Trimtab with the same strategies and with others. Pulsar's minimum loads
for a move are made for clusters with a hundred times the load, and its cool-down of half an hour is longer than the
scenario. Both are reduced, equally for Pulsar and Trimtab. All other settings of the strategies have their defaults,
except in the entrants that are called `tuned`.

The scenario has three brokers and 36 topics in 24 bundles, with Zipf-distributed rates. The 14 bundles with the most
messages start on the first broker. Halfway the rates change: the topics of the broker that then serves the most topics
become the hot ones. So the change is equally hard for every placement.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from real_pulsar.settings import LoadManagerKind

COOL_DOWN = 3
"""Minutes that a bundle stays after a move, instead of 30. In the extensible manager, 3 is the default."""

_IMPL = "org.apache.pulsar.broker.loadbalance.impl"
_EXTENSIONS = "org.apache.pulsar.broker.loadbalance.extensions"
_SCALED: Mapping[str, object] = {
    "metadataStoreSessionTimeoutMillis": 30_000,  # the default: the testbed's 6 s are too short if the machine pauses
    "loadBalancerSheddingGracePeriodMinutes": COOL_DOWN,
    "minUnloadMessage": 10,
    "minUnloadMessageThroughput": 10_000,
    "loadBalancerBundleUnloadMinThroughputThreshold": 0.01,
}


@dataclass(frozen=True, slots=True)
class Entrant:
    """One balancer. `settings` are those of the brokers; `policy` is Trimtab's, and empty for Pulsar itself."""

    manager: LoadManagerKind
    strategy: str
    settings: Mapping[str, object] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)

    @property
    def run_by(self) -> str:
        """Pulsar or Trimtab."""
        return "Trimtab" if self.policy else "Pulsar"

    @property
    def interval(self) -> str:
        """Time from one decision to the next."""
        return str(self.policy.get("interval", "60s"))

    def __str__(self) -> str:
        return f"{self.run_by}, {self.manager} manager: {self.strategy}, every {self.interval}"


def _modular(strategy: str, placement: str = "LeastLongTermMessageRate", **settings: object) -> Entrant:
    classes = {
        "loadBalancerLoadSheddingStrategy": f"{_IMPL}.{strategy}",
        "loadBalancerLoadPlacementStrategy": f"{_IMPL}.{placement}",
    }
    return Entrant(LoadManagerKind.MODULAR, strategy, {**_SCALED, **classes, **settings})


def _extensible() -> Entrant:
    shedder = {"loadBalancerLoadSheddingStrategy": f"{_EXTENSIONS}.scheduler.TransferShedder"}
    return Entrant(LoadManagerKind.EXTENSIBLE, "TransferShedder", {**_SCALED, **shedder})


def _trimtab(
    manager: LoadManagerKind,
    shedder: str,
    placement: str,
    *,
    interval: str = "60s",
    called: str = "",
    **parameters: object,
) -> Entrant:
    block = shedder[0].lower() + shedder[1:]
    policy = {
        "interval": interval,
        "shedder": {"type": shedder, block: parameters},
        "placement": {"type": placement},
        "limits": {"coolDown": f"{COOL_DOWN}m"},
    }
    return Entrant(manager, called or shedder, _SCALED, policy)


def _trim(manager: LoadManagerKind) -> Entrant:
    """Trim with defaults only, except for the cool-down that all entrants have."""
    policy = {
        "interval": "60s",
        "shedder": {"type": "Trim"},
        "placement": {"type": "Trim"},
        "limits": {"coolDown": f"{COOL_DOWN}m"},
    }
    return Entrant(manager, "Trim", _SCALED, policy)


_M, _E = LoadManagerKind.MODULAR, LoadManagerKind.EXTENSIBLE
_RATE, _WEIGHT = "LeastLongTermMessageRate", "ExtensibleLeastResourceUsageWithWeight"
_UNIFORM: Mapping[str, Any] = {"minRate": 10, "minThroughput": 10_000}
_EVEN: Mapping[str, Any] = {**_UNIFORM, "rateDifference": 25, "maxUnloadPercent": 50, "compatibility": "Corrected"}

ENTRANTS: Mapping[str, Entrant] = {
    "pulsar-threshold": _modular("ThresholdShedder"),
    "pulsar-uniform": _modular("UniformLoadShedder"),
    "pulsar-avg": _modular("AvgShedder", "AvgShedder"),
    "pulsar-transfer": _extensible(),
    "trimtab-threshold": _trimtab(_M, "ThresholdShedder", _RATE, minThroughput="10Ki"),
    "trimtab-uniform": _trimtab(_M, "UniformLoadShedder", _RATE, **_UNIFORM),
    "trimtab-avg": _trimtab(_M, "AvgShedder", "AvgShedder", **_UNIFORM),
    "trimtab-transfer": _trimtab(_E, "TransferShedder", _WEIGHT),
    "trimtab-quick-modular": _trimtab(_M, "UniformLoadShedder", _RATE, interval="15s", called="tuned", **_EVEN),
    "trimtab-quick-extensible": _trimtab(_E, "UniformLoadShedder", _RATE, interval="15s", called="tuned", **_EVEN),
    "trimtab-trim-modular": _trim(_M),
    "trimtab-trim-extensible": _trim(_E),
}
"""The entrants, by the name that ``--only`` takes. `pulsar-threshold` is the default of Pulsar 4.0."""


NAMESPACE = "contest/story"
BROKERS = 3
BUNDLES = 24
TOPICS = 36
CROWDED = 14
"""Number of bundles that the first broker serves at first; the other brokers share the rest."""

RATE = 600.0
"""Messages/s of all topics together."""

SIZE = 512
"""Bytes of a message."""


class Topic(NamedTuple):
    """A topic's name, and the row of its bundle in the order of the ranges."""

    name: str
    bundle: int


def rates(topics: int = TOPICS, total: float = RATE) -> list[float]:
    """Messages/s by rank: the k-th topic has a k-th of the first topic's rate (Zipf). The sum is `total`."""
    shares = [1 / (rank + 1) for rank in range(topics)]
    return [total * share / sum(shares) for share in shares]


def bundle_of(topic: int) -> int:
    """Row of the bundle of the `topic`-th topic: each bundle has one topic, and the first bundles have a second one."""
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
