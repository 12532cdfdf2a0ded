"""The `LoadSource` of a policy: measures cycles, on Spark or without, and writes each to the history.

The operator does not import this module; `trimtab_pipeline.factory` does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from typing import Generic, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from trimtab_pipeline.api import Observation, PrometheusSettings, Topology
from trimtab_pipeline.history.snapshot_tables import Bounds
from trimtab_pipeline.history.writer import HistoryWriter
from trimtab_pipeline.prometheus.queries import tables
from trimtab_pipeline.sources.pipeline import Measurement, measured, snapshot_of, written
from trimtab_pipeline.sources.policy_cycle import PolicyCycle, pods_of
from trimtab_pipeline.transform.relations import Cycle
from trimtab_pipeline.transform.snapshot import shown
from trimtab_pipeline.transform.topic_to_bundle import Summing
from trimtab_strategies.shedding.trim.samples import CycleSamples

T = TypeVar("T")


class Turn(IntEnum):
    """The order in which waiting measurements run."""

    CYCLE = 0
    REFRESH = 1
    PAST = 2


@dataclass(frozen=True, slots=True, eq=False)
class Wanted(Generic[T]):
    """A measurement that waits for its turn.

    name: the name of its cycle, unique in a batch. bundles: whether the bundles are measured, too. left: seconds that
    it may take, waiting included.
    prepared: returns the cycle to measure; raises `OSError` when the history can't be read. finished: returns the
    outcome, from what was measured. failed: reacts to the failure of its batch.
    """

    name: str
    turn: Turn
    bundles: bool
    left: float
    prepared: Callable[[], PolicyCycle]
    finished: Callable[[Measurement], T]
    failed: Callable[[], None]


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
        self._most: dict[str, int] = {}  # as in `ReadRequest`; it lasts as long as this source
        self._summing = Summing(settings.bundle_metrics)
        self._reading = 0.0
        by_time = settings.averages == "time"
        taus = (settings.short_tau, settings.long_tau) if by_time else (math.nan, math.nan)
        self._bounds = Bounds(settings.max_age, *taus)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe`. `at` is rounded to the millisecond, as in Prometheus."""
        return self._run(self._cycles, topology, at, bundles=True)

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe_brokers`. It runs on Spark only if Spark is remote, else on a thread of this process.

        With a remote Spark, this process may be unable to reach Prometheus.
        """
        return self._run(self._refreshes, topology, at, bundles=False)

    def observe_past(self, topology: Topology, at: float) -> Future[CycleSamples | None]:
        """See `MeasuresPast.observe_past`. None for ``bundle_metrics: statistics``: brokers keep no past statistics."""
        if pods_of(topology) and self._settings.bundle_metrics != "statistics":
            return self._refreshes.run(self._wanted_past(topology, round(at, 3)))
        outcome: Future[CycleSamples | None] = Future()
        outcome.set_result(None)
        return outcome

    def wanted(self, topology: Topology, at: float, *, bundles: bool) -> Wanted[Observation]:
        """A measurement at `at` (epoch s) that begins to wait now."""
        at = round(at, 3)
        return Wanted(
            self.name,
            Turn.CYCLE if bundles else Turn.REFRESH,
            bundles=bundles,
            left=self._deadline,
            prepared=partial(self._continued, self._cycle(topology, at), bundles=bundles),
            finished=partial(self._finished, topology, at, bundles=bundles),
            failed=self._writer.doubt,  # the state is checked before its next use, because a cycle that read it failed
        )

    def _cycle(self, topology: Topology, at: float) -> PolicyCycle:
        """A cycle at `at` (epoch s) that is asked for now, without a last state."""
        now = time.monotonic()
        cycle, ends = Cycle.of(self.name, self._settings, at), now + self._deadline
        return PolicyCycle(cycle, self._settings, topology, now, ends, most=self._most, reading=self._reading)

    def _continued(self, one: PolicyCycle, *, bundles: bool) -> PolicyCycle:
        """The cycle, with the last state. Raises `OSError` when the history can't be read."""
        last = self._writer.state(one.cycle.at, one.cycle.horizon)
        return replace(one, last=last, ranges=self._summing.ranges(one.topology) if bundles else None)

    def _finished(self, topology: Topology, at: float, found: Measurement, *, bundles: bool) -> Observation:
        """The observation, after it was written to the history."""
        clock = [time.perf_counter()]
        self._most |= found.reports.most
        load = snapshot_of(found, topology, self._settings, at)
        clock.append(time.perf_counter())
        seconds = {
            "prometheus": found.reading,
            "compute" if bundles else "align": found.seconds - found.reading,
        }
        seconds["align"] = seconds.get("align", 0.0) + clock[1] - clock[0]
        signals = shown(found.brokers, topology)
        if not bundles:
            self._writer.keep_refresh(load, topology, self._bounds)
            return Observation(load, seconds, signals)
        self._summing.saw(found.reports.bundles)
        self._reading = found.reading
        unwritten = written(found, load, topology, self._writer, self._bounds)
        seconds["write"] = time.perf_counter() - clock[1]
        pa.default_memory_pool().release_unused()  # else memory fragments, and the process grows each cycle
        return Observation(load, seconds, signals, unwritten)

    def _wanted_past(self, topology: Topology, at: float) -> Wanted[CycleSamples | None]:
        """The measurement of the past time `at`. It reads no state, and its result is not stored.

        Its cycle has a name of its own, and no owners: metrics show which pod served a bundle.
        """
        settings, now = replace(self._settings, hot_bundles=0), time.monotonic()
        one = PolicyCycle(
            Cycle.of(f"{self.name} at {at:.3f}", settings, at),
            settings,
            replace(topology, owner=np.full_like(topology.owner, -1)),
            now,
            now + self._deadline,
            ranges=self._summing.ranges(topology),
            most=self._most,
            past=True,
        )
        return Wanted(
            one.name,
            Turn.PAST,
            bundles=True,
            left=self._deadline,
            prepared=lambda: one,
            finished=partial(_sampled, one),
            failed=lambda: None,
        )

    def _run(self, runner: MeasurementRunner, topology: Topology, at: float, *, bundles: bool) -> Future[Observation]:
        if pods_of(topology):
            return runner.run(self.wanted(topology, at, bundles=bundles))
        outcome: Future[Observation] = Future()
        outcome.set_result(self._nothing_to_measure(topology, round(at, 3)))
        return outcome

    def _nothing_to_measure(self, topology: Topology, at: float) -> Observation:
        """The snapshot of a topology without any pod."""
        one = self._cycle(topology, at)
        found = measured(one, one.orders(1, bundles=False), ())
        return Observation(snapshot_of(found, topology, self._settings, at), {})


def _sampled(one: PolicyCycle, found: Measurement) -> CycleSamples | None:
    """What was sampled in a past cycle; None if nothing was."""
    load = snapshot_of(found, one.topology, one.settings, one.cycle.at)
    samples = CycleSamples.of(one.cycle.at, load.brokers, load.bundles.names, load.bundles.newest)
    pa.default_memory_pool().release_unused()
    return samples if np.isfinite(samples.load).any() or np.isfinite(samples.cpu).any() else None
