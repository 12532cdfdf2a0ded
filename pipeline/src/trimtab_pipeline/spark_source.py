"""`LoadSource` on Spark: measure, remember, align, one cycle at a time.

The operator does not import this module; `trimtab_pipeline.source.spark_sources` does when asked for an engine.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trimtab_pipeline.align import Measured, align, one_row_each, shown, with_last_times
from trimtab_pipeline.asking import ReadRequest, ShardRequest
from trimtab_pipeline.cycle import BROKER_STATE, BUNDLE_STATE, BySamples, ByTime, horizon, remembered
from trimtab_pipeline.decisions import DecisionHistories, Entry
from trimtab_pipeline.glancing import aside, asked_directly
from trimtab_pipeline.keeping import Background, Keeping
from trimtab_pipeline.queries import tables
from trimtab_pipeline.ranges import Ranges, Summing
from trimtab_pipeline.session import Engine, closed
from trimtab_pipeline.source import (
    KEEP_A_DAY,
    Observation,
    PrometheusSettings,
    Retention,
    Topology,
)
from trimtab_pipeline.spark_settings import SparkSettings
from trimtab_pipeline.tasks import DRY_URL, Work, flattened, reports_in, spread

_DRY_CYCLES = 2


class SparkLoadSources:
    """One Spark session, and a source per policy on it.

    history_dir: folder of the histories, one folder per policy; on Connect the server must see it under the same path.
    master:      as in `SparkSettings`. memory: heap of the embedded JVM.
    deadline:    seconds a cycle may take, waiting for other policies included.
    archive:     as in `SparkSettings`.
    Raises `JavaMissingError` when Spark is to be embedded and there is no Java.
    """

    def __init__(
        self,
        history_dir: Path,
        *,
        master: str = "local[*]",
        memory: str = "700m",
        deadline: float = 60.0,
        retention: Retention = KEEP_A_DAY,
        archive: Path | None = None,
    ) -> None:
        self.history_dir = history_dir
        self._deadline = deadline
        self._retention = retention
        self._engine = Engine(SparkSettings(master, memory, archive))
        self._background = Background()
        self._decisions = DecisionHistories(history_dir)

    def open(self, policy: str, settings: PrometheusSettings, *, deadline: float | None = None) -> SparkLoadSource:
        """A source for `policy` (``namespace/name``), whose cycles may take `deadline` seconds (default: the engine's).

        Raises `ValueError` for a name that leads out of the folder of histories, or an unknown preset.
        """
        folder = self.history_dir / policy
        if self.history_dir.resolve() not in folder.resolve().parents:
            raise ValueError(f"policy {policy!r} would keep its history outside {self.history_dir}")
        return SparkLoadSource(self._engine, settings, deadline or self._deadline, self._keeping(folder))

    def warm_up(self) -> Future[None]:
        """Run two cycles on made-up samples: the first real one would otherwise take some seconds longer."""
        return self._engine.run(self._dry_cycles, deadline=max(self._deadline, 120.0))

    def keep_decisions(self, policy: str, at: float, entries: Sequence[Entry]) -> None:
        """See `KeepsDecisions`."""
        self._decisions.keep_decisions(policy, at, entries)

    def close(self) -> None:
        """Cancel what runs and stop Spark. Idempotent."""
        self._background.close()
        self._engine.close()

    def _keeping(self, folder: Path) -> Keeping:
        return Keeping(folder, self._retention, self._background)

    def _dry_cycles(self, spark: SparkSession) -> None:
        settings = PrometheusSettings(url=DRY_URL, namespace="dry")
        with tempfile.TemporaryDirectory(prefix="dry-", dir=_made(self.history_dir)) as folder:
            source = SparkLoadSource(self._engine, settings, self._deadline, self._keeping(Path(folder)))
            pods = [f"dry/{n}" for n in range(self._engine.cores)]
            for cycle in range(_DRY_CYCLES):
                source.measure(spark, pods, at=1.0 + cycle)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class SparkLoadSource:
    """The cycle of one policy. Its state is the newest file of each of its histories."""

    def __init__(
        self,
        engine: Engine,
        settings: PrometheusSettings,
        deadline: float,
        keeping: Keeping,
    ) -> None:
        self._keeping = keeping
        self._engine, self._settings, self._deadline = engine, settings, deadline
        tables(settings)  # what is wrong with them is to be told now, and not by every cycle
        self._summing = Summing(settings.bundle_metrics)
        by_time = settings.averages == "time"
        self._averages = ByTime(settings.short_tau, settings.long_tau) if by_time else BySamples()
        self._horizon = horizon(settings.long_tau)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe`. `at` counts to the millisecond, as in Prometheus."""
        asked = time.monotonic()  # it may wait for another cycle, or for Spark to start
        return self._engine.run(lambda spark: self._observe(spark, topology, round(at, 3), asked), self._deadline)

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe_brokers`. Spark has no part in it; on Connect the server asks, as in a cycle."""
        look = partial(self._glance, topology, round(at, 3), time.monotonic())
        if self._engine.settings.remote:
            return self._engine.run(lambda spark: look(partial(self._by, spark)), self._deadline)
        direct = partial(asked_directly, credentials=self._settings.credentials)
        return aside(lambda unwanted: look(partial(direct, unwanted=unwanted)), self._deadline)

    def close(self) -> None:
        """Nothing of its own runs: the thread belongs to the engine."""

    def measure(
        self, spark: SparkSession, pods: Sequence[str], at: float, ranges: Ranges | None = None, late: float = 0.0
    ) -> Measured:
        """What `pods` are measured to carry at `at`, joined with what is remembered; runs in the engine's thread.

        ranges: all bundles, if topics are to be summed up to them where bundles have no metrics of their own.
        late: seconds since `at` was the present.
        Raises `SourceUnavailableError` when no shard answered.
        """
        shards = self._shards(pods)
        asked = (ShardRequest.of(self._settings, shard) for shard in shards)
        request = ReadRequest.of(self._settings, at, asked, late)
        state = self._keeping.bundles.state(at, self._horizon)
        answer = self._spread(spark, request, state, ranges)
        reports = reports_in(answer)
        return Measured(
            brokers=self._brokers(flattened(answer["brokers"]), at),
            bundles=remembered(
                answer.filter(answer["bundle"].is_valid()).select(BUNDLE_STATE.names), state, at - self._horizon
            ),
            reports=reports,
            shards=shards,
            inside=flattened(answer["inside"]),
        )

    def _shards(self, pods: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The pods of each task."""
        cores = self._engine.cores
        return tuple(tuple(pods[k::cores]) for k in range(min(cores, len(pods))))

    def _spread(self, spark: SparkSession, request: ReadRequest, state: Path, ranges: Ranges | None = None) -> pa.Table:
        """The tasks' answers, columns `ANSWER`."""
        known = None if ranges is None else ranges.to_text()
        return spread(spark, Work(request, state, self._averages, self._settings.credentials, known)).toArrow()

    def _by(self, spark: SparkSession, request: ReadRequest) -> pa.Table:
        """What Spark's tasks hear of the brokers alone."""
        return self._spread(spark, request, Path()).select(["brokers", "report"])

    def _brokers(self, now: pa.Table, at: float) -> pa.Table:
        """The brokers measured `now`, with the times of their newest samples that the history remembers."""
        last = pq.read_table(self._keeping.brokers.state(at, self._horizon))
        return with_last_times(now, last, at - self._horizon)

    def _glance(
        self, topology: Topology, at: float, begun: float, ask: Callable[[ReadRequest], pa.Table]
    ) -> Observation:
        """What `ask` hears of the brokers: columns ``brokers`` and ``report`` of `ANSWER`."""
        if self._engine.closed:
            raise closed()
        begin, shards = time.perf_counter(), self._shards(_pods(topology))
        nothing = Measured(BROKER_STATE.empty_table(), BUNDLE_STATE.empty_table())
        if not shards:
            return Observation(align(nothing, topology, self._settings, at), {})
        asked = (ShardRequest.of(self._settings, shard).brokers_alone for shard in shards)
        answer = ask(ReadRequest.of(self._settings, at, asked, time.monotonic() - begun))
        reports = reports_in(answer)
        measured = replace(
            nothing, brokers=self._brokers(flattened(answer["brokers"]), at), reports=reports, shards=shards
        )
        load = align(measured, topology, self._settings, at)
        in_tasks = _in_tasks(measured)
        seconds = {"prometheus": in_tasks, "align": time.perf_counter() - begin - in_tasks}
        return Observation(load, seconds, shown(measured, topology))

    def _observe(self, spark: SparkSession, topology: Topology, at: float, asked: float) -> Observation:
        pods = _pods(topology)
        if not pods:
            nothing = Measured(BROKER_STATE.empty_table(), BUNDLE_STATE.empty_table())
            return Observation(align(nothing, topology, self._settings, at), {})
        clock = [time.perf_counter()]
        try:
            measured = self.measure(spark, pods, at, self._summing.ranges(topology), time.monotonic() - asked)
        except (PySparkException, Py4JError, OSError, pa.ArrowException):
            self._keeping.doubt()
            raise
        clock.append(time.perf_counter())
        self._summing.saw(sum(report.get("bundles", 0) for report in measured.reports))
        measured = one_row_each(measured, topology)
        load = align(measured, topology, self._settings, at)
        clock.append(time.perf_counter())
        self._keeping.keep(measured, load, topology, self._settings.max_age)
        clock.append(time.perf_counter())
        in_tasks = _in_tasks(measured)
        spark_seconds, aligning, write = (after - before for before, after in itertools.pairwise(clock))
        seconds = {"prometheus": in_tasks, "spark": spark_seconds - in_tasks, "write": write, "align": aligning}
        observation = Observation(load, seconds, shown(measured, topology))
        del measured
        pa.default_memory_pool().release_unused()  # kept for reuse it fragments, and the process grows with each cycle
        return observation


def _pods(topology: Topology) -> list[str]:
    return sorted({pod for pod in topology.pods if pod})


def _in_tasks(measured: Measured) -> float:
    """Seconds that the slowest task spent on HTTP and parsing."""
    return float(max(report["seconds"] for report in measured.reports))
