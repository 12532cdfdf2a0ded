"""OverloadShedder: a broker above a fixed limit gives its excess away, regardless of the load of the others.

Idea. Each broker is judged alone, by its current usage. A broker that reaches `overload_threshold` sheds its busiest
bundles until the excess, and five points more, have left.

Formula. u = weighted maximum of the resources' usage, t = `overload_threshold`, both as ratios. A broker sheds when
u >= t; wanted = throughput * (u - t + 0.05), where throughput is what the broker itself reports. Its bundles leave in
descending short-term throughput until `wanted` is reached. At least one leaves, so more than `wanted` may leave.

When it helps. As a safety net: nothing moves in normal times, and there is no average that a hot broker could raise.
When it hurts. When the whole cluster is busy, every broker sheds to the others without checking whether they have room.
There is no smoothing, so a broker sheds after a burst of a single cycle. Brokers at 84 and 5 % are left as they are.

Source. Pulsar 4.2.4 `org.apache.pulsar.broker.loadbalance.impl.OverloadShedder`, with equal decisions. One difference:
a broker without known usage takes no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray
from trimtab_strategies.params import Compatibility, Defect, WeightedParams
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.bundle_choice import MARGIN, TWO_TIME_BASES, carried, relieved, reported, sorted_out
from trimtab_strategies.usage import broker_usage

DEFECTS = (
    TWO_TIME_BASES,
    Defect(
        "When every broker is above the limit, all of them shed, and bundles move between brokers that have no room.",
        "Nothing is shed when no broker is below the limit.",
    ),
)
"""Known defects of the original."""


class OverloadShedderParams(WeightedParams):
    """Parameters of OverloadShedder."""

    overload_threshold: Annotated[float, Field(gt=0, le=100)] = 85
    """Percent of usage at which a broker sheds.
    Pulsar: loadBalancerBrokerOverloadedThresholdPercentage"""
    compatibility: Compatibility = Compatibility.JAVA
    """`Java` decides as Pulsar does, `Corrected` without its known defects."""


@dataclass(frozen=True)
class OverloadShedder:
    """See the module. This shedder has no memory."""

    params: OverloadShedderParams

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:  # noqa: ARG002 - stateless
        """Bundles that brokers at or above the limit should give away."""
        usage = broker_usage(cluster, self.params.weights)
        limit = self.params.overload_threshold / 100
        known = np.isfinite(usage)
        over = known & ~(usage < limit)
        if not over.any():
            return Shedding(held_back=(HeldBack("", Reason.BALANCED, self._none_above(cluster, usage)),))
        if self.params.compatibility is Compatibility.CORRECTED and over[known].all():
            text = f"all {known.sum()} brokers are at {self.params.overload_threshold:g} % or more: add brokers"
            return Shedding(held_back=(HeldBack("", Reason.NO_CANDIDATE, text),))
        rows = np.flatnonzero(over)
        wanted = self._throughput(cluster)[rows] * (usage[rows] - limit + MARGIN)
        shares = zip(rows.tolist(), wanted.tolist(), strict=True)
        return sorted_out(relieved(cluster, sheddable, row, share, Reason.OVERLOADED) for row, share in shares)

    def _throughput(self, cluster: ClusterLoad) -> FloatArray:
        java = self.params.compatibility is Compatibility.JAVA
        return reported(cluster)[1] if java else carried(cluster)[1]

    def _none_above(self, cluster: ClusterLoad, usage: FloatArray) -> str:
        """Text that names the broker closest to the limit."""
        if not np.isfinite(usage).any():
            return "no broker's usage is known"
        top = int(np.argmax(usage))
        limit = f"limit {self.params.overload_threshold:g} % (overloadShedder.overloadThreshold)"
        return f"highest is {cluster.brokers.names[top]} at {usage[top] * 100:.1f} %, {limit}"
