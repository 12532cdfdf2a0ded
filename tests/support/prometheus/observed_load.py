"""An observation without Spark, history and threads: the stages of the pipeline for one shard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.sources.pipeline import measured, reduced, snapshot_of, with_idle
from trimtab_pipeline.sources.policy_cycle import PolicyCycle
from trimtab_pipeline.transform.relations import Cycle
from trimtab_pipeline.transform.snapshot import pod_times
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_strategies.model import ClusterLoad


@dataclass(frozen=True)
class Observed:
    """The snapshot, the brokers (`relations.BROKER_LOAD`), `BUNDLE_SUMS`, and the bundles' report."""

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
    deadline = time.monotonic() + 60
    ranges = HashRanges.of(world.bundles).owned(world.pods, world.owner)
    one = PolicyCycle(Cycle.of("", settings, at), settings, world, deadline - 60, deadline, ranges=ranges)
    orders = one.orders(1, bundles=True)
    shard = reduced(orders, 0)
    assert all(report["ok"] for report in shard.reports), shard.reports
    found = measured(one, orders, [shard])
    bundles = with_idle([shard], ranges, pod_times(found.brokers, settings, at))
    return Observed(snapshot_of(found, world, settings, at), found.brokers, bundles, shard.reports[-1])
