"""The hash ring of each TopicNamespace: ranges that no Bundle covers, and Bundles that overlap others.

Bundles overlap when a person creates one in addition to the existing ones. Of two bundles that overlap, only one has a
place on the ring: the one with an owner, else the one that the operator created, else the older one. The other gets no
owner, because otherwise the same hashes would have two owners. If a person writes an owner for it, the operator
withdraws that owner, unless a broker takes the bundle first. A child of a split does not count while its parent exists.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.state.splitting_bundles import unborn

MANY = 500
"""From this number of bundles on, rings are examined in a thread. A thousand bundles take 2 to 5 ms, or 20 ms if they
overlap."""

_BEGIN, _END = "0x00000000", "0xffffffff"
_NOTHING: Mapping[str, BundleRecord] = {}


@dataclass(frozen=True, slots=True)
class Ring:
    """The ring of one TopicNamespace.

    bundles: number of bundles. gaps: ranges (lower, upper) that no bundle covers, ascending.
    overlaps: name of a bundle without a place -> name of a bundle that overlaps it and has a place.
    served: names of the bundles that have no place, but that a broker serves.
    """

    bundles: int
    gaps: tuple[tuple[str, str], ...] = ()
    overlaps: Mapping[str, str] = field(default_factory=dict)
    served: frozenset[str] = frozenset()

    @property
    def whole(self) -> bool:
        """Whether each hash belongs to exactly one bundle."""
        return not self.gaps and not self.overlaps


NO_BUNDLES = Ring(0, ((_BEGIN, _END),))
"""The ring of a TopicNamespace whose bundles are all gone."""


def examine(bundles: Mapping[str, BundleRecord]) -> Ring:
    """The ring of one TopicNamespace, whose `bundles` are given by name."""
    found = sorted((b for b in bundles.values() if not unborn(b, bundles)), key=lambda bundle: bundle.lower)
    overlaps = dict[str, str]()
    if any(one.upper > other.lower for one, other in pairwise(found)):  # all are 0x%08x, so text compares as numbers
        found, overlaps = _in_place(found)
    served = frozenset(name for name in overlaps if bundles[name].status_owner)
    return Ring(len(bundles), tuple(_gaps(found)), overlaps, served)


def _in_place(bundles: Iterable[BundleRecord]) -> tuple[list[BundleRecord], dict[str, str]]:
    """The bundles that have a place, ascending; and bundle without a place -> a bundle with one that overlaps it."""
    placed, lowers, overlaps = list[BundleRecord](), list[str](), dict[str, str]()
    for bundle in sorted(bundles, key=seniority):
        before = bisect_left(lowers, bundle.upper)
        if before and placed[before - 1].upper > bundle.lower:
            overlaps[bundle.name] = placed[before - 1].name
        else:  # no placed bundle begins inside this one, so `before` is also where its lower bound belongs
            lowers.insert(before, bundle.lower)
            placed.insert(before, bundle)
    return placed, overlaps


def seniority(bundle: BundleRecord) -> tuple[bool, bool, str, str]:
    """Sort key for bundles that overlap: the first one keeps its place."""
    return not bundle.status_owner, not bundle.made, bundle.created, bundle.name


def _gaps(placed: Sequence[BundleRecord]) -> Iterable[tuple[str, str]]:
    edges = [_BEGIN, *(edge for bundle in placed for edge in (bundle.lower, bundle.upper)), _END]
    return ((upper, lower) for upper, lower in zip(edges[::2], edges[1::2], strict=True) if upper < lower)


@dataclass(slots=True)
class HashRings:
    """The rings of all TopicNamespaces, updated bundle by bundle. Only rings that have changed are examined again.

    faulty: name of a TopicNamespace -> its ring, for rings that were not whole at the last `examined`.
    """

    faulty: dict[str, Ring] = field(default_factory=dict)
    _members: dict[str, dict[str, BundleRecord]] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _examining: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def spaces(self) -> Collection[str]:
        """Names of the TopicNamespaces that bundles name, whether or not there is such an object."""
        return self._members.keys()

    def members(self, space: str) -> Mapping[str, BundleRecord]:
        """The bundles that name the TopicNamespace `space`."""
        return self._members.get(space, _NOTHING)

    def update(self, old: BundleRecord | None, new: BundleRecord | None) -> None:
        """Record a bundle as it was and as it is (None: there is none)."""
        if old is not None and (new is None or _place(old) != _place(new)):
            self._drop(old)
        if new is not None:
            self._members.setdefault(new.topic_namespace, {})[new.name] = new
            if old is None or _place(old) != _place(new) or self._another_senior(old, new):
                self._changed.add(new.topic_namespace)

    def _drop(self, bundle: BundleRecord) -> None:
        members = self._members.get(bundle.topic_namespace, {})
        members.pop(bundle.name, None)
        self._changed.add(bundle.topic_namespace)
        if not members:
            self._members.pop(bundle.topic_namespace, None)

    def _another_senior(self, old: BundleRecord, new: BundleRecord) -> bool:
        ring = self.faulty.get(new.topic_namespace)
        disputed = self._examining.locked() or (ring is not None and bool(ring.overlaps))
        return disputed and bool(old.status_owner) != bool(new.status_owner)

    async def examined(self, spaces: Collection[str] | None = None) -> None:
        """Update `faulty` for the TopicNamespaces `spaces`; None: for all."""
        async with self._examining:  # a caller waits while another one examines in a thread
            await self._examine(spaces)

    async def _examine(self, spaces: Collection[str] | None) -> None:
        news = self._changed if spaces is None else self._changed.intersection(spaces)
        examining = {space: dict(self.members(space)) for space in news}
        self._changed -= examining.keys()
        many = sum(map(len, examining.values())) >= MANY
        try:
            found = await asyncio.to_thread(_examined, examining) if many else _examined(examining)
        except BaseException:  # cancelled: the next caller has to examine them
            self._changed |= examining.keys()
            raise
        for space, ring in found.items():
            if ring.whole or not ring.bundles:
                self.faulty.pop(space, None)
            else:
                self.faulty[space] = ring

    def overlaps(self, bundle: BundleRecord) -> bool:
        """Whether a bundle has no place on its ring, as of the last `examined`."""
        ring = self.faulty.get(bundle.topic_namespace)
        return ring is not None and bundle.name in ring.overlaps


def _place(bundle: BundleRecord) -> tuple[str, str, str, str]:
    return bundle.topic_namespace, bundle.lower, bundle.upper, bundle.parent


def _examined(members: Mapping[str, Mapping[str, BundleRecord]]) -> dict[str, Ring]:
    return {space: examine(bundles) for space, bundles in members.items()}
