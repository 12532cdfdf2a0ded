"""Turns the tables of a cycle into a `ClusterLoad`, whose rows are those of the topology."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.columns import BROKER_STATE, INSIDE, LIMITED, LONG, SHORT, TRAFFIC, USAGE
from trimtab_pipeline.transform.arrays import block, floats, nullable, positions
from trimtab_pipeline.transform.notes import notes
from trimtab_pipeline.transform.relations import BUNDLE_LOAD, DECLARED, LIMITS, POD_TIMES, TARGETS, Cycle
from trimtab_pipeline.transform.reports import ShardReports
from trimtab_pipeline.transform.topics import hottest
from trimtab_pipeline.transform.trust import Drop, doubt_of, dropped, measured_resources
from trimtab_strategies.model import NO_TOPICS, Brokers, Bundles, ClusterLoad, DataQuality, Doubt, LimitOrigin, Topics
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

NO_BUNDLES = BUNDLE_LOAD.empty_table()
"""The bundles of a read of brokers alone."""
NO_REPORTS = ShardReports()
"""No reports of shards."""
NOTHING_INSIDE = pa.schema(list(INSIDE)).empty_table()
"""No topics of hot bundles."""


def targets(
    topology: Topology,
    shards: Sequence[Sequence[str]],
    last: pa.Table,
    not_before: float,
    own_queries: Collection[str] = (),
) -> pa.Table:
    """`relations.TARGETS` of the brokers in `topology`.

    shards: the pods of each shard. last: `columns.BROKER_STATE` of the last cycle. A pod's times in `last` do not
    count if all of them are before `not_before` (epoch s). own_queries: signals that a user's query measures.
    """
    queried = [name for name in LIMITED if f"{name}_limit" in own_queries]
    chosen = [
        [*queried, *(name for name in LIMITED if broker in topology.chosen.get(name, ()))]
        for broker in topology.brokers
    ]
    shard = {pod: number for number, pods in enumerate(shards) for pod in pods}
    row = positions(pa.array(topology.pods, pa.string()), last["pod"])
    times = np.append(block(last, ("resource_time", "traffic_time")), [[np.nan] * 2], axis=0)[row]
    times[~(np.fmax.reduce(times, axis=1) >= not_before)] = np.nan
    columns = {
        "shard": pa.array([shard.get(pod) for pod in topology.pods], pa.int32()),
        "broker": pa.array(topology.brokers, pa.string()),
        "pod": pa.array(topology.pods, pa.string()),
        **{name: nullable(topology.declared_limit[:, k]) for k, name in enumerate(DECLARED)},
        "last_resource_time": nullable(times[:, 0]),
        "last_traffic_time": nullable(times[:, 1]),
        "started": nullable(np.array(topology.started or (np.nan,) * len(topology.pods), np.float64)),
        "chosen": pa.array(chosen, pa.list_(pa.string())),
    }
    return pa.table(columns, schema=TARGETS)


def pod_times(brokers: pa.Table, settings: PrometheusSettings, at: float) -> pa.Table:
    """`relations.POD_TIMES` of the pods in `relations.BROKER_LOAD`. A pod that reports no traffic now has no time.

    The brokers' own statistics on topics are as of `at` (epoch s), not of the last scrape.
    """
    rows = _row_per_pod(brokers)
    reports = ~np.isnan(block(rows, TRAFFIC)).all(axis=1)
    time = np.where(reports, floats(rows, "traffic_time"), np.nan)
    columns = {
        **{name: rows[name] for name in ("shard", "pod")},
        "traffic_time": nullable(np.full(len(rows), np.nan) if settings.bundle_metrics == "statistics" else time),
        "young": pa.array(time >= at - settings.max_age),
    }
    return pa.table(columns, schema=POD_TIMES)


def snapshot(
    brokers: pa.Table,
    bundles: pa.Table,
    topology: Topology,
    settings: PrometheusSettings,
    at: float,
    *,
    reports: ShardReports = NO_REPORTS,
    inside: pa.Table = NOTHING_INSIDE,
    duplicates: int = 0,
) -> ClusterLoad:
    """The snapshot at `at` (epoch seconds) of one policy.

    brokers: `relations.BROKER_LOAD`. bundles: `relations.BUNDLE_LOAD`, one row per bundle (`one_row_each`). inside:
    topics of hot bundles, columns `INSIDE`. duplicates: number of dropped rows of bundles.
    """
    rows = _in_order(brokers, topology)
    counts = reports.dropped + dropped(rows) + Counter({str(Drop.DUPLICATE): duplicates})
    load, missing_bundles = _bundles(bundles, topology, settings, at, counts)
    cycle = Cycle.of("", settings, at)
    answered, present = (_flags(rows, name) for name in ("answered", "present"))
    quality = DataQuality(
        dropped={str(cause): count for cause, count in counts.items() if count},
        missing_brokers=int((answered & ~present).sum()),
        missing_bundles=missing_bundles,
        failed=reports.failed,
        warnings=reports.warnings,
        doubts=_doubts(rows, cycle),
        notes=(*notes(rows, cycle), *reports.notes(settings.trust.max_clock_skew)),
        limits={} if cycle.percent else _origins(rows, topology, settings, reports.node_limits),
    )
    topics = _topics(bundles, inside, topology, settings.hot_bundles, at)
    return ClusterLoad(_brokers(rows, topology), load, topology.namespaces, at, quality, topics)


def _origins(
    rows: pa.Table, topology: Topology, settings: PrometheusSettings, of_node: set[tuple[str, str]]
) -> dict[str, dict[str, LimitOrigin]]:
    """Where each broker's limits of CPU and memory come from, if from the source. of_node: pods and resources."""
    own = dict(settings.queries)
    found: dict[str, dict[str, LimitOrigin]] = {}
    for column, name in enumerate(LIMITED):
        usual = LimitOrigin.QUERY if f"{name}_limit" in own else LimitOrigin.METRICS
        known = np.isnan(topology.declared_limit[:, column]) & (floats(rows, f"limit_{name}") > 0)
        for row in np.flatnonzero(known).tolist():
            node = (topology.pods[row], name) in of_node
            found.setdefault(topology.brokers[row], {})[name] = LimitOrigin.NODE if node else usual
    return found


def shown(brokers: pa.Table, topology: Topology) -> dict[str, FloatArray]:
    """Signals of the brokers (`relations.BROKER_LOAD`) outside the snapshot: see `Observation.shown`."""
    return {"throttled": floats(_in_order(brokers, topology), "throttled")}


def broker_state(brokers: pa.Table) -> pa.Table:
    """`columns.BROKER_STATE` of `relations.BROKER_LOAD`: a row per pod of which anything is known."""
    rows = _row_per_pod(brokers).select(BROKER_STATE.names)
    return rows.filter(pa.array(~np.isnan(block(rows, BROKER_STATE.names[1:])).all(axis=1)))


def _row_per_pod(brokers: pa.Table) -> pa.Table:
    """The rows of brokers with a pod; the first one of those that share a pod."""
    rows = brokers.filter(pc.not_equal(brokers["pod"], ""))
    return rows.take(pa.array(np.unique(positions(rows["pod"], rows["pod"]))))


def one_row_each(bundles: pa.Table, topology: Topology) -> tuple[pa.Table, int]:
    """`relations.BUNDLE_LOAD` with one row per bundle, and the number of dropped rows.

    Two pods may report a bundle while it moves. The row of its owner according to the resources counts, else the row
    with the most messages.
    """
    names = bundles["bundle"].combine_chunks()
    rows = np.arange(len(names))
    first = np.where(names.is_null(), rows, positions(names, names))
    if (first == rows).all():
        return bundles, 0
    owned = _owner_pods(names, topology) == np.asarray(bundles["pod"].to_pylist(), object)
    order = np.lexsort((rows, -np.nan_to_num(floats(bundles, "rate_in")), ~owned, first))
    keep = np.sort(order[np.unique(first[order], return_index=True)[1]])
    return bundles.take(pa.array(keep)), len(rows) - len(keep)


def fresh(bundles: pa.Table, cycle: Cycle) -> pa.Table:
    """The rows of `relations.BUNDLE_LOAD` without those whose samples are known to be too old."""
    return bundles.filter(pa.array(~(cycle.at - floats(bundles, "time") > cycle.max_age)))


def hot_bundles(bundles: pa.Table, count: int, at: float) -> pa.Table:
    """The rows of the `count` bundles with the most messages, and with the most bytes, that were measured at `at`."""
    now = bundles.filter(pc.equal(bundles["seen"], at))
    return now.take(pa.array(hottest({name: floats(now, name) for name in TRAFFIC}, count)))


def _in_order(brokers: pa.Table, topology: Topology) -> pa.Table:
    """The rows of the topology's brokers."""
    return brokers.take(pa.array(positions(pa.array(topology.brokers, pa.string()), brokers["broker"])))


def _flags(table: pa.Table, name: str) -> BoolArray:
    flags: BoolArray = table[name].to_numpy().astype(bool)
    return flags


def _doubts(brokers: pa.Table, cycle: Cycle) -> dict[str, Doubt]:
    rows = brokers.filter(brokers["doubt"].is_valid()).to_pylist()
    return {row["broker"]: doubt_of(row, cycle) for row in rows}


def _brokers(rows: pa.Table, topology: Topology) -> Brokers:
    """The brokers. A resource that is measured nowhere does not count."""
    usage, age = block(rows, USAGE), floats(rows, "age")
    known = measured_resources(rows)
    return Brokers(
        names=topology.brokers,
        usage=np.where(known, usage, 0.0),
        limit=np.where(known, block(rows, LIMITS), 0.0),
        traffic=block(rows, TRAFFIC),
        age=np.where(np.isnan(age), np.inf, age),
        ready=topology.ready,
        schedulable=topology.schedulable,
        trusted=np.asarray(rows["doubt"].is_null()),
    )


def _bundles(
    table: pa.Table, topology: Topology, settings: PrometheusSettings, at: float, dropped: Counter[str]
) -> tuple[Bundles, int]:
    """The bundles, and how many of them were not measured. Values that are too old become unknown."""
    named = table["bundle"].is_valid()
    outside, table = table.filter(pc.invert(named)), table.filter(named)
    row = positions(pa.array(topology.bundles, pa.string()), table["bundle"])
    seen, time = _values(table, ("seen", "time"), row).T
    counts, rates = _values(table, ("topics", "sessions"), row), _values(table, TRAFFIC, row)
    known_now = int((seen == at).sum())
    unknown = int((floats(table, "seen") == at).sum()) - known_now + int(floats(outside, "topics").sum())
    old = at - time > settings.max_age
    dropped.update({str(Drop.UNKNOWN): unknown, str(Drop.OUT_DATED): int(old.sum())})
    bundles = topology.carrying(
        short=np.where(old[:, None], np.nan, _values(table, SHORT, row)),
        long=np.where(old[:, None], np.nan, _values(table, LONG, row)),
        topics=counts[:, 0],
        sessions=counts[:, 1],
        newest=np.where(old[:, None] | ~np.isfinite(rates), np.nan, rates),
    )
    return bundles, len(row) - known_now


def _topics(bundles: pa.Table, inside: pa.Table, topology: Topology, count: int, at: float) -> Topics:
    """The topics of the hottest bundles, as reported by the pod whose row counts for the bundle."""
    if not len(inside):
        return NO_TOPICS
    hot = hot_bundles(bundles, count, at)
    keep = positions(_named(inside), _named(hot)) >= 0
    row = positions(inside["bundle"], pa.array(topology.bundles, pa.string()))
    inside, row = inside.filter(pa.array(keep & (row >= 0))), row[keep & (row >= 0)]
    place = floats(inside, "place").astype(np.int64)
    return Topics(tuple(inside["topic"].to_pylist()), row, place, block(inside, TRAFFIC))


def _named(table: pa.Table) -> pa.ChunkedArray:
    """Bundle and pod of each row in one text."""
    return pc.binary_join_element_wise(table["bundle"], table["pod"], "\n")


def _owner_pods(names: pa.Array, topology: Topology) -> npt.NDArray[np.object_]:
    """Pod that owns each named bundle according to the resources; None without an owner."""
    pods = np.array([*topology.pods, None], object)  # row -1: no owner
    owner = np.append(topology.owner, -1)
    owners: npt.NDArray[np.object_] = pods[owner[positions(names, pa.array(topology.bundles, pa.string()))]]
    return owners


def _values(table: pa.Table, columns: tuple[str, ...], rows: IntArray) -> FloatArray:
    """(len(rows), len(columns)) values, NaN where a row is -1 or a value is null."""
    return np.append(block(table, columns), [[np.nan] * len(columns)], axis=0)[rows]
