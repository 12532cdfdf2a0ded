"""The pipeline of a cycle, from top to bottom: each stage takes and returns Arrow tables.

    read        Prometheus -> BROKER_SAMPLES, BUNDLE_SAMPLES        ┐ `reduced`: per shard, in a task of Spark
    reduce      brokers: rates -> SIGNALS -> BROKER_LOAD, doubts    │ or in a thread; a shard has whole brokers
                bundles: topics added up -> BUNDLE_SUMS             ┘
    trust       BROKER_LOAD of all shards -> which doubt counts     ┐ `measured`: per policy, in the driver
    averages    idle bundles; with the last state -> BUNDLE_LOAD    ┘
    topics      those of the hottest bundles -> INSIDE              `reduced` again, then `with_topics`
    snapshot    -> ClusterLoad                                      `snapshot_of`
    history     -> the files of the cycle and of the next state     `written`

A policy whose source fails gets an error and no further reads. The other policies of the batch are still measured.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_STATE
from trimtab_pipeline.history.snapshot_tables import Bounds
from trimtab_pipeline.history.writer import HistoryWriter
from trimtab_pipeline.prometheus.read_request import SAMPLES, TableName
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.sources.policy_cycle import PolicyCycle, ShardOrders
from trimtab_pipeline.transform.averages import averaged
from trimtab_pipeline.transform.brokers import broker_loads
from trimtab_pipeline.transform.rates import broker_signals
from trimtab_pipeline.transform.relations import BROKER_LOAD, BUNDLE_SUMS, Cycle
from trimtab_pipeline.transform.reports import Report, ShardReports
from trimtab_pipeline.transform.snapshot import (
    NO_BUNDLES,
    NO_REPORTS,
    NOTHING_INSIDE,
    broker_state,
    fresh,
    hot_bundles,
    one_row_each,
    pod_times,
    snapshot,
)
from trimtab_pipeline.transform.topic_to_bundle import HashRanges, is_bundle
from trimtab_pipeline.transform.topics import bundle_sums, idle_bundles, topics_inside
from trimtab_pipeline.transform.trust import doubted, judged, unanswered
from trimtab_strategies.model import ClusterLoad


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What was measured of a shard.

    brokers: `relations.BROKER_LOAD`, before `judged`. bundles: `relations.BUNDLE_SUMS`; if only topics were asked for,
    these (`columns.BUNDLE_SAMPLES`). reports: one of each read.
    """

    brokers: pa.Table
    bundles: pa.Table
    reports: tuple[Report, ...]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured for one policy.

    brokers: `relations.BROKER_LOAD` of the topology's brokers. bundles: `relations.BUNDLE_LOAD`, one row per bundle.
    duplicates: number of dropped rows of bundles that two pods reported.
    inside: topics of the hottest bundles, columns `INSIDE`.
    reading: seconds that the slowest shard spent on HTTP and parsing.
    seconds: duration of the whole batch, reading included.
    """

    brokers: pa.Table
    bundles: pa.Table = field(default_factory=lambda: NO_BUNDLES)
    duplicates: int = 0
    inside: pa.Table = field(default_factory=lambda: NOTHING_INSIDE)
    reports: ShardReports = NO_REPORTS
    reading: float = 0.0
    seconds: float = 0.0


Outcome = Measurement | Exception


class ShardEngine(Protocol):
    """Runs `reduced` for shards: in tasks of Spark, or on threads of this process."""

    @property
    def parallelism(self) -> int:
        """Number of shards that run at once."""

    def run(self, orders: Sequence[ShardOrders]) -> list[list[ShardResult]]:
        """The results of all shards, in their order: a list for each of `orders`."""


def measure(due: Sequence[PolicyCycle], engine: ShardEngine, *, bundles: bool = True) -> dict[str, Outcome]:
    """What was measured for each policy, or why nothing could be. bundles: whether bundles are measured, too."""
    begin = time.perf_counter()
    orders = [one.orders(engine.parallelism, bundles=bundles) for one in due]
    shards = engine.run(orders)
    found = {one.name: _tried(measured, one, *of) for one, *of in zip(due, orders, shards, strict=True)}
    hot = {one.name: _hot(one, found[one.name]) for one in due}
    again = [
        (one, one.topic_orders(of, hot[one.name])) for one, of in zip(due, orders, strict=True) if len(hot[one.name])
    ]
    if again:
        for (one, _), results in zip(again, engine.run([order for _, order in again]), strict=True):
            found[one.name] = _tried(with_topics, found[one.name], hot[one.name], results)
    took = time.perf_counter() - begin
    return {name: replace(one, seconds=took) if isinstance(one, Measurement) else one for name, one in found.items()}


def _tried(stage: Callable[..., Measurement], *arguments: Any) -> Outcome:
    """The result of a stage of one policy, or its error: it is no reason to stop the other policies."""
    try:
        return stage(*arguments)
    except Exception as error:  # noqa: BLE001  (the outcome carries it)
        return error


# -- per shard --


def reduced(orders: ShardOrders, shard: int, unwanted: Callable[[], bool] = lambda: False) -> ShardResult:
    """What is measured of a shard. unwanted: whether that is no longer needed; then no further query is sent.

    If its brokers can't be read, its bundles are not read either. An unforeseen error is reported, too: it concerns
    this shard alone.
    """
    try:
        return _reduced(orders, shard, unwanted)
    except Exception as error:  # noqa: BLE001  (the report carries it)
        why = orders.secrets.brokers.hide(orders.secrets.source.hide(f"{type(error).__name__}: {error}"))
        report = _failed(orders.tables, shard, f"the shard can't be measured: {why}")
    if orders.tables == "topics":
        return ShardResult(BROKER_LOAD.empty_table(), SAMPLES["topics"].empty_table(), (report,))
    brokers = doubted_loads(SAMPLES["brokers"].empty_table(), orders.of_shard(shard), orders.cycle, answered=False)
    return ShardResult(brokers, BUNDLE_SUMS.empty_table(), (report,))


def _reduced(orders: ShardOrders, shard: int, unwanted: Callable[[], bool]) -> ShardResult:
    begin = time.monotonic()
    if orders.tables == "topics":
        rows, report = read("topics", orders, shard, unwanted)
        return ShardResult(BROKER_LOAD.empty_table(), rows, (report,))
    samples, report = read("brokers", orders, shard, unwanted)
    brokers = doubted_loads(
        samples,
        orders.of_shard(shard),
        orders.cycle,
        answered=report["ok"],
        apart=report.get("apart") or {},
        unclear=report.get("unclear") or (),
    )
    if orders.tables == "brokers" or not report["ok"]:
        return ShardResult(brokers, BUNDLE_SUMS.empty_table(), (report,))
    request = orders.read.later(time.monotonic() - begin, repeated=bool(report.get("repeated")))
    rows, later = read("bundles", replace(orders, read=request), shard, unwanted)
    brokers = brokers if later["ok"] else unanswered(brokers)
    return ShardResult(brokers, bundle_sums(rows, orders.ranges), (report, later))


def read(
    table: TableName, orders: ShardOrders, shard: int, unwanted: Callable[[], bool] = lambda: False
) -> tuple[pa.Table, Report]:
    """The samples of a shard, and its report."""
    *batches, last = read_shard(table, orders.read, shard, orders.secrets, unwanted)
    return pa.Table.from_batches(batches, SAMPLES[table]), json.loads(last["report"][0].as_py())


def _failed(table: TableName, shard: int, error: str) -> Report:
    """The report of a shard that failed for an unforeseen reason."""
    place = {"shard": shard, "table": table, "seconds": 0.0, "clock": None, "answered": None, "bundles": 0}
    nothing: dict[str, Any] = {"warnings": [], "notes": [], "dropped": {}, "repeated": []}
    return {"ok": False, "error": error, "misconfigured": False, **place, **nothing}


def doubted_loads(
    samples: pa.Table,
    targets: pa.Table,
    cycle: Cycle,
    *,
    answered: bool = True,
    apart: Mapping[str, str] = MappingProxyType({}),
    unclear: Collection[str] = (),
) -> pa.Table:
    """`columns.BROKER_SAMPLES` and `relations.TARGETS` -> `relations.BROKER_LOAD`, before `judged`.

    answered: whether the queries about these brokers got an answer. apart, unclear: as in `broker_loads`.
    """
    loads = broker_loads(
        broker_signals(samples, cycle), targets, cycle, answered=answered, apart=apart, unclear=unclear
    )
    return doubted(loads, cycle)


# -- per policy --


def measured(one: PolicyCycle, orders: ShardOrders, shards: Sequence[ShardResult]) -> Measurement:
    """The brokers and bundles of a policy. shards: the results of all its shards.

    Raises `SourceUnavailableError` if nothing was measured, `OSError` if the last state can't be read.
    """
    by_read = sorted((report for shard in shards for report in shard.reports), key=lambda report: report["table"])
    reports = ShardReports.of([shard.pods for shard in orders.read.shards], by_read)
    brokers = judged(pa.concat_tables([*(shard.brokers for shard in shards), _without_a_pod(orders)]))
    found = Measurement(brokers, reports=reports, reading=reports.seconds)
    if orders.tables == "brokers":
        return found
    times = pod_times(brokers, one.settings, one.cycle.at)
    load = averaged(with_idle(shards, orders.ranges, times), times, one.state(), one.cycle)
    rows, duplicates = one_row_each(fresh(load, one.cycle) if one.past else load, one.topology)
    return replace(found, bundles=rows, duplicates=duplicates)


def _without_a_pod(orders: ShardOrders) -> pa.Table:
    """`relations.BROKER_LOAD` of the brokers that no shard has."""
    return doubted_loads(BROKER_SAMPLES.empty_table(), orders.of_shard(None), orders.cycle)


def with_idle(shards: Sequence[ShardResult], ranges: HashRanges | None, times: pa.Table) -> pa.Table:
    """`relations.BUNDLE_SUMS` of all shards, with the idle bundles if topics are added up. times: `POD_TIMES`."""
    bundles = pa.concat_tables([BUNDLE_SUMS.empty_table(), *(shard.bundles for shard in shards)])
    if ranges is None:
        return bundles
    return pa.concat_tables([bundles, idle_bundles(bundles, ranges, set(_complete_pods(shards, times)))])


def _complete_pods(shards: Sequence[ShardResult], times: pa.Table) -> Iterator[str]:
    """The pods that are known to report every topic that they serve.

    If statistics are the source, these are the pods whose statistics were read. Otherwise they are the pods with recent
    metrics, in shards that report at least one topic. If a shard reports no topic, perhaps its brokers do not export
    metrics of topics.
    """
    for number, shard in enumerate(shards):
        ours = times.filter(pc.equal(times["shard"], number))
        answered = shard.reports[-1].get("answered")
        if answered is not None:
            yield from ours["pod"].filter(pc.is_in(ours["pod"], value_set=pa.array(answered, pa.string()))).to_pylist()
        elif pc.any(shard.bundles["summed"]).as_py():
            yield from ours["pod"].filter(ours["young"]).to_pylist()


def with_topics(before: Measurement, hot: pa.Table, shards: Iterable[ShardResult]) -> Measurement:
    """The measurement with the topics in its `hot` bundles."""
    reports = [report for shard in shards for report in shard.reports]
    rows = pa.concat_tables(shard.bundles for shard in shards)
    reading = before.reading + max(report["seconds"] for report in reports)
    inside = topics_inside(rows, HashRanges.of(hot["bundle"].to_pylist()))
    return replace(before, inside=inside, reports=before.reports.with_topics(reports), reading=reading)


def _hot(one: PolicyCycle, found: Outcome) -> pa.Table:
    """The hottest bundles with a valid name and a reporting pod."""
    bundles = found.bundles if isinstance(found, Measurement) else NO_BUNDLES
    rows = hot_bundles(bundles, one.settings.hot_bundles, one.cycle.at)
    names = zip(rows["bundle"].to_pylist(), rows["pod"].to_pylist(), strict=True)
    return rows.filter(pa.array([bool(pod) and is_bundle(name) for name, pod in names], pa.bool_()))


def snapshot_of(found: Measurement, topology: Topology, settings: PrometheusSettings, at: float) -> ClusterLoad:
    """What was measured, in the rows of `topology`. at: the evaluation time, epoch seconds."""
    return snapshot(
        found.brokers,
        found.bundles,
        topology,
        settings,
        at,
        reports=found.reports,
        inside=found.inside,
        duplicates=found.duplicates,
    )


def written(found: Measurement, load: ClusterLoad, topology: Topology, writer: HistoryWriter, bounds: Bounds) -> str:
    """Write the cycle to the history, and the state of the next cycle. Returns why it could not be written, or ""."""
    return writer.keep(
        broker_state(found.brokers),
        found.bundles.filter(found.bundles["bundle"].is_valid()).select(BUNDLE_STATE.names),
        load,
        topology,
        inside=found.inside,
        bounds=bounds,
    )
