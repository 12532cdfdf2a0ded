"""Makes splits, with an owner for each child, from a splitter's proposals until the cap is reached.

If a proposal sets `spread`, the children are placed one after the other, the heaviest first. Each placement sees the
predicted load with the children placed before. If the children waited for the shedder, their owner would until then
carry as much as before. A child leaves only if its parent was allowed to leave, if the caps permit it, and if the new
owner with the child is less used than the parent's owner before the child leaves.

No bundle is split on a broker whose data is not trusted: a split can't be undone, and its children would bring an
unmeasured load to brokers that have room.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trimtab_strategies.guard import MoveCaps, Verdict, trusted_brokers
from trimtab_strategies.hash_ring import is_monitoring, parse_bundle
from trimtab_strategies.model import ClusterLoad, HeldBack, Memory, Reason, Split, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.planner.candidates import DestinationChoice
from trimtab_strategies.planner.prediction import PredictedLoad
from trimtab_strategies.protocols import NOTHING, SplitCandidate, Splitter, Splitting
from trimtab_strategies.splitting.boundaries import children
from trimtab_strategies.usage import attributed

MAX_ROUNDS = 10
"""Maximum number of times that the splitter runs in one decision. Later runs leave out bundles that the cap cut off."""


@dataclass(frozen=True, slots=True)
class Division:
    """The splits of one decision.

    splits:    the splits, in the order in which they should be made.
    rows:      rows of the bundles that are split; they must not move in the same plan.
    held_back: what was not split, and why.
    memory:    the strategies' memory after the splits: the splitter and the placement have new values.
    moved:     number of children whose owner differs from their parent's.
    """

    splits: tuple[Split, ...]
    rows: IntArray
    held_back: tuple[HeldBack, ...]
    memory: Memory
    moved: int = 0


def splittable_bundles(cluster: ClusterLoad) -> BoolArray:
    """The bundles (m) that may be split: owned by a trusted broker, not pinned, not moving, not a heartbeat bundle.

    A withheld bundle is not split either: its children would not be withheld, and would move instead of it.
    """
    bundles = cluster.bundles
    trusted = np.append(trusted_brokers(cluster).allowed, False)  # the last entry is for unowned bundles (-1)
    monitoring = np.array([is_monitoring(name) for name in cluster.namespaces], dtype=bool)
    allowed: BoolArray = trusted[bundles.owner] & ~bundles.pinned & ~bundles.in_flight & ~monitoring[bundles.namespace]
    withheld = np.array([row for name in cluster.withheld if (row := bundles.index.get(name)) is not None], dtype=int)
    allowed[withheld] = False
    return allowed


def divide(
    cluster: ClusterLoad,
    splitter: Splitter,
    choosing: DestinationChoice,
    predicted: PredictedLoad,
    memory: Memory,
    *,
    sheddable: Verdict,
    rng: np.random.Generator,
    caps: MoveCaps,
    max_splits: int,
) -> Division:
    """At most `max_splits` of the splitter's proposals, with an owner for each child.

    cluster: the snapshot, with pending moves counted as landed. choosing: chooses the children's owners. predicted:
    updated with the children that leave. sheddable: the guard's verdict on the bundles (m); children of a bundle that
    must stay also stay with the owner. rng: picks among equally good owners. caps: each child that leaves counts as a
    move.
    max_splits: if it is 0, the splitter does not run, so it counts no hits.

    Raises `InvalidBoundaryError` when a splitter's boundaries do not divide the bundle.
    """
    if max_splits < 1:
        return Division((), NOTHING, (_capped(0),), memory)
    splitting, cut = _within(cluster, splitter, memory.splitter, max_splits)
    rows = np.array([split.bundle for split in splitting.proposed], dtype=np.int64)
    loads = dict(zip(rows.tolist(), attributed(cluster, rows), strict=True))
    loads |= {split.bundle: split.load for split in splitting.proposed if len(split.load)}
    spreading = _Spreading(cluster, choosing, predicted, sheddable.allowed, rng, caps, memory.placement, loads)
    splits = tuple(spreading.split(split) for split in splitting.proposed)
    held_back = (*splitting.held_back, *((_capped(max_splits, cut),) if cut else ()))
    after = Memory(memory.shedder, spreading.memory, splitting.memory)
    return Division(splits, rows, held_back, after, spreading.moved)


def _capped(max_splits: int, cut: int = 0) -> HeldBack:
    detail = f"at most {counted(max_splits, 'split')} per cycle"
    return HeldBack("", Reason.SPLIT_CAP, f"{counted(cut, 'bundle')}: {detail}" if cut else detail, max(1, cut))


def _within(
    cluster: ClusterLoad, splitter: Splitter, memory: Mapping[str, Any], max_splits: int
) -> tuple[Splitting, int]:
    """A splitter's result with at most `max_splits` proposals, and how many were cut off.

    The splitter runs again on the same memory without the bundles that were cut off. Otherwise it would assume that
    they were split, reset their hit counts and spend its budget on them.
    """
    splittable = splittable_bundles(cluster)
    cut = 0
    for _ in range(MAX_ROUNDS):
        splitting = _allowed(splitter.split(cluster, splittable, memory), splittable)
        beyond = [split.bundle for split in splitting.proposed[max_splits:]]
        if not beyond:
            return splitting, cut
        splittable[beyond] = False
        cut += len(beyond)
    only = np.zeros_like(splittable)
    only[[split.bundle for split in splitting.proposed[:max_splits]]] = True
    return _allowed(splitter.split(cluster, only, memory), only), cut


def _allowed(splitting: Splitting, splittable: BoolArray) -> Splitting:
    """The splitter's result, reduced to one split per bundle and to bundles that may be split."""
    proposed: dict[int, SplitCandidate] = {}
    for split in splitting.proposed:
        if splittable[split.bundle]:
            proposed.setdefault(split.bundle, split)
    return replace(splitting, proposed=tuple(proposed.values()))


@dataclass
class _Spreading:
    """State while children are placed: the prediction, the counts and the placement's memory so far."""

    cluster: ClusterLoad
    choosing: DestinationChoice
    predicted: PredictedLoad
    sheddable: BoolArray
    rng: np.random.Generator
    caps: MoveCaps
    memory: Mapping[str, Any]
    loads: Mapping[int, FloatArray]
    moved: int = 0

    def split(self, split: SplitCandidate) -> Split:
        """The proposed split, with its children's owners if any of them leaves."""
        bundles, brokers = self.cluster.bundles, self.cluster.brokers
        name, source = bundles.names[split.bundle], int(bundles.owner[split.bundle])
        boundaries = tuple(split.boundaries.tolist())
        count = len(children(*parse_bundle(name)[1:], boundaries))
        owners = self.owners(split, source, count) if split.spread else [source] * count
        names = tuple(brokers.names[owner] for owner in owners)
        leaving = any(owner != source for owner in owners)
        return Split(name, brokers.names[source], boundaries, split.reason, names if leaving else ())

    def owners(self, split: SplitCandidate, source: int, count: int) -> list[int]:
        """An owner (row) for each child, ascending by range. The heaviest child is placed first."""
        shares = split.shares if len(split.shares) else np.full(count, 1 / count)
        load = self.loads[split.bundle]
        traffic = np.nan_to_num(self.cluster.bundles.short[split.bundle], posinf=0.0, neginf=0.0)
        owners = [source] * count
        if not self.sheddable[split.bundle] or self.choosing.may_leave(split.bundle) is not None:
            return owners
        for child in np.argsort(-shares, kind="stable").tolist():
            owners[child] = self.owner(split.bundle, source, load * shares[child], traffic * shares[child])
        return owners

    def owner(self, bundle: int, source: int, load: FloatArray, traffic: FloatArray) -> int:
        """The broker (row) that gets a child of `load` (5,) and `traffic` (4,), which may be its parent's owner."""
        if not self.caps.allow() or not self.caps.may_send(source):
            return source
        choice = self.choosing.best(bundle, self.predicted.cluster, self.memory, self.caps.full)
        self.memory = choice.memory
        better = self.predicted.better(source, choice.brokers[choice.brokers != source], load)
        if not len(better):
            return source
        pressure = self.predicted.pressure(better)
        tied = better[pressure == pressure.min()]
        chosen = int(tied[self.rng.integers(len(tied))])
        self.predicted.move(source, chosen, load, traffic)
        self.choosing.child_placed(bundle, chosen)
        self.caps.count(source, chosen)
        self.moved += 1
        return chosen
