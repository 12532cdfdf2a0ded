"""A `ClusterLoad` as tables of the history, and back.

The state (`transform.averages`) holds the measured values. These tables hold the trusted ones: the brokers as the
strategies got them, and the data's quality. Together with the bundles of the state they form the whole snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from trimtab_pipeline.columns import LONG, SHORT, TRAFFIC
from trimtab_strategies.model import Brokers, Bundles, ClusterLoad, DataQuality, Doubt, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray

_USAGE = ("cpu", "memory", "direct_memory", "network_in", "network_out")
_LIMITS = tuple(f"{name}_limit" for name in _USAGE)
_FLAGS = ("ready", "schedulable", "trusted")

BROKER_SNAPSHOT = pa.schema(
    [
        ("broker", pa.string()),
        ("pod", pa.string()),
        *((name, pa.float64()) for name in (*_USAGE, *_LIMITS, *TRAFFIC, "age")),
        *((name, pa.bool_()) for name in _FLAGS),
        *((name, pa.string()) for name in ("reason", "doubt")),
        ("max_age", pa.float64()),
    ]
)
"""Columns of the brokers as in `trimtab_strategies.model.Brokers`, null unknown; why a broker was not trusted (a
`Reason` and a text); and the maximum age of data (s), of bundles as well."""
QUALITY = pa.schema([("kind", pa.string()), ("what", pa.string()), ("count", pa.int64())])
"""Problems of the data. ``kind`` is ``dropped`` (``what``: the cause), ``missing`` (brokers, bundles), ``failed``
(``what``: which brokers and why), ``warning`` (of the source) or ``note`` (an oddity)."""
_NO_DOUBTS: Mapping[str, Doubt] = MappingProxyType({})


def broker_table(
    brokers: Brokers, pods: Sequence[str], doubts: Mapping[str, Doubt] = _NO_DOUBTS, max_age: float = math.inf
) -> pa.Table:
    """Rows of `BROKER_SNAPSHOT`. max_age: seconds up to which data was trusted."""
    columns = {"broker": pa.array(brokers.names, pa.string()), "pod": pa.array(pods, pa.string())}
    blocks = ((_USAGE, brokers.usage), (_LIMITS, brokers.limit), (TRAFFIC, brokers.traffic))
    for names, values in blocks:
        columns |= {name: _nullable(values[:, k]) for k, name in enumerate(names)}
    columns["age"] = _nullable(brokers.age)
    columns |= {name: pa.array(getattr(brokers, name)) for name in _FLAGS}
    found = [doubts.get(name) for name in brokers.names]
    columns["reason"] = pa.array([None if doubt is None else str(doubt.reason) for doubt in found], pa.string())
    columns["doubt"] = pa.array([None if doubt is None else doubt.text for doubt in found], pa.string())
    columns["max_age"] = _nullable(np.full(len(brokers), max_age))
    return pa.table(columns, schema=BROKER_SNAPSHOT)


def quality_table(quality: DataQuality) -> pa.Table:
    """Rows of `QUALITY`; none without a problem."""
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

    A bundle's owner is the broker that reported it. It lacks what only resources know (pins, desired owners, moves).
    """
    believed = _brokers(brokers)
    return ClusterLoad(believed, *_bundles(bundles, brokers, at), at, _quality(quality, brokers))


def _nullable(values: FloatArray) -> pa.DoubleArray:
    return pa.array(values, mask=~np.isfinite(values))


def _floats(table: pa.Table, names: Sequence[str]) -> FloatArray:
    """(rows, names) values, NaN where one is null."""
    columns = [table[name].to_numpy().astype(np.float64) for name in names]
    return np.stack(columns, axis=1) if columns else np.empty((len(table), 0))


def _brokers(table: pa.Table) -> Brokers:
    age = _floats(table, ("age",))[:, 0]
    ready, schedulable, trusted = (_flags(table, name) for name in _FLAGS)
    return Brokers(
        names=tuple(table["broker"].to_pylist()),
        usage=_floats(table, _USAGE),
        limit=_floats(table, _LIMITS),
        traffic=_floats(table, TRAFFIC),
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
    topics, sessions, time = _floats(table, ("topics", "sessions", "time")).T
    old = at - time > _floats(brokers, ("max_age",)).min(initial=math.inf)
    bundles = Bundles(
        names=names,
        namespace=np.array([row[home] for home in homes], np.int64),
        owner=np.array([serving.get(pod, -1) for pod in table["pod"].to_pylist()], np.int64),
        short=unless(old, _floats(table, SHORT)),
        long=unless(old, _floats(table, LONG)),
        topics=topics,
        sessions=sessions,
        last_unload=np.full(count, np.nan),
        pinned=np.zeros(count, bool),
        in_flight=np.zeros(count, bool),
        moving_from=np.full(count, -1, np.int64),
        moving_share=np.zeros(count),
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
