"""DefaultNamespaceBundleSplitStrategy: a bundle that stays too large for some cycles is halved by its owner.

Idea. Every broker checks its own bundles. A bundle gets a hit in each cycle in which it exceeds a limit. A bundle
within the limits loses its hits. At the `hit_count`-th hit in a row a bundle is split. Only a few are split per cycle.

Formula. too large = topics > max_topics, or sessions > max_sessions, or rate > max_rate, or throughput >
max_throughput, all current values. A bundle is split if it is too large; hits >= hit_count; its namespace has fewer
than max_bundles, including the splits of this cycle; no bundle that shares its lower or its upper end is being split;
and the algorithm finds exactly one boundary. A broker stops at `max_splits` and keeps the hits of later bundles.
Bundles are checked by name (Pulsar: in the order of a hash map).

When it helps. When a burst must not split a bundle permanently: the hits prevent that. When it hurts. When a bundle has
one hot topic, because the range is halved and not the load. `flow_or_qps_equally_divide` mostly finds several
boundaries and then never splits. Both halves stay with the owner: the load moves only when the shedder acts.

Source. Pulsar 4.2.4 `org.apache.pulsar.broker.loadbalance.extensions.strategy.DefaultNamespaceBundleSplitStrategyImpl`,
with equal decisions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, IntArray
from trimtab_strategies.params import Compatibility, Defect
from trimtab_strategies.protocols import SplitCandidate, Splitting
from trimtab_strategies.splitting.boundaries import DEFECTS as BOUNDARY_DEFECTS, FEWEST_TOPICS, can_split
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

DEFECTS = (
    OVERFLOW,
    Defect(
        original="A bundle is held back by a split in any namespace whose name merely begins with the name of its"
        " own (``t/n2`` for ``t/n``).",
        corrected="It is held back only by a split in its own namespace.",
    ),
    Defect(
        original="Each broker counts only the splits it chose itself against the namespace's maximum, so several"
        " brokers together exceed it.",
        corrected="All splits of the cycle count.",
    ),
    *BOUNDARY_DEFECTS,
)


class DefaultNamespaceBundleSplitStrategyParams(PulsarSplitParams):
    """Parameters of DefaultNamespaceBundleSplitStrategy."""

    hit_count: Annotated[int, Field(ge=1, le=1001)] = 4
    """Cycles in a row in which the bundle must be too large, including the one that splits it. Pulsar's setting does
    not count that last cycle, so it is less by one.
    Pulsar: loadBalancerNamespaceBundleSplitConditionHitCountThreshold in cycles before"""
    max_splits: Annotated[int, Field(ge=1, le=10000)] = 10
    """The most bundles that a broker splits in one cycle.
    Pulsar: loadBalancerMaxNumberOfBundlesToSplitPerCycle"""


@dataclass(frozen=True, slots=True)
class SplitContext:
    """What a decision about splits needs besides the bundles.

    counts:     how many bundles each namespace (row) has, -1 if unknown.
    splitting:  names of bundles that are being split now. A bundle whose move is pending counts as being split.
    boundaries: where a bundle (row) would be split; None: nowhere.
    """

    counts: IntArray
    splitting: Sequence[str]
    boundaries: Callable[[int], IntArray | None]


@dataclass(frozen=True)
class DefaultNamespaceBundleSplitStrategy:
    """See the module. Memory: ``hits``, by bundle the number of cycles in a row in which it was too large."""

    params: DefaultNamespaceBundleSplitStrategyParams

    def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
        """Halve splittable bundles that have been too large for `hit_count` cycles."""
        bundles = cluster.bundles
        load = carried(cluster, bundles.short)
        exceeded = first_exceeded(load, self.params.ceilings)
        of_interest = exceeded >= 0
        hits = dict(memory.get("hits", {}))
        if hits:
            hits = {name: count for name, count in hits.items() if name in bundles.index}
            of_interest[[bundles.index[name] for name in hits]] = True
        mine = splittable & (bundles.owner >= 0) & (bundles.topics >= FEWEST_TOPICS)
        inside = Inside(cluster)
        around = SplitContext(
            bundle_counts(cluster),
            [bundles.names[row] for row in np.flatnonzero(bundles.in_flight)],
            lambda row: valid_boundaries(inside, row, self.params),
        )
        walk = self.walk(cluster, by_name(cluster, np.flatnonzero(mine & of_interest)), exceeded, hits, around)
        quiet = () if walk.held_back or walk.proposed else (none_above(cluster, load, self.params.ceilings, mine),)
        return Splitting(tuple(walk.proposed), (*quiet, *walk.held_back), {"hits": walk.hits})

    def walk(
        self, cluster: ClusterLoad, rows: IntArray, exceeded: IntArray, hits: Mapping[str, int], around: SplitContext
    ) -> Walk:
        """One cycle over bundles (rows) of two topics or more, in the given order.

        exceeded: (m,) the column of the limit that each bundle exceeds, -1 if none. hits: before this cycle, by name.
        """
        walk = Walk(cluster, self.params, around, dict(hits))
        for row in rows.tolist():
            # Pulsar compares the number of splits with the cap only after a split, so a cap of 0 never stops it. No
            # policy may have a cap of 0, but recordings of Pulsar have it.
            if not 0 < self.params.max_splits <= walk.chosen[int(cluster.bundles.owner[row])]:
                walk.visit(row, int(exceeded[row]))
        return walk


@dataclass
class Walk:
    """State of one cycle: the hits so far, the splits, and what is not split (rows by reason)."""

    cluster: ClusterLoad
    params: DefaultNamespaceBundleSplitStrategyParams
    around: SplitContext
    hits: dict[str, int]
    proposed: list[SplitCandidate] = field(default_factory=list)
    chosen: Counter[int] = field(default_factory=Counter)
    left_out: defaultdict[Reason, list[int]] = field(default_factory=lambda: defaultdict(list))
    _chosen_in: Counter[tuple[int, int]] = field(default_factory=Counter)

    def visit(self, row: int, exceeded: int) -> None:
        """Count a bundle's hit, and split it if it has enough. exceeded: column of the exceeded limit, -1 if none."""
        name = self.cluster.bundles.names[row]
        _, lower, upper = parse_bundle(name)
        if not can_split(lower, upper):
            self.left_out[Reason.TOO_NARROW].append(row)
        elif exceeded < 0:
            self.hits.pop(name, None)
        else:
            self.hits[name] = self.hits.get(name, 0) + 1
            self.consider(row, name, REASONS[exceeded])

    def consider(self, row: int, name: str, reason: Reason) -> None:
        """Split a bundle that has just got a hit, or record why it is not split."""
        counter = self.counter(row)
        count = int(self.around.counts[counter[1]])
        if self.hits[name] < self.params.hit_count:
            self.left_out[Reason.HIT_COUNT].append(row)
        elif count < 0:
            self.left_out[Reason.NO_LOAD_DATA].append(row)
        elif count + self._chosen_in[counter] >= self.params.max_bundles:
            self.left_out[Reason.MAX_BUNDLES].append(row)
        elif self.beside_a_split(name):
            self.left_out[Reason.IN_FLIGHT].append(row)
        elif (found := self.around.boundaries(row)) is None or len(found) != 1:
            self.left_out[Reason.UNKNOWN].append(row)
        else:
            self.proposed.append(SplitCandidate(row, found, reason))
            del self.hits[name]
            self.chosen[int(self.cluster.bundles.owner[row])] += 1
            self._chosen_in[counter] += 1

    def counter(self, row: int) -> tuple[int, int]:
        """The key by which splits count against a namespace's maximum.

        With `Java`, the splits of each owner are counted separately; with `Corrected`, those of all owners together.
        """
        bundles = self.cluster.bundles
        alone = self.params.compatibility is Compatibility.JAVA
        return (int(bundles.owner[row]) if alone else -1, int(bundles.namespace[row]))

    def beside_a_split(self, name: str) -> bool:
        """Whether a bundle that is being split begins or ends where this one does."""
        namespace, lower, upper = parse_bundle(name)
        prefix = namespace if self.params.compatibility is Compatibility.JAVA else f"{namespace}/"
        others = (parse_bundle(other) for other in self.around.splitting if other.startswith(prefix))
        return any(other.lower == lower or other.upper == upper for other in others)

    @property
    def held_back(self) -> list[HeldBack]:
        """The bundles that were not split, one entry per reason."""
        words = {
            Reason.TOO_NARROW: "a single hash wide",
            Reason.HIT_COUNT: f"too large, but not for {self.params.hit_count} cycles yet",
            Reason.NO_LOAD_DATA: "the number of bundles of its namespace is unknown",
            Reason.MAX_BUNDLES: f"a namespace has at most {self.params.max_bundles} bundles",
            Reason.IN_FLIGHT: "a bundle that begins or ends at the same hash is being split or moved",
            Reason.UNKNOWN: f"{self.params.algorithm} does not find exactly one boundary",
        }
        return [
            entry
            for reason, rows in self.left_out.items()
            for entry in held_back(self.cluster, rows, reason, words[reason])
        ]
