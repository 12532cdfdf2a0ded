"""Observe: one snapshot of the cluster, from the objects and the load source.

Building 60,000 rows runs in a thread; the source measures in threads or processes of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.observe.topology import ClusterRecords, topology
from trimtab_operator.state.policy_run import PolicyRun
from trimtab_operator.state.splitting_bundles import with_expected
from trimtab_pipeline.api import Topology
from trimtab_strategies.model import RESOURCES, TRAFFIC, Brokers, ClusterLoad, Reason
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.planner.drain import NO_DRAINS, Drains


@dataclass(slots=True)
class Stopwatch:
    """Seconds by phase."""

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
    """The load as measured, and the record behind each bundle of it (Pulsar's spelling -> record).

    evacuation: what is to be moved whatever the load says. unwritten: as in `Observation`.
    """

    load: ClusterLoad
    records: dict[str, BundleRecord]
    evacuation: Drains = NO_DRAINS
    unwritten: str | None = None


async def snapshot(picture: ClusterRecords, run: PolicyRun, at: float, watch: Stopwatch) -> Snapshot:
    """Measure the cluster as of `at`. Raises `SourceUnavailableError`."""
    with watch.phase("picture"):
        rows, records = await _rows(picture, run)
    observation = await asyncio.wrap_future(run.source.observe(rows, at))
    watch.seconds.update(observation.seconds)
    load = _asked(observation.load, picture)
    known, evacuation = dict(zip(rows.bundles, records, strict=True)), picture.departures.evacuation(load)
    seen = Snapshot(load, known, evacuation, observation.unwritten)
    return without_quarantined(seen, run.remembered.quarantine)


def without_quarantined(seen: Snapshot, quarantine: Collection[str]) -> Snapshot:
    """What was seen, with the bundles (names of objects) that balancing leaves alone withheld from it."""
    if not quarantine:
        return seen
    withheld = {full: Reason.QUARANTINED for full, record in seen.records.items() if record.name in quarantine}
    return replace(seen, load=replace(seen.load, withheld=withheld))


async def unmeasured_snapshot(picture: ClusterRecords, run: PolicyRun, at: float) -> Snapshot:
    """The cluster as the resources describe it, with no load: enough to give homeless bundles an owner."""
    rows, records = await _rows(picture, run)
    known = dict(zip(rows.bundles, records, strict=True))
    return Snapshot(_asked(unmeasured(rows, at), picture), known, picture.departures.evacuation())


def _asked(load: ClusterLoad, picture: ClusterRecords) -> ClusterLoad:
    """The load with what a source can't know: what people ask and say, and what was cut out of which bundle."""
    return with_expected(replace(load, policies=picture.policies, traits=picture.traits), picture.expected)


async def _rows(picture: ClusterRecords, run: PolicyRun) -> tuple[Topology, tuple[BundleRecord, ...]]:
    return await asyncio.to_thread(topology, picture, window=run.settings.prometheus.window)


def unmeasured(rows: Topology, at: float) -> ClusterLoad:
    """A `ClusterLoad` of which nothing was measured: brokers untrusted, all traffic NaN."""
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
    """`figures` (n, ...) of the brokers of `load`, NaN where a broker is not trusted; all of them without a load."""
    if load is None:
        return figures
    trusted: FloatArray = np.where(load.brokers.trusted[:, np.newaxis], figures, np.nan)
    return trusted
