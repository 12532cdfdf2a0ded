"""Finds the bundle of each topic by the hash ranges of all bundles.

On Spark the ranges are a table: `sql/topics.sql` joins it with the topics. Without Spark `HashRanges.place` does the
same. Names are parsed by Arrow; only CRC-32 runs in Python, with one call of `zlib` per name.

Pulsar hashes the UTF-8 bytes of the whole name with CRC-32: the broker's class ``ConsistentHashingTopicBundleAssigner``
(package ``org.apache.pulsar.common.naming``) takes ``TopicName.toString()``. A segment of a scalable topic (Pulsar 5,
PIP-460) is a topic of its own. Its name ends with the segment's hash range and number:
``segment://tenant/namespace/topic/0000-7fff-1`` (``SegmentTopicName.fromParent``). These are hashed, too, so the
segments of one topic lie in different bundles of its namespace. ``topic://`` names a scalable topic as a whole. No
broker serves it as a topic.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import Topology
from trimtab_pipeline.transform.relations import RANGES
from trimtab_strategies.hash_ring import LAST_HASH, BundleName, InvalidBundleNameError, parse_bundle
from trimtab_strategies.model.cluster_load import BoolArray, IntArray

DOMAINS = "((non-)?persistent://|segment://)"
"""What a topic's name begins with, as a regular expression."""
_NAME = (
    r"(?s)\A(?:(?:non-)?persistent://(?P<namespace>[^/]+/[^/]+)/[^/]+"
    r"|segment://(?P<of_segment>[^/]+/[^/]+)/.+/[0-9a-f]+-[0-9a-f]+-[0-9]+)\z"
)


@dataclass(frozen=True, slots=True)
class HashRanges:
    """The bundles of a cluster, b rows sorted by namespace and lower bound.

    namespaces, pods: the names that `namespace` and `owner` refer to.
    namespace, owner: (b,) row of the namespace; row of the pod that should own it, or -1.
    lower, upper: (b,) first hash of the bundle, and first hash after it.
    row: (b,) position among the names that `of` was called with.
    """

    namespaces: tuple[str, ...]
    namespace: IntArray
    lower: IntArray
    upper: IntArray
    row: IntArray
    pods: tuple[str, ...] = ()
    owner: IntArray = field(default_factory=lambda: np.empty(0, np.int64))

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
        return replace(found, **{name: getattr(found, name)[rows] for name in columns})

    def __len__(self) -> int:
        return len(self.lower)

    def names(self, rows: IntArray) -> list[str]:
        """Full names of the bundles `rows`."""
        columns = (column[rows].tolist() for column in (self.namespace, self.lower, self.upper))
        return [str(BundleName(self.namespaces[n], lower, upper)) for n, lower, upper in zip(*columns, strict=True)]

    def place(self, topics: pa.StringArray) -> tuple[IntArray, IntArray]:
        """(t,) row of each topic's bundle, -1 if it is none of these; (t,) place of each topic on its ring.

        The hash 0xffffffff belongs to the last bundle, as in `trimtab_strategies.hash_ring.find_bundle`.
        """
        hashes = crc32(topics)
        space = np.asarray(pc.fill_null(pc.index_in(namespaces_of(topics), pa.array(self.namespaces, pa.string())), -1))
        key = (space.astype(np.int64) << 32) | np.minimum(hashes, LAST_HASH - 1)
        at = np.searchsorted((self.namespace << 32) | self.lower, key, side="right") - 1
        fits = (space >= 0) & (at >= 0)
        at = np.maximum(at, 0)
        fits &= key < ((self.namespace << 32) | self.upper)[at] if len(self) else False
        return np.where(fits, at, -1), hashes

    def table(self, policy: str) -> pa.Table:
        """`relations.RANGES`: a row per bundle and cell. A ring has at least as many cells as bundles, a power of 2."""
        cells = _power_of_two(np.bincount(self.namespace, minlength=len(self.namespaces)))[self.namespace]
        first, last = (bound * cells >> 32 for bound in (self.lower, self.upper - 1))
        count = last - first + 1
        row = np.repeat(np.arange(len(self)), count)
        cell = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        spaces, pods = (pa.array(names, pa.string()) for names in (self.namespaces, self.pods))
        owner = pa.array(self.owner, mask=self.owner < 0)
        columns = {
            "policy": pa.repeat(policy, len(row)),
            "namespace": spaces.take(pa.array(self.namespace[row])),
            "cell": pa.array(cell, pa.int32()),
            "cells": pa.array(cells[row], pa.int32()),
            "lower": pa.array(self.lower[row], pa.int64()),
            "upper": pa.array(self.upper[row], pa.int64()),
            "bundle": pa.array(self.names(np.arange(len(self))), pa.string()).take(pa.array(row)),
            "owner": pods.take(owner).take(pa.array(row)),
        }
        return pa.table(columns, schema=RANGES)


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
    parts = pc.extract_regex(topics, _NAME)
    found = pc.binary_join_element_wise(pc.struct_field(parts, 0), pc.struct_field(parts, 1), "")
    return pc.fill_null(found, "")


def _without_overlaps(begin: IntArray, end: IntArray, last: BoolArray) -> IntArray:
    """Sorted rows of ranges that don't overlap, chosen in order of `begin`, those in `last` after all others."""
    kept: list[tuple[int, int]] = []
    for row in np.lexsort((begin, last)).tolist():
        at = bisect_left(kept, (int(end[row]), -1))
        if not at or end[kept[at - 1][1]] <= begin[row]:
            kept.insert(at, (int(begin[row]), row))
    return np.array([row for _, row in kept], np.int64)


def _power_of_two(counts: IntArray) -> IntArray:
    """The lowest power of 2 that is not less than each count."""
    powers: IntArray = 1 << np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
    return powers
