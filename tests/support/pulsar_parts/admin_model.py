"""A Pulsar cluster in memory with the face of `Admin`, as far as the mirror asks it. Counts what it is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

from trimtab_operator.pulsar.client.api import LoadManager
from trimtab_operator.pulsar.client.errors import ExistsError, PulsarRefusedError, PulsarUnavailableError, UnknownError
from trimtab_strategies.hash_ring import default_boundaries


@dataclass
class ModelCluster:
    """spaces: ``tenant/name`` -> edges. owners: bundle (Pulsar's spelling) -> id of the broker that serves it.

    silent: brokers that don't answer. away: nobody tells what there is. stale: boundaries that are told instead of the
    true ones, once for each entry. astray: calls that somebody before Pulsar answers, with a 404 of his own.
    forbidden: namespaces of which nothing is told.
    """

    active: set[str] = field(default_factory=set)
    known_tenants: set[str] = field(default_factory=lambda: {"pulsar", "public"})
    spaces: dict[str, tuple[int, ...]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    isolations: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    away: bool = False
    astray: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    stale: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    written: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, namespace: str, bundles: int) -> list[str]:
        """A namespace, cut into so many bundles; their names."""
        self.known_tenants.add(namespace.partition("/")[0])
        self.spaces[namespace] = tuple(default_boundaries(bundles).tolist())
        return self.bundles(namespace)

    def bundles(self, namespace: str) -> list[str]:
        return [f"{namespace}/0x{a:08x}_0x{b:08x}" for a, b in pairwise(self.spaces[namespace])]

    def serve(self, namespace: str, *ids: str) -> None:
        """Have its bundles served by `ids` in turn."""
        for i, bundle in enumerate(self.bundles(namespace)):
            self.owners[bundle] = ids[i % len(ids)]

    def divide(self, bundle: str) -> list[str]:
        """What Pulsar's own split does: halves, which the owner keeps."""
        namespace, _, text = bundle.rpartition("/")
        lower, upper = (int(edge, 16) for edge in text.split("_"))
        middle = (lower + upper) // 2
        self.spaces[namespace] = tuple(sorted({*self.spaces[namespace], middle}))
        halves = [f"{namespace}/0x{lower:08x}_0x{middle:08x}", f"{namespace}/0x{middle:08x}_0x{upper:08x}"]
        owner = self.owners.pop(bundle)
        self.owners |= dict.fromkeys(halves, owner)
        return halves

    def drop(self, namespace: str) -> None:
        for bundle in self.bundles(namespace):
            self.owners.pop(bundle, None)
        del self.spaces[namespace]

    def _ask(self, what: str) -> None:
        self.asked[what] += 1
        if self.away:
            raise PulsarUnavailableError("nobody answers")
        if what in self.astray:
            raise UnknownError("404 default backend", status=404)

    # -- Admin --

    def without_budget(self) -> Self:
        return self

    async def brokers(self) -> frozenset[str]:
        self.asked["brokers"] += 1
        return frozenset(self.active)

    async def tenants(self) -> tuple[str, ...]:
        self._ask("tenants")
        return tuple(sorted(self.known_tenants))

    async def namespaces(self, tenant: str) -> tuple[str, ...]:
        self._ask("namespaces")
        if tenant not in self.known_tenants:
            raise UnknownError(f"tenant {tenant}", status=404)
        return tuple(name for name in self.spaces if name.startswith(f"{tenant}/"))

    async def policies(self, namespace: str) -> Mapping[str, Any]:
        self._ask("policies")
        if namespace in self.forbidden:
            raise PulsarRefusedError(f"namespace {namespace}", status=403)
        if namespace not in self.spaces:
            raise UnknownError(f"namespace {namespace}", status=404)
        told = self.stale.get(namespace) or [self.spaces[namespace]]
        edges = told.pop(0)
        return {
            "bundles": {"boundaries": [f"0x{edge:08x}" for edge in edges], "numBundles": len(edges) - 1},
            "anti_affinity_group": self.groups.get(namespace, ""),
        }

    async def clusters(self) -> tuple[str, ...]:
        return ("model", "elsewhere")

    async def isolation(self, cluster: str) -> Mapping[str, Mapping[str, Any]]:
        self.asked["isolation"] += 1
        assert cluster == "model"
        return self.isolations

    async def load_manager(self) -> LoadManager:
        return LoadManager.EXTENSIBLE

    async def owned(self, broker: str) -> frozenset[str]:
        self.asked["owned"] += 1
        if broker in self.silent:
            raise PulsarUnavailableError(f"{broker} does not answer")
        return frozenset(bundle for bundle, owner in self.owners.items() if owner == broker)

    async def runtime(self, broker: str) -> Mapping[str, str]:
        self.asked["runtime"] += 1
        assert broker in self.active
        return {"clusterName": "model"}

    async def create_tenant(self, tenant: str, clusters: Sequence[str]) -> None:
        self.written.append(("tenant", tenant, *clusters))
        self.known_tenants.add(tenant)

    async def create_namespace(self, namespace: str, bundles: int) -> None:
        self.written.append(("namespace", namespace, str(bundles)))
        if namespace in self.spaces:
            raise ExistsError(namespace, status=409)
        self.add(namespace, bundles)

    async def set_anti_affinity(self, namespace: str, group: str) -> None:
        self.written.append(("group", namespace, group))
        self.groups[namespace] = group
