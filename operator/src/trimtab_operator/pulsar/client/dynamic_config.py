"""The switches of Pulsar's own balancer in its dynamic configuration, and how they are put back.

What counts is the configuration that each broker runs with: its file, and dynamic values on top. Pulsar takes any text
as a dynamic value of a switch and reads it as Java does: all but ``true`` (in any case) is off.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_pipeline.bodies import json_of
from trimtab_strategies.model import some

ENABLED = "loadBalancerEnabled"
"""Without it nothing is shed, whatever `SHEDDING` says."""

SHEDDING = "loadBalancerSheddingEnabled"
"""The leader unloads bundles by itself."""

SPLITTING = "loadBalancerAutoBundleSplitEnabled"
"""Bundles above a limit are split by themselves."""

UNLOADING_SPLITS = "loadBalancerAutoUnloadSplitBundlesEnabled"
"""Halves of such a split are unloaded, and so go where Pulsar likes."""


SWITCHES = (SHEDDING, SPLITTING)
"""What must be off, as dynamic configuration can have it."""

OFF = "false"
"""What is written to switch off."""


_HOUR = 3600.0


def is_true(text: str) -> bool:
    """Whether Pulsar takes `text` for true (Java's `Boolean.parseBoolean`: no spaces, any case)."""
    return text.lower() == "true"


def switched_on(runtime: Mapping[str, str]) -> tuple[str, ...] | None:
    """The switches by which a broker with this configuration balances by itself; None when it names one of them not."""
    if any(switch not in runtime for switch in SWITCHES):
        return None
    sheds = is_true(runtime[SHEDDING]) and is_true(runtime.get(ENABLED, "true"))
    return tuple(switch for switch, on in ((SHEDDING, sheds), (SPLITTING, is_true(runtime[SPLITTING]))) if on)


class ForeignFindingsError(ValueError):
    """What is stored was not written by Trimtab. Says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class FoundSettings:
    """What was found before anything was switched off, and so what is put back.

    pulsar: where, and by which Secrets one asks. overrides: dynamic value of each switch that was switched off, None
    where there was none. undone: when (epoch seconds) somebody switched on again what had been switched off.
    written: switches that are known to have been off since; who has one on again, undid it.
    brokers: ids of those there were lately, by which the cluster is known again.
    Raises `ForeignFindingsError` for a setting that is none of `SWITCHES`: it would be written to Pulsar.
    """

    pulsar: PulsarSpec
    overrides: Mapping[str, str | None] = field(default_factory=dict)
    undone: tuple[float, ...] = ()
    written: frozenset[str] = frozenset()
    brokers: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if others := sorted(self.overrides.keys() - set(SWITCHES)):
            named = " and ".join(others)
            raise ForeignFindingsError(f"it names {named}, but Trimtab puts back only {' and '.join(SWITCHES)}")

    def of(self, pulsar: PulsarSpec, brokers: Collection[str]) -> bool:
        """Whether it was found in the cluster behind `pulsar`, which has these brokers now.

        A cluster is known by its brokers: many are called ``pulsar``, and one may be asked by several URLs.
        """
        return pulsar.admin_url == self.pulsar.admin_url or not self.brokers.isdisjoint(brokers)

    def noting(self, switches: Iterable[str], overrides: Mapping[str, str]) -> Self:
        """The same, before `switches` are switched off while these are the dynamic values."""
        before = {switch: overrides.get(switch) for switch in switches}
        return replace(self, overrides=before | dict(self.overrides), written=self.written - before.keys())

    def having_written(self, overrides: Mapping[str, str]) -> Self:
        """The same, once these are the dynamic values."""
        return replace(self, written=frozenset(switch for switch in self.overrides if overrides.get(switch) == OFF))

    def undone_again(self, now: float) -> Self:
        """The same, once somebody has undone it `now`; what is older than an hour is forgotten."""
        return replace(self, undone=(*self.undone_lately(now), now))

    def undone_lately(self, now: float) -> tuple[float, ...]:
        """When it was undone within the hour before `now`."""
        return tuple(at for at in self.undone if now - at < _HOUR)

    def to_restore(self, overrides: Mapping[str, str]) -> dict[str, str | None]:
        """What to write, given the dynamic values there are now: text, or None to drop one.

        A switch that is no longer as it was written here was set by somebody since, and is left as it is.
        """
        ours = (switch for switch in self.overrides if overrides.get(switch) == OFF)
        return {switch: self.overrides[switch] for switch in ours if self.overrides[switch] != OFF}

    def to_json(self) -> str:
        """As stored."""
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
        """Read back. Raises `ForeignFindingsError` when it is not what `to_json` wrote."""
        try:
            value = json_of(text)
            version = value["version"]
            overrides = {str(k): None if v is None else str(v) for k, v in value["overrides"].items()}
            undone = tuple(map(float, value.get("undone", ())))
            written = frozenset(map(str, value.get("written", overrides)))  # older ones do not say
            brokers = frozenset(map(str, value.get("brokers", ())))
            found = cls(PulsarSpec.model_validate(value["pulsar"]), overrides, undone, written, brokers)
        except ForeignFindingsError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ForeignFindingsError(f"it is not what Trimtab writes ({error!r})") from error
        if version != 1:
            raise ForeignFindingsError(f"it has version {version}, this Trimtab reads version 1")
        return found


def described(on: Mapping[str, Iterable[str]]) -> str:
    """In words which brokers have which switches on. on: switches by broker."""
    by_switch: dict[str, list[str]] = {}
    for broker, switches in sorted(on.items()):
        for switch in switches:
            by_switch.setdefault(switch, []).append(broker)
    return "; ".join(f"{switch} is on at {some(brokers, 3)}" for switch, brokers in sorted(by_switch.items()))


async def restore_settings(admin: Admin, found: FoundSettings, *, dry_run: bool = False) -> list[str]:
    """Write back what `found` says, in words what was done. Can be done again after it failed in the middle.

    dry_run: only say what would be done. Raises `PulsarError`.
    """
    overrides = await admin.overrides()
    todo, done = found.to_restore(overrides), list[str]()
    for switch, before in sorted(found.overrides.items()):
        if switch not in todo:
            now = overrides.get(switch)
            done.append(f"{switch} is left as it is ({'no dynamic value' if now is None else now})")
        elif before is None:
            if not dry_run:
                await admin.drop_override(switch)
            done.append(f"{switch}: dynamic value dropped, each broker's file counts again")
        else:
            if not dry_run:
                await admin.override(switch, before)
            done.append(f"{switch} = {before}, as it was found")
    return done
