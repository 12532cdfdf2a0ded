"""BundleSplitterTask: a bundle that is too large is split in the same cycle, on any broker.

Idea. The leader checks the last report of every broker. A bundle of two topics or more that exceeds one of four limits
is split, as long as its namespace has fewer bundles than it may have.

Formula. too large = topics > max_topics, or sessions > max_sessions, or rate > max_rate, or throughput >
max_throughput. Topics and sessions are current; rate and throughput are long-term averages (0 if never averaged). Of a
namespace with c bundles at most max_bundles - c are chosen, ordered by the names of their owners, then by their own.

When it helps. When a namespace outgrows its first few bundles. A burst of traffic splits nothing, because the averages
are long-term. When it hurts. When a bundle has one hot topic: halving the range does not divide the topic, and the next
cycle halves again, until the namespace is full of empty bundles. There is no hit count and no cap per cycle, and a
split is permanent.

Source. Pulsar 4.2.4 `org.apache.pulsar.broker.loadbalance.impl.BundleSplitterTask`, with equal decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.protocols import SplitCandidate, Splitting
from trimtab_strategies.splitting.boundaries import DEFECTS as BOUNDARY_DEFECTS, can_split
from trimtab_strategies.splitting.limits import (
    OVERFLOW,
    REASONS,
    Inside,
    PulsarSplitParams,
    bundle_counts,
    by_name,
    carried,
    first_exceeded,
    held_back,
    none_above,
    valid_boundaries,
)

DEFECTS = (OVERFLOW, *BOUNDARY_DEFECTS)

FEWEST_BROKERS = 2
"""Bundles are split only if at least this many brokers are ready."""


class BundleSplitterTaskParams(PulsarSplitParams):
    """Parameters of BundleSplitterTask."""

    unload: bool = True
    """Whether the children get new owners. Otherwise they stay with the bundle's owner.
    Pulsar: loadBalancerAutoUnloadSplitBundlesEnabled"""


@dataclass(frozen=True)
class BundleSplitterTask:
    """See the module. This splitter has no memory."""

    params: BundleSplitterTaskParams

    def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
        """Split every splittable bundle that exceeds a limit, as long as its namespace may have more bundles."""
        brokers = int(cluster.brokers.ready.sum())
        if brokers < FEWEST_BROKERS:
            words = f"{brokers} of {len(cluster.brokers)} brokers are ready: splitting needs {FEWEST_BROKERS}"
            return Splitting((), (HeldBack("", Reason.NO_BROKERS, words),), memory)
        load = self.load(cluster)
        exceeded = self.too_large(load)
        rows = by_name(cluster, np.flatnonzero(splittable & (cluster.bundles.owner >= 0) & (exceeded >= 0)))
        chosen, full = self.with_room(cluster, rows, bundle_counts(cluster))
        proposed, failed = self.proposed(cluster, chosen, exceeded)
        left_out = held_back(cluster, full, Reason.MAX_BUNDLES, f"a namespace has at most {self.params.max_bundles}")
        if not len(rows):
            left_out = [none_above(cluster, load, self.params.ceilings, splittable)]
        return Splitting(tuple(proposed), (*left_out, *failed), memory)

    def load(self, cluster: ClusterLoad) -> FloatArray:
        """The load of each bundle, (m, 4) in columns `REASONS`; 0 where it was never averaged."""
        return np.nan_to_num(carried(cluster, cluster.bundles.long), nan=0.0, posinf=np.inf, neginf=-np.inf)

    def too_large(self, load: FloatArray) -> IntArray:
        """The column of the limit that each bundle exceeds (m,), -1 if none or with too few topics. `load`: (m, 4)."""
        return np.where(load[:, 0] < 2, -1, first_exceeded(load, self.params.ceilings))  # noqa: PLR2004 - see the module

    def with_room(self, cluster: ClusterLoad, rows: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
        """Those of `rows`, in order, whose namespace may have one more bundle, and the others.

        counts: (namespaces,) current numbers of bundles.
        """
        spaces = cluster.bundles.namespace[rows]
        order = np.argsort(spaces, kind="stable")
        place = np.empty(len(rows), dtype=np.int64)  # number of earlier rows of the same namespace
        place[order] = np.arange(len(rows)) - np.searchsorted(spaces[order], spaces[order])
        fits = counts[spaces] + place < self.params.max_bundles
        return rows[fits], rows[~fits]

    def proposed(
        self, cluster: ClusterLoad, rows: IntArray, exceeded: IntArray
    ) -> tuple[list[SplitCandidate], list[HeldBack]]:
        """A split for each of `rows` that can be split, and why the others can't."""
        inside = Inside(cluster)
        proposed, narrow, nowhere = [], [], []
        for row in rows.tolist():
            _, lower, upper = parse_bundle(cluster.bundles.names[row])
            if not can_split(lower, upper):
                narrow.append(row)
                continue
            found = valid_boundaries(inside, row, self.params)
            if found is None:
                nowhere.append(row)
                continue
            reason = REASONS[exceeded[row]]
            shares = inside.shares(row, found) if self.params.unload else np.empty(0)
            proposed.append(SplitCandidate(row, found, reason, spread=self.params.unload, shares=shares))
        words = f"{self.params.algorithm} finds no boundary among the topics it knows"
        return proposed, [
            *held_back(cluster, narrow, Reason.TOO_NARROW, "a single hash wide"),
            *held_back(cluster, nowhere, Reason.TOO_FEW_TOPICS, words),
        ]
