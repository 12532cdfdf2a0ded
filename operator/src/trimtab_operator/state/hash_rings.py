"""The hash rings: which hashes of a TopicNamespace no Bundle has, and which Bundles want hashes that another one has.

Bundles overlap when somebody creates one beside those that are there. Only one of them has the place: the one that is
served, then the one that its TopicNamespace made, then the older one. The other is a newcomer and gets no owner, or the
same hashes would have two. A child of a split does not count while its parent exists.
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
"""Bundles from which on rings are examined off the event loop: it takes 2 to 5 ms per thousand, 20 where they
overlap."""

_BEGIN, _END = "0x00000000", "0xffffffff"
_NOTHING: Mapping[str, BundleRecord] = {}


@dataclass(frozen=True, slots=True)
class Ring:
    """What was found of one TopicNamespace's ring.

    bundles: how many there are. gaps: ranges (lower, upper) that no bundle has, ascending.
    overlaps: by the name of each bundle without a place, one that overlaps it and has one.
    """

    bundles: int
    gaps: tuple[tuple[str, str], ...] = ()
    overlaps: Mapping[str, str] = field(default_factory=dict)

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
    return Ring(len(bundles), tuple(_gaps(found)), overlaps)


def _in_place(bundles: Iterable[BundleRecord]) -> tuple[list[BundleRecord], dict[str, str]]:
    """Those that have a place, ascending, and for each that has none which of them is in its way."""
    placed, lowers, overlaps = list[BundleRecord](), list[str](), dict[str, str]()
    for bundle in sorted(bundles, key=_seniority):
        before = bisect_left(lowers, bundle.upper)
        if before and placed[before - 1].upper > bundle.lower:
            overlaps[bundle.name] = placed[before - 1].name
        else:  # nothing begins between its lower and its upper
            lowers.insert(before, bundle.lower)
            placed.insert(before, bundle)
    return placed, overlaps


def _seniority(bundle: BundleRecord) -> tuple[bool, bool, str, str]:
    return not bundle.status_owner, not bundle.made, bundle.created, bundle.name


def _gaps(placed: Sequence[BundleRecord]) -> Iterable[tuple[str, str]]:
    edges = [_BEGIN, *(edge for bundle in placed for edge in (bundle.lower, bundle.upper)), _END]
    return ((upper, lower) for upper, lower in zip(edges[::2], edges[1::2], strict=True) if upper < lower)


@dataclass(slots=True)
class HashRings:
    """The rings of all TopicNamespaces, kept up bundle by bundle. Only rings that have changed are examined again.

    faulty: by name of the TopicNamespace the rings that are not whole, as of the last `examined`.
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

    def see(self, old: BundleRecord | None, new: BundleRecord | None) -> None:
        """Take note of a bundle as it was and as it is (None: there is none)."""
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
        """Have `faulty` show the rings of those TopicNamespaces (all, if left out) as they are now."""
        async with self._examining:  # who asks while others examine in a thread waits for what they find
            await self._examine(spaces)

    async def _examine(self, spaces: Collection[str] | None) -> None:
        news = self._changed if spaces is None else self._changed.intersection(spaces)
        looked_at = {space: dict(self.members(space)) for space in news}
        self._changed -= looked_at.keys()
        many = sum(map(len, looked_at.values())) >= MANY
        try:
            found = await asyncio.to_thread(_examined, looked_at) if many else _examined(looked_at)
        except BaseException:  # cancelled: the next one has to examine them
            self._changed |= looked_at.keys()
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
