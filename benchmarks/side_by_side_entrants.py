"""Who takes part in `side_by_side.py`: Pulsar's own balancers, and Trimtab with the same strategies and with others.

Pulsar's amounts below which nothing is worth moving are made for clusters a hundred times as busy, and half an hour in
which a bundle stays is longer than the story: both are scaled down, for both sides alike. All else is at its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab_testbed.pulsar.settings import LoadManager

COOL_DOWN = 3
"""Minutes that a bundle stays after a move, instead of 30. The extensible manager has these 3 by default."""

_IMPL = "org.apache.pulsar.broker.loadbalance.impl"
_EXTENSIONS = "org.apache.pulsar.broker.loadbalance.extensions"
_SCALED: Mapping[str, object] = {
    "metadataStoreSessionTimeoutMillis": 30_000,  # the default: the testbed's 6 s are short on a machine that pauses
    "loadBalancerSheddingGracePeriodMinutes": COOL_DOWN,
    "minUnloadMessage": 10,
    "minUnloadMessageThroughput": 10_000,
    "loadBalancerBundleUnloadMinThroughputThreshold": 0.01,
}


@dataclass(frozen=True, slots=True)
class Entrant:
    """Somebody who balances. `settings` are the brokers'; `policy` what Trimtab is told, empty for Pulsar itself."""

    manager: LoadManager
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
    return Entrant(LoadManager.MODULAR, strategy, {**_SCALED, **classes, **settings})


def _extensible() -> Entrant:
    shedder = {"loadBalancerLoadSheddingStrategy": f"{_EXTENSIONS}.scheduler.TransferShedder"}
    return Entrant(LoadManager.EXTENSIBLE, "TransferShedder", {**_SCALED, **shedder})


def _trimtab(
    manager: LoadManager,
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


_M, _E = LoadManager.MODULAR, LoadManager.EXTENSIBLE
_RATE, _WEIGHT = "LeastLongTermMessageRate", "ExtensibleLeastResourceUsageWithWeight"
_UNIFORM: Mapping[str, Any] = {"minRate": 10, "minThroughput": 10_000}
_EVEN: Mapping[str, Any] = {**_UNIFORM, "rateDifference": 25, "maxUnload": 0.5, "compatibility": "corrected"}

ENTRANTS: Mapping[str, Entrant] = {
    "pulsar-threshold": _modular("ThresholdShedder"),
    "pulsar-uniform": _modular("UniformLoadShedder"),
    "pulsar-avg": _modular("AvgShedder", "AvgShedder"),
    "pulsar-transfer": _extensible(),
    "trimtab-threshold": _trimtab(_M, "ThresholdShedder", _RATE, minThroughput=0.01),
    "trimtab-uniform": _trimtab(_M, "UniformLoadShedder", _RATE, **_UNIFORM),
    "trimtab-avg": _trimtab(_M, "AvgShedder", "AvgShedder", **_UNIFORM),
    "trimtab-transfer": _trimtab(_E, "TransferShedder", _WEIGHT),
    "trimtab-quick-modular": _trimtab(_M, "UniformLoadShedder", _RATE, interval="15s", called="tuned", **_EVEN),
    "trimtab-quick-extensible": _trimtab(_E, "UniformLoadShedder", _RATE, interval="15s", called="tuned", **_EVEN),
}
"""By the name that ``--only`` takes. `pulsar-threshold` is what Pulsar 4.0 does if nobody says otherwise."""
