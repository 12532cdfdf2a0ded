"""AvgShedder: pair the busiest broker with the idlest, the second with the second idlest, and move load in each pair.

Idea. Sort the brokers by usage. The first and the last make a pair, the second and the last but one, and so on. If the
brokers of a pair stay far apart for some cycles, bundles go from the busier to the idler one and nowhere else. So
several pairs can act in one cycle without overloading the idlest broker.

Formula. score = weighted maximum of the resources' percent. Each broker has two counters. Both brokers of a pair get a
low hit in each cycle in which their scores differ by `low_threshold` points, and also a high hit if they differ by
`high_threshold`. A smaller difference clears the counters. After `hit_count_low` or `hit_count_high` hits in a row (of
either broker) the pair acts, and its counters restart. wanted = (rate of the busier - rate of the idler) *
`max_unload_percent`, in messages if that is above `min_rate`, else in bytes if that is above `min_throughput`. Bundles
leave in descending order while they fit into the rest of `wanted`.

When it helps. Similar brokers; noisy load, because the counters wait; new or restarted brokers, because many pairs even
out in one cycle. It is Pulsar's default from 5.0 on, for shedding and placement (apache/pulsar#26609).
When it hurts. Usage that does not follow the traffic: the busier broker may have fewer messages, and still give bundles
away by bytes. Brokers of different sizes. Large bundles: one that is larger than `wanted` never moves.

`AvgShedderPlacement` is the other half of Pulsar's class `AvgShedder`. Here a *plan* is a list of bundles and
destinations that the strategy remembers. A bundle goes to its destination in the plan. If it has none, it goes to any
broker, and the plan keeps this broker for later calls.

The plan in Pulsar. Up to PR 26246 it is a hash map whose key is the bundle's *statistics*, an object that keeps
changing while it is in the map. A look-up finds an entry only if the statistics of the bundle in question equal both
the statistics stored in the entry and the current statistics of the bundle that the entry was made for. So an entry is
lost with the next report, and bundles with equal statistics share an entry. With `Java`, the strategy finds and loses
entries in the same way. After the fix the key is the bundle's name.

Memory. `Java` looks up by statistics: a list of entries [bundle (empty once it is gone), statistics at the time of the
entry, the bundle's latest statistics, destination]. `Corrected` looks up by name: a mapping from bundle to destination.

Source. Pulsar 4.2.4 `org.apache.pulsar.broker.loadbalance.impl.AvgShedder`, with equal decisions; brokers with equal
scores come in the order of Java's hash map. A broker without known usage takes no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.java_compat import concurrent_map_order, hash_map_order
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import (
    Compatibility,
    Defect,
    PositivePercent,
    Quantity,
    StrategyParams,
    WeightedParams,
    quantity,
)
from trimtab_strategies.protocols import Choice, Shedding, Unload, recall, remember
from trimtab_strategies.shedding.bundle_choice import (
    least_rate,
    least_throughput,
    reported,
    sole_bundle,
    sorted_out,
    that_fit,
    too_little,
)
from trimtab_strategies.usage import Weights, both_directions, broker_usage


@dataclass(frozen=True)
class Pairs:
    """Pairs of brokers. names, score: those of the brokers that take part (k,).

    idle, busy: positions of each pair's brokers, the widest pair first. If k is odd, the middle broker is paired with
    itself. apart, far: whether each pair differs by the low, or the high threshold.
    """

    names: list[str]
    score: FloatArray
    idle: IntArray
    busy: IntArray
    apart: BoolArray
    far: BoolArray

    @classmethod
    def of(cls, names: list[str], score: FloatArray, *, low: float, high: float, java: bool) -> Pairs:
        """Pair brokers by score. low, high: points at which pairs are apart, far apart. java: order ties as in Java."""
        order = _ascending(names, score, java=java)
        half = (len(order) + 1) // 2
        idle, busy = order[:half], order[::-1][:half]
        gap = score[busy] - score[idle]
        apart = ~(gap < low)
        return cls(names, score, idle, busy, apart, apart & ~(gap < high))

    def counted(self, before: FloatArray, hit: BoolArray) -> FloatArray:
        """The brokers' counters (k,) after a hit of the pairs `hit` (mask). NaN: not apart; 0: apart, but no hit."""
        after = np.nan_to_num(before)
        after[self.members(~hit)] = 0
        np.add.at(after, self.members(hit), 1)
        after[self.members(~self.apart)] = np.nan
        return after

    def members(self, which: BoolArray) -> IntArray:
        """Positions of the brokers of some pairs, the idler ones first."""
        return np.concatenate([self.idle[which], self.busy[which]])

    def closest(self) -> str:
        """The difference of the widest pair, in words."""
        if not len(self.idle):
            return "no broker's usage is known"
        busy, idle = self.busy[0], self.idle[0]
        return f"{self.names[busy]} is {self.score[busy] - self.score[idle]:.1f} points above {self.names[idle]}"

    def apart_by(self, pair: int) -> str:
        """How far the busier broker of a pair is above the other, in words."""
        busy, idle = self.busy[pair], self.idle[pair]
        return f"{self.score[busy] - self.score[idle]:.1f} points above {self.names[idle]}"


def _ascending(names: list[str], score: FloatArray, *, java: bool) -> IntArray:
    """Positions by ascending score; equal ones in the order of Java's score map, or by name."""
    if len(np.unique(score)) == len(score):
        return np.argsort(score)
    # Java's order of insertion is taken to be that of rows. It matters only for the few names that share a slot.
    tied = hash_map_order(concurrent_map_order(names)) if java else sorted(names)
    place = {name: k for k, name in enumerate(tied)}
    return np.lexsort((np.array([place[name] for name in names]), score))


MOST = 1000
"""Maximum number of entries that a plan keeps: the newest. Pulsar keeps all of them, but finds hardly any again."""


Entry = Sequence[str]

Plan = Sequence[Entry]


def followed(plan: Plan, cluster: ClusterLoad) -> list[Entry]:
    """The plan with its bundles' current statistics from `cluster`."""
    index = cluster.bundles.index
    rows = np.array([index.get(entry[0], -1) for entry in plan], dtype=np.int64)
    rows[rows >= 0] = np.where(np.isnan(cluster.bundles.short[rows[rows >= 0], 0]), -1, rows[rows >= 0])
    now = iter(statistics(cluster, rows[rows >= 0]))
    return [
        # A new bundle with the name of a removed one is another object in Java.
        (bundle, before, next(now), destination) if row >= 0 else ("", before, last_seen, destination)
        for row, (bundle, before, last_seen, destination) in zip(rows.tolist(), plan, strict=True)
    ]


def extended(plan: Plan, cluster: ClusterLoad, goes: Iterable[tuple[int, str]]) -> list[list[str]]:
    """The plan, already `followed`, with further destinations (bundle row, broker), added one after the other."""
    entries, goes = [list(entry) for entry in plan], list(goes)
    live: dict[str, list[str]] = {}
    for entry in entries:
        if entry[1] == entry[2]:
            live.setdefault(entry[1], entry)
    for now, (row, destination) in zip(statistics(cluster, np.array([row for row, _ in goes])), goes, strict=True):
        if now in live:
            live[now][3] = destination
        else:
            live[now] = [cluster.bundles.names[row], now, now, destination]
            entries.append(live[now])
    return entries[-MOST:]


def put(plan: Plan, cluster: ClusterLoad, bundle: int, destination: str) -> list[Entry]:
    """The plan with a new entry, or with a new destination in the entry that is found for `bundle` (row)."""
    entries = list(plan)
    for place, (name, before, last_seen, _) in _found(plan, cluster, bundle):
        entries[place] = [name, before, last_seen, destination]
        return entries
    (now,) = statistics(cluster, np.array([bundle]))
    return [*entries, [cluster.bundles.names[bundle], now, now, destination]][-MOST:]


def look_up(plan: Plan, cluster: ClusterLoad, bundle: int) -> str | None:
    """The destination that is found for `bundle` (row)."""
    return next((entry[3] for _, entry in _found(plan, cluster, bundle)), None)


def _found(plan: Plan, cluster: ClusterLoad, bundle: int) -> Iterator[tuple[int, Entry]]:
    """The entries found for `bundle`: those whose stored and current statistics both equal the bundle's."""
    (now,) = statistics(cluster, np.array([bundle])) if plan else ("",)
    for place, entry in enumerate(plan):
        if entry[1] == now and followed([entry], cluster)[0][2] == now:
            yield place, entry


def statistics(cluster: ClusterLoad, bundles: IntArray) -> list[str]:
    """A fingerprint of each of `bundles` (rows) for Pulsar's equality of bundle data.

    It covers both averages and the number of topics, to the last bit.
    """
    rows = bundles.astype(np.int64)
    known = cluster.bundles
    parts = np.concatenate([known.short[rows], known.long[rows], known.topics[rows, np.newaxis]], axis=1)
    each, together = parts.shape[1] * parts.itemsize, parts.tobytes()
    starts = range(0, len(together), each)
    return [blake2b(together[start : start + each], digest_size=8).hexdigest() for start in starts]


DEFECTS = (
    Defect(
        "The counters of a pair that acts are reset even if no bundle could leave: the next try is cycles away.",
        "Only a pair that moves something resets them.",
    ),
    Defect("A broker's only bundle may leave it, which only moves the hot spot.", "The only bundle stays."),
    Defect(
        "Any of the pair's four counters lets it act: those of a broker that has long been idle make its partner shed"
        " in the partner's first busy cycle.",
        "The counters of the busier broker decide.",
    ),
)
"""Known defects of Pulsar's shedding."""


PLACEMENT_DEFECTS = (
    Defect(
        "The plan is looked up by a bundle's statistics, which change: it is lost with the next report, and bundles"
        " with equal statistics share one.",
        "The plan is looked up by the bundle's name, and made again in every cycle.",
    ),
)
"""Known defects of Pulsar's placement."""


class AvgShedderParams(WeightedParams):
    """Parameters of AvgShedder."""

    low_threshold: Annotated[float, Field(gt=0, le=100)] = 15
    """Percentage points between the brokers of a pair that count as apart.
    Pulsar: loadBalancerAvgShedderLowThreshold"""
    high_threshold: Annotated[float, Field(gt=0, le=100)] = 40
    """Percentage points between the brokers of a pair that count as far apart.
    Pulsar: loadBalancerAvgShedderHighThreshold"""
    hit_count_low: Annotated[int, Field(ge=1)] = 8
    """Cycles in a row in which a pair must be apart, including the one that acts.
    Pulsar: loadBalancerAvgShedderHitCountLowThreshold"""
    hit_count_high: Annotated[int, Field(ge=1)] = 2
    """Cycles in a row in which a pair must be far apart, including the one that acts.
    Pulsar: loadBalancerAvgShedderHitCountHighThreshold"""
    max_unload_percent: PositivePercent = 20
    """Percent of a pair's difference that moves in one cycle; 50 evens it out.
    Pulsar: maxUnloadPercentage in 0-1"""
    min_rate: Annotated[int, Field(ge=0)] = 1000
    """Messages/s: a pair moves bundles by message rate only if it wants to move more than this.
    Pulsar: minUnloadMessage"""
    min_throughput: Quantity = "1Mi"
    """Bytes/s: otherwise a pair moves bundles by throughput, but only if it wants to move more than this.
    Pulsar: minUnloadMessageThroughput in bytes/s"""
    compatibility: Compatibility = Compatibility.JAVA
    """`Java` decides as Pulsar does, `Corrected` without its known defects."""


def scores(cluster: ClusterLoad, weights: Weights) -> FloatArray:
    """Weighted usage of each broker in percent (n,); -inf where it is unknown."""
    return broker_usage(cluster, weights) * 100


@dataclass(frozen=True)
class AvgShedder:
    """See the module.

    Memory: ``brokers.hitHigh`` and ``brokers.hitLow``, cycles in a row in which each broker was far apart, or apart,
    from its partner; and the destinations: ``planByStatistics``, or ``plan`` and the ``now`` at which it was made.
    `AvgShedderPlacement` with this memory sends the bundles to their planned destinations.
    """

    params: AvgShedderParams

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """Bundles that the busier brokers of pairs should give to the idler ones."""
        score = scores(cluster, self.params.weights)
        brokers = np.flatnonzero(np.isfinite(score))
        names = [cluster.brokers.names[row] for row in brokers]
        pairs = self._paired(names, score[brokers])
        if not pairs.apart.any():
            of_brokers = {**memory.get("brokers", {}), "hitHigh": {}, "hitLow": {}}
            kept = self._planned(cluster, (), {**memory, "brokers": of_brokers})
            needed = f"{self.params.low_threshold:g} points are needed (avgShedder.lowThreshold)"
            level = HeldBack("", Reason.BALANCED, f"{pairs.closest()}; {needed}")
            return Shedding(held_back=(level,), memory=kept)
        high = pairs.counted(recall(memory, "hitHigh", names), pairs.far)
        low = pairs.counted(recall(memory, "hitLow", names), pairs.apart)
        acts = self._acts(pairs, high, low)
        found = {
            k: self._relieved(cluster, sheddable, int(brokers[pairs.busy[k]]), int(brokers[pairs.idle[k]]))
            if acts[k]
            else HeldBack(names[pairs.busy[k]], Reason.HIT_COUNT, self._waits(pairs, k, high, low))
            for k in np.flatnonzero(pairs.apart).tolist()
        }
        moved = np.array([isinstance(found.get(k), Unload) for k in range(len(acts))])
        spent = pairs.members(acts if self.java else moved)
        high[spent] = low[spent] = np.nan
        memory = remember(remember(memory, "hitHigh", names, high), "hitLow", names, low)
        shedding = sorted_out(found.values())
        return Shedding(shedding.unloads, shedding.held_back, self._planned(cluster, shedding.unloads, memory))

    def _paired(self, names: list[str], score: FloatArray) -> Pairs:
        low, high = self.params.low_threshold, self.params.high_threshold
        return Pairs.of(names, score, low=low, high=high, java=self.java)

    @property
    def java(self) -> bool:
        """Whether the defects are kept."""
        return self.params.compatibility is Compatibility.JAVA

    def _acts(self, pairs: Pairs, high: FloatArray, low: FloatArray) -> BoolArray:
        """Which pairs have been apart for long enough."""
        due = (high >= self.params.hit_count_high) | (low >= self.params.hit_count_low)
        acts: BoolArray = pairs.apart & (due[pairs.busy] | (due[pairs.idle] & self.java))
        return acts

    def _waits(self, pairs: Pairs, pair: int, high: FloatArray, low: FloatArray) -> str:
        """Why a pair does not act yet, in words: how far it is apart, and how many hits it has and needs."""
        params, busy = self.params, pairs.busy[pair]
        text = f"{params.low_threshold:g} or more in {low[busy]:.0f} of {params.hit_count_low} cycles in a row"
        text += " (avgShedder.hitCountLow)"
        if pairs.far[pair]:
            text += f", {params.high_threshold:g} or more in {high[busy]:.0f} of {params.hit_count_high} (hitCountHigh)"
        return f"{pairs.apart_by(pair)}: {text}"

    def _relieved(self, cluster: ClusterLoad, sheddable: BoolArray, busy: int, idle: int) -> Unload | HeldBack:
        """The bundles that go from broker `busy` to broker `idle` (rows), or why none do."""
        name, owned = cluster.brokers.names[busy], cluster.bundles.owned_by(busy)
        if len(owned) == 1 and not self.java:
            return sole_bundle(cluster, busy)
        with np.errstate(over="ignore", invalid="ignore"):  # a broken exporter may report any figure
            rate, throughput = ((v[busy] - v[idle]) * (self.params.max_unload_percent / 100) for v in reported(cluster))
        by_rate, by_throughput = rate > self.params.min_rate, throughput > quantity(self.params.min_throughput)
        if not by_rate and not by_throughput:
            messages = least_rate("avgShedder.minRate", self.params.min_rate, rate, above=True)
            least = self.params.min_throughput
            volume = least_throughput("avgShedder.minThroughput", least, throughput, above=True)
            return too_little(name, messages, volume)
        may = owned[sheddable[owned]]
        values = both_directions(cluster.bundles.short[may])[0 if by_rate else 1]
        busy_ones = np.flatnonzero(values > 0)
        rows = may[busy_ones[that_fit(values[busy_ones], float(rate if by_rate else throughput))]]
        if not len(rows):
            text = f"none of its {len(owned)} bundles may leave and fits into a share of the difference"
            return HeldBack(name, Reason.NO_BUNDLES, f"{text} to {cluster.brokers.names[idle]}")
        return Unload(busy, rows, Reason.OVERLOADED, destination=idle)

    def _planned(self, cluster: ClusterLoad, unloads: tuple[Unload, ...], memory: Mapping[str, Any]) -> dict[str, Any]:
        """The memory with the destinations of `unloads`."""
        goes = [(row, cluster.brokers.names[u.destination]) for u in unloads for row in u.bundles.tolist()]
        if not self.java:
            return {**memory, "now": cluster.now, "plan": {cluster.bundles.names[row]: name for row, name in goes}}
        plan = followed(memory.get("planByStatistics", ()), cluster)
        return {**memory, "planByStatistics": extended(plan, cluster, goes)}


class AvgShedderPlacementParams(StrategyParams):
    """Parameters of AvgShedder as a placement."""

    compatibility: Compatibility = Compatibility.JAVA
    """`Java` looks the planned broker up by a bundle's statistics, as Pulsar does, `Corrected` by a bundle's name."""


@dataclass(frozen=True)
class AvgShedderPlacement:
    """See the module. Memory: ``planByStatistics``, or ``plan`` and the ``now`` of its snapshot."""

    params: AvgShedderPlacementParams

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:
        """The planned broker if it is a candidate; otherwise all candidates."""
        row = cluster.brokers.index.get(self.planned(cluster, bundle, memory) or "", -1)
        return Choice(candidates[candidates == row] if row in candidates else candidates, memory)

    def planned(self, cluster: ClusterLoad, bundle: int, memory: Mapping[str, Any]) -> str | None:
        """Name of the broker planned for `bundle` (row)."""
        if self.params.compatibility is Compatibility.JAVA:
            return look_up(memory.get("planByStatistics", ()), cluster, bundle)
        destination: str | None = _plan_of(cluster, memory).get(cluster.bundles.names[bundle])
        return destination

    def chosen(self, cluster: ClusterLoad, bundle: int, broker: int, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The memory after `bundle` goes to `broker` (rows). From now on, that is its destination in the plan."""
        name = cluster.brokers.names[broker]
        if self.params.compatibility is Compatibility.CORRECTED:
            newest = list(_plan_of(cluster, memory).items())[1 - MOST :]
            return {**memory, "now": cluster.now, "plan": {**dict(newest), cluster.bundles.names[bundle]: name}}
        if np.isnan(cluster.bundles.short[bundle]).any():
            return memory  # new bundles have equal statistics: they would all share the first one's entry
        plan = put(memory.get("planByStatistics", ()), cluster, bundle, name)
        return {**memory, "planByStatistics": plan}


def _plan_of(cluster: ClusterLoad, memory: Mapping[str, Any]) -> Mapping[str, Any]:
    """The plan by name if it belongs to this snapshot of the cluster."""
    plan: Mapping[str, Any] = memory.get("plan", {}) if memory.get("now") == cluster.now else {}
    return plan
