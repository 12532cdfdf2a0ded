"""What of the bundles is being divided now, and what is known of their insides."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.load import NO_TOPICS, FloatArray, IntArray, Topics
from trimtab_strategies.usage import both_directions


@dataclass(slots=True)
class Divided:
    """The bundles that are being divided, and their children.

    parents: bundle -> the split that has locked it. children: bundle -> its parent. wake: set when one of them changes.
    """

    parents: dict[str, str] = field(default_factory=dict)
    children: dict[str, str] = field(default_factory=dict)
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def see(self, old: BundleRecord | None, new: BundleRecord | None) -> None:
        """Take note of a bundle as it was and as it is (None: there is none)."""
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
    """Whether a bundle is only being cut out: while its parent exists it serves nothing, and counts for nothing."""
    return bool(bundle.parent) and bundle.parent in bundles


class TopicsOf(NamedTuple):
    """The topics of one bundle, (t,) each: places on the ring, msg/s and bytes/s in and out together."""

    places: IntArray
    rates: FloatArray
    throughputs: FloatArray


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """The topics that the last cycle saw, of the bundles whose inside it looked at. bundles: names of its rows."""

    topics: Topics = NO_TOPICS
    bundles: tuple[str, ...] = ()

    @classmethod
    def of(cls, load: ClusterLoad) -> KnownTopics:
        """What a cycle's picture shows of them."""
        return cls(load.topics, load.bundles.names)

    def inside(self, bundle: str) -> TopicsOf | None:
        """Those of a bundle in Pulsar's spelling; None when its inside is not known."""
        if bundle not in self.bundles:
            return None
        rows = np.flatnonzero(self.topics.bundle == self.bundles.index(bundle))
        return TopicsOf(self.topics.place[rows], *both_directions(self.topics.traffic[rows])) if len(rows) else None
