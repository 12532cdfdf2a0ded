"""WeightedSplitter: a bundle that stays too large is split once, by its load, into as many children as needed.

Idea. Halving the range of a hot bundle divides its hashes, not its load. So many splits are needed, and each
disconnects the clients again. Here the boundaries lie between topics so that each of n children carries about 1/n of
the load. n is so large that every child has room to grow. The children are placed in the same plan. A split can't be
undone, so it is refused when it would not help, and every namespace has a budget of splits.

Formula. fill = load of the bundle / its limit, for topics, sessions, rate and throughput. The largest of the four is
the reason, and sets the weights of the topics (all topics weigh the same for sessions, which are not known by topic).
n = the smallest number, at least fill / target, with which no child is above the target; if there is none, the n whose
heaviest child is lightest. Boundary k lies between topics, where the sum of the weights along the ring is closest to
k/n. The bundle is split when fill > 1 in `hit_count` cycles in a row, unless one topic has more than
`hot_topic_percent` of the weight.

When it helps. When some bundles of a namespace outgrow the others. When it hurts. When load comes and goes: the bundles
remain split. The splitter needs the load of each topic in a bundle, and reports bundles for which that is missing.

Source. Trimtab's own. The four limits are those of Pulsar's splitters (`modular`, `extensible`). Immediate placement of
the children, the budget and the refusals fix weaknesses of Pulsar's splitters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import Duration, Percent, PositivePercent, seconds
from trimtab_strategies.protocols import SplitCandidate, Splitting
from trimtab_strategies.splitting.boundaries import FEWEST_TOPICS, can_split, cut_into, distinct_places
from trimtab_strategies.splitting.limits import (
    REASONS,
    Inside,
    SplitLimits,
    bundle_counts,
    carried,
    held_back,
    none_above,
)

MOST_LISTED = 3
"""Number of bundles per reason that are listed one by one. The others are only counted."""


class WeightedSplitterParams(SplitLimits):
    """Parameters of WeightedSplitter."""

    target_percent: PositivePercent = 60
    """Percent of a bundle's limits that no child should exceed."""
    max_children: Annotated[int, Field(ge=2, le=256)] = 8
    """The most children of one split."""
    hot_topic_percent: PositivePercent = 50
    """Percent of the bundle's load above which a single topic makes a split useless."""
    known_load_percent: Percent = 80
    """Percent of the bundle's load that its known topics must account for."""
    hit_count: Annotated[int, Field(ge=1, le=1000)] = 3
    """Cycles in a row in which the bundle must be too large, including the one that splits it."""
    budget: Annotated[int, Field(ge=0, le=100000)] = 4
    """The most splits of a namespace within `budgetWindow`."""
    budget_window: Duration = "24h"
    """Time after which a split no longer counts against the budget."""


class Refusal(NamedTuple):
    """Why a bundle that is too large is not split, in words."""

    reason: Reason
    words: str


@dataclass(frozen=True)
class WeightedSplitter:
    """See the module.

    Memory: ``hits``, by bundle the number of cycles in a row in which it was too large; ``splits``, by namespace the
    times (epoch seconds) of its splits within the window.
    """

    params: WeightedSplitterParams

    def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
        """Split those of the splittable bundles that have been too large for long enough, the fullest first."""
        load, ceilings = carried(cluster, cluster.bundles.short), self.params.ceilings
        mine = splittable & (cluster.bundles.owner >= 0)
        hot = np.flatnonzero(mine & ((load > ceilings) & (load < np.inf)).any(axis=1))
        fill = dict(zip(hot.tolist(), np.nan_to_num(load[hot] / ceilings, nan=0.0, posinf=0.0), strict=True))
        names = cluster.bundles.names
        order = sorted(fill, key=lambda row: (-fill[row].max(), names[row]))
        hits, spent = self.hits(cluster, mine, order, memory), self.spent(cluster, memory)
        cycle = _Cycle(cluster, self.params, load, fill, hits, spent)
        for row in order:
            cycle.visit(row)
        quiet = () if order else (none_above(cluster, load, ceilings, mine),)
        after = {"hits": cycle.hits, "splits": cycle.spent}
        return Splitting(tuple(cycle.proposed), (*quiet, *cycle.held_back()), after)

    def hits(self, cluster: ClusterLoad, mine: BoolArray, hot: list[int], memory: Mapping[str, Any]) -> dict[str, int]:
        """The hits after this cycle: one more for `hot` (rows); others keep theirs only if they can't be split now."""
        before, names = memory.get("hits", {}), cluster.bundles.names
        elsewhere = (names[row] for row in np.flatnonzero(~mine)) if before else ()
        kept = {name: before[name] for name in elsewhere if name in before}
        return kept | {names[row]: before.get(names[row], 0) + 1 for row in hot}

    def spent(self, cluster: ClusterLoad, memory: Mapping[str, Any]) -> dict[str, list[float]]:
        """The times of each namespace's splits that still count. A time in the future is ignored: a clock was wrong."""
        oldest = cluster.now - seconds(self.params.budget_window)
        counting = {
            namespace: [time for time in times if oldest < time <= cluster.now]
            for namespace, times in memory.get("splits", {}).items()
        }
        return {namespace: times for namespace, times in counting.items() if times}


@dataclass
class _Cycle:
    """State of one decision: hits and budgets so far, the splits, and what is not split and why."""

    cluster: ClusterLoad
    params: WeightedSplitterParams
    load: FloatArray
    fill: Mapping[int, FloatArray]
    hits: dict[str, int]
    spent: dict[str, list[float]]
    proposed: list[SplitCandidate] = field(default_factory=list)
    _refused: defaultdict[Reason, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    _added: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._inside = Inside(self.cluster)
        self._counts = bundle_counts(self.cluster)

    def visit(self, row: int) -> None:
        """Split a bundle that is too large, or record why it is not split."""
        name = self.cluster.bundles.names[row]
        if self.hits[name] < self.params.hit_count:
            self.refuse(
                row, Refusal(Reason.HIT_COUNT, f"too large in {self.hits[name]} of {self.params.hit_count} cycles")
            )
            return
        boundaries = self.boundaries(row)
        if isinstance(boundaries, Refusal):
            self.refuse(row, boundaries)
        else:
            self.propose(row, boundaries)

    def refuse(self, row: int, refusal: Refusal) -> None:
        """Record that a bundle is not split. Its hits stay, so the next cycle considers it again."""
        self._refused[refusal.reason].append((row, refusal.words))

    def propose(self, row: int, boundaries: IntArray) -> None:
        """Split a bundle, and count the split against its namespace's room and budget."""
        space = int(self.cluster.bundles.namespace[row])
        reason = REASONS[int(np.argmax(self.fill[row]))]
        shares = self._inside.shares(row, boundaries)
        self.proposed.append(SplitCandidate(row, boundaries, reason, spread=True, shares=shares))
        self._added[space] += len(boundaries)
        self.spent.setdefault(self.cluster.namespaces[space], []).append(self.cluster.now)
        del self.hits[self.cluster.bundles.names[row]]

    def boundaries(self, row: int) -> IntArray | Refusal:
        """The boundaries of a bundle, or why there are none."""
        _, lower, upper = parse_bundle(self.cluster.bundles.names[row])
        if not can_split(lower, upper):
            return Refusal(Reason.TOO_NARROW, "a single hash wide")
        topics = self._inside.of(row)
        column = int(np.argmax(self.fill[row]))
        weights = self.weights(topics, column)
        refusal = self.unknown(row, column, weights) or self.hot_topic(topics, weights, column) or self.no_room(row)
        if refusal is not None:
            return refusal
        places, sums = distinct_places(self.cluster.topics.place[topics], weights, lower, upper)
        if len(places) < FEWEST_TOPICS:
            return Refusal(Reason.TOO_FEW_TOPICS, f"{counted(len(topics), 'topic')} at one place of the hash ring")
        return self.lightest(row, places, sums)

    def weights(self, topics: IntArray, column: int) -> FloatArray:
        """The weight of each of `topics` (rows, t) for the limit in `column`: (t,), 0 where it is unknown."""
        if REASONS[column] in (Reason.TOPICS, Reason.SESSIONS):
            return np.ones(len(topics))
        load = self._inside.load(topics)[:, 0 if REASONS[column] is Reason.MSG_RATE else 1]
        return np.where(np.isfinite(load) & (load > 0), load, 0.0)

    def unknown(self, row: int, column: int, weights: FloatArray) -> Refusal | None:
        """Why the bundle's topics are not known well enough; None if they are."""
        if self.cluster.bundles.topics[row] < FEWEST_TOPICS and not len(weights):
            return Refusal(Reason.TOO_FEW_TOPICS, "a single topic can't be split: add partitions")
        whole = self.load[row, 0 if REASONS[column] is Reason.SESSIONS else column]
        known = float(weights.sum()) / whole if whole > 0 else 0.0
        if known >= self.params.known_load_percent / 100 and weights.any():
            return None
        what = f"its known topics make up {known:.0%} of its load, {self.params.known_load_percent:g}% are needed"
        return Refusal(Reason.NO_LOAD_DATA, what)

    def hot_topic(self, topics: IntArray, weights: FloatArray, column: int) -> Refusal | None:
        """The refusal if a single topic causes too much of the load; None if none does."""
        top = int(np.argmax(weights))
        share = float(weights[top] / weights.sum())
        if share <= self.params.hot_topic_percent / 100:
            return None
        name = self.cluster.topics.names[topics[top]]
        return Refusal(
            Reason.HOT_TOPIC, f"{name} is {share:.0%} of its {REASONS[column]}: add partitions to that topic"
        )

    def no_room(self, row: int) -> Refusal | None:
        """Why the namespace may not get another bundle, for good or for now; None if it may."""
        space = int(self.cluster.bundles.namespace[row])
        times = self.spent.get(self.cluster.namespaces[space], [])
        if self.room(space) < 1:
            return Refusal(
                Reason.MAX_BUNDLES, f"its namespace has {self.params.max_bundles} bundles or more (maxBundles)"
            )
        if len(times) < self.params.budget:
            return None
        spent = f"{counted(len(times), 'split')} of {self.params.budget} in {self.params.budget_window} are spent"
        soon = min(times, default=self.cluster.now) + seconds(self.params.budget_window) - self.cluster.now
        return Refusal(Reason.SPLIT_BUDGET, f"{spent}, one more in {soon:.0f} s" if times else f"{spent} (budget)")

    def room(self, space: int) -> int:
        """The number of bundles that a namespace (row) may still get."""
        return self.params.max_bundles - int(self._counts[space]) - self._added[space]

    def lightest(self, row: int, places: IntArray, sums: FloatArray) -> IntArray:
        """The boundaries of the fewest children that all stay within the target, or that come closest to it.

        places, sums: (p,) the topics' distinct places, ascending, and the weight up to and including each (ratio).
        """
        space = int(self.cluster.bundles.namespace[row])
        fill = float(self.fill[row].max())
        most = min(self.params.max_children, self.room(space) + 1, len(places))
        fewest = min(most, max(2, int(np.ceil(fill / (self.params.target_percent / 100)))))
        cuts = (cut_into(places, sums, count) for count in range(fewest, most + 1))
        best = min(
            cuts, key=lambda cut: (max(cut.heaviest * fill, self.params.target_percent / 100), len(cut.boundaries))
        )
        return best.boundaries

    def held_back(self) -> list[HeldBack]:
        """The bundles that were not split. For each reason the fullest are listed, the others share one entry."""
        entries = []
        for reason, refused in self._refused.items():
            for row, words in refused[:MOST_LISTED]:
                entries += held_back(self.cluster, [row], reason, words)
            entries += held_back(self.cluster, [row for row, _ in refused[MOST_LISTED:]], reason, "as those above")
        return entries
