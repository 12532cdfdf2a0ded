"""`LoadSource` of a policy: measure, store, align, one cycle at a time, on Spark or without.

The operator does not import this module; `trimtab_pipeline.factory` does.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from trimtab_pipeline.api import Observation, PrometheusSettings, Topology
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE
from trimtab_pipeline.history.files import State, read_state
from trimtab_pipeline.history.snapshot_tables import Bounds
from trimtab_pipeline.history.writer import HistoryWriter
from trimtab_pipeline.prometheus.queries import tables
from trimtab_pipeline.prometheus.read_request import ReadRequest, ShardRequest
from trimtab_pipeline.sources.broker_refresh import aside, asked_directly
from trimtab_pipeline.spark.outcomes import SPARK_ERRORS
from trimtab_pipeline.spark.session import closed
from trimtab_pipeline.spark.tasks import ShardTask, flattened, reports_in
from trimtab_pipeline.transform.averages import BySamples, ByTime, horizon, remembered
from trimtab_pipeline.transform.snapshot import Measurement, align, one_row_each, shown, with_last_times
from trimtab_pipeline.transform.topic_to_bundle import HashRanges, Summing

T = TypeVar("T")
Ask = Callable[[ShardTask], pa.Table]
"""Runs all tasks of a cycle; the answers are in `tasks.ANSWER`."""


class Workshop(Protocol):
    """Runs the tasks of cycles; if it is remote, it runs broker refreshes too."""

    @property
    def cores(self) -> int:
        """Number of parallel tasks."""

    @property
    def remote(self) -> bool:
        """Whether the tasks run on another machine."""

    @property
    def closed(self) -> bool:
        """Whether it is closed and rejects jobs."""

    def run(self, job: Callable[[Ask], T], deadline: float) -> Future[T]:
        """The outcome of `job`.

        The future fails with `SourceUnavailableError`, after `deadline` seconds at the latest.
        """


class PolicySource:
    """`LoadSource` of one policy, on Spark or without. Its state is that of its history."""

    def __init__(
        self,
        workshop: Workshop,
        settings: PrometheusSettings,
        deadline: float,
        keeping: HistoryWriter,
    ) -> None:
        self._keeping = keeping
        self._workshop, self._settings, self._deadline = workshop, settings, deadline
        tables(settings)  # raise errors in the settings now, not in every cycle
        self._summing = Summing(settings.bundle_metrics)
        by_time = settings.averages == "time"
        self._averages = ByTime(settings.short_tau, settings.long_tau) if by_time else BySamples()
        self._horizon = horizon(settings.long_tau)
        taus = (settings.short_tau, settings.long_tau) if by_time else (math.nan, math.nan)
        self._bounds = Bounds(settings.max_age, *taus)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe`. `at` counts to the millisecond, as in Prometheus."""
        asked = time.monotonic()  # it may wait for another cycle, or for Spark to start
        return self._workshop.run(lambda ask: self._observe(ask, topology, round(at, 3), asked), self._deadline)

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe_brokers`. It runs without Spark, unless that is remote: then its workers read."""
        read = partial(self._observe_brokers, topology, round(at, 3), time.monotonic())
        if self._workshop.remote:
            return self._workshop.run(lambda ask: read(partial(self._brokers_by, ask)), self._deadline)
        direct = partial(asked_directly, credentials=self._settings.credentials)
        return aside(lambda unwanted: read(partial(direct, unwanted=unwanted)), self._deadline)

    def close(self) -> None:
        """Do nothing: the threads belong to the workshop."""

    def measure(
        self,
        ask: Ask,
        pods: Sequence[str],
        at: float,
        ranges: HashRanges | None = None,
        *,
        late: float = 0.0,
        admin: Mapping[str, str] | None = None,
    ) -> Measurement:
        """The measured load of `pods` at `at`, joined with the last state; runs in the workshop's thread.

        ranges: all bundles, if their topics are summed up where bundles have no metrics. late: seconds since `at`.
        admin: URLs of brokers' admin REST, by pod.
        Raises `SourceUnavailableError` when no shard answered.
        """
        shards = self._shards(pods)
        asked = (ShardRequest.of(self._settings, shard, admin) for shard in shards)
        request = ReadRequest.of(self._settings, at, asked, late)
        last = self._keeping.state(at, self._horizon)
        state = last.bundles
        if self._workshop.remote:
            state = read_state(state)  # tasks on other machines do not see our files
        answer = self._answer(ask, request, state, ranges)
        reports = reports_in(answer)
        return Measurement(
            brokers=with_last_times(flattened(answer["brokers"]), last.brokers, at - self._horizon),
            bundles=remembered(
                answer.filter(answer["bundle"].is_valid()).select(BUNDLE_STATE.names), state, at - self._horizon
            ),
            reports=reports,
            shards=shards,
            inside=flattened(answer["inside"]),
        )

    def _shards(self, pods: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The pods of each task."""
        cores = self._workshop.cores
        return tuple(tuple(pods[k::cores]) for k in range(min(cores, len(pods))))

    def _answer(self, ask: Ask, request: ReadRequest, state: State, ranges: HashRanges | None = None) -> pa.Table:
        """The tasks' answers, columns `ANSWER`."""
        known = None if ranges is None else ranges.to_text()
        settings = self._settings
        return ask(ShardTask(request, state, self._averages, settings.credentials, known, settings.statistics))

    def _brokers_by(self, ask: Ask, request: ReadRequest) -> pa.Table:
        """The tasks' answers about the brokers alone."""
        return self._answer(ask, request, BUNDLE_STATE.empty_table()).select(["brokers", "report"])

    def _observe_brokers(
        self, topology: Topology, at: float, begun: float, ask: Callable[[ReadRequest], pa.Table]
    ) -> Observation:
        """The answers of `ask` about the brokers: columns ``brokers`` and ``report`` of `ANSWER`."""
        if self._workshop.closed:
            raise closed()
        begin, shards = time.perf_counter(), self._shards(_pods(topology))
        nothing = Measurement(BROKER_STATE.empty_table(), BUNDLE_STATE.empty_table())
        if not shards:
            return Observation(align(nothing, topology, self._settings, at), {})
        asked = (ShardRequest.of(self._settings, shard).brokers_alone for shard in shards)
        answer = ask(ReadRequest.of(self._settings, at, asked, time.monotonic() - begun))
        reports = reports_in(answer)
        last = self._keeping.state(at, self._horizon).brokers
        brokers = with_last_times(flattened(answer["brokers"]), last, at - self._horizon)
        measured = replace(nothing, brokers=brokers, reports=reports, shards=shards)
        load = align(measured, topology, self._settings, at)
        self._keeping.keep_refresh(load, topology, self._bounds)
        in_tasks = _in_tasks(measured)
        seconds = {"prometheus": in_tasks, "align": time.perf_counter() - begin - in_tasks}
        return Observation(load, seconds, shown(measured, topology))

    def _observe(self, ask: Ask, topology: Topology, at: float, asked: float) -> Observation:
        pods = _pods(topology)
        if not pods:
            nothing = Measurement(BROKER_STATE.empty_table(), BUNDLE_STATE.empty_table())
            return Observation(align(nothing, topology, self._settings, at), {})
        clock = [time.perf_counter()]
        try:
            ranges, admin = self._summing.ranges(topology), dict(zip(topology.pods, topology.admin, strict=False))
            measured = self.measure(ask, pods, at, ranges, late=time.monotonic() - asked, admin=admin)
        except (*SPARK_ERRORS, OSError, pa.ArrowException):
            self._keeping.doubt()
            raise
        clock.append(time.perf_counter())
        self._summing.saw(sum(report.get("bundles", 0) for report in measured.reports))
        measured = one_row_each(measured, topology)
        load = align(measured, topology, self._settings, at)
        clock.append(time.perf_counter())
        tables = measured.brokers, measured.bundles
        unwritten = self._keeping.keep(*tables, load, topology, inside=measured.inside, bounds=self._bounds)
        clock.append(time.perf_counter())
        in_tasks = _in_tasks(measured)
        spark_seconds, aligning, write = (after - before for before, after in itertools.pairwise(clock))
        seconds = {"prometheus": in_tasks, "spark": spark_seconds - in_tasks, "write": write, "align": aligning}
        observation = Observation(load, seconds, shown(measured, topology), unwritten)
        del measured
        pa.default_memory_pool().release_unused()  # kept memory fragments, and the process grows each cycle
        return observation


def _pods(topology: Topology) -> list[str]:
    return sorted({pod for pod in topology.pods if pod})


def _in_tasks(measured: Measurement) -> float:
    """Seconds that the slowest task spent on HTTP and parsing."""
    return float(max(report["seconds"] for report in measured.reports))
