"""Which bundle Trim splits: one that is too large for any broker, once, into as many children as needed.

Idea. A bundle with which even the idlest broker would be well above the level must be split. Halving it again and again
disconnects its clients each time. Here it is cut in one step, between its topics, and the children are placed in the
same plan.

Formula. A bundle is split when two things hold throughout the last two minutes of the replay: it alone adds at least
`least` points to an average broker, and every broker with it, also its owner, would be `above` points above the level.
If its broker is at full CPU, the last minute is enough. A bundle stays whole if its owner is not that far above the
level. The number of children is ceil(load / max(6 points, 0.3 of the level)). The bundle is cut so that its topics'
load is divided evenly. If a single topic carries more than `hot_topic_percent` of the load, a split does not help: add
partitions.

When it helps. A tenant that outgrows a broker. When it hurts. Load that comes and goes, because a split can't be
undone.

Source. Trimtab's own. Memory: what `model.py` describes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, HeldBack, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import PositivePercent, StrategyParams
from trimtab_strategies.protocols import SplitCandidate, Splitting
from trimtab_strategies.shedding.trim.model import learned
from trimtab_strategies.shedding.trim.replay import WINDOW, Replay, replayed, targets
from trimtab_strategies.splitting.boundaries import FEWEST_TOPICS, can_split, cut_into, distinct_places
from trimtab_strategies.splitting.limits import Inside

LASTS = 2
"""The number of last minutes in which a bundle must be too large."""

_SMALLEST_CHILD = 6.0  # points that a child should have
_HEAVIEST = 0.75  # ratio of the load that one child may keep
_CHILD_OF_LEVEL = 0.3  # ratio of the level that a child should have, if that is more than `_SMALLEST_CHILD`


class TrimSplitterParams(StrategyParams):
    """Parameters of Trim's splitter."""

    least: Annotated[float, Field(gt=0, le=100)] = 15
    """Percentage points of usage that a bundle adds to an average broker. Smaller bundles are not split."""
    above: Annotated[float, Field(gt=0, le=100)] = 15
    """Percentage points above the level. A bundle is split only if every broker with it would be that far above."""
    hot_topic_percent: PositivePercent = 50
    """Percent of the bundle's load above which a single topic makes a split useless."""
    max_children: Annotated[int, Field(ge=2, le=256)] = 16
    """The most children of one split."""
    max_bundles: Annotated[int, Field(ge=1, le=100000)] = 128
    """The most bundles that a namespace may have."""


@dataclass(frozen=True)
class TrimSplitter:
    """See the module."""

    params: TrimSplitterParams

    def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:
        """The bundles that no broker can take whole, the largest first."""
        recent = cluster.recent
        if len(cluster.brokers) < 2:  # noqa: PLR2004 - children need two
            text = f"the cluster has {counted(len(cluster.brokers), 'broker')}: children would have nowhere to go"
            return Splitting((), (HeldBack("", Reason.NO_CANDIDATE, text),), memory)
        if recent is None or len(recent) - recent.assumed < LASTS:
            text = f"recent samples of {LASTS} minutes are needed"
            return Splitting((), (HeldBack("", Reason.NO_LOAD_DATA, text),), memory)
        model, memory = learned(cluster, recent.last(WINDOW), memory)
        replay = replayed(cluster, recent, model)
        brokers = cluster.brokers
        fit = brokers.ready & brokers.schedulable & brokers.trusted
        if fit.sum() < 2:  # noqa: PLR2004 - children need two
            text = f"{counted(int(fit.sum()), 'broker')} may receive bundles: children would have nowhere to go"
            return Splitting((), (HeldBack("", Reason.NO_CANDIDATE, text),), memory)
        sizes = _Sizes.of(replay, fit)
        points = sizes.points
        large = splittable & (points >= self.params.least) & (sizes.lowest >= sizes.level + self.params.above)
        rows = np.flatnonzero(large)
        if not len(rows):
            text = f"the largest bundle is {points.max(initial=0):.0f} points, and a broker can take it whole"
            return Splitting((), (HeldBack("", Reason.BALANCED, text),), memory)
        return self._cut(cluster, rows[np.argsort(-points[rows], kind="stable")], sizes, memory)

    def _cut(self, cluster: ClusterLoad, rows: IntArray, sizes: _Sizes, memory: Mapping[str, Any]) -> Splitting:
        proposed, held_back, inside = [], [], Inside(cluster)
        there = np.bincount(cluster.bundles.namespace, minlength=len(cluster.namespaces))
        for row in rows.tolist():
            room = self.params.max_bundles - int(there[cluster.bundles.namespace[row]])
            found = self._boundaries(cluster, inside, row, sizes, room)
            if isinstance(found, HeldBack):
                held_back.append(found)
            else:
                there[cluster.bundles.namespace[row]] += len(found)
                shares, load = inside.shares(row, found), sizes.load(row)
                proposed.append(SplitCandidate(row, found, Reason.NO_ROOM, spread=True, shares=shares, load=load))
        return Splitting(tuple(proposed), tuple(held_back), memory)

    def _boundaries(
        self, cluster: ClusterLoad, inside: Inside, row: int, sizes: _Sizes, room: int
    ) -> IntArray | HeldBack:
        """The boundaries of a bundle (row), or why it is not split. room: bundles that its namespace may still get."""
        name = cluster.bundles.names[row]
        _, lower, upper = parse_bundle(name)
        topics = inside.of(row)
        weights = np.maximum(np.nan_to_num(inside.load(topics)[:, 1], posinf=0.0), 0)
        refusal = self._refused(cluster, topics, weights)
        if room < 1:
            refusal = (Reason.MAX_BUNDLES, f"its namespace has {self.params.max_bundles} bundles or more (maxBundles)")
        elif not can_split(lower, upper):
            refusal = (Reason.TOO_NARROW, "a single hash wide")
        if refusal is not None:
            return HeldBack(name, *refusal)
        places, sums = distinct_places(cluster.topics.place[topics], weights, lower, upper)
        wanted = int(np.ceil(sizes.points[row] / max(_SMALLEST_CHILD, _CHILD_OF_LEVEL * sizes.level)))
        count = max(2, min(wanted, self.params.max_children, room + 1, len(places)))
        cut = cut_into(places, sums, count) if len(places) >= FEWEST_TOPICS else None
        if cut is None or cut.heaviest > _HEAVIEST:
            return HeldBack(name, Reason.TOO_FEW_TOPICS, "its topics are too close to each other on the ring")
        return cut.boundaries

    def _refused(self, cluster: ClusterLoad, topics: IntArray, weights: FloatArray) -> tuple[Reason, str] | None:
        """Why a bundle with these `topics` (rows, t), with loads `weights` (t,), can't be split; None if it can."""
        if not weights.any():
            return Reason.NO_LOAD_DATA, "the load of its topics is not known"
        share = float(weights.max() / weights.sum())
        if share <= self.params.hot_topic_percent / 100:
            return None
        topic = cluster.topics.names[topics[int(np.argmax(weights))]]
        return Reason.HOT_TOPIC, f"{topic} is {share:.0%} of its load: add partitions to that topic"


@dataclass(frozen=True)
class _Sizes:
    """The size of each bundle on an average broker, by its least load in the last `LASTS` minutes.

    sample: (m, 3) columns `SAMPLED`. cpu: (m,) cores. points: (m,) of the busiest resource. level: percent. lowest:
    (m,) the least usage, percent, of any broker with the bundle: its owner, or one that may receive it.
    """

    sample: FloatArray
    cpu: FloatArray
    points: FloatArray
    level: float
    lowest: FloatArray

    @classmethod
    def of(cls, replay: Replay, fit: BoolArray) -> _Sizes:
        """The sizes by `replay`. fit: (n,) brokers that may receive bundles, at least two."""
        model, minutes = replay.model, slice(-LASTS, None)
        sample: FloatArray = replay.load[minutes].min(axis=0)
        waits = np.append(replay.full, False)[replay.owner]  # at full CPU, the last minute is enough
        sample[waits] = replay.load[-1, waits]
        cpu = float(np.nanmean(model.slope)) * model.work(sample)
        nic = sample[:, :2] / np.median(model.nic, axis=0)
        cores = model.cores[np.isfinite(model.cores)]
        of_cpu = cpu / float(cores.mean()) if len(cores) else np.zeros(len(nic))
        points = 100 * np.fmax(of_cpu, nic.max(axis=1))
        level = float(targets(model, replay.carried[minutes], model.background[minutes], replay.pools)[-1].min())
        usage = 100 * replay.usage[-1].max(axis=1)
        coldest, second = np.argsort(np.where(fit, usage, np.inf), kind="stable")[:2]
        elsewhere = np.where(replay.owner == coldest, usage[second], usage[coldest]) + points
        return cls(sample, cpu, points, 100 * level, np.minimum(elsewhere, np.append(usage, np.inf)[replay.owner]))

    def load(self, row: int) -> FloatArray:
        """Usage (5,) that a bundle (row) causes, columns `RESOURCES`."""
        return np.array([self.cpu[row], 0.0, 0.0, *self.sample[row, :2]])
