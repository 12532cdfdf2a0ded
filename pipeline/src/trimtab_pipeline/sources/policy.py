"""The `LoadSource` of a policy: measures cycles, on Spark or without, and writes each to the history.

The operator does not import this module; `trimtab_pipeline.factory` does.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Protocol, TypeVar

import numpy as np
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
from trimtab_strategies.shedding.trim.samples import CycleSamples

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Turn(IntEnum):
    """The order in which waiting measurements run."""

    CYCLE = 0
    REFRESH = 1
    PAST = 2


class Wanted(Protocol[T_co]):
    """A measurement that waits for its turn."""

    @property
    def name(self) -> str:
        """The name of its cycle, unique in a batch."""

    @property
    def turn(self) -> Turn:
        """Its place in the order of waiting measurements."""

    @property
    def bundles(self) -> bool:
        """Whether the bundles are measured, too."""

    @property
    def left(self) -> float:
        """Seconds that it may take, waiting included."""

    def prepared(self) -> PolicyCycle:
        """The cycle to measure. Raises `OSError` when the history can't be read."""

    def finished(self, measured: Measurement) -> T_co:
        """The outcome, from what was measured."""

    def failed(self) -> None:
        """React to the failure of its batch."""


@dataclass(frozen=True, slots=True, eq=False)
class WantedCycle:
    """A cycle, or a refresh of the brokers, that waits for its turn.

    asked, ends: times of its request and its deadline, in seconds of the monotonic clock. bundles: whether they are
    measured.
    """

    source: PolicySource
    topology: Topology
    at: float
    asked: float
    ends: float
    bundles: bool = True

    @property
    def name(self) -> str:
        """See `Wanted.name`."""
        return self.source.name

    @property
    def turn(self) -> Turn:
        """See `Wanted.turn`."""
        return Turn.CYCLE if self.bundles else Turn.REFRESH

    @property
    def left(self) -> float:
        """See `Wanted.left`."""
        return self.ends - self.asked

    def prepared(self) -> PolicyCycle:
        """The cycle, with the last state. Raises `OSError` when the history can't be read."""
        return self.source.cycle(self)

    def finished(self, measured: Measurement) -> Observation:
        """The observation, after it was written to the history."""
        return self.source.finish(self, measured)

    def failed(self) -> None:
        """Have the state checked before its next use, because a cycle that read it failed."""
        self.source.doubt()


@dataclass(frozen=True, slots=True, eq=False)
class WantedPast:
    """The measurement of a past minute that waits for its turn. It reads no state, and its result is not stored.

    cycle: its name differs from those of all other minutes.
    """

    cycle: PolicyCycle
    bundles: bool = True

    @property
    def name(self) -> str:
        """See `Wanted.name`."""
        return self.cycle.name

    @property
    def turn(self) -> Turn:
        """See `Wanted.turn`."""
        return Turn.PAST

    @property
    def left(self) -> float:
        """See `Wanted.left`."""
        return self.cycle.ends - self.cycle.asked

    def prepared(self) -> PolicyCycle:
        """The cycle."""
        return self.cycle

    def finished(self, measured: Measurement) -> CycleSamples | None:
        """What was sampled then; None if nothing was."""
        one, at = self.cycle, self.cycle.cycle.at
        load = snapshot(measured.brokers, measured.bundles, one.topology, one.settings, at)
        found = CycleSamples.of(at, load.brokers, load.bundles.names, load.bundles.newest)
        pa.default_memory_pool().release_unused()
        return found if np.isfinite(found.load).any() or np.isfinite(found.cpu).any() else None

    def failed(self) -> None:
        """Do nothing: this measurement read no state."""


class MeasurementRunner(Protocol):
    """Runs measurements: on Spark, or on threads of this process."""

    def run(self, wanted: Wanted[T]) -> Future[T]:
        """The outcome of a measurement. At its deadline it fails with `SourceUnavailableError`."""


class PolicySource:
    """`LoadSource` of the policy `name`. deadline: seconds that a measurement may take, waiting included.

    cycles: runs whole cycles. refreshes: runs measurements of brokers alone, and of the past.
    Raises `ValueError` for an unknown preset or signal.
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
        self.name, self._settings, self._deadline, self._writer = name, settings, deadline, writer
        self._cycles, self._refreshes = cycles, refreshes
        self._summing = Summing(settings.bundle_metrics)
        by_time = settings.averages == "time"
        taus = (settings.short_tau, settings.long_tau) if by_time else (math.nan, math.nan)
        self._bounds = Bounds(settings.max_age, *taus)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe`. `at` is rounded to the millisecond, as in Prometheus."""
        return self._run(self._cycles, self.wanted(topology, at, bundles=True))

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe_brokers`. It runs on Spark only if Spark is remote, else on a thread of this process.

        With a remote Spark, this process may be unable to reach Prometheus.
        """
        return self._run(self._refreshes, self.wanted(topology, at, bundles=False))

    def observe_past(self, topology: Topology, at: float) -> Future[CycleSamples | None]:
        """See `MeasuresPast.observe_past`. None for ``bundle_metrics: statistics``: brokers keep no past statistics."""
        if pods_of(topology) and self._settings.bundle_metrics != "statistics":
            return self._refreshes.run(self._wanted_past(topology, round(at, 3)))
        outcome: Future[CycleSamples | None] = Future()
        outcome.set_result(None)
        return outcome

    def close(self) -> None:
        """Do nothing: the threads belong to the runners."""

    def doubt(self) -> None:
        """See `WantedCycle.failed`."""
        self._writer.doubt()

    def cycle(self, wanted: WantedCycle) -> PolicyCycle:
        """See `WantedCycle.prepared`."""
        cycle = Cycle.of(self.name, self._settings, wanted.at)
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
            "compute" if wanted.bundles else "align": measured.seconds - measured.reading,
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
        pa.default_memory_pool().release_unused()  # else memory fragments, and the process grows each cycle
        return Observation(load, seconds, signals, unwritten)

    def wanted(self, topology: Topology, at: float, *, bundles: bool) -> WantedCycle:
        """A measurement at `at` (epoch s) that begins to wait now."""
        now = time.monotonic()
        return WantedCycle(self, topology, round(at, 3), now, now + self._deadline, bundles)

    def _wanted_past(self, topology: Topology, at: float) -> WantedPast:
        """The measurement of the past time `at`. Its topology has no owners: metrics show which pod served a bundle."""
        now, settings = time.monotonic(), replace(self._settings, hot_bundles=0)
        unowned = replace(topology, owner=np.full_like(topology.owner, -1))
        cycle = PolicyCycle(
            Cycle.of(f"{self.name} at {at:.3f}", settings, at),
            settings,
            unowned,
            now,
            now + self._deadline,
            ranges=self._summing.ranges(topology),
            past=True,
        )
        return WantedPast(cycle)

    def _run(self, runner: MeasurementRunner, wanted: WantedCycle) -> Future[Observation]:
        if pods_of(wanted.topology):
            return runner.run(wanted)
        outcome: Future[Observation] = Future()
        outcome.set_result(self._nothing_to_measure(wanted))
        return outcome

    def _nothing_to_measure(self, wanted: WantedCycle) -> Observation:
        """The snapshot of a topology without any pod."""
        cycle = PolicyCycle(
            Cycle.of(self.name, self._settings, wanted.at), self._settings, wanted.topology, wanted.asked, wanted.ends
        )
        batch = Batch((cycle,), ((),))
        brokers = DirectStages(1, lambda: False).brokers(batch, batch.broker_reads())
        load = snapshot(brokers, Measurement(brokers).bundles, wanted.topology, self._settings, wanted.at)
        return Observation(load, {})
