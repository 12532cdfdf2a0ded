"""Which bundle Trim splits: one that is too large for any broker, once, into as many children as needed.

Idea. A bundle that would leave even the idlest broker well above the level can't be placed; it must be parted. Halving
it again and again disconnects its clients each time. Here it is cut in one step, between its topics, and the children
are placed in the same plan.

Formula. Split when the bundle is `least` points itself and every broker with it would be `above` points above the
level, in the last two minutes of the replay. Its owner has it already, so a bundle that is well where it is stays
whole. Children: ceil(load / max(6 points, a fifth of the level)), cut by the load of its topics. A single topic that
carries more than `hot_topic` of it can't be parted: add partitions.

When it helps. A tenant that outgrows a broker. When it hurts. Load that comes and goes: a split stays.

Source. Trimtab's own. Memory: the model's, see `model`.
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
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.protocols import SplitCandidate, Splitting
from trimtab_strategies.shedding.trim.model import learned
from trimtab_strategies.shedding.trim.replay import Replay, replayed, targets
from trimtab_strategies.splitting.boundaries import FEWEST_TOPICS, can_split, cut_into, distinct_places
from trimtab_strategies.splitting.limits import Inside

LASTS = 2
"""Minutes of the ring in which a bundle must be too large."""

_SMALLEST_CHILD = 6.0  # points
_CHILD_OF_LEVEL = 0.2  # ratio of the level that a child may have, if that is more


class TrimSplitterParams(StrategyParams):
    """Parameters of Trim's splitter."""

    least: Annotated[float, Field(gt=0, le=100)] = 15
    """Points of an average broker below which a bundle is not split."""
    above: Annotated[float, Field(gt=0, le=100)] = 10
    """Points above the level that the coldest broker would have to reach with the bundle."""
    hot_topic: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Ratio of the bundle's load above which a single topic makes a split useless."""
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
        if len(cluster.brokers) < 2:  # noqa: PLR2004 - it takes two
            text = f"the cluster has {counted(len(cluster.brokers), 'broker')}: children would have nowhere to go"
            return Splitting((), (HeldBack("", Reason.NO_CANDIDATE, text),), memory)
        if recent is None or len(recent) - recent.assumed < LASTS:
            text = f"recent samples of {LASTS} minutes are needed"
            return Splitting((), (HeldBack("", Reason.NO_LOAD_DATA, text),), memory)
        model, memory = learned(cluster, recent, memory)
        replay = replayed(cluster, recent, model)
        points, level, lowest = _sizes(replay)
        large = splittable & (points >= self.params.least) & (lowest >= level + self.params.above)
        rows = np.flatnonzero(large)
        if not len(rows):
            text = f"the largest bundle is {points.max(initial=0):.0f} points, and a broker can take it whole"
            return Splitting((), (HeldBack("", Reason.BALANCED, text),), memory)
        return self._cut(cluster, rows[np.argsort(-points[rows], kind="stable")], points, level, memory)

    def _cut(
        self, cluster: ClusterLoad, rows: IntArray, points: FloatArray, level: float, memory: Mapping[str, Any]
    ) -> Splitting:
        proposed, held_back, inside = [], [], Inside(cluster)
        for row in rows.tolist():
            found = self._boundaries(cluster, inside, row, float(points[row]), level)
            if isinstance(found, HeldBack):
                held_back.append(found)
            else:
                shares = inside.shares(row, found)
                proposed.append(SplitCandidate(row, found, Reason.BANDWIDTH, spread=True, shares=shares))
        return Splitting(tuple(proposed), tuple(held_back), memory)

    def _boundaries(
        self, cluster: ClusterLoad, inside: Inside, row: int, points: float, level: float
    ) -> IntArray | HeldBack:
        """The boundaries of a bundle (row), or why it is not split."""
        name = cluster.bundles.names[row]
        _, lower, upper = parse_bundle(name)
        topics = inside.of(row)
        weights = np.maximum(np.nan_to_num(inside.load(topics)[:, 1], posinf=0.0), 0)
        room = self.params.max_bundles - int((cluster.bundles.namespace == cluster.bundles.namespace[row]).sum())
        if room < 1:
            return HeldBack(name, Reason.MAX_BUNDLES, f"its namespace has {self.params.max_bundles} bundles or more")
        if not can_split(lower, upper):
            return HeldBack(name, Reason.TOO_NARROW, "a single hash wide")
        if not weights.any():
            return HeldBack(name, Reason.NO_LOAD_DATA, "the load of its topics is not known")
        heaviest = int(np.argmax(weights))
        if (share := float(weights[heaviest] / weights.sum())) > self.params.hot_topic:
            topic = cluster.topics.names[topics[heaviest]]
            return HeldBack(name, Reason.HOT_TOPIC, f"{topic} is {share:.0%} of its load: add partitions to that topic")
        places, sums = distinct_places(cluster.topics.place[topics], weights, lower, upper)
        if len(places) < FEWEST_TOPICS:
            return HeldBack(name, Reason.TOO_FEW_TOPICS, "its topics are on one place of the ring")
        wanted = int(np.ceil(points / max(_SMALLEST_CHILD, _CHILD_OF_LEVEL * level)))
        count = max(2, min(wanted, self.params.max_children, room + 1, len(places)))
        return cut_into(places, sums, count).boundaries


def _sizes(replay: Replay) -> tuple[FloatArray, float, FloatArray]:
    """Points (m,) of each bundle on an average broker, the level, and the least percent (m,) of a broker with it.

    A bundle counts by the least of the last minutes. Its owner has it already.
    """
    model = replay.model
    load = replay.load[-LASTS:].min(axis=0)
    cpu = 100 * float(np.nanmean(model.slope / model.cores)) * model.work(load)
    nic = 100 * load[:, :2] / np.median(model.nic, axis=0)
    minutes = slice(-LASTS, None)
    level = 100 * float(targets(model, replay.carried[minutes], model.background[minutes]).min(axis=1)[-1])
    points = np.maximum(cpu, nic.max(axis=1))
    usage = 100 * replay.usage[-1].max(axis=1)
    coldest, second = np.argsort(usage, kind="stable")[:2]
    elsewhere = np.where(replay.owner == coldest, usage[second], usage[coldest]) + points
    return points, level, np.minimum(elsewhere, np.append(usage, np.inf)[replay.owner])
