"""The limits of a bundle, and functions that splitters share: excess, bundles per namespace, topics of a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field

from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import Compatibility, Defect, PositiveQuantity, StrategyParams, quantity
from trimtab_strategies.protocols import NOTHING
from trimtab_strategies.splitting.boundaries import (
    InvalidBoundaryError,
    SplitAlgorithm,
    can_split,
    checked,
    child_of,
    flow_or_qps_equally_divide,
    range_equally_divide,
    topic_count_equally_divide,
)
from trimtab_strategies.usage import both_directions

REASONS = (Reason.TOPICS, Reason.SESSIONS, Reason.MSG_RATE, Reason.BANDWIDTH)
"""Columns of a bundle's load, in the order in which Pulsar checks them. The first exceeded one is the reason."""

OVERFLOW = Defect(
    original="The bandwidth limit in bytes is computed in 32 bits: at 2048 MiB/s and above it becomes negative (or"
    " small), so every bundle of two topics is split.",
    corrected="The configured limit applies.",
)
"""A defect of both of Pulsar's splitters."""


class SplitLimits(StrategyParams):
    """Limits of a bundle and of a namespace. A bundle is too large only above a limit, not at it."""

    max_topics: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1000
    """The most topics of a bundle.
    Pulsar: loadBalancerNamespaceBundleMaxTopics"""
    max_sessions: Annotated[int, Field(ge=-1, le=2**31 - 1)] = 1000
    """The most producers and consumers of a bundle; 0 or -1 sets no limit.
    Pulsar: loadBalancerNamespaceBundleMaxSessions"""
    max_rate: Annotated[int, Field(ge=1, le=2**31 - 1)] = 30000
    """The most messages/s of a bundle, in and out together.
    Pulsar: loadBalancerNamespaceBundleMaxMsgRate"""
    max_throughput: PositiveQuantity = "100Mi"
    """The most bytes/s of a bundle, in and out together.
    Pulsar: loadBalancerNamespaceBundleMaxBandwidthMbytes in MiB/s"""
    max_bundles: Annotated[int, Field(ge=1, le=2**31 - 1)] = 128
    """The most bundles of a namespace: when it has that many, none of them is split.
    Pulsar: loadBalancerNamespaceMaximumBundles"""

    @property
    def ceilings(self) -> FloatArray:
        """The limits in columns `REASONS`: topics, sessions, msg/s, bytes/s; inf where there is none."""
        sessions = self.max_sessions if self.max_sessions > 0 else np.inf
        return np.array([self.max_topics, sessions, self.max_rate, quantity(self.max_throughput)], dtype=np.float64)


class PulsarSplitParams(SplitLimits):
    """Parameters that both of Pulsar's splitters have in addition to the limits."""

    algorithm: SplitAlgorithm = SplitAlgorithm.RANGE
    """Algorithm that chooses the boundary.
    Pulsar: defaultNamespaceBundleSplitAlgorithm"""
    flow_difference: Annotated[float, Field(ge=0, le=1000)] = 10
    """Percent above the limits that a bundle must reach to be split by `flow_or_qps_equally_divide`.
    Pulsar: flowOrQpsDifferenceThresholdPercentage"""
    compatibility: Compatibility = Compatibility.JAVA
    """`Java` keeps the known defects of the original, `Corrected` fixes them."""

    @property
    def ceilings(self) -> FloatArray:
        """See `SplitLimits`. With `Java`, the bandwidth in bytes overflows like a signed 32-bit number."""
        ceilings = super().ceilings
        if self.compatibility is Compatibility.JAVA:
            ceilings[3] = (quantity(self.max_throughput) + 2**31) % 2**32 - 2**31
        return ceilings


def carried(cluster: ClusterLoad, traffic: FloatArray) -> FloatArray:
    """The load of each bundle, (m, 4) in columns `REASONS`, with rates and throughputs of `traffic` (m, 4)."""
    return np.stack([cluster.bundles.topics, cluster.bundles.sessions, *both_directions(traffic)], axis=1)


def first_exceeded(load: FloatArray, ceilings: FloatArray) -> IntArray:
    """(m,) the first column of each bundle's `load` (m, 4) that is above its ceiling; -1 if none. NaN is above none."""
    above = load > ceilings
    first: IntArray = np.where(above.any(axis=1), np.argmax(above, axis=1), -1)
    return first


def bundle_counts(cluster: ClusterLoad) -> IntArray:
    """How many bundles each namespace has."""
    return np.bincount(cluster.bundles.namespace, minlength=len(cluster.namespaces)).astype(np.int64)


def by_name(cluster: ClusterLoad, rows: IntArray) -> IntArray:
    """Bundles (rows) by their owner's name, then their own: an order that does not depend on the order of rows."""
    brokers, names = cluster.brokers.names, cluster.bundles.names
    owner = cluster.bundles.owner
    return np.array(sorted(rows.tolist(), key=lambda row: (brokers[owner[row]], names[row])), dtype=np.int64)


def held_back(cluster: ClusterLoad, rows: Sequence[int] | IntArray, reason: Reason, words: str) -> list[HeldBack]:
    """One entry for all bundles (rows) that were not split because of `reason`; no entry if there are no bundles."""
    if not len(rows):
        return []
    names = cluster.bundles.names
    if len(rows) == 1:
        return [HeldBack(names[rows[0]], reason, words)]
    return [HeldBack("", reason, f"{counted(len(rows), 'bundle')}, first {names[rows[0]]}: {words}", len(rows))]


def none_above(cluster: ClusterLoad, load: FloatArray, ceilings: FloatArray, among: BoolArray) -> HeldBack:
    """The entry when no bundle is too large. It names those of `among` (mask, m) that are closest to a limit."""
    known = np.isfinite(load) & among[:, np.newaxis]
    highest = np.max(load, axis=0, where=known, initial=0.0)
    with np.errstate(divide="ignore", invalid="ignore"):  # a ceiling that overflowed can be 0
        fill = np.nan_to_num(highest / ceilings, posinf=0.0, neginf=0.0)
    column = int(np.argmax(fill))
    if not fill[column] > 0:
        return HeldBack("", Reason.BALANCED, "no split: no bundle that may be split has any load")
    tops = np.flatnonzero(among & (load[:, column] == highest[column]))
    which = cluster.bundles.names[tops[0]] if len(tops) == 1 else counted(len(tops), "bundle")
    closest = f"closest {'is' if len(tops) == 1 else 'are'} {which} at {fill[column]:.0%} of {REASONS[column]}"
    return HeldBack("", Reason.BALANCED, f"no split: no bundle exceeds its limits; {closest}")


class Inside:
    """The known topics of each bundle."""

    def __init__(self, cluster: ClusterLoad) -> None:
        """The topics of one snapshot; grouped on first use."""
        self.cluster = cluster

    @cached_property
    def _grouped(self) -> tuple[IntArray, IntArray]:
        order = np.argsort(self.cluster.topics.bundle, kind="stable")
        return order, self.cluster.topics.bundle[order]

    def of(self, bundle: int) -> IntArray:
        """Rows of the topics of a bundle (row)."""
        if not len(self.cluster.topics.bundle):
            return NOTHING
        order, sorted_bundles = self._grouped
        start, end = np.searchsorted(sorted_bundles, [bundle, bundle + 1])
        return order[start:end]

    def load(self, topics: IntArray) -> FloatArray:
        """Messages and bytes a second of topics (rows, t): (t, 2)."""
        return np.stack(both_directions(self.cluster.topics.traffic[topics]), axis=1)

    def shares(self, bundle: int, boundaries: IntArray) -> FloatArray:
        """Ratio 0-1 of a bundle's load in each child, summing to 1.

        The ratios follow the bytes of the bundle's topics. If no topic has bytes, they follow the number of topics; if
        no topics are known, the width of the children. Invalid bytes (NaN, infinite, negative) count 0.
        """
        topics = self.of(bundle)
        lower, upper = parse_bundle(self.cluster.bundles.names[bundle])[1:]
        if not len(topics):
            widths = [right - left for left, right in pairwise([lower, *boundaries.tolist(), upper])]
            return np.array(widths) / (upper - lower)
        child = child_of(boundaries, self.cluster.topics.place[topics])
        weights = np.maximum(np.nan_to_num(self.load(topics)[:, 1], posinf=0.0), 0.0)
        if not weights.sum() > 0:
            weights = np.ones(len(topics))
        shares: FloatArray = np.bincount(child, weights, minlength=len(boundaries) + 1) / weights.sum()
        return shares


def valid_boundaries(inside: Inside, bundle: int, params: PulsarSplitParams) -> IntArray | None:
    """Boundaries that divide a bundle (row), by `params.algorithm`; None if there are none, or one is not inside."""
    _, lower, upper = parse_bundle(inside.cluster.bundles.names[bundle])
    if params.algorithm is SplitAlgorithm.RANGE:
        return range_equally_divide(lower, upper) if can_split(lower, upper) else None  # the middle is always inside
    found = _between_topics(inside, inside.of(bundle), params)
    if found is None or not len(found):
        return None
    try:
        return checked(lower, upper, found)
    except InvalidBoundaryError:
        return None


def _between_topics(inside: Inside, topics: IntArray, params: PulsarSplitParams) -> IntArray | None:
    """Boundaries between topics (rows), which may not be strictly inside their bundle; None or empty: no boundary."""
    places = inside.cluster.topics.place[topics]
    if params.algorithm is SplitAlgorithm.TOPIC_COUNT:
        return topic_count_equally_divide(places)
    load = inside.load(topics)
    known = np.isfinite(load).all(axis=1)
    return flow_or_qps_equally_divide(
        places[known],
        load[known, 0],
        load[known, 1],
        max_rate=params.max_rate,
        max_throughput=quantity(params.max_throughput),
        difference=params.flow_difference,
        compatibility=params.compatibility,
    )
