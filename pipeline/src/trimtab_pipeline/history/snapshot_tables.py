"""Converts a cycle to tables of the history, and the tables to a `ClusterLoad`.

The tables have the brokers as the strategies got them, the quality of the data, and the load of each bundle. They have
no averages, because those can be computed from the load (`history.reader`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import LONG, SHORT, TIMES, TRAFFIC, USAGE
from trimtab_pipeline.transform.arrays import block, floats
from trimtab_strategies.model import Brokers, Bundles, ClusterLoad, DataQuality, Doubt, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray

_LIMITS = tuple(f"{name}_limit" for name in USAGE)
_FLAGS = ("ready", "schedulable", "trusted")
_HALF, _SIGNIFICANT = np.uint32(2**12), np.uint32(2**32 - 2**13)  # keeps 10 of the 23 bits of a fraction

BROKER_SNAPSHOT = pa.schema(
    [
        ("broker", pa.string()),
        ("pod", pa.string()),
        *((name, pa.float64()) for name in (*USAGE, *_LIMITS, *TRAFFIC, "age")),
        *((name, pa.bool_()) for name in _FLAGS),
        *((name, pa.string()) for name in ("reason", "doubt")),
        *((name, pa.float64()) for name in (*TIMES, "max_age", "short_tau", "long_tau")),
    ]
)
"""Columns of the brokers as in `trimtab_strategies.model.Brokers` (null: unknown), why a broker was not trusted (a
`Reason` and a text), and epoch seconds of its newest samples. Three columns have the same value in all
rows: ``max_age`` (s), which also applies to bundles, and ``short_tau`` and ``long_tau``, the time constants (s) of the
averages. The last two are null if the averages count samples as Pulsar's do."""
QUALITY = pa.schema([("kind", pa.string()), ("what", pa.string()), ("count", pa.int64())])
"""Problems of the data. ``kind`` is ``dropped`` (``what``: the cause), ``missing`` (brokers, bundles), ``failed``
(``what``: which brokers and why), ``warning`` (of the source) or ``note`` (an oddity)."""
_NO_DOUBTS: Mapping[str, Doubt] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Bounds:
    """Settings that a snapshot depends on, all in seconds.

    max_age: older data is not trusted. short_tau, long_tau: time constants of the averages; NaN for Pulsar's, which
    count samples.
    """

    max_age: float = math.inf
    short_tau: float = 120.0
    long_tau: float = 3600.0


def broker_table(
    brokers: Brokers,
    pods: Sequence[str],
    doubts: Mapping[str, Doubt] = _NO_DOUBTS,
    bounds: Bounds = Bounds(),
    measured: pa.Table | None = None,
) -> pa.Table:
    """Rows of `BROKER_SNAPSHOT`. measured: the brokers' `BROKER_STATE`, for the times of their samples."""
    columns = {"broker": pa.array(brokers.names, pa.string()), "pod": pa.array(pods, pa.string())}
    blocks = ((USAGE, brokers.usage), (_LIMITS, brokers.limit), (TRAFFIC, brokers.traffic))
    for names, values in blocks:
        columns |= {name: _nullable(values[:, k]) for k, name in enumerate(names)}
    columns["age"] = _nullable(brokers.age)
    columns |= {name: pa.array(getattr(brokers, name)) for name in _FLAGS}
    found = [doubts.get(name) for name in brokers.names]
    columns["reason"] = pa.array([None if doubt is None else str(doubt.reason) for doubt in found], pa.string())
    columns["doubt"] = pa.array([None if doubt is None else doubt.text for doubt in found], pa.string())
    columns |= _times(columns["pod"], measured)
    for name in ("max_age", "short_tau", "long_tau"):
        columns[name] = _nullable(np.full(len(brokers), getattr(bounds, name)))
    return pa.table(columns, schema=BROKER_SNAPSHOT)


def _times(pods: pa.StringArray, measured: pa.Table | None) -> dict[str, pa.Array]:
    """Times of the newest samples of each of `pods`."""
    if measured is None:
        return {name: pa.nulls(len(pods), pa.float64()) for name in TIMES}
    row = pc.index_in(pods, value_set=measured["pod"])
    return {name: measured[name].combine_chunks().take(row) for name in TIMES}


def demand_table(bundles: pa.Table, at: float, columns: pa.Schema) -> pa.Table:
    """The rows of `bundles` (`BUNDLE_STATE`) that were measured at `at` (epoch s), sorted by name, with `columns`."""
    measured = bundles.filter(pc.equal(bundles["seen"], at)).select(columns.names).sort_by("bundle")
    measured = rounded_traffic(measured)
    for name in ("topics", "sessions"):
        whole = pc.cast(pc.round(measured[name]), pa.int32(), safe=False)
        measured = measured.set_column(measured.column_names.index(name), name, whole)
    return measured.cast(columns)


def rounded_usage(brokers: pa.Table) -> pa.Table:
    """Rows of `BROKER_SNAPSHOT` with usage and traffic rounded by `rounded`."""
    for name in (*USAGE, *TRAFFIC):
        values = rounded(brokers[name]).cast(pa.float64())
        brokers = brokers.set_column(brokers.column_names.index(name), name, values)
    return brokers


def rounded_traffic(rows: pa.Table) -> pa.Table:
    """`rows` with the columns `TRAFFIC` rounded by `rounded`."""
    for name in TRAFFIC:
        rows = rows.set_column(rows.column_names.index(name), name, rounded(rows[name]))
    return rows


def rounded(column: pa.ChunkedArray) -> pa.FloatArray:
    """The values as 32-bit numbers with 11 significant bits: within 0.05 %, and a third smaller when compressed."""
    values = column.to_numpy().astype(np.float32)
    known = np.isfinite(values)
    bits = (np.where(known, values, 0).view(np.uint32) + _HALF) & _SIGNIFICANT
    return pa.array(bits.view(np.float32), mask=~known)


def quality_table(quality: DataQuality) -> pa.Table:
    """Rows of `QUALITY`; none if there is no problem."""
    missing = {"brokers": quality.missing_brokers, "bundles": quality.missing_bundles}
    rows = [
        *(("dropped", cause, count) for cause, count in sorted(quality.dropped.items())),
        *(("missing", what, count) for what, count in missing.items() if count),
        *(("failed", f"{who}: {why}", 1) for who, why in quality.failed),
        *(("warning", text, 1) for text in quality.warnings),
        *(("note", text, 1) for text in quality.notes),
    ]
    return pa.Table.from_pylist([dict(zip(QUALITY.names, row, strict=True)) for row in rows], schema=QUALITY)


def load_of(at: float, bundles: pa.Table, brokers: pa.Table, quality: pa.Table) -> ClusterLoad:
    """The snapshot at `at` (epoch s), from tables of `BUNDLE_STATE`, `BROKER_SNAPSHOT` and `QUALITY`.

    A bundle's owner is the broker that reported it. What is only in resources (pins, desired owners, moves) is missing.
    """
    return ClusterLoad(brokers_of(brokers), *_bundles(bundles, brokers, at), at, _quality(quality, brokers))


def _nullable(values: FloatArray) -> pa.DoubleArray:
    return pa.array(values, mask=~np.isfinite(values))


def brokers_of(table: pa.Table, before: tuple[str, ...] = ()) -> Brokers:
    """The brokers in rows of `BROKER_SNAPSHOT`. before: names of the brokers in the previous cycle.

    If the names have not changed, the tuple `before` is used, so that checks of it (such as for duplicates) are not
    repeated.
    """
    names = tuple(table["broker"].to_pylist())
    age = floats(table, "age")
    ready, schedulable, trusted = (_flags(table, name) for name in _FLAGS)
    return Brokers(
        names=before if names == before else names,
        usage=block(table, USAGE),
        limit=block(table, _LIMITS),
        traffic=block(table, TRAFFIC),
        age=np.where(np.isnan(age), np.inf, age),
        ready=ready,
        schedulable=schedulable,
        trusted=trusted,
    )


def _flags(table: pa.Table, name: str) -> BoolArray:
    flags: BoolArray = np.asarray(table[name].to_pylist(), bool)
    return flags


def _bundles(table: pa.Table, brokers: pa.Table, at: float) -> tuple[Bundles, tuple[str, ...]]:
    names = tuple(table["bundle"].to_pylist())
    homes = [name.rpartition("/")[0] for name in names]
    namespaces = tuple(sorted(set(homes)))
    row = {namespace: k for k, namespace in enumerate(namespaces)}
    serving = {pod: k for k, pod in enumerate(brokers["pod"].to_pylist()) if pod}
    count = len(names)
    topics, sessions, time = (floats(table, name) for name in ("topics", "sessions", "time"))
    old = at - time > floats(brokers, "max_age").min(initial=math.inf)
    newest = block(table, TRAFFIC)
    bundles = Bundles(
        names=names,
        namespace=np.array([row[home] for home in homes], np.int64),
        owner=np.array([serving.get(pod, -1) for pod in table["pod"].to_pylist()], np.int64),
        short=unless(old, block(table, SHORT)),
        long=unless(old, block(table, LONG)),
        topics=topics,
        sessions=sessions,
        last_unload=np.full(count, np.nan),
        pinned=np.zeros(count, bool),
        in_flight=np.zeros(count, bool),
        moving_from=np.full(count, -1, np.int64),
        moving_share=np.zeros(count),
        newest=unless(old, np.where(np.isfinite(newest), newest, np.nan)),
    )
    return bundles, namespaces


def unless(old: BoolArray, values: FloatArray) -> FloatArray:
    """`values` (m, k), with NaN in the rows of `old` (mask)."""
    values[old] = np.nan
    return values


def _quality(table: pa.Table, brokers: pa.Table) -> DataQuality:
    rows = {kind: [] for kind in ("dropped", "missing", "failed", "warning", "note")}  # type: dict[str, list[tuple[str, int]]]
    for row in table.to_pylist():
        rows[row["kind"]].append((row["what"], row["count"]))
    missing = dict(rows["missing"])
    failed = tuple((who, why) for who, _, why in (what.partition(": ") for what, _ in rows["failed"]))
    return DataQuality(
        dropped=dict(rows["dropped"]),
        missing_brokers=missing.get("brokers", 0),
        missing_bundles=missing.get("bundles", 0),
        failed=failed,
        warnings=tuple(what for what, _ in rows["warning"]),
        doubts={
            row["broker"]: Doubt(Reason(row["reason"]), row["doubt"] or "")
            for row in brokers.select(["broker", "reason", "doubt"]).to_pylist()
            if row["reason"]
        },
        notes=tuple(what for what, _ in rows["note"]),
    )
