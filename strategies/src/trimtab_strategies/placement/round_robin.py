"""RoundRobin: one broker after the other, regardless of their load.

Idea. Go through a list of the candidates in turn. The list is kept while its length equals the number of candidates and
the next broker in it is a candidate. So the sequence continues when the candidates come in another order.

Formula. k-th call: list[k mod length]; the list is rebuilt when its length is not the number of candidates, or when the
broker at that place is not a candidate.

When it helps. For bundles without load data: a new namespace, a first start. When it hurts. As the placement of a
shedder's bundles: the next broker may be the busiest.

Source. Pulsar 4.2.4 `org.apache.pulsar.broker.loadbalance.impl.RoundRobinBrokerSelector`, with the same rule. Only the
order of the list differs: Java's comes from a hash set, this list is sorted by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import IntArray
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.protocols import Choice

LARGEST_COUNT = 2147483647
"""After this count the counter starts at 0 again."""


class RoundRobinParams(StrategyParams):
    """RoundRobin has no parameters."""


@dataclass(frozen=True)
class RoundRobin:
    """See the module. Memory: ``count``, number of calls, and ``turns``, the names in their order."""

    params: RoundRobinParams

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002 - the bundle does not matter
        """The next candidate."""
        name, after = next_turn(sorted(cluster.brokers.names[row] for row in candidates.tolist()), memory)
        return Choice(np.array([cluster.brokers.index[name]]), after)


def next_turn(candidates: Sequence[str], memory: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The next candidate, and the memory after it. A new list has the order of `candidates`."""
    count, turns = int(memory.get("count", 0)), list(memory.get("turns", ()))
    place = count % len(candidates)
    if len(turns) != len(candidates) or turns[place] not in candidates:
        turns = list(candidates)
    after = 0 if count == LARGEST_COUNT else count + 1
    return turns[place], {**memory, "count": after, "turns": turns}
