"""Finds the bundle of each topic by the hash ranges of all bundles.

Names are parsed by Arrow; only CRC-32 runs in Python, with one call of `zlib` per name.

Pulsar hashes the UTF-8 bytes of the whole name with CRC-32: the broker's class ``ConsistentHashingTopicBundleAssigner``
(package ``org.apache.pulsar.common.naming``) takes ``TopicName.toString()``. A segment of a scalable topic (Pulsar 5,
PIP-460) is a topic of its own. Its name ends with the segment's hash range and number:
``segment://tenant/namespace/topic/0000-7fff-1`` (``SegmentTopicName.fromParent``). These are hashed, too, so the
segments of one topic lie in different bundles of its namespace. ``topic://`` names a scalable topic as a whole. No
broker serves it as a topic.
"""

from __future__ import annotations

import pickle
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import Topology
from trimtab_strategies.hash_ring import LAST_HASH, BundleName, InvalidBundleNameError, parse_bundle
from trimtab_strategies.model.cluster_load import BoolArray, IntArray

DOMAINS = "((non-)?persistent://|segment://)"
"""What a topic's name begins with, as a regular expression."""
_BEGIN = (
    r"(?s)\A(?:(?:non-)?persistent://(?P<namespace>[^/]+/[^/]+)"
    r"|segment://(?P<of_segment>[^/]+/[^/]+)/.+/[0-9a-f]+-[0-9a-f]+-[0-9]+)\z"
)


@dataclass(frozen=True, slots=True)
class HashRanges:
    """The bundles of a cluster, b rows sorted by namespace and lower bound.

    namespaces, pods: the names that `namespace` and `owner` refer to.
    namespace, owner: (b,) row of the namespace; row of the pod that should own it, or -1.
    lower, upper: (b,) first hash of the bundle, and first hash after it.
    row: (b,) position among the names that `of` was called with.
    derived: what was computed from the bounds. Copies with the same bounds share it.
    """

    namespaces: tuple[str, ...]
    namespace: IntArray
    lower: IntArray
    upper: IntArray
    row: IntArray
    pods: tuple[str, ...] = ()
    owner: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    derived: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, bundles: Sequence[str]) -> Self:
        """From full names, without owners. Raises `InvalidBundleNameError`."""
        parts = [parse_bundle(bundle) for bundle in bundles]
        namespaces, namespace = np.unique(np.array([part.namespace for part in parts], object), return_inverse=True)
        lower, upper = (np.array([part[k] for part in parts], np.int64) for k in (1, 2))
        order = np.lexsort((lower, namespace))
        bounds = namespace[order].astype(np.int64), lower[order], upper[order]
        return cls(tuple(namespaces), bounds[0], bounds[1], bounds[2], order, (), np.full(len(parts), -1))

    def owned(self, pods: tuple[str, ...], owner: IntArray) -> Self:
        """The ranges with owners. owner: the row of a pod, or -1, for each of the names with which `of` was called.

        Each hash is in at most one range. If some overlap (a person created an extra bundle, or a namespace has two
        objects), those with an owner are kept first, then those with the lowest hash. The others are dropped.
        """
        found = replace(self, pods=pods, owner=owner[self.row])
        key, end = (found.namespace << 32) | found.lower, (found.namespace << 32) | found.upper
        if (end[:-1] <= key[1:]).all():
            return found
        rows = _without_overlaps(key, end, found.owner < 0)
        columns = ("namespace", "lower", "upper", "row", "owner")
        return replace(found, derived={}, **{name: getattr(found, name)[rows] for name in columns})

    def __len__(self) -> int:
        return len(self.lower)

    def names(self, rows: IntArray) -> list[str]:
        """Full names of the bundles `rows`."""
        columns = (column[rows].tolist() for column in (self.namespace, self.lower, self.upper))
        return [str(BundleName(self.namespaces[n], lower, upper)) for n, lower, upper in zip(*columns, strict=True)]

    @property
    def labels(self) -> pa.StringArray:
        """(b,) full names of all bundles."""
        if "labels" not in self.derived:
            self.derived["labels"] = pa.array(self.names(np.arange(len(self))), pa.string())
        return self.derived["labels"]

    @property
    def packed(self) -> bytes:
        """The bounds on their way to the tasks: pickled and compressed, without owners."""
        if "packed" not in self.derived:
            bounds = self.namespace.astype(np.int32), self.lower.astype(np.uint32), self.upper.astype(np.uint32)
            self.derived["packed"] = zlib.compress(pickle.dumps((self.namespaces, *bounds)), 1)
        packed: bytes = self.derived["packed"]
        return packed

    @staticmethod
    @lru_cache(maxsize=8)  # policies; a worker of Spark gets the same bounds in every cycle
    def unpacked(content: bytes) -> HashRanges:
        """The ranges of these bounds (`packed`), without owners."""
        namespaces, *bounds = pickle.loads(zlib.decompress(content))  # noqa: S301  (our own driver packed it)
        namespace, lower, upper = (bound.astype(np.int64) for bound in bounds)
        return HashRanges(namespaces, namespace, lower, upper, np.arange(len(lower)), (), np.full(len(lower), -1))

    def place(self, topics: pa.StringArray) -> tuple[IntArray, IntArray]:
        """(t,) row of each topic's bundle, -1 if it is none of these; (t,) place of each topic on its ring.

        The hash 0xffffffff belongs to the last bundle, as in `trimtab_strategies.hash_ring.find_bundle`.
        """
        hashes = crc32(topics)
        spaces = _namespaces(topics)
        known = pc.fill_null(pc.index_in(spaces.dictionary, pa.array(self.namespaces, pa.string())), -1)
        space = np.append(known, -1)[pc.fill_null(spaces.indices, -1)]
        key = (space.astype(np.int64) << 32) | np.minimum(hashes, LAST_HASH - 1)
        at = np.searchsorted((self.namespace << 32) | self.lower, key, side="right") - 1
        fits = (space >= 0) & (at >= 0)
        at = np.maximum(at, 0)
        fits &= key < ((self.namespace << 32) | self.upper)[at] if len(self) else False
        return np.where(fits, at, -1), hashes


class Summing:
    """Whether one policy's topics are summed up to bundles, and to which; parsed names are cached.

    metrics: `PrometheusSettings.bundle_metrics`. With ``auto``, topics are summed in the first read, and then as long
    as no bundle has its own metrics.
    """

    def __init__(self, metrics: str) -> None:
        self._auto = metrics == "auto"
        self._wanted = metrics != "bundle"
        self._parsed: tuple[tuple[str, ...], HashRanges] = (), HashRanges.of(())  # one tuple, because threads share it

    def ranges(self, topology: Topology) -> HashRanges | None:
        """The ranges for the next read; None when it reads the bundles' own metrics."""
        if not self._wanted:
            return None
        names, ranges = self._parsed
        if topology.bundles != names:
            ranges = HashRanges.of(topology.bundles)
            self._parsed = topology.bundles, ranges
        return ranges.owned(topology.pods, topology.owner)

    def saw(self, own: int) -> None:
        """Record how many bundles had their own metrics in the last read."""
        if self._auto:
            self._wanted = own == 0


def is_bundle(name: str) -> bool:
    """Whether `name` is a bundle's full name."""
    try:
        parse_bundle(name)
    except InvalidBundleNameError:
        return False
    return True


def crc32(names: pa.StringArray) -> IntArray:
    """(t,) CRC-32 of each name's bytes, 0 to 0xffffffff: its place on the ring of its namespace."""
    return np.fromiter(map(zlib.crc32, names.cast(pa.binary()).to_pylist()), np.int64, len(names))


def namespaces_of(topics: pa.StringArray) -> pa.StringArray:
    """``tenant/namespace`` of each topic; empty for names of other kinds, also V1 names (four parts)."""
    return pc.fill_null(_namespaces(topics).dictionary_decode(), "")


def _namespaces(topics: pa.StringArray) -> pa.DictionaryArray:
    """``tenant/namespace`` of each topic, null for names of other kinds.

    A regular expression takes as long as everything else. So it parses only the different beginnings of the names, up
    to their last slash, and of segments the whole names.
    """
    segments = pc.starts_with(topics, "segment://")
    texts = pc.if_else(segments, topics, pc.list_element(pc.split_pattern(topics, "/", max_splits=1, reverse=True), 0))
    begins = pc.if_else(pc.ends_with(topics, "/"), None, texts).dictionary_encode()
    parts = pc.extract_regex(begins.dictionary, _BEGIN)
    of_topic, of_segment = (pc.struct_field(parts, group) for group in (0, 1))
    found = pc.if_else(pc.equal(of_topic, ""), of_segment, of_topic)
    return pa.DictionaryArray.from_arrays(begins.indices, found)


def _without_overlaps(begin: IntArray, end: IntArray, last: BoolArray) -> IntArray:
    """Sorted rows of ranges that don't overlap, chosen in order of `begin`, those in `last` after all others."""
    kept: list[tuple[int, int]] = []
    for row in np.lexsort((begin, last)).tolist():
        at = bisect_left(kept, (int(end[row]), -1))
        if not at or end[kept[at - 1][1]] <= begin[row]:
            kept.insert(at, (int(begin[row]), row))
    return np.array([row for _, row in kept], np.int64)
