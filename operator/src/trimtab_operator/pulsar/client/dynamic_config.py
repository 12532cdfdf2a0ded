"""The switches of Pulsar's own balancer in its dynamic configuration, and the values to restore.

Dynamic values override each broker's configuration file. Pulsar accepts any text as the dynamic value of a switch, and
reads it like Java: every text except ``true`` (in any case) means off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Self

from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_strategies.model import some

ENABLED = "loadBalancerEnabled"
"""If it is off, nothing is shed, even if `SHEDDING` is on."""

SHEDDING = "loadBalancerSheddingEnabled"
"""The leader unloads bundles automatically."""

SPLITTING = "loadBalancerAutoBundleSplitEnabled"
"""Bundles above a limit are split automatically."""

SWITCHES = (SHEDDING, SPLITTING)
"""The dynamic settings that must be off. loadBalancerAutoUnloadSplitBundlesEnabled matters only while `SPLITTING` is
on."""

OFF, ON = "false", "true"
"""The values that are written to switch off and on."""

_RESETTING = {(2, 10): 7, (2, 11): 5, (3, 0): 5, (3, 1): inf, (3, 2): 3}
"""By minor release, the first patch release in which a broker uses the value of its file again as soon as the dynamic
value is removed (apache/pulsar#22673). In 3.1 there is none. All minor releases after 3.2 do this."""


_HOUR = 3600.0


def is_true(text: str) -> bool:
    """Whether Pulsar reads `text` as true (Java's `Boolean.parseBoolean`: any case, no spaces)."""
    return text.lower() == "true"


def resets_removed(version: str) -> bool:
    """Whether a broker of this version uses the value of its file again as soon as the dynamic value is removed.

    Other versions do that only at a restart.
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        return False
    major, minor, patch = map(int, found.groups())
    return (major, minor) > max(_RESETTING) or patch >= _RESETTING.get((major, minor), patch + 1)


def switched_on(runtime: Mapping[str, str]) -> tuple[str, ...] | None:
    """The switches that are on in a broker's configuration; None if the configuration lacks one of them."""
    if any(switch not in runtime for switch in SWITCHES):
        return None
    sheds = is_true(runtime[SHEDDING]) and is_true(runtime.get(ENABLED, "true"))
    return tuple(switch for switch, on in ((SHEDDING, sheds), (SPLITTING, is_true(runtime[SPLITTING]))) if on)


class ForeignFindingsError(ValueError):
    """The stored value was not written by Trimtab. The message names the problem."""


@dataclass(frozen=True, slots=True)
class FoundSettings:
    """The settings of Pulsar's own balancer before Trimtab switched it off, to be restored later.

    pulsar: the cluster and its Secrets. overrides: former dynamic value of each switch that was switched off, None if
    it had none. undone: epoch seconds at which another client switched a switch on again. written: switches that were
    off after Trimtab's last write; if one of them is on again, another client switched it on. brokers: ids of the
    brokers seen last, which identify the cluster. Raises `ForeignFindingsError` for a setting outside `SWITCHES`,
    because a restore would write it to Pulsar.
    """

    pulsar: PulsarSpec
    overrides: Mapping[str, str | None] = field(default_factory=dict)
    undone: tuple[float, ...] = ()
    written: frozenset[str] = frozenset()
    brokers: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if others := sorted(self.overrides.keys() - set(SWITCHES)):
            named = " and ".join(others)
            raise ForeignFindingsError(f"it names {named}, but Trimtab restores only {' and '.join(SWITCHES)}")

    def of(self, pulsar: PulsarSpec, brokers: Collection[str]) -> bool:
        """Whether the settings are from the cluster of `pulsar`. brokers: ids of its brokers now.

        Brokers identify a cluster, because many clusters are named ``pulsar``, and a cluster may have several URLs.
        """
        return pulsar.admin_url == self.pulsar.admin_url or not self.brokers.isdisjoint(brokers)

    def noting(self, switches: Iterable[str], overrides: Mapping[str, str]) -> Self:
        """Add `switches` that will be switched off. overrides: the dynamic values now."""
        before = {switch: overrides.get(switch) for switch in switches}
        return replace(self, overrides=before | dict(self.overrides), written=self.written - before.keys())

    def having_written(self, overrides: Mapping[str, str]) -> Self:
        """Mark the switches that are off. overrides: the dynamic values after the write."""
        return replace(self, written=frozenset(switch for switch in self.overrides if overrides.get(switch) == OFF))

    def leaving_on(self, switches: Iterable[str]) -> Self:
        """Record that `switches` are left on. They then do not count again as switched on by another client."""
        return replace(self, written=self.written.difference(switches))

    def undone_again(self, now: float) -> Self:
        """Record that another client switched a switch on again at `now`. Forget times older than an hour."""
        return replace(self, undone=(*self.undone_lately(now), now))

    def undone_lately(self, now: float) -> tuple[float, ...]:
        """Times within the hour before `now` at which another client switched a switch on again."""
        return tuple(at for at in self.undone if now - at < _HOUR)

    def to_restore(self, overrides: Mapping[str, str]) -> dict[str, str | None]:
        """The value to write for each switch, None to remove it. overrides: the dynamic values now.

        If a switch has another value than Trimtab wrote, another client changed it, and the switch stays as it is.
        """
        ours = (switch for switch in self.overrides if overrides.get(switch) == OFF)
        return {switch: self.overrides[switch] for switch in ours if self.overrides[switch] != OFF}

    def to_json(self) -> str:
        """The JSON to store."""
        spec = self.pulsar.model_dump(by_alias=True, mode="json", exclude_none=True)
        value: dict[str, Any] = {
            "version": 1,
            "overrides": self.overrides,
            "pulsar": spec,
            "undone": self.undone,
            "written": sorted(self.written),
            "brokers": sorted(self.brokers),
        }
        return json.dumps(value, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the JSON of `to_json`. Raises `ForeignFindingsError` for any other text."""
        try:
            value = json_of(text)
            version = value["version"]
            overrides = {str(k): None if v is None else str(v) for k, v in value["overrides"].items()}
            undone = tuple(map(float, value.get("undone", ())))
            written = frozenset(map(str, value.get("written", overrides)))  # absent in older versions
            brokers = frozenset(map(str, value.get("brokers", ())))
            found = cls(PulsarSpec.model_validate(value["pulsar"]), overrides, undone, written, brokers)
        except ForeignFindingsError:
            raise
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise ForeignFindingsError(f"it is not what Trimtab writes ({error!r})") from error
        if version != 1:
            raise ForeignFindingsError(f"it has version {version}, this Trimtab reads version 1")
        return found


def described(on: Mapping[str, Iterable[str]], brokers: int) -> str:
    """Describe which switches are on at which brokers. on: switches by broker. brokers: number of all brokers."""
    by_switch: dict[str, list[str]] = {}
    for broker, switches in sorted(on.items()):
        for switch in switches:
            by_switch.setdefault(switch, []).append(broker)
    return "; ".join(f"{switch} is on at {_where(names, brokers)}" for switch, names in sorted(by_switch.items()))


def _where(names: Sequence[str], brokers: int) -> str:
    """``all 3 brokers``, or the first two of `names`, which may be long, and how many more there are."""
    return f"all {brokers} brokers" if len(names) == brokers > 1 else some(names, 2)
