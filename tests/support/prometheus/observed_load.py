"""An observation without Spark, history and threads: it reads one shard, and numpy stages compute the load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.columns import BROKER_STATE
from trimtab_pipeline.prometheus.containers import Containers
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest, TableName
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.transform.brokers import broker_loads
from trimtab_pipeline.transform.rates import broker_signals
from trimtab_pipeline.transform.relations import BUNDLE_LOAD, Cycle
from trimtab_pipeline.transform.reports import ShardReports
from trimtab_pipeline.transform.snapshot import pod_times, snapshot, targets
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_pipeline.transform.topics import summed
from trimtab_pipeline.transform.trust import judged
from trimtab_strategies.model import ClusterLoad


@dataclass(frozen=True)
class Observed:
    """The snapshot, the brokers (`relations.BROKER_LOAD`), the samples of bundles (topics summed), and their report."""

    load: ClusterLoad
    brokers: pa.Table
    bundles: pa.Table
    report: Mapping[str, Any]

    def bundle_rates(self) -> dict[tuple[str, str], float]:
        """Messages/s in of each bundle on each pod that reports it."""
        rows = self.bundles.filter(pc.field("bundle").is_valid()).to_pylist()
        return {(row["bundle"], row["pod"]): row["rate_in"] for row in rows if row["pod"]}


def observed(settings: PrometheusSettings, world: Topology, at: float) -> Observed:
    """The brokers of `world` at `at` (epoch seconds), and the bundles that they report."""
    pods, cycle = sorted(set(world.pods)), Cycle.of("", settings, at)
    raw = _read("brokers", settings, world, at)
    asked = targets("", world, [pods], BROKER_STATE.empty_table(), at)
    brokers = judged(broker_loads(broker_signals(raw, cycle), asked, cycle), cycle)
    bundles = _read("bundles", settings, world, at, repeated=bool(_report(raw)["repeated"]))
    if not pc.any(bundles["bundle"].is_valid()).as_py():
        ranges = HashRanges.of(world.bundles).owned(world.pods, world.owner)
        bundles = pa.concat_tables([summed(bundles, ranges, pod_times(brokers, settings, at))])
    reports = ShardReports.of([pods], raw)
    load = snapshot(brokers, BUNDLE_LOAD.empty_table(), world, settings, at, reports=reports)
    return Observed(load, brokers, bundles, _report(bundles))


def _read(
    table: TableName, settings: PrometheusSettings, world: Topology, at: float, *, repeated: bool = False
) -> pa.Table:
    pods = sorted(set(world.pods))
    containers = Containers.among(pods, world)
    request = ReadRequest.of(settings, at, [ShardRequest.of(settings, pods, containers=containers, repeated=repeated)])
    rows = pa.Table.from_batches(read_shard(table, request, 0, Secrets()))
    assert _report(rows)["ok"], _report(rows)
    return rows


def _report(rows: pa.Table) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(rows["report"].drop_null()[0].as_py())
    return found
