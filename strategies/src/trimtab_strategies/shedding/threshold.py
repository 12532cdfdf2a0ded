"""ThresholdShedder: a broker well above the average gives some load away.

Idea. Smooth each broker's usage over the cycles. A broker whose smoothed usage reaches the average of all plus
`threshold` points sheds its busiest bundles until the excess, and five points more, have left.

Formula. u = weighted maximum of the resources' percent; ema = history * ema + (1 - history) * u; a = mean of ema.
A broker sheds when ema >= a + t; wanted = throughput * (ema - a - t + 0.05), where throughput is what the broker itself
reports. Its bundles leave in descending short-term throughput until `wanted` is reached. At least one leaves, so more
than `wanted` may leave. With `lower_boundary`, if no broker sheds and some broker is more than t below the average, the
busiest broker sheds t / 2 of its throughput.

When it helps. In any cluster of similar brokers. This shedder is Pulsar's default up to 4.x, so many people know how it
behaves.
When it hurts. With few brokers: one hot broker raises the average, so two brokers at 90 and 72 % stay as they are. With
a single large bundle. After a burst: smoothed usage lags, and a broker that is no longer busy continues to shed.

Source. Pulsar 4.2.4 `org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder`, with equal decisions. One difference:
a broker without known usage takes no part, where Pulsar would compute with minus infinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import Compatibility, Defect, Percent, Quantity, WeightedParams, quantity
from trimtab_strategies.protocols import Shedding, Unload, recall, remember
from trimtab_strategies.shedding.bundle_choice import (
    MARGIN,
    TWO_TIME_BASES,
    carried,
    least_throughput,
    relieved,
    reported,
    sorted_out,
    too_little,
)
from trimtab_strategies.usage import broker_usage, mean, smooth

DEFECTS = (
    TWO_TIME_BASES,
    Defect(
        "With the lower boundary, the smoothed usage advances twice in a cycle without a broker above the threshold.",
        "It advances once a cycle.",
    ),
)
"""Known defects of the original."""


class ThresholdShedderParams(WeightedParams):
    """Parameters of ThresholdShedder."""

    threshold: Annotated[float, Field(gt=0, le=100)] = 10
    """Percentage points above the average of all brokers at which a broker sheds.
    Pulsar: loadBalancerBrokerThresholdShedderPercentage"""
    history_percent: Percent = 90
    """Percent of the smoothed usage that comes from earlier cycles; 0 uses only this cycle.
    Pulsar: loadBalancerHistoryResourcePercentage in 0-1"""
    min_throughput: Quantity = "10Mi"
    """Bytes/s: a broker that wants to shed less than this sheds nothing.
    Pulsar: loadBalancerBundleUnloadMinThroughputThreshold in MiB/s"""
    lower_boundary: bool = False
    """Whether the busiest broker also sheds when some broker is far below the average.
    Pulsar: lowerBoundarySheddingEnabled"""
    compatibility: Compatibility = Compatibility.JAVA
    """`Java` decides as Pulsar does, `Corrected` without its known defects."""

    @property
    def java(self) -> bool:
        """Whether the defects are kept."""
        return self.compatibility is Compatibility.JAVA


@dataclass(frozen=True)
class ThresholdShedder:
    """See the module. Memory: ``brokers.ema``, the smoothed usage (ratio) of each broker."""

    params: ThresholdShedderParams

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """Bundles that brokers at or above the average plus the threshold should give away."""
        usage = broker_usage(cluster, self.params.weights)
        brokers = np.flatnonzero(np.isfinite(usage))
        names = [cluster.brokers.names[row] for row in brokers]
        view = _ThresholdView(cluster, sheddable, brokers, self.params)
        ema = smooth(recall(memory, "ema", names), usage[brokers], self.params.history_percent / 100)
        shedding = view.upper(ema)
        if self.params.lower_boundary and not shedding.unloads and mean(ema) != 0:
            # Pulsar recomputes the averages here. So with this switch they advance twice if `upper` shed nothing.
            ema = smooth(ema, usage[brokers], self.params.history_percent / 100 if self.params.java else 1)
            shedding = view.lower(ema, shedding)
        return Shedding(shedding.unloads, shedding.held_back, remember(memory, "ema", names, ema))


@dataclass(frozen=True)
class _ThresholdView:
    """The cluster reduced to the `brokers` (rows, k) that take part."""

    cluster: ClusterLoad
    sheddable: BoolArray
    brokers: IntArray
    params: ThresholdShedderParams

    @property
    def threshold(self) -> float:
        """Ratio above the average at which a broker sheds."""
        return self.params.threshold / 100

    @property
    def throughput(self) -> FloatArray:
        """Throughput that the brokers report, bytes/s (k,). Corrected: the sums of their bundles' averages."""
        _, of_all = reported(self.cluster) if self.params.java else carried(self.cluster)
        return of_all[self.brokers]

    def upper(self, ema: FloatArray) -> Shedding:
        """Every broker at or above the average plus the threshold sheds its excess. ema: smoothed usage (ratio, k)."""
        average = mean(ema)
        if average == 0:
            return Shedding(held_back=(HeldBack("", Reason.BALANCED, "no broker is used at all"),))
        hit = np.flatnonzero(~(ema < average + self.threshold))
        wanted = self.throughput * (ema - average - self.threshold + MARGIN)
        found = [self.relieve(int(self.brokers[k]), float(wanted[k]), Reason.OVERLOADED) for k in hit]
        if not found:
            found = [HeldBack("", Reason.BALANCED, self.none_above(ema, average))]
        return sorted_out(found)

    def lower(self, ema: FloatArray, before: Shedding) -> Shedding:
        """The busiest broker sheds throughput * t / 2 if some broker is below the average minus the threshold t."""
        floor = mean(ema) - self.threshold
        many = np.array([len(self.cluster.bundles.owned_by(int(row))) > 1 for row in self.brokers], dtype=bool)
        may = many & (ema > floor)
        if not may.any() or not (ema < floor).any():
            return before
        busiest = int(np.argmax(np.where(may, ema, -np.inf)))
        wanted = float(self.throughput[busiest]) * self.threshold * 0.5
        shedding = sorted_out([self.relieve(int(self.brokers[busiest]), wanted, Reason.UNDERLOADED)])
        return Shedding(shedding.unloads, before.held_back + shedding.held_back if not shedding.unloads else ())

    def relieve(self, broker: int, wanted: float, reason: Reason) -> Unload | HeldBack:
        """The busiest sheddable bundles of `broker` (row) that together reach `wanted` bytes/s, or why none leaves."""
        if not wanted >= quantity(self.params.min_throughput):
            least = self.params.min_throughput
            volume = least_throughput("thresholdShedder.minThroughput", least, wanted)
            return too_little(self.cluster.brokers.names[broker], volume)
        return relieved(self.cluster, self.sheddable, broker, wanted, reason)

    def none_above(self, ema: FloatArray, average: float) -> str:
        """Text that names the broker closest to the threshold."""
        top = int(np.argmax(ema))
        name = self.cluster.brokers.names[self.brokers[top]]
        return (
            f"highest is {name} at {ema[top] * 100:.1f} %, average {average * 100:.1f} %,"
            f" threshold {self.params.threshold:g} points above it (thresholdShedder.threshold)"
        )
