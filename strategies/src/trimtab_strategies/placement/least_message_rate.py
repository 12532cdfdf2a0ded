"""LeastLongTermMessageRate: the broker with the fewest messages, over a long time.

Idea. A broker's load is the sum of the long-term message rates of its bundles, including those that it received since
the last snapshot. The least loaded broker gets the bundle. A broker above `overload_threshold` gets none.

Formula. score = long-term rate, in plus out, summed over the bundles that a broker owns or has just received; infinite
when the broker's usage (weighted maximum of the resources' percent) is above `overload_threshold`. best = the
candidates with the least score, or all of them when every candidate is overloaded. A bundle that was never averaged
counts 50 messages/s in each direction.

When it helps. Similar brokers and messages of similar size. Bundles that are placed together spread well, because each
placement counts the ones before it. It is Pulsar's default placement up to 4.x.
When it hurts. Messages of very different sizes or cost, brokers of different sizes: it counts messages, not usage. A
new broker gets everything until it has as many messages as the others.

Source. Pulsar 4.2.4 `org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate`, with equal decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.model import RATE_IN, RATE_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.params import WeightedParams
from trimtab_strategies.protocols import Choice, recall, remember
from trimtab_strategies.usage import overloaded

UNKNOWN_RATE = 50.0
"""Messages/s in, and out, of a bundle that was never averaged."""

LARGEST_RATE = 1e300
"""Messages/s that stand for infinity, which JSON does not have."""


class LeastLongTermMessageRateParams(WeightedParams):
    """Parameters of LeastLongTermMessageRate."""

    overload_threshold: Annotated[float, Field(gt=0, le=100)] = 85
    """Percent of usage above which a broker gets nothing.
    Pulsar: loadBalancerBrokerOverloadedThresholdPercentage"""


@dataclass(frozen=True)
class LeastLongTermMessageRate:
    """See the module.

    Memory: ``now`` of the last snapshot; ``brokers.longTerm``, the messages/s of the bundles that each broker owned
    then; and ``brokers.preallocated``, those of the bundles that it has received since.
    """

    params: LeastLongTermMessageRateParams

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - the bundle does not matter
        """The candidates with the least score."""
        memory = self.seen(cluster, memory)
        names = [cluster.brokers.names[row] for row in candidates.tolist()]
        rate = np.nan_to_num(recall(memory, "preallocated", names)) + recall(memory, "longTerm", names)
        busy = overloaded(cluster, candidates, self.params.weights, self.params.overload_threshold)
        score = np.where(busy, np.inf, rate)
        least = candidates[score == np.fmin.reduce(score, initial=np.inf)]
        return Choice(least if len(least) else candidates, memory)

    def chosen(self, cluster: ClusterLoad, bundle: int, broker: int, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The memory after `bundle` goes to `broker` (rows)."""
        memory = self.seen(cluster, memory)
        name = [cluster.brokers.names[broker]]
        before = np.nan_to_num(recall(memory, "preallocated", name))
        return remember(memory, "preallocated", name, before + _both_ways(cluster.bundles.long[[bundle]]))

    def seen(self, cluster: ClusterLoad, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The memory for this snapshot. It is computed once, because the sum over all bundles is slow."""
        if memory.get("now") == cluster.now:
            return memory
        carried = _carried(cluster.bundles.long, cluster.bundles.owner, len(cluster.brokers))
        begun = {**memory, "now": cluster.now, "brokers": {}}  # a selection keeps its memory in the same mapping
        return remember(begun, "longTerm", cluster.brokers.names, carried)


def _carried(long: FloatArray, owner: IntArray, brokers: int) -> FloatArray:
    """Messages/s of each broker (n,). Summed in ascending order, so that the order of the bundles does not matter."""
    rate = _both_ways(long)
    order = np.argsort(rate)
    return np.minimum(np.bincount(owner[order] + 1, weights=rate[order], minlength=brokers + 1)[1:], LARGEST_RATE)


def _both_ways(long: FloatArray) -> FloatArray:
    """Messages/s in plus out of long-term averages (k, 4)."""
    rates = np.nan_to_num(long[:, [RATE_IN, RATE_OUT]], nan=UNKNOWN_RATE)
    total: FloatArray = np.clip(rates, -LARGEST_RATE, LARGEST_RATE).sum(axis=1)
    return total
