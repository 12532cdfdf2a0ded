"""What a namespace prefers among the brokers that it may have: those of its zone, and an even number of its bundles.

A preference removes brokers only while others are left, so it never keeps a bundle without an owner.

Source. Trimtab's own. Pulsar's modular manager spreads all namespaces or none
(loadBalancerDistributeBundlesEvenlyEnabled), and knows zones only as failure domains of anti-affinity groups.
"""

from __future__ import annotations

import numpy as np

from trimtab_strategies.filters.counts import BundlesPerBroker
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, IntArray


class NamespacePreferences:
    """The preferences of one snapshot's namespaces. crowded: brokers (mask, n) above the overload threshold."""

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
