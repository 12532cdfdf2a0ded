"""From measured tables to a `ClusterLoad`: rows of the topology, and which of the data is trusted.

Trust is decided only here: per broker by `transform.trust`, per bundle by the age of its newest sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.columns import (
    CHECKS,
    INSIDE,
    LONG,
    SAMPLED_COVER,
    SAMPLED_INTERVAL,
    SAMPLED_TIME,
    SHORT,
    TIMES,
    TRAFFIC,
    USAGE,
)
from trimtab_pipeline.history.snapshot_tables import unless
from trimtab_pipeline.transform.topics import hottest
from trimtab_pipeline.transform.trust import Doubts, Drop, Evidence, doubts_about, measured_resources
from trimtab_strategies.model import NO_TOPICS, Brokers, Bundles, ClusterLoad, DataQuality, Topics, counted
from trimtab_strategies.model.cluster_load import FloatArray, IntArray

_LIMIT = ("cpu_limit", "memory_limit", "", "network_limit", "network_limit")
_SHOWN = ("throttled",)
_NOTHING_INSIDE = pa.schema(list(INSIDE)).empty_table()
_PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measured tables of a cycle.

    brokers, bundles: tables of `BROKER_STATE` and `BUNDLE_STATE`.
    reports: of each shard, as `trimtab_pipeline.prometheus.shard_reader` describes them. shards: the pods of each.
    duplicates: rows of bundles that two pods reported. inside: topics of hot bundles, columns `INSIDE`.
    """

    brokers: pa.Table
    bundles: pa.Table
    reports: tuple[Mapping[str, Any], ...] = ()
    shards: tuple[tuple[str, ...], ...] = ()
    duplicates: int = 0
    inside: pa.Table = field(default_factory=lambda: _NOTHING_INSIDE)

    @property
    def failed(self) -> tuple[tuple[str, str], ...]:
        """(brokers, cause) of every shard that did not answer."""
        failed = ((self.shards[report["shard"]], report["error"]) for report in self.reports if not report["ok"])
        return tuple((_span(pods), error) for pods, error in failed)

    @property
    def failed_pods(self) -> list[str]:
        """Pods whose shard did not answer."""
        return [pod for report in self.reports if not report["ok"] for pod in self.shards[report["shard"]]]

    @property
    def dropped(self) -> Counter[str]:
        """Number of unused samples and rows, by cause."""
        total = sum((Counter(report["dropped"]) for report in self.reports), Counter[str]())
        return total + Counter({Drop.DUPLICATE: self.duplicates})

    @property
    def warnings(self) -> tuple[str, ...]:
        """The server's warnings about its answers."""
        return tuple(sorted({text for report in self.reports for text in report["warnings"]}))

    def notes(self, max_clock_skew: float) -> tuple[str, ...]:
        """Failed checks, and a server's clock that differs from ours by more than `max_clock_skew` seconds."""
        notes = {text for report in self.reports for text in report.get("notes", ())}
        clocks = [report["clock"] for report in self.reports if report.get("clock") is not None]
        skew = max(clocks, key=abs, default=0.0)
        if abs(skew) > max_clock_skew:
            notes.add(
                f"the source's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours: set the clocks"
            )
        return tuple(sorted(notes))


def _span(pods: tuple[str, ...]) -> str:
    many = len(pods) > 1
    return f"{counted(len(pods), 'broker')}, {pods[0]} to {pods[-1]}" if many else f"broker {pods[0]}"


def align(measured: Measurement, topology: Topology, settings: PrometheusSettings, at: float) -> ClusterLoad:
    """The snapshot at `at` (epoch seconds), rows as in `topology`."""
    dropped = measured.dropped
    brokers, doubts, missing_brokers = _brokers(measured, topology, settings, at, dropped)
    bundles, missing_bundles = _bundles(measured.bundles, topology, settings, at, dropped)
    quality = DataQuality(
        dropped={str(cause): count for cause, count in dropped.items()},
        missing_brokers=missing_brokers,
        missing_bundles=missing_bundles,
        failed=measured.failed,
        warnings=measured.warnings,
        doubts=doubts.found,
        notes=(*doubts.notes, *measured.notes(settings.trust.max_clock_skew)),
    )
    topics = _topics(measured, topology, settings.hot_bundles, at)
    return ClusterLoad(brokers, bundles, topology.namespaces, at, quality, topics)


def _topics(measured: Measurement, topology: Topology, count: int, at: float) -> Topics:
    """The topics of the hottest bundles, as reported by the pod whose row counts for the bundle."""
    if not len(measured.inside):
        return NO_TOPICS
    bundles = measured.bundles.filter(pc.equal(measured.bundles["seen"], at))
    hot = bundles.take(pa.array(hottest({name: _column(bundles, name) for name in TRAFFIC}, count)))
    keep = positions(_named(measured.inside), _named(hot)) >= 0
    row = positions(measured.inside["bundle"].combine_chunks(), pa.array(topology.bundles, pa.string()))
    inside, row = measured.inside.filter(pa.array(keep & (row >= 0))), row[keep & (row >= 0)]
    place = _column(inside, "place").astype(np.int64)
    traffic = np.stack([_column(inside, name) for name in TRAFFIC], axis=1)
    return Topics(tuple(inside["topic"].to_pylist()), row, place, traffic)


def _named(table: pa.Table) -> pa.Array:
    """Bundle and pod of each row in one text."""
    return pc.binary_join_element_wise(table["bundle"], table["pod"], "\n").combine_chunks()


def shown(measured: Measurement, topology: Topology) -> dict[str, FloatArray]:
    """Signals of the brokers outside the snapshot: see `Observation.shown`."""
    row = positions(pa.array(topology.pods, pa.string()), measured.brokers["pod"])
    return {name: _values(measured.brokers, (name,), row)[:, 0] for name in _SHOWN}


def one_row_each(measured: Measurement, topology: Topology) -> Measurement:
    """The measurement with one row per bundle, and the number of dropped rows.

    Two pods may report a bundle while it moves. The row of its owner according to the resources counts, else the row
    with the most messages.
    """
    bundles = measured.bundles
    names = bundles["bundle"].combine_chunks()
    first = pc.index_in(names, value_set=names).to_numpy(zero_copy_only=False)
    rows = np.arange(len(names))
    if (first == rows).all():
        return measured
    owned = _owner_pods(names, topology) == np.asarray(bundles["pod"].to_pylist(), object)
    order = np.lexsort((rows, -np.nan_to_num(_column(bundles, "rate_in")), ~owned, first))
    keep = np.sort(order[np.unique(first[order], return_index=True)[1]])
    return replace(measured, bundles=bundles.take(pa.array(keep)), duplicates=len(rows) - len(keep))


def with_last_times(now: pa.Table, last: pa.Table, not_before: float) -> pa.Table:
    """The brokers measured now, with the times of their newest known samples.

    now, last: tables of `BROKER_STATE`. A broker that is only in `last` gets a row with only its times, unless they are
    older than `not_before` (epoch seconds).
    """
    row = pc.index_in(now["pod"], value_set=last["pod"])
    for name in TIMES:
        known = pc.coalesce(now[name], last[name].take(row))
        now = now.set_column(now.column_names.index(name), name, known)
    newest = pc.max_element_wise(*(last[name] for name in TIMES))
    gone = pc.and_(pc.invert(pc.is_in(last["pod"], value_set=now["pod"])), pc.greater_equal(newest, not_before))
    remembered = last.filter(gone).select(["pod", *TIMES])
    return pa.concat_tables([now, remembered], promote_options="default")


def _owner_pods(names: pa.Array, topology: Topology) -> npt.NDArray[np.object_]:
    """Pod that owns each named bundle according to the resources; None without an owner."""
    pods = np.array([*topology.pods, None], object)  # row -1: no owner
    owner = np.append(topology.owner, -1)
    owners: npt.NDArray[np.object_] = pods[owner[positions(names, pa.array(topology.bundles, pa.string()))]]
    return owners


def positions(wanted: pa.Array, names: pa.Array | pa.ChunkedArray) -> IntArray:
    """Position of each wanted name in `names`, -1 where it is missing."""
    found = pc.index_in(wanted, value_set=names)
    return np.asarray(pc.fill_null(found, -1)).astype(np.int64)


def _column(table: pa.Table, name: str) -> FloatArray:
    values: FloatArray = table[name].to_numpy().astype(np.float64, copy=False)
    return values


def _values(table: pa.Table, columns: tuple[str, ...], rows: IntArray) -> FloatArray:
    """(len(rows), len(columns)) values, NaN where a row is -1, a column does not exist, or a value is null."""
    values = np.full((len(table) + 1, len(columns)), np.nan)
    for k, name in enumerate(columns):
        if name in table.column_names:
            values[:-1, k] = _column(table, name)
    return values[rows]


def _brokers(
    measured: Measurement,
    topology: Topology,
    settings: PrometheusSettings,
    at: float,
    dropped: Counter[str],
) -> tuple[Brokers, Doubts, int]:
    """The brokers, the doubts about them, and how many were expected and not measured.

    A resource that is measured nowhere does not count.
    """
    table, row = measured.brokers, positions(pa.array(topology.pods, pa.string()), measured.brokers["pod"])
    times = _values(table, TIMES, row)
    newest = np.where(np.isnan(times).any(axis=1), -np.inf, times.min(axis=1))
    sampled = _values(table, SAMPLED_TIME, row)
    newest = np.fmin(newest, np.fmin.reduce(sampled, axis=1))
    evidence = Evidence(
        usage=_values(table, USAGE, row),
        limit=_limits(table, row, topology, settings),
        age=np.maximum(at - newest, 0.0),
        answered=~np.isin(topology.pods, measured.failed_pods),
        checks={name: _values(table, (name,), row)[:, 0] for name in CHECKS},
        sampled_age=np.maximum(at - sampled, 0.0),
        interval=_values(table, SAMPLED_INTERVAL, row),
        cover=_values(table, SAMPLED_COVER, row),
    )
    doubts = doubts_about(evidence, topology, settings, dropped)
    known = measured_resources(evidence)
    brokers = Brokers(
        names=topology.brokers,
        usage=np.where(known, evidence.usage, 0.0),
        limit=np.where(known, evidence.limit, 0.0),
        traffic=_values(table, TRAFFIC, row),
        age=evidence.age,
        ready=topology.ready,
        schedulable=topology.schedulable,
        trusted=doubts.trusted,
    )
    return brokers, doubts, int((evidence.answered & ~evidence.present).sum())


def _limits(table: pa.Table, row: IntArray, topology: Topology, settings: PrometheusSettings) -> FloatArray:
    """(n, 5) limits that count as 100 %: declared, else reported. A source in percent has only the limit 100."""
    if settings.resources == "pulsar":
        return np.full((len(row), len(USAGE)), _PERCENT)
    reported = _values(table, _LIMIT, row)
    reported[:, 3:] = np.where(np.isnan(reported[:, 3:]), settings.nic_speed, reported[:, 3:])
    return np.where(np.isnan(topology.declared_limit), reported, topology.declared_limit)


def _bundles(
    table: pa.Table, topology: Topology, settings: PrometheusSettings, at: float, dropped: Counter[str]
) -> tuple[Bundles, int]:
    """The bundles, and how many were expected and not measured. Values that are too old become unknown."""
    row = positions(pa.array(topology.bundles, pa.string()), table["bundle"])
    seen, time = _values(table, ("seen", "time"), row).T
    counts = _values(table, ("topics", "sessions"), row)
    measured_now = int((_column(table, "seen") == at).sum())
    known_now = int((seen == at).sum())
    if unknown := measured_now - known_now:
        dropped[Drop.UNKNOWN] += unknown
    old = at - time > settings.max_age
    if count := int(old.sum()):
        dropped[Drop.OUT_DATED] += count
    bundles = topology.carrying(
        short=unless(old, _values(table, SHORT, row)),
        long=unless(old, _values(table, LONG, row)),
        topics=counts[:, 0],
        sessions=counts[:, 1],
    )
    return bundles, len(row) - known_now
