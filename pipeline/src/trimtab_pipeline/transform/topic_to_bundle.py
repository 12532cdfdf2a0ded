"""The bundle of each topic: the hash ranges of all bundles, and the position of up to a million topics among them.

The extensible load manager exports metrics of topics only, so the bundles' load is summed here, inside the Spark tasks
that read the topics: a join in SQL would first move every topic into the JVM. Names are parsed on Arrow's buffers; only
CRC-32 runs in Python, with one call of `zlib` per name.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import Topology
from trimtab_strategies.hash_ring import LAST_HASH, BundleName, InvalidBundleNameError, parse_bundle
from trimtab_strategies.model.cluster_load import IntArray

_SLASH = ord("/")
_BEFORE_NAMESPACE, _AFTER_NAMESPACE = 1, 3  # slashes of persistent://tenant/namespace/topic, counted from 0


@dataclass(frozen=True, slots=True)
class HashRanges:
    """The bundles of a cluster, b rows ascending by namespace and lower bound.

    namespaces, pods: the names that `namespace` and `owner` refer to.
    namespace, lower, upper, owner: (b,) row, first hash, first hash after it, row of the pod that should own it or -1.
    row: (b,) position among the original names.
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
        """The ranges with owners: for each of the original names the row of a pod, or -1."""
        return replace(self, pods=pods, owner=owner[self.row])

    def __len__(self) -> int:
        return len(self.lower)

    def names(self, rows: IntArray) -> list[str]:
        """Full names of the bundles `rows`."""
        columns = (column[rows].tolist() for column in (self.namespace, self.lower, self.upper))
        return [str(BundleName(self.namespaces[n], lower, upper)) for n, lower, upper in zip(*columns, strict=True)]

    def place(self, topics: pa.StringArray) -> tuple[IntArray, IntArray]:
        """(t,) row of each topic's bundle, -1 if it is none of these; (t,) place of each topic on its ring.

        The last hash of all belongs to the last bundle (`trimtab_strategies.hash_ring.find_bundle`).
        """
        hashes = crc32(topics)
        space = np.asarray(pc.fill_null(pc.index_in(namespaces_of(topics), pa.array(self.namespaces, pa.string())), -1))
        key = (space.astype(np.int64) << 32) | np.minimum(hashes, LAST_HASH - 1)
        at = np.searchsorted((self.namespace << 32) | self.lower, key, side="right") - 1
        fits = (space >= 0) & (at >= 0)
        at = np.maximum(at, 0)
        fits &= key < ((self.namespace << 32) | self.upper)[at] if len(self) else False
        return np.where(fits, at, -1), hashes

    def to_text(self) -> str:
        """The form that fits into a data source option."""
        metadata = {"namespaces": json.dumps(self.namespaces), "pods": json.dumps(self.pods)}
        columns = {
            "namespace": pa.array(self.namespace, pa.int32()),
            "lower": pa.array(self.lower, pa.uint32()),
            "upper": pa.array(self.upper, pa.uint32()),
            "owner": pa.array(self.owner, pa.int32()),
        }
        table = pa.table(columns).replace_schema_metadata(metadata)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            stream.write_table(table)
        return base64.b64encode(sink.getvalue()).decode()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The inverse of `to_text`."""
        table = pa.ipc.open_stream(base64.b64decode(text)).read_all()
        metadata: dict[bytes, Any] = {key: tuple(json.loads(value)) for key, value in table.schema.metadata.items()}
        bounds = [table[name].to_numpy().astype(np.int64) for name in ("namespace", "lower", "upper", "owner")]
        rows = np.arange(len(table))
        return cls(metadata[b"namespaces"], bounds[0], bounds[1], bounds[2], rows, metadata[b"pods"], bounds[3])


class Summing:
    """Whether one policy's topics are summed up to bundles, and to which; parsed names are cached.

    metrics: `PrometheusSettings.bundle_metrics`. With ``auto`` the ranges travel with the first read, and then as long
    as no bundle has its own metrics.
    """

    def __init__(self, metrics: str) -> None:
        self._auto = metrics == "auto"
        self._wanted = metrics != "bundle"
        self._names: tuple[str, ...] = ()
        self._parsed = HashRanges.of(())

    def ranges(self, topology: Topology) -> HashRanges | None:
        """The ranges for the next read; None when it reads the bundles' own metrics."""
        if not self._wanted:
            return None
        if topology.bundles != self._names:
            self._names, self._parsed = topology.bundles, HashRanges.of(topology.bundles)
        return self._parsed.owned(topology.pods, topology.owner)

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
    """``tenant/namespace`` of each ``domain://tenant/namespace/topic``; empty for other names."""
    _, offsets, data = topics.buffers()
    edges = np.frombuffer(offsets, np.int32)[topics.offset : topics.offset + len(topics) + 1]
    slashes = np.flatnonzero(np.frombuffer(data or b"", np.uint8)[: edges[-1]] == _SLASH).astype(np.int32)
    first = np.searchsorted(slashes, edges[:-1])
    padded = np.append(slashes, np.full(_AFTER_NAMESPACE + 1, edges[-1], np.int32))
    complete = padded[first + _AFTER_NAMESPACE] < edges[1:]
    return _cut(
        data,
        np.where(complete, padded[first + _BEFORE_NAMESPACE] + 1, edges[:-1]),
        np.where(complete, padded[first + _AFTER_NAMESPACE], edges[:-1]),
    )


def _cut(data: pa.Buffer, begin: npt.NDArray[np.int32], end: npt.NDArray[np.int32]) -> pa.StringArray:
    """The pieces of `data` from each `begin` to its `end`, both ascending; the text is copied once, by Arrow."""
    edges = np.stack([begin, end], axis=1).ravel()
    pieces = pa.Array.from_buffers(pa.string(), max(len(edges) - 1, 0), [None, pa.py_buffer(edges), data])
    return pieces.take(pa.array(np.arange(0, len(edges), 2, dtype=np.int32)))
