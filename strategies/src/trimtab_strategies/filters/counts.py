"""Counts the topics, and the bundles of a namespace or group, on each broker.

The filters and the preferences of namespaces use these numbers. Everything is counted once per snapshot, and updated as
bundles are placed.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray


class BundlesPerBroker:
    """The owners of one snapshot's bundles, as a working copy that follows the placements made so far."""

    def __init__(self, cluster: ClusterLoad) -> None:
        """Start from the owners in `cluster`."""
        self._cluster = cluster
        self._brokers = len(cluster.brokers)
        self._owner = cluster.bundles.owner.copy()
        self._by_namespace: dict[int, IntArray] = {}
        self._by_group: dict[tuple[str, bool], IntArray] = {}

    @cached_property
    def topics(self) -> FloatArray:
        """Topics of each broker (n,); a bundle with an unknown number of topics counts 0."""
        topics = np.nan_to_num(self._cluster.bundles.topics, posinf=0.0, neginf=0.0)
        total: FloatArray = np.bincount(self._owner + 1, weights=topics, minlength=self._brokers + 1)[1:].astype(float)
        return total

    def bundles_of(self, namespace: int) -> IntArray:
        """Number of bundles of a namespace (row) on each broker, (n,)."""
        if namespace not in self._by_namespace:
            self._by_namespace[namespace] = self._count(self._rows(namespace))
        return self._by_namespace[namespace]

    def others(self, bundle: int) -> IntArray:
        """Number of the other bundles of a bundle's namespace on each broker, (n,)."""
        counts = self.bundles_of(int(self._cluster.bundles.namespace[bundle])).copy()
        if (owner := self._owner[bundle]) >= 0:
            counts[owner] -= 1
        return counts

    def of_group(self, group: str, *, by_bundle: bool) -> IntArray:
        """Number of namespaces (`by_bundle`: of bundles) of an anti-affinity group on each broker, (n,)."""
        key = (group, by_bundle)
        if key not in self._by_group:
            counts = [self.bundles_of(space) for space in self._groups.get(group, ())]
            each = counts if by_bundle else [np.minimum(count, 1) for count in counts]
            self._by_group[key] = np.sum(each, axis=0, dtype=np.int64) if each else np.zeros(self._brokers, np.int64)
        return self._by_group[key]

    def moved(self, bundle: int, destination: int) -> None:
        """Count `bundle` (row) on `destination` (row) from now on."""
        source, namespace = int(self._owner[bundle]), int(self._cluster.bundles.namespace[bundle])
        topics, counts = self.topics, self.bundles_of(namespace)
        moved = np.nan_to_num(self._cluster.bundles.topics[bundle], posinf=0.0, neginf=0.0)
        for broker, sign in ((source, -1), (destination, 1)):
            if broker >= 0:
                topics[broker] += sign * moved
                counts[broker] += sign
        self._owner[bundle] = destination
        self._by_group.clear()

    def added(self, bundle: int, broker: int) -> None:
        """Count a child of `bundle` (row) on `broker` (row)."""
        self.bundles_of(int(self._cluster.bundles.namespace[bundle]))[broker] += 1
        self._by_group.clear()

    def _count(self, bundles: IntArray) -> IntArray:
        return np.bincount(self._owner[bundles] + 1, minlength=self._brokers + 1)[1:]

    def _rows(self, namespace: int) -> IntArray:
        order, start = self._order
        rows: IntArray = order[start[namespace] : start[namespace + 1]]
        return rows

    @cached_property
    def _order(self) -> tuple[IntArray, IntArray]:
        """Bundles sorted by namespace, and the position at which each namespace begins."""
        namespace = self._cluster.bundles.namespace
        order = np.argsort(namespace, kind="stable")
        return order, np.searchsorted(namespace[order], np.arange(len(self._cluster.namespaces) + 1))

    @cached_property
    def _groups(self) -> dict[str, list[int]]:
        """Namespaces (rows) of each anti-affinity group. Case does not matter in names of groups."""
        groups: dict[str, list[int]] = {}
        for row, space in enumerate(self._cluster.namespaces):
            policy = self._cluster.policies.get(space)
            if policy is not None and policy.anti_affinity_group:
                groups.setdefault(policy.anti_affinity_group.lower(), []).append(row)
        return groups


class NamespacePreferences:
    """What namespaces prefer among the brokers they may have: those in their zone, or with the fewest of their bundles.

    A preference removes brokers only while others are left, so it never leaves a bundle without an owner. Pulsar has no
    such preferences. Its modular manager spreads all namespaces or none (loadBalancerDistributeBundlesEvenlyEnabled),
    and knows zones only as failure domains of anti-affinity groups.

    crowded: brokers (mask, n) above the overload threshold.
    """

    def __init__(self, cluster: ClusterLoad, counts: BundlesPerBroker, crowded: BoolArray) -> None:
        """Follow `counts`, which counts each bundle that is placed."""
        self._cluster, self._counts, self._crowded = cluster, counts, crowded
        self._zones: dict[str, BoolArray] = {}

    def near(self, bundle: int, rows: IntArray) -> BoolArray:
        """The brokers of `rows` (k) in the zone of a bundle's namespace, without crowded ones; all if there is none."""
        near: BoolArray = (self._of_zone(self._cluster.policy_of(bundle).zone) & ~self._crowded)[rows]
        return near if near.any() else np.ones(len(rows), dtype=bool)

    def even(self, bundle: int, rows: IntArray) -> BoolArray:
        """The brokers of `rows` (k) with the fewest other bundles of a bundle's namespace."""
        others = self._counts.others(bundle)[rows]
        least: BoolArray = others == others.min()
        return least

    def _of_zone(self, zone: str) -> BoolArray:
        if zone not in self._zones:
            domains = [self._cluster.traits_of(row).failure_domain for row in range(len(self._cluster.brokers))]
            self._zones[zone] = np.array([domain == zone for domain in domains], dtype=bool)
        return self._zones[zone]
