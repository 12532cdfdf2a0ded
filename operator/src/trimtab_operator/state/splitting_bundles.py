"""Bundles that are being split, and what their children are expected to carry until they are measured.

Without the expectation a child would have no load at first. The measured usage of the broker that it left still
includes the child's traffic, so that broker would give away other bundles. The child's new broker would look idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from trimtab_operator.kube.records import BundleRecord
from trimtab_strategies.hash_ring import BundleName, parse_bundle
from trimtab_strategies.model import ClusterLoad, Split
from trimtab_strategies.model.cluster_load import NO_TOPICS, FloatArray, IntArray, Topics
from trimtab_strategies.splitting.boundaries import children
from trimtab_strategies.splitting.limits import Inside
from trimtab_strategies.usage import both_directions


@dataclass(slots=True)
class SplittingBundles:
    """The bundles that are being split, and their children.

    parents: bundle -> the split that has locked it. children: bundle -> its parent. wake: set when one of them changes.
    """

    parents: dict[str, str] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def update(self, old: BundleRecord | None, new: BundleRecord | None) -> None:
        """Record the change of a bundle (None: it did not exist, or is gone)."""
        name = new.name if new is not None else old.name if old is not None else ""
        concerned = name in self.parents or name in self.children
        _keep(self.parents, name, new.split if new is not None else "")
        _keep(self.children, name, new.parent if new is not None else "")
        if concerned or name in self.parents or name in self.children:
            self.wake.set()


def _keep(table: dict[str, str], name: str, value: str) -> None:
    if value:
        table[name] = value
    else:
        table.pop(name, None)


def unborn(bundle: BundleRecord, bundles: Mapping[str, BundleRecord]) -> bool:
    """Whether a bundle is a child whose parent still exists: it serves no topic yet, and does not count."""
    return bool(bundle.parent) and bundle.parent in bundles


class TopicsOf(NamedTuple):
    """The topics of one bundle, (t,) each: places on the ring, msg/s and bytes/s in and out together."""

    places: IntArray
    rates: FloatArray
    throughputs: FloatArray


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """The topics that the last cycle measured. bundles: names of the bundles, by row."""

    topics: Topics = NO_TOPICS
    bundles: tuple[str, ...] = ()

    @classmethod
    def of(cls, load: ClusterLoad) -> KnownTopics:
        """The topics in the load of a cycle."""
        return cls(load.topics, load.bundles.names)

    def inside(self, bundle: str) -> TopicsOf | None:
        """The topics of a bundle (Pulsar's spelling); None when they are not known."""
        if bundle not in self.bundles:
            return None
        rows = np.flatnonzero(self.topics.bundle == self.bundles.index(bundle))
        return TopicsOf(self.topics.place[rows], *both_directions(self.topics.traffic[rows])) if len(rows) else None


BELIEVED_FOR = 600.0
"""Seconds for which a child that is not measured is expected to carry its share."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A child's share of its parent's load. short, long: (4,) as in `Bundles`. until: monotonic seconds."""

    short: FloatArray
    long: FloatArray
    topics: float
    sessions: float
    until: float


def expected(splits: Sequence[Split], load: ClusterLoad, clock: float) -> dict[str, Expected]:
    """Divide the load of each split bundle among its children: child (Pulsar's spelling) -> its expected load."""
    inside, found, bundles = Inside(load), dict[str, Expected](), load.bundles
    for split in splits:
        row = bundles.index[split.bundle]
        namespace, lower, upper = parse_bundle(split.bundle)
        shares = inside.shares(row, np.array(split.boundaries, dtype=np.int64)).tolist()
        for share, (left, right) in zip(shares, children(lower, upper, split.boundaries), strict=True):
            found[str(BundleName(namespace, left, right))] = Expected(
                short=bundles.short[row] * share,
                long=bundles.long[row] * share,
                topics=float(bundles.topics[row]) * share,
                sessions=float(bundles.sessions[row]) * share,
                until=clock + BELIEVED_FOR,
            )
    return found


def still_expected(known: Mapping[str, Expected], clock: float) -> dict[str, Expected]:
    """The entries of `known` that have not expired."""
    return {name: part for name, part in known.items() if part.until > clock}


def with_expected(load: ClusterLoad, known: Mapping[str, Expected]) -> ClusterLoad:
    """`load`, with the expected load (`known`) for bundles that were never measured."""
    bundles = load.bundles
    rows = [(bundles.index[name], part) for name, part in known.items() if name in bundles.index]
    rows = [(row, part) for row, part in rows if not np.isfinite(bundles.short[row]).any()]
    if not rows:
        return load
    columns = {name: getattr(bundles, name).copy() for name in ("short", "long", "topics", "sessions")}
    for row, part in rows:
        for name, column in columns.items():
            column[row] = getattr(part, name)
    return replace(load, bundles=replace(bundles, **columns))
