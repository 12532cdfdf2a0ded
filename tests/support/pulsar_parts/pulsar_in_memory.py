"""A fake Pulsar cluster in memory, which answers the calls of `Admin` without HTTP.

It answers with the status codes and texts that brokers 4.0.8 return, for both load managers. A test can set
faults that real brokers (`real_pulsar`) do not show on demand. `pulsar_admin.FakePulsar` serves the same
cluster over REST.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

from trimtab_operator.pulsar.client.api import LoadManager
from trimtab_operator.pulsar.client.dynamic_config import ENABLED, SHEDDING, SPLITTING
from trimtab_operator.pulsar.client.errors import (
    ExistsError,
    PulsarRefusedError,
    PulsarUnavailableError,
    SplitRefusedError,
    StaleBundleError,
    UnknownError,
)
from trimtab_strategies.hash_ring import default_boundaries

CLUSTER = "fake"
"""Name of the cluster."""

FULL = 0xFFFFFFFF
"""The last hash, upper edge of the last bundle."""

_CLASSES = {
    False: "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
    True: "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl",
}


@dataclass
class InMemoryPulsar:
    """Brokers, namespaces, bundles and owners, with the methods of `Admin` that the operator calls most.

    The cluster:

    ids:        ids of the brokers.
    extensible: whether it runs the extensible load manager.
    spaces:     ``tenant/name`` -> edges of its bundles.
    owners:     bundle in Pulsar's spelling -> id of its broker.
    topics:     namespace -> hash of each topic.
    files:      broker -> its broker.conf.
    versions:   broker -> its version of Pulsar, if not 4.0.8.
    dynamic:    dynamic configuration.
    groups:     namespace -> anti-affinity group.

    Faults:

    inactive:   ids that are not listed.
    deaf:       ids that do not answer.
    away:       whether namespaces can't be read.
    astray:     calls that get a 404 that is not from Pulsar.
    forbidden:  namespaces whose policies may not be read.
    stale:      how many of the next reads show the boundaries before the last split.
    failing:    how many of the next writes of dynamic values fail.

    What happened:

    asked:      method -> number of calls.
    written:    one text for each write.
    """

    ids: list[str] = field(default_factory=list)
    extensible: bool = False
    spaces: dict[str, tuple[int, ...]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    files: dict[str, dict[str, str]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    dynamic: dict[str, str] = field(default_factory=dict)
    known_tenants: set[str] = field(default_factory=lambda: {"pulsar", "public"})
    groups: dict[str, str] = field(default_factory=dict)
    isolations: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    inactive: set[str] = field(default_factory=set)
    deaf: set[str] = field(default_factory=set)
    away: bool = False
    astray: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    stale: int = 0
    failing: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    written: list[str] = field(default_factory=list)
    _before: dict[str, tuple[int, ...]] = field(default_factory=dict)

    # -- changes that a test makes --

    def broker(self, name: str, *, sheds: str = "true", splits: str = "true", **more: str) -> None:
        """Add a broker whose file has these switches of Pulsar's own balancer."""
        self.ids.append(name)
        self.files[name] = {ENABLED: "true", SHEDDING: sheds, SPLITTING: splits, **more}

    def add(self, namespace: str, bundles: int, *owners: str) -> list[str]:
        """Add a namespace of equal bundles, served by `owners` in turn (empty: by no broker); returns the bundles."""
        self.known_tenants.add(namespace.partition("/")[0])
        self.spaces[namespace] = tuple(default_boundaries(bundles).tolist())
        self.serve(namespace, *owners)
        return self.bundles(namespace)

    def bundles(self, namespace: str) -> list[str]:
        """Bundles of a namespace, ascending."""
        return [bundle_name(namespace, *edges) for edges in pairwise(self.spaces[namespace])]

    def serve(self, namespace: str, *owners: str) -> None:
        """Have the bundles of a namespace served by `owners` in turn."""
        for number, bundle in enumerate(self.bundles(namespace) if owners else ()):
            if owner := owners[number % len(owners)]:
                self.owners[bundle] = owner

    def divide(self, bundle: str) -> None:
        """Split a bundle in the middle, as Pulsar's own split does: the owner keeps both halves."""
        namespace, lower, upper = self.located(bundle)
        self._cut(namespace, [lower, (lower + upper) // 2, upper])

    def drop(self, namespace: str) -> None:
        """Delete a namespace."""
        for bundle in self.bundles(namespace):
            self.owners.pop(bundle, None)
        del self.spaces[namespace]

    # -- Admin: reads --

    def without_budget(self) -> Self:
        """See `Admin`. There is no budget here."""
        return self

    async def load_manager(self) -> LoadManager:
        """See `Admin`."""
        return LoadManager.EXTENSIBLE if self.extensible else LoadManager.MODULAR

    async def clusters(self) -> tuple[str, ...]:
        """See `Admin`."""
        return ("elsewhere", CLUSTER)

    async def brokers(self) -> frozenset[str]:
        """See `Admin`."""
        self.asked["brokers"] += 1
        return frozenset(self.ids) - self.inactive

    async def runtime(self, broker: str) -> Mapping[str, str]:
        """See `Admin`. For a dynamic value, only ``true`` (in lower or upper case) means on."""
        self._ask("runtime", broker)
        dynamic = {key: str(value.lower() == "true").lower() for key, value in self.dynamic.items()}
        manager = {"clusterName": CLUSTER, "loadManagerClassName": _CLASSES[self.extensible]}
        return manager | self.files.get(broker, {}) | dynamic

    async def version(self, broker: str) -> str:
        """See `Admin`."""
        self._ask("version", broker)
        return self.versions.get(broker, "4.0.8")

    async def overrides(self) -> Mapping[str, str]:
        """See `Admin`."""
        return dict(self.dynamic)

    async def tenants(self) -> tuple[str, ...]:
        """See `Admin`."""
        self._ask("tenants")
        return tuple(sorted(self.known_tenants))

    async def namespaces(self, tenant: str) -> tuple[str, ...]:
        """See `Admin`."""
        self._ask("namespaces")
        if tenant not in self.known_tenants:
            raise UnknownError("Tenant does not exist", status=404)
        return tuple(name for name in self.spaces if name.startswith(f"{tenant}/"))

    async def boundaries(self, namespace: str) -> tuple[int, ...]:
        """See `Admin`."""
        self._ask("boundaries")
        return self._read_edges(namespace)

    async def policies(self, namespace: str) -> Mapping[str, Any]:
        """See `Admin`."""
        self._ask("policies")
        if namespace in self.forbidden:
            raise PulsarRefusedError(f"not allowed to read {namespace}", status=403)
        edges = self._read_edges(namespace)
        bundles = {"boundaries": [f"0x{edge:08x}" for edge in edges], "numBundles": len(edges) - 1}
        return {"bundles": bundles, "deleted": False, "anti_affinity_group": self.groups.get(namespace, "")}

    async def isolation(self, cluster: str) -> Mapping[str, Mapping[str, Any]]:
        """See `Admin`."""
        self.asked["isolation"] += 1
        assert cluster == CLUSTER
        return self.isolations

    async def owned(self, broker: str) -> frozenset[str]:
        """See `Admin`."""
        assert self.extensible, "a modular broker may hang"
        self._ask("owned", broker)
        return self.served(broker)

    async def owner(self, bundle: str, broker: str) -> str:
        """See `Admin`."""
        assert not self.extensible, "the answer of the extensible load manager was not measured"
        self._ask("owner", broker)
        self.located(bundle)
        return self.owners.get(bundle, "")

    async def topic_positions(self, bundle: str) -> Mapping[str, int]:
        """See `Admin`."""
        namespace, lower, upper = self.located(bundle)
        topics = self.topics.get(namespace, {}).items()
        return {name: at for name, at in topics if lower <= at < upper or at == upper == FULL}

    # -- Admin: writes --

    async def override(self, name: str, value: str) -> None:
        """See `Admin`."""
        self.written.append(f"{name}={value}")
        if self.failing:
            self.failing -= 1
            raise PulsarUnavailableError("the metadata store is slow")
        self.dynamic[name] = value

    async def drop_override(self, name: str) -> None:
        """See `Admin`."""
        self.written.append(f"drop {name}")
        self.dynamic.pop(name, None)

    async def create_tenant(self, tenant: str, clusters: Sequence[str]) -> None:
        """See `Admin`."""
        self.written.append(f"tenant {tenant} of {', '.join(clusters)}")
        self.known_tenants.add(tenant)

    async def create_namespace(self, namespace: str, bundles: int) -> None:
        """See `Admin`."""
        self.written.append(f"namespace {namespace} of {bundles}")
        if namespace in self.spaces:
            raise ExistsError(f"{namespace} exists", status=409)
        self.add(namespace, bundles)

    async def set_anti_affinity(self, namespace: str, group: str) -> None:
        """See `Admin`."""
        self.written.append(f"group {namespace} {group}")
        self.groups[namespace] = group

    async def split(self, bundle: str, positions: Sequence[int]) -> None:
        """See `Admin`. The extensible load manager accepts exactly one position."""
        namespace, lower, upper = self.located(bundle)
        self.written.append(f"split {bundle} at {[hex(position) for position in positions]}")
        inside = [position for position in positions if lower < position < upper]
        if self.extensible and len(positions) != 1:
            raise SplitRefusedError("exactly one position", status=412)
        if inside and len(await self.topic_positions(bundle)) > 1:
            self._cut(namespace, [lower, *inside, upper])
        elif self.extensible:
            raise SplitRefusedError(f"{bundle} not found under namespace", status=500)

    # -- inside --

    def _ask(self, call: str, broker: str = "") -> None:
        """Count a call, and raise the error that a test has set for it. broker: the one that is called; empty: any."""
        self.asked[call] += 1
        if broker in self.deaf:
            raise PulsarUnavailableError(f"{broker} does not answer")
        if self.away and not broker:
            raise PulsarUnavailableError("no broker answers")
        if call in self.astray:
            raise UnknownError("404 default backend", status=404)

    def edges(self, namespace: str) -> tuple[int, ...]:
        """Edges of a namespace's bundles; raises `UnknownError`."""
        if namespace not in self.spaces:
            raise UnknownError("Namespace not found", status=404)
        return self.spaces[namespace]

    def _read_edges(self, namespace: str) -> tuple[int, ...]:
        if self.stale and namespace in self._before:
            self.stale -= 1
            return self._before[namespace]
        return self.edges(namespace)

    def located(self, bundle: str) -> tuple[str, int, int]:
        """Namespace and edges of a bundle; raises `StaleBundleError` if none has exactly these edges."""
        namespace, _, edges = bundle.rpartition("/")
        lower, upper = (int(edge, 16) for edge in edges.split("_"))
        if (lower, upper) not in set(pairwise(self.edges(namespace))):
            text = f"Invalid upper boundary for bundle {bundle}. Expected upper boundary of another"
            raise StaleBundleError(text, status=412)
        return namespace, lower, upper

    def served(self, broker: str) -> frozenset[str]:
        """Bundles that `broker` serves."""
        return frozenset(bundle for bundle, owner in self.owners.items() if owner == broker)

    def _cut(self, namespace: str, edges: Sequence[int]) -> None:
        """Replace the bundle between the first and the last of `edges` by the bundles between all of them."""
        self._before[namespace] = self.spaces[namespace]
        self.spaces[namespace] = tuple(sorted({*self.spaces[namespace], *edges}))
        if owner := self.owners.pop(bundle_name(namespace, edges[0], edges[-1]), ""):
            self.owners |= {bundle_name(namespace, *child): owner for child in pairwise(edges)}


def bundle_name(namespace: str, lower: int, upper: int) -> str:
    """Name of the bundle with these edges, in Pulsar's spelling."""
    return f"{namespace}/0x{lower:08x}_0x{upper:08x}"
