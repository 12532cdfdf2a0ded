"""`LoadSource` of a policy: measure, believe, keep, one cycle at a time, on Spark or without.

The operator does not import this module; `trimtab_pipeline.factory` does.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from trimtab_pipeline.api import Observation, PrometheusSettings, Topology
from trimtab_pipeline.columns import BUNDLE_STATE
from trimtab_pipeline.history.snapshot_tables import Bounds
from trimtab_pipeline.history.writer import HistoryWriter
from trimtab_pipeline.prometheus.queries import tables
from trimtab_pipeline.sources.batch import Batch, PolicyCycle, pods_of
from trimtab_pipeline.sources.direct_stages import DirectStages
from trimtab_pipeline.sources.measurement import Measurement
from trimtab_pipeline.transform.relations import Cycle
from trimtab_pipeline.transform.snapshot import broker_state, shown, snapshot
from trimtab_pipeline.transform.topic_to_bundle import Summing


@dataclass(frozen=True, slots=True)
class WantedCycle:
    """A measurement that waits for its turn. asked, ends: seconds of the monotonic clock. bundles: whether they are
    measured, too.
    """

    source: PolicySource
    topology: Topology
    at: float
    asked: float
    ends: float
    bundles: bool = True

    def prepared(self) -> PolicyCycle:
        """The cycle, with the last state. Raises `OSError` when the history can't be read."""
        return self.source.cycle(self)

    def finished(self, measured: Measurement) -> Observation:
        """The observation; it is kept in the history."""
        return self.source.finish(self, measured)


class MeasurementRunner(Protocol):
    """Runs measurements: on Spark, or on threads of this process."""

    def run(self, wanted: WantedCycle) -> Future[Observation]:
        """The outcome of a measurement; it fails with `SourceUnavailableError`, at its deadline at the latest."""


class PolicySource:
    """`LoadSource` of the policy `name`. deadline: seconds that a measurement may take, waiting included.

    refreshes: runs the measurements of brokers alone. Raises `ValueError` for an unknown preset or signal.
    """

    def __init__(
        self,
        name: str,
        settings: PrometheusSettings,
        deadline: float,
        writer: HistoryWriter,
        *,
        cycles: MeasurementRunner,
        refreshes: MeasurementRunner,
    ) -> None:
        tables(settings)  # raise errors in the settings now, not in every cycle
        self._name, self._settings, self._deadline, self._writer = name, settings, deadline, writer
        self._cycles, self._refreshes = cycles, refreshes
        self._summing = Summing(settings.bundle_metrics)
        by_time = settings.averages == "time"
        taus = (settings.short_tau, settings.long_tau) if by_time else (math.nan, math.nan)
        self._bounds = Bounds(settings.max_age, *taus)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe`. `at` counts to the millisecond, as in Prometheus."""
        return self._run(self._cycles, self.wanted(topology, at, bundles=True))

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe_brokers`. It runs without Spark, unless only a remote Spark reaches Prometheus."""
        return self._run(self._refreshes, self.wanted(topology, at, bundles=False))

    def close(self) -> None:
        """Do nothing: the threads belong to the runners."""

    def doubt(self) -> None:
        """Check the state again before its next use: a cycle that read it failed."""
        self._writer.doubt()

    def cycle(self, wanted: WantedCycle) -> PolicyCycle:
        """See `WantedCycle.prepared`."""
        cycle = Cycle.of(self._name, self._settings, wanted.at)
        return PolicyCycle(
            cycle,
            self._settings,
            wanted.topology,
            wanted.asked,
            wanted.ends,
            self._writer.state(wanted.at, cycle.horizon),
            self._summing.ranges(wanted.topology) if wanted.bundles else None,
        )

    def finish(self, wanted: WantedCycle, measured: Measurement) -> Observation:
        """See `WantedCycle.finished`."""
        clock = [time.perf_counter()]
        load = snapshot(
            measured.brokers,
            measured.bundles,
            wanted.topology,
            self._settings,
            wanted.at,
            reports=measured.reports,
            inside=measured.inside,
            duplicates=measured.duplicates,
        )
        clock.append(time.perf_counter())
        seconds = {
            "prometheus": measured.reading,
            "spark" if wanted.bundles else "align": measured.seconds - measured.reading,
        }
        seconds["align"] = seconds.get("align", 0.0) + clock[1] - clock[0]
        signals = shown(measured.brokers, wanted.topology)
        if not wanted.bundles:
            self._writer.keep_refresh(load, wanted.topology, self._bounds)
            return Observation(load, seconds, signals)
        self._summing.saw(measured.reports.bundles)
        unwritten = self._writer.keep(
            broker_state(measured.brokers),
            measured.bundles.filter(measured.bundles["bundle"].is_valid()).select(BUNDLE_STATE.names),
            load,
            wanted.topology,
            inside=measured.inside,
            bounds=self._bounds,
        )
        seconds["write"] = time.perf_counter() - clock[1]
        pa.default_memory_pool().release_unused()  # kept memory fragments, and the process grows each cycle
        return Observation(load, seconds, signals, unwritten)

    def wanted(self, topology: Topology, at: float, *, bundles: bool) -> WantedCycle:
        """A measurement at `at` (epoch s) that begins to wait now."""
        now = time.monotonic()
        return WantedCycle(self, topology, round(at, 3), now, now + self._deadline, bundles)

    def _run(self, runner: MeasurementRunner, wanted: WantedCycle) -> Future[Observation]:
        if pods_of(wanted.topology):
            return runner.run(wanted)
        outcome: Future[Observation] = Future()
        outcome.set_result(self._nothing_to_measure(wanted))
        return outcome

    def _nothing_to_measure(self, wanted: WantedCycle) -> Observation:
        """The snapshot of a topology without any pod."""
        cycle = PolicyCycle(
            Cycle.of(self._name, self._settings, wanted.at), self._settings, wanted.topology, wanted.asked, wanted.ends
        )
        batch = Batch((cycle,), ((),))
        brokers = DirectStages(1, lambda: False).brokers(batch, batch.broker_reads())
        load = snapshot(brokers, Measurement(brokers).bundles, wanted.topology, self._settings, wanted.at)
        return Observation(load, {})
