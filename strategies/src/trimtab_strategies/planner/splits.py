"""Dividing: from a splitter's wishes to splits with an owner for each child, until the cap is reached.

Children of a wish that asks for it are placed one after the other, the heaviest first, each on the load as it will be
with those before it: dividing a bundle and then waiting for the shedder to find the children would leave the owner as
hot as it was. A child leaves only if its parent might have, if the caps allow, and if its new owner, with it, stays
below what the old one is at then; else it stays.

Nothing is divided on a broker whose data is not trusted: a split can't be undone, and its children would bring an
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
from trimtab_strategies.planner.candidates import Choosing
from trimtab_strategies.planner.prediction import PredictedLoad
from trimtab_strategies.protocols import NOTHING, Splitter, Splitting, SplitWish
from trimtab_strategies.splitting.boundaries import children
from trimtab_strategies.usage import attributed

MAX_ROUNDS = 10
"""How often a splitter is asked for others than those that the cap cut off."""


@dataclass(frozen=True, slots=True)
class Division:
    """What is to be divided.

    splits:    in the order in which they are to be made.
    rows:      of the bundles that are divided; they must not be moved in the same plan.
    held_back: what was not divided, and why.
    memory:    with the splitter's and the placement's after this decision.
    moved:     how many children get another owner than their parent's.
    """

    splits: tuple[Split, ...]
    rows: IntArray
    held_back: tuple[HeldBack, ...]
    memory: Memory
    moved: int = 0


def splittable_bundles(cluster: ClusterLoad) -> BoolArray:
    """The bundles (m) that may be divided: owned by a trusted broker, not pinned, not moving, no broker's heartbeat.

    Nor one that is withheld: its children would not be, and would be moved in its place.
    """
    bundles = cluster.bundles
    trusted = np.append(trusted_brokers(cluster).allowed, False)  # the last one is for bundles of nobody (-1)
    monitoring = np.array([is_monitoring(name) for name in cluster.namespaces], dtype=bool)
    allowed: BoolArray = trusted[bundles.owner] & ~bundles.pinned & ~bundles.in_flight & ~monitoring[bundles.namespace]
    withheld = np.array([row for name in cluster.withheld if (row := bundles.index.get(name)) is not None], dtype=int)
    allowed[withheld] = False
    return allowed


def divide(
    cluster: ClusterLoad,
    splitter: Splitter,
    choosing: Choosing,
    predicted: PredictedLoad,
    memory: Memory,
    *,
    sheddable: Verdict,
    rng: np.random.Generator,
    caps: MoveCaps,
    max_splits: int,
) -> Division:
    """What `splitter` wants divided, at most `max_splits` of it, and an owner for each child.

    cluster: moves in flight counted as landed. choosing: of owners for children. predicted: follows the children.
    sheddable: the guard's verdict on the bundles (m); children of those that it keeps stay with the owner. rng: picks
    among equally good owners. caps: count children that leave as moves. max_splits: in one decision; 0 asks nobody, so
    that no hit is counted.

    Raises `InvalidBoundaryError` when a splitter's boundaries do not divide the bundle.
    """
    if max_splits < 1:
        return Division((), NOTHING, (_capped(0),), memory)
    splitting, cut = _within(cluster, splitter, memory.splitter, max_splits)
    rows = np.array([wish.bundle for wish in splitting.wishes], dtype=np.int64)
    loads = dict(zip(rows.tolist(), attributed(cluster, rows), strict=True))
    spreading = _Spreading(cluster, choosing, predicted, sheddable.allowed, rng, caps, memory.placement, loads)
    splits = tuple(spreading.split(wish) for wish in splitting.wishes)
    held_back = (*splitting.held_back, *((_capped(max_splits, cut),) if cut else ()))
    after = Memory(memory.shedder, spreading.memory, splitting.memory)
    return Division(splits, rows, held_back, after, spreading.moved)


def _capped(max_splits: int, cut: int = 0) -> HeldBack:
    detail = f"at most {counted(max_splits, 'split')} per cycle"
    return HeldBack("", Reason.SPLIT_CAP, f"{counted(cut, 'bundle')}: {detail}" if cut else detail, max(1, cut))


def _within(
    cluster: ClusterLoad, splitter: Splitter, memory: Mapping[str, Any], max_splits: int
) -> tuple[Splitting, int]:
    """An answer of at most `max_splits` wishes, and how many were cut off.

    What is cut off is taken off the table and the splitter asked again on the same memory: else it would believe that
    those bundles were divided, and spend their hits and its budget on them.
    """
    splittable = splittable_bundles(cluster)
    cut = 0
    for _ in range(MAX_ROUNDS):
        splitting = _allowed(splitter.split(cluster, splittable, memory), splittable)
        beyond = [wish.bundle for wish in splitting.wishes[max_splits:]]
        if not beyond:
            return splitting, cut
        splittable[beyond] = False
        cut += len(beyond)
    only = np.zeros_like(splittable)
    only[[wish.bundle for wish in splitting.wishes[:max_splits]]] = True
    return _allowed(splitter.split(cluster, only, memory), only), cut


def _allowed(splitting: Splitting, splittable: BoolArray) -> Splitting:
    """The answer with one wish for each bundle, and only for those that may be divided, whatever the splitter says."""
    wishes: dict[int, SplitWish] = {}
    for wish in splitting.wishes:
        if splittable[wish.bundle]:
            wishes.setdefault(wish.bundle, wish)
    return replace(splitting, wishes=tuple(wishes.values()))


@dataclass
class _Spreading:
    """One decision's children under way: the prediction, the counts and the placement's memory so far."""

    cluster: ClusterLoad
    choosing: Choosing
    predicted: PredictedLoad
    sheddable: BoolArray
    rng: np.random.Generator
    caps: MoveCaps
    memory: Mapping[str, Any]
    loads: Mapping[int, FloatArray]
    moved: int = 0

    def split(self, wish: SplitWish) -> Split:
        """The split of a wish, with its children's owners if any of them leaves."""
        bundles, brokers = self.cluster.bundles, self.cluster.brokers
        name, source = bundles.names[wish.bundle], int(bundles.owner[wish.bundle])
        boundaries = tuple(wish.boundaries.tolist())
        count = len(children(*parse_bundle(name)[1:], boundaries))
        owners = self.owners(wish, source, count) if wish.spread else [source] * count
        names = tuple(brokers.names[owner] for owner in owners)
        leaving = any(owner != source for owner in owners)
        return Split(name, brokers.names[source], boundaries, wish.reason, names if leaving else ())

    def owners(self, wish: SplitWish, source: int, count: int) -> list[int]:
        """An owner (row) for each child, ascending by range; the heaviest chose first."""
        shares = wish.shares if len(wish.shares) else np.full(count, 1 / count)
        load = self.loads[wish.bundle]
        traffic = np.nan_to_num(self.cluster.bundles.short[wish.bundle], posinf=0.0, neginf=0.0)
        owners = [source] * count
        if not self.sheddable[wish.bundle] or self.choosing.may_leave(wish.bundle) is not None:
            return owners
        for child in np.argsort(-shares, kind="stable").tolist():
            owners[child] = self.owner(wish.bundle, source, load * shares[child], traffic * shares[child])
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
        self.caps.count(source, chosen)
        self.moved += 1
        return chosen
