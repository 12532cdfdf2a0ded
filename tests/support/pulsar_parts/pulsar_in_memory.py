"""A Pulsar cluster that is only a few dictionaries, asked by the methods of `Admin` that steering and splits need.

It answers as real brokers of both load managers were measured to: `extensible` splits at exactly one position a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from trimtab_operator.pulsar.client.api import LoadManager
from trimtab_operator.pulsar.client.dynamic_config import ENABLED, SHEDDING, SPLITTING, UNLOADING_SPLITS
from trimtab_operator.pulsar.client.errors import (
    PulsarUnavailableError,
    SplitRefusedError,
    StaleBundleError,
    UnknownError,
)

FULL = 0xFFFFFFFF


@dataclass
class InMemoryPulsar:
    """files: by broker what its file says. rings: by namespace the edges of its bundles. topics: by namespace their
    positions. owners: of bundles. deaf: brokers that don't answer. stale: so many reads of boundaries show an old ring.
    failing: so many writes of dynamic values fail.
    """

    files: dict[str, dict[str, str]] = field(default_factory=dict)
    dynamic: dict[str, str] = field(default_factory=dict)
    rings: dict[str, tuple[int, ...]] = field(default_factory=dict)
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    extensible: bool = False
    deaf: set[str] = field(default_factory=set)
    stale: int = 0
    astray: int = 0
    failing: int = 0
    asked: list[str] = field(default_factory=list)
    _before: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def broker(self, name: str, *, sheds: str = "true", splits: str = "true", **more: str) -> None:
        self.files[name] = {ENABLED: "true", SHEDDING: sheds, SPLITTING: splits, UNLOADING_SPLITS: "true", **more}

    # -- looking --

    async def brokers(self) -> frozenset[str]:
        return frozenset(self.files)

    async def runtime(self, broker: str) -> Mapping[str, str]:
        if broker in self.deaf:
            raise PulsarUnavailableError(f"{broker} does not answer")
        dynamic = {key: str(value.lower() == "true").lower() for key, value in self.dynamic.items()}
        return self.files[broker] | dynamic

    async def overrides(self) -> Mapping[str, str]:
        return dict(self.dynamic)

    async def tenants(self) -> tuple[str, ...]:
        return tuple({namespace.partition("/")[0] for namespace in self.rings})

    async def namespaces(self, tenant: str) -> tuple[str, ...]:
        return tuple(namespace for namespace in self.rings if namespace.startswith(f"{tenant}/"))

    async def boundaries(self, namespace: str) -> tuple[int, ...]:
        if self.astray:
            self.astray -= 1
            raise UnknownError("404 default backend", status=404)
        if namespace not in self.rings:
            raise UnknownError(f"there is no {namespace}", status=404)
        if self.stale and namespace in self._before:
            self.stale -= 1
            return self._before[namespace]
        return self.rings[namespace]

    async def load_manager(self) -> LoadManager:
        return LoadManager.EXTENSIBLE if self.extensible else LoadManager.MODULAR

    async def owner(self, bundle: str, broker: str) -> str:
        assert not self.extensible, "not measured there"
        if broker in self.deaf:
            raise PulsarUnavailableError(f"{broker} does not answer")
        self._range(bundle)
        return self.owners.get(bundle, "")

    async def owned(self, broker: str) -> frozenset[str]:
        assert self.extensible, "a modular broker may hang"
        if broker in self.deaf:
            raise PulsarUnavailableError(f"{broker} does not answer")
        return frozenset(bundle for bundle, owner in self.owners.items() if owner == broker)

    async def topic_positions(self, bundle: str) -> Mapping[str, int]:
        space, lower, upper = self._range(bundle)
        return {
            name: at for name, at in self.topics.get(space, {}).items() if lower <= at < upper or at == upper == FULL
        }

    # -- writing --

    async def override(self, name: str, value: str) -> None:
        self.asked.append(f"{name}={value}")
        if self.failing:
            self.failing -= 1
            raise PulsarUnavailableError("the metadata store is slow")
        self.dynamic[name] = value

    async def drop_override(self, name: str) -> None:
        self.asked.append(f"drop {name}")
        self.dynamic.pop(name, None)

    async def split(self, bundle: str, positions: Sequence[int], *, unload: bool = False) -> None:
        assert not unload, "halves would go where Pulsar likes"
        space, lower, upper = self._range(bundle)
        self.asked.append(f"split {bundle} at {[hex(p) for p in positions]}")
        inside = [position for position in positions if lower < position < upper]
        if self.extensible and len(positions) != 1:
            raise SplitRefusedError("exactly one position", status=412)
        if not inside or len(await self.topic_positions(bundle)) < 2:
            if self.extensible:
                raise SplitRefusedError(f"{bundle} not found under namespace", status=500)
            return
        self._before[space] = self.rings[space]
        self.rings[space] = tuple(sorted({*self.rings[space], *inside}))
        owner = self.owners.pop(bundle, "")
        for left, right in pairwise([lower, *inside, upper]):
            if owner:
                self.owners[f"{space}/0x{left:08x}_0x{right:08x}"] = owner

    def _range(self, bundle: str) -> tuple[str, int, int]:
        space, _, edges = bundle.rpartition("/")
        lower, upper = (int(edge, 16) for edge in edges.split("_"))
        if (lower, upper) not in set(pairwise(self.rings[space])):
            raise StaleBundleError(f"Invalid upper boundary for bundle {bundle}", status=412)
        return space, lower, upper
