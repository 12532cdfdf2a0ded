"""UniformLoadShedder: the busiest broker gives away a share of its lead over the idlest.

Idea. Compare the brokers by the messages and the bytes that they report, not by percent of CPU or network. When the
busiest has much more than the idlest, some bundles leave it, together at most a share of the difference.

Formula. Messages count when (max - min) * 100 / min > `rate_difference`, bytes when max / min > `throughput_factor`;
messages come first. wanted = (max - min) * `max_unload_percent` / 100. Nothing leaves if `wanted` is below `min_rate`
or `min_throughput`. The busiest broker's bundles are visited in descending order. Each one that fits into the rest of
`wanted` leaves.

When it helps. With similar brokers, if traffic costs the same per message or per byte on all of them. It never
overshoots, because a bundle that does not fit stays.
When it hurts. With brokers of different sizes: it makes them equal in traffic, not in usage. With new brokers: a broker
that is almost idle makes the ratio huge, even if the others do little. It relieves only one broker per cycle, and
smooths nothing.

Source. Pulsar 4.2.4 `org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder`, with equal decisions. Among brokers
that tie, the first one in the order of Java's hash map sheds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.java_compat import concurrent_map_order
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import Compatibility, Defect, PositivePercent, Quantity, StrategyParams, quantity
from trimtab_strategies.protocols import Shedding, Unload
from trimtab_strategies.shedding.bundle_choice import (
    least_rate,
    least_throughput,
    reported,
    sole_bundle,
    that_fit,
    too_little,
)
from trimtab_strategies.usage import both_directions

LARGEST_INT = 2147483647
SMALLEST_INT = -2147483648
ALMOST_NOTHING = 1e-6
"""If the idlest broker has less traffic than this, it counts as having 1, to avoid a division by zero."""

DEFECTS = (
    Defect(
        "The search for the idlest broker starts at 2,147,483,647. When all brokers have more bytes/s than that, this"
        " number counts as the idlest broker's traffic.",
        "The idlest broker's real traffic counts.",
    ),
    Defect(
        "Amounts are cut to whole 32-bit numbers: above 2 GiB/s the amount to shed is too small, and fractions of a"
        " bundle's traffic do not count.",
        "Amounts are exact.",
    ),
    Defect(
        "When message rates differ too much, but no bundle can move to even them out, bytes are not tried.",
        "Then bytes are tried.",
    ),
    Defect("Bundles without any traffic are unloaded as well: they always fit.", "Bundles without traffic stay."),
)
"""Known defects of the original."""


class UniformLoadShedderParams(StrategyParams):
    """Parameters of UniformLoadShedder."""

    rate_difference: Annotated[float, Field(ge=0)] = 50
    """Percent by which the messages/s of the busiest broker may exceed those of the idlest; 0 ignores messages.
    Pulsar: loadBalancerMsgRateDifferenceShedderThreshold"""
    throughput_factor: Annotated[float, Field(ge=0)] = 4
    """Factor by which the bytes/s of the busiest broker may exceed those of the idlest; 0 ignores bytes.
    Pulsar: loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold"""
    max_unload_percent: PositivePercent = 20
    """Percent of the difference that may leave in one cycle.
    Pulsar: maxUnloadPercentage in 0-1"""
    min_rate: Annotated[int, Field(ge=0)] = 1000
    """Minimum amount to move, in messages/s. A smaller amount does not move.
    Pulsar: minUnloadMessage"""
    min_throughput: Quantity = "1Mi"
    """Minimum amount to move, in bytes/s. A smaller amount does not move.
    Pulsar: minUnloadMessageThroughput in bytes/s"""
    max_bundles: Annotated[int, Field(ge=-1)] = -1
    """The most bundles that leave in one cycle; -1 sets no limit.
    Pulsar: maxUnloadBundleNumPerShedding"""
    compatibility: Compatibility = Compatibility.JAVA
    """`Java` decides as Pulsar does, `Corrected` without its known defects."""


@dataclass(frozen=True)
class UniformLoadShedder:
    """See the module. This shedder has no memory."""

    params: UniformLoadShedderParams

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:  # noqa: ARG002 - stateless
        """Bundles that the busiest broker should give away."""
        scales = [_Scale.of(column, values, self.java) for column, values in enumerate(reported(cluster))]
        exceeded = [scale for scale in scales if self._exceeded(scale)]
        if not exceeded:
            return Shedding(held_back=(HeldBack("", Reason.BALANCED, f"{_level(scales)}; {self._needed()}"),))
        held_back = []
        for scale in exceeded[:1] if self.java else exceeded:
            answer = self._relieved(cluster, sheddable, scale)
            if isinstance(answer, Unload):
                return Shedding((answer,))
            held_back.append(answer)
        return Shedding(held_back=tuple(held_back))

    @property
    def java(self) -> bool:
        """Whether the defects are kept."""
        return self.params.compatibility is Compatibility.JAVA

    def _needed(self) -> str:
        """The differences at which a broker sheds, with their fields."""
        rate, factor = self.params.rate_difference, self.params.throughput_factor
        needed = [f"{rate:g} % more messages (uniformLoadShedder.rateDifference)"] if rate > 0 else []
        needed += [f"{factor:g} times the bytes (uniformLoadShedder.throughputFactor)"] if factor > 0 else []
        return f"more than {' or '.join(needed)} would act" if needed else "both rules are off"

    def _exceeded(self, scale: _Scale) -> bool:
        allowed = (self.params.rate_difference, self.params.throughput_factor)[scale.column]
        return allowed > 0 and scale.difference > allowed

    def _relieved(self, cluster: ClusterLoad, sheddable: BoolArray, scale: _Scale) -> Unload | HeldBack:
        """The bundles that leave the busiest broker of `scale`, or why none do."""
        broker = self._first(cluster, np.flatnonzero(scale.values == scale.most))
        name, owned = cluster.brokers.names[broker], cluster.bundles.owned_by(broker)
        if len(owned) == 1:
            return sole_bundle(cluster, broker)
        least = (self.params.min_rate, quantity(self.params.min_throughput))[scale.column]
        wanted = (scale.most - scale.least) * (self.params.max_unload_percent / 100)
        wanted = _to_int(wanted) if self.java else wanted
        if wanted < least:
            rate, throughput = self.params.min_rate, self.params.min_throughput
            if scale.column == 0:
                return too_little(name, least_rate("uniformLoadShedder.minRate", rate, wanted))
            return too_little(name, least_throughput("uniformLoadShedder.minThroughput", throughput, wanted))
        may = owned[sheddable[owned]]
        rows = may[self._taken(both_directions(cluster.bundles.short[may])[scale.column], wanted)]
        if not len(rows):
            text = f"of its {len(owned)} bundles, none that may leave fits into {wanted:.4g} {scale.unit}"
            return HeldBack(name, Reason.NO_BUNDLES, text)
        return Unload(broker, rows, Reason.OVERLOADED)

    def _first(self, cluster: ClusterLoad, tied: IntArray) -> int:
        """The first of several equally busy brokers (rows) in the order of Java's map, or by name."""
        names = {cluster.brokers.names[row] for row in tied}
        walked = concurrent_map_order(cluster.brokers.names) if self.java and len(names) > 1 else sorted(names)
        return cluster.brokers.index[next(name for name in walked if name in names)]

    def _taken(self, values: FloatArray, wanted: float) -> IntArray:
        """Positions in `values` of the bundles that leave."""
        some = np.arange(len(values)) if self.java else np.flatnonzero(values > 0)
        taken = some[that_fit(values[some], wanted, whole=self.java)]
        return taken if self.params.max_bundles == -1 else taken[: max(0, self.params.max_bundles)]


@dataclass(frozen=True)
class _Scale:
    """One of the two ways to compare brokers: by message rate (column 0) or by throughput (1). NaN is left out."""

    column: int
    values: FloatArray
    most: float
    least: float

    @classmethod
    def of(cls, column: int, values: FloatArray, java: bool) -> _Scale:  # noqa: FBT001 - readable at its only call
        most = float(np.fmax.reduce(values, initial=-1.0))
        least = float(np.fmin.reduce(values, initial=LARGEST_INT if java else np.inf))
        return cls(column, values, most, 1.0 if abs(least) <= ALMOST_NOTHING else least)

    @property
    def unit(self) -> str:
        return ("msg/s", "bytes/s")[self.column]

    @property
    def difference(self) -> float:
        """For message rates, percent by which `most` exceeds `least`. For throughput, `most` divided by `least`."""
        if not np.isfinite(self.least):
            return 0.0
        return (self.most - self.least) * 100 / self.least if self.column == 0 else self.most / self.least


def _level(scales: list[_Scale]) -> str:
    if not np.isfinite(scales[0].values).any():
        return "no broker's traffic is known"
    rate, throughput = scales
    return (
        f"{rate.most:.4g} msg/s at most and {rate.least:.4g} at least,"
        f" {throughput.most:.4g} bytes/s at most and {throughput.least:.4g} at least"
    )


def _to_int(value: float) -> int:
    """Java's cast to int: rounds towards zero and saturates; NaN gives 0."""
    return 0 if np.isnan(value) else int(min(max(value, SMALLEST_INT), LARGEST_INT))
