"""Observe: one snapshot of the cluster, from the objects and the load source.

The snapshot is complete when `observe` returns, and nothing adds to it later. A thread builds the rows (up to 60,000
bundles). The source measures in threads or processes of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from trimtab_operator.budget.left import without_budget
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.observe.limits import with_facts
from trimtab_operator.observe.recent_samples import with_recent
from trimtab_operator.observe.topology import ClusterRecords, cluster_records, topology
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.pulsar_link import distrust
from trimtab_operator.state.settings import PolicyRun
from trimtab_operator.state.splitting_bundles import with_expected
from trimtab_pipeline.api import MeasuresPast, Topology
from trimtab_strategies.model import RESOURCES, TRAFFIC, Brokers, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray
from trimtab_strategies.planner.drain import NO_DRAINS, Drains


@dataclass(slots=True)
class Stopwatch:
    """Measures the seconds that each phase takes."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to the phase `name`."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a decision about the cluster is based on.

    load: as measured, with constraints, traits, pending moves, expected loads of split children, and the samples of the
    last minutes. Bundles whose budget is spent are marked as withheld. Brokers that Pulsar's own figures contradict are
    not trusted.
    records: the record behind each bundle (Pulsar's spelling -> record).
    drains: the brokers to be emptied, whatever the load is. unwritten: as in `Observation`.
    """

    load: ClusterLoad
    records: dict[str, BundleRecord]
    drains: Drains = NO_DRAINS
    unwritten: str | None = None


async def observe(cluster: ClusterState, run: PolicyRun, watch: Stopwatch | None = None) -> Snapshot:
    """Measure the policy's cluster now. Raises `SourceUnavailableError`, and `ApiError` if budgets can't be read."""
    records, at, watch = cluster_records(cluster, run.settings), cluster.now(), watch or Stopwatch()
    with watch.phase("snapshot"):
        rows, bundles = await _rows(records, run)
    observation = await asyncio.wrap_future(run.source.observe(rows, at))
    watch.seconds.update(observation.seconds)
    load = _completed(observation.load, records)
    known = dict(zip(rows.bundles, bundles, strict=True))
    withheld = await without_budget(cluster, run.settings, load)
    if withheld:
        load = replace(load, withheld=withheld)
    drains = records.departures.drains(load)
    if records.cross_check is not None:
        load = distrust(load, records.cross_check)
    past = partial(run.source.observe_past, rows) if isinstance(run.source, MeasuresPast) else None
    with watch.phase("snapshot"):
        load = await with_recent(cluster, run.settings, load, past)
    return Snapshot(load, known, drains, observation.unwritten)


async def unmeasured_snapshot(cluster: ClusterState, run: PolicyRun) -> Snapshot:
    """The cluster as its objects describe it, without load: enough to give unassigned bundles an owner."""
    records, at = cluster_records(cluster, run.settings), cluster.now()
    rows, bundles = await _rows(records, run)
    known = dict(zip(rows.bundles, bundles, strict=True))
    return Snapshot(_completed(unmeasured(rows, at), records), known, records.departures.drains())


def _completed(load: ClusterLoad, records: ClusterRecords) -> ClusterLoad:
    """The load with what no source knows: constraints, traits, publish gaps, expected loads of children of splits, and
    what the brokers' pods say."""
    load = with_facts(load, records.facts, {broker.name: broker for broker in records.brokers})
    known = replace(load, policies=records.policies, traits=records.traits, publish_gaps=records.publish_gaps)
    return with_expected(known, records.expected)


async def _rows(records: ClusterRecords, run: PolicyRun) -> tuple[Topology, tuple[BundleRecord, ...]]:
    return await asyncio.to_thread(topology, records, window=run.settings.prometheus.window)


def unmeasured(rows: Topology, at: float) -> ClusterLoad:
    """A `ClusterLoad` without measurements: no broker trusted, all traffic NaN."""
    n, m = len(rows.brokers), len(rows.bundles)
    brokers = Brokers(
        names=rows.brokers,
        usage=_unknown(n, len(RESOURCES)),
        limit=rows.declared_limit,
        traffic=_unknown(n, len(TRAFFIC)),
        age=np.full(n, np.inf),
        ready=rows.ready,
        schedulable=rows.schedulable,
        trusted=np.zeros(n, dtype=bool),
    )
    traffic = _unknown(m, len(TRAFFIC))
    bundles = rows.carrying(short=traffic, long=traffic, topics=_unknown(m), sessions=_unknown(m))
    return ClusterLoad(brokers, bundles, rows.namespaces, at)


def _unknown(*shape: int) -> npt.NDArray[np.float64]:
    return np.full(shape, np.nan)


def trusted_only(figures: FloatArray, load: ClusterLoad | None) -> FloatArray:
    """`figures` (n, ...) of the brokers of `load`, NaN for untrusted brokers. Unchanged if `load` is None."""
    if load is None:
        return figures
    trusted: FloatArray = np.where(load.brokers.trusted[:, np.newaxis], figures, np.nan)
    return trusted


def absent(load: ClusterLoad) -> BoolArray:
    """(n,) whether a broker does not run and serves nothing: its Broker was created before its pod, or outlived it."""
    rows: BoolArray = ~load.brokers.ready & ~np.isin(np.arange(len(load.brokers)), load.bundles.owner)
    return rows
