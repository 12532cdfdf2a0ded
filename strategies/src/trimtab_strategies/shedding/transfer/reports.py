"""The bundles that TransferShedder knows: the heaviest of each broker, lightest first, and which of them may move.

Pulsar's brokers report only their heaviest bundles. `SnapshotReports` computes such `Reports` from a snapshot of the
cluster with all bundles.
"""

from __future__ import annotations

from functools import cached_property
from heapq import nlargest
from typing import Protocol

import numpy as np

from trimtab_strategies.filters import SYSTEM_NAMESPACE, ActiveSelection
from trimtab_strategies.hash_ring import is_monitoring
from trimtab_strategies.model import NO_POLICY, THROUGHPUT_IN, THROUGHPUT_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.usage import reported_steps


class Reports(Protocol):
    """The brokers' reports of their heaviest bundles. Brokers and bundles are rows."""

    def of(self, broker: int) -> IntArray | None:
        """A broker's heaviest bundles, lightest first; None if it reported none."""

    def throughput(self, bundle: int) -> float:
        """Throughput of a bundle in plus out, bytes/s."""

    def may_leave(self, bundle: int) -> bool:
        """Whether a reported bundle may be given away."""

    def may_return(self, bundle: int) -> bool:
        """Whether a reported bundle may be given in exchange for another."""

    def transferable(self, bundle: int, destination: int) -> bool:
        """Whether policies let a bundle go to a broker."""


def heaviest(cluster: ClusterLoad, bundles: IntArray, count: int, weight: IntArray | FloatArray) -> IntArray:
    """The `count` heaviest of `bundles` (rows, k), lightest first. Among ties the later name counts as heavier.

    weight: (k, c) compared column by column, the first column first.
    """
    if count < len(bundles):
        edge = np.partition(weight[:, 0], -count)[-count]
        within = weight[:, 0] >= edge  # the first column already rules out the others
        bundles, weight = bundles[within], weight[within]
    order = np.lexsort(weight.T[::-1])
    if count < len(bundles):
        equal = np.flatnonzero((weight[order] == weight[order[-count]]).all(axis=1))
        tied, above = order[equal], order[equal[-1] + 1 :]
        by_name = zip((cluster.bundles.names[row] for row in bundles[tied].tolist()), tied.tolist(), strict=True)
        chosen = [k for _, k in nlargest(count - len(above), by_name)]
        order = np.concatenate([np.array(chosen, dtype=np.int64), above])
    columns, rows = weight[order].tolist(), bundles[order].tolist()
    named = sorted(zip(columns, (cluster.bundles.names[row] for row in rows), rows, strict=True))
    return np.array([row for _, _, row in named], dtype=np.int64)


class SnapshotReports:
    """Reports computed from a snapshot of the cluster.

    They leave out bundles without throughput, and bundles of Pulsar's own namespaces and of the `excluded` ones. Unless
    `with_policies`, they also leave out bundles of namespaces with an isolation or anti-affinity policy.
    """

    def __init__(
        self,
        cluster: ClusterLoad,
        sheddable: BoolArray,
        selecting: ActiveSelection,
        *,
        count: int,
        excluded: tuple[str, ...] = (),
        with_policies: bool = False,
        in_steps: bool = True,
    ) -> None:
        """Report the `count` heaviest bundles of each broker, in Pulsar's order if `in_steps`, else by throughput.

        sheddable: (mask, m) the bundles that may move. selecting: the extensible load manager's destination filters.
        """
        self._cluster, self._sheddable, self._selecting = cluster, sheddable, selecting
        self._count, self._excluded, self._with_policies, self._in_steps = count, excluded, with_policies, in_steps
        self._receivers = np.flatnonzero(cluster.brokers.ready & cluster.brokers.schedulable)
        self._reported: dict[int, IntArray] = {}
        self._open: dict[int, bool] = {}
        self._candidates: dict[int, BoolArray] = {}

    def of(self, broker: int) -> IntArray | None:
        """See `Reports`."""
        if broker not in self._reported:
            self._reported[broker] = self._report(self._cluster.bundles.owned_by(broker))
        return self._reported[broker]

    def throughput(self, bundle: int) -> float:
        """See `Reports`."""
        short = self._cluster.bundles.short[bundle]
        return float(short[THROUGHPUT_IN] + short[THROUGHPUT_OUT])

    def may_leave(self, bundle: int) -> bool:
        """See `Reports`."""
        return bool(self._sheddable[bundle])

    def may_return(self, bundle: int) -> bool:
        """See `Reports`."""
        return bool(self._sheddable[bundle])

    def transferable(self, bundle: int, destination: int) -> bool:
        """See `Reports`. The policies are the filters of the extensible load manager."""
        return bool(self._candidates_of(bundle)[destination])

    def _report(self, owned: IntArray) -> IntArray:
        short = self._cluster.bundles.short[owned]
        throughput = short[:, THROUGHPUT_IN] + short[:, THROUGHPUT_OUT]
        busy = np.isfinite(throughput) & (throughput > 0) & self._open_to_reports(owned)
        return heaviest(self._cluster, owned[busy], self._count, self._weight(owned[busy], throughput[busy]))

    def _weight(self, bundles: IntArray, throughput: FloatArray) -> IntArray | FloatArray:
        if not self._in_steps:
            return throughput[:, np.newaxis]
        known = self._cluster.bundles
        sessions = np.nan_to_num([known.topics[bundles], known.sessions[bundles]], posinf=0.0, neginf=0.0).sum(axis=0)
        return reported_steps(np.nan_to_num(known.short[bundles]), sessions, np.zeros(len(bundles)))

    def _open_to_reports(self, bundles: IntArray) -> BoolArray:
        namespaces = self._cluster.bundles.namespace[bundles]
        closed = [space for space in set(namespaces.tolist()) if not self._is_open(space)]
        return ~np.isin(namespaces, closed) if closed else np.ones(len(bundles), dtype=bool)

    def _is_open(self, namespace: int) -> bool:
        """Whether the bundles of a namespace (row) are reported."""
        if namespace not in self._open:
            name = self._cluster.namespaces[namespace]
            policy = self._cluster.policies.get(name, NO_POLICY)
            bound = policy.isolation is not None or bool(policy.anti_affinity_group)
            own = name == SYSTEM_NAMESPACE or is_monitoring(name)
            self._open[namespace] = not (own or name in self._excluded or (bound and not self._with_policies))
        return self._open[namespace]

    @cached_property
    def _kinds(self) -> IntArray:
        return self._selecting.kinds()

    def _candidates_of(self, bundle: int) -> BoolArray:
        """The brokers (mask, n) that may own the bundle."""
        kind = int(self._kinds[bundle])
        if kind not in self._candidates:
            among = np.zeros(len(self._cluster.brokers), dtype=bool)
            verdict = self._selecting.candidates(bundle, self._receivers)
            among[self._receivers[verdict.allowed]] = True
            self._candidates[kind] = among
        return self._candidates[kind]
