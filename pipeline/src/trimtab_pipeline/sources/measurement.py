"""The measurement of a batch: brokers, then bundles, then the topics of hot bundles.

A policy whose source fails gets an error and no further reads. The other policies of the batch are still measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.prometheus.read_request import ReadRequest
from trimtab_pipeline.sources.batch import Batch, PolicyCycle, Shards, Stages
from trimtab_pipeline.transform.reports import ShardReports
from trimtab_pipeline.transform.snapshot import (
    NO_BUNDLES,
    NO_REPORTS,
    NOTHING_INSIDE,
    fresh,
    hot_bundles,
    one_row_each,
    pod_times,
)
from trimtab_pipeline.transform.topic_to_bundle import HashRanges, is_bundle
from trimtab_pipeline.transform.topics import topics_inside


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


Outcome = Measurement | SourceUnavailableError


def measure(due: Sequence[PolicyCycle], stages: Stages, *, bundles: bool = True) -> dict[str, Outcome]:
    """What was measured for each policy, or why nothing could be. bundles: whether bundles are measured, too."""
    begin = time.perf_counter()
    batch = Batch.of(due, stages.parallelism)
    found = _brokers(batch, stages)
    if bundles and (batch := batch.only(_measured(found))).due:
        found |= _bundles(batch, stages, found)
        if (batch := batch.only(_measured(found))).due:
            found |= _topics(batch, stages, found)
    took = time.perf_counter() - begin
    return {name: replace(one, seconds=took) if isinstance(one, Measurement) else one for name, one in found.items()}


def _measured(found: Mapping[str, Outcome]) -> list[str]:
    return [name for name, one in found.items() if isinstance(one, Measurement)]


def _brokers(batch: Batch, stages: Stages) -> dict[str, Outcome]:
    loads = stages.brokers(batch, batch.broker_reads())
    found: dict[str, Outcome] = {}
    for one, shards in zip(batch.due, batch.shards, strict=True):
        rows = _of(loads, one)
        try:
            reports = ShardReports.of(shards, rows)
        except SourceUnavailableError as error:
            found[one.name] = error
        else:
            brokers = rows.filter(rows["broker"].is_valid())
            found[one.name] = Measurement(brokers, reports=reports, reading=reports.seconds)
    return found


def _bundles(batch: Batch, stages: Stages, found: Mapping[str, Any]) -> dict[str, Outcome]:
    """The measurements with their bundles. If a shard's bundles can't be read, its brokers are not trusted."""
    times = [pod_times(found[one.name].brokers, one.settings, one.cycle.at) for one in batch.due]
    failed = {one.name: found[one.name].reports.failed_shards for one in batch.due}
    repeated = {one.name: found[one.name].reports.repeated for one in batch.due}
    loads = stages.bundles(batch, batch.bundle_reads(failed, repeated), pa.concat_tables(times))
    outcomes: dict[str, Outcome] = {}
    for one, shards in zip(batch.due, batch.shards, strict=True):
        before, rows = found[one.name], _of(loads, one)
        try:
            reports = before.reports.joined(later := ShardReports.read(shards, rows))
        except SourceUnavailableError as error:
            outcomes[one.name] = error
            continue
        rows = rows.filter(rows["report"].is_null())
        bundles, duplicates = one_row_each(fresh(rows, one.cycle) if one.past else rows, one.topology)
        outcomes[one.name] = Measurement(
            brokers=_doubted(before.brokers, reports.failed_shards),
            bundles=bundles,
            duplicates=duplicates,
            reports=reports,
            reading=before.reading + later.seconds,
        )
    return outcomes


def _topics(batch: Batch, stages: Stages, found: Mapping[str, Any]) -> dict[str, Outcome]:
    """The measurements with the topics of their hottest bundles, for policies that want them."""
    hot = {one.name: _hot(one, found[one.name].bundles) for one in batch.due}
    batch = batch.only([name for name, rows in hot.items() if len(rows)])
    if not batch.due:
        return {}
    reads = [_topic_read(one, shards, hot[one.name]) for one, shards in zip(batch.due, batch.shards, strict=True)]
    topics = stages.topics(batch, reads)
    outcomes: dict[str, Outcome] = {}
    for one in batch.due:
        before, rows = found[one.name], _of(topics, one)
        later = ShardReports.read((), rows)
        inside = topics_inside(rows, HashRanges.of(hot[one.name]["bundle"].to_pylist()))
        reports, reading = before.reports.with_topics(later), before.reading + later.seconds
        outcomes[one.name] = replace(before, inside=inside, reports=reports, reading=reading)
    return outcomes


def _hot(one: PolicyCycle, bundles: pa.Table) -> pa.Table:
    """The hottest bundles with a valid name and a reporting pod."""
    rows = hot_bundles(bundles, one.settings.hot_bundles, one.cycle.at)
    return rows.filter(pa.array([bool(pod) and is_bundle(name) for name, pod in _names(rows)], pa.bool_()))


def _names(rows: pa.Table) -> Iterator[tuple[str, str]]:
    return zip(rows["bundle"].to_pylist(), rows["pod"].to_pylist(), strict=True)


def _topic_read(one: PolicyCycle, shards: Shards, hot: pa.Table) -> ReadRequest:
    """A read of the topics in `hot` bundles, on their pods.

    One shard is enough for Prometheus, which returns only the topics of the query's namespaces. A broker always returns
    all of its topics, so reads from brokers keep `shards`.
    """
    pods = sorted(set(hot["pod"].to_pylist()))
    apart = shards if one.settings.bundle_metrics == "statistics" else (pods,)
    asked = [theirs for shard in apart if (theirs := [pod for pod in shard if pod in pods])]
    return one.read([one.shard(theirs) for theirs in asked], sorted(set(hot["bundle"].to_pylist())))


def _of(rows: pa.Table, one: PolicyCycle) -> pa.Table:
    """The rows of one policy."""
    return rows.filter(pc.equal(rows["policy"], one.name))


def _doubted(brokers: pa.Table, failed: set[int]) -> pa.Table:
    """`brokers`, where those in `failed` shards get the doubt ``partial``, which takes precedence over all others."""
    if not failed:
        return brokers
    bad = pc.is_in(brokers["shard"], value_set=pa.array(sorted(failed), pa.int32()))
    columns = {
        "answered": pc.and_not(brokers["answered"], bad),
        "doubt": pc.if_else(bad, "partial", brokers["doubt"]),
    }
    for name, values in columns.items():
        brokers = brokers.set_column(brokers.column_names.index(name), name, values)
    return brokers
