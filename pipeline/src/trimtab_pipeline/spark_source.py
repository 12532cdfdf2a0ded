"""`LoadSource` on Spark: measure, remember, align, one cycle at a time.

The operator does not import this module; `trimtab_pipeline.source.spark_sources` does when asked for an engine.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from trimtab_pipeline.align import Measured, align, one_row_each, shown, with_last_times
from trimtab_pipeline.asking import ReadRequest, ShardRequest
from trimtab_pipeline.cycle import BROKER_STATE, BUNDLE_STATE, bundle_sql, horizon, samples_sql
from trimtab_pipeline.datasource import DRY_URL, read_options
from trimtab_pipeline.keeping import Background, Keeping
from trimtab_pipeline.queries import tables
from trimtab_pipeline.ranges import Ranges, Summing
from trimtab_pipeline.session import Engine
from trimtab_pipeline.source import (
    KEEP_A_DAY,
    Observation,
    PrometheusSettings,
    Retention,
    SourceMisconfiguredError,
    SourceUnavailableError,
    Topology,
)
from trimtab_pipeline.spark_settings import SparkSettings

_DRY_CYCLES = 2


class SparkLoadSources:
    """One Spark session, and a source per policy on it.

    history_dir: folder of the histories, one folder per policy; on Connect the server must see it under the same path.
    master:      as in `SparkSettings`. memory: heap of the embedded JVM.
    deadline:    seconds a cycle may take, waiting for other policies included.
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
    ) -> None:
        self.history_dir = history_dir
        self._deadline = deadline
        self._retention = retention
        self._engine = Engine(SparkSettings(master, memory))
        self._background = Background()

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
        self._sql = bundle_sql(settings.short_tau, settings.long_tau) if by_time else samples_sql()
        self._horizon = horizon(settings.long_tau)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe`. `at` counts to the millisecond, as in Prometheus."""
        return self._engine.run(lambda spark: self._observe(spark, topology, round(at, 3)), self._deadline)

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe_brokers`."""
        return self._engine.run(lambda spark: self._observe_brokers(spark, topology, round(at, 3)), self._deadline)

    def close(self) -> None:
        """Nothing of its own runs: the thread belongs to the engine."""

    def measure(self, spark: SparkSession, pods: Sequence[str], at: float, ranges: Ranges | None = None) -> Measured:
        """What `pods` are measured to carry at `at`, joined with what is remembered; runs in the engine's thread.

        ranges: all bundles, if topics are to be summed up to them where bundles have no metrics of their own.
        Raises `SourceUnavailableError` when no shard answered.
        """
        shards = self._shards(pods)
        samples = self._samples(spark, (ShardRequest.of(self._settings, shard) for shard in shards), at, ranges)
        state = spark.read.schema(self._keeping.bundles.ddl).parquet(
            str(self._keeping.bundles.state(at, self._horizon))
        )
        answer = spark.sql(self._sql, samples=samples, state=state).toArrow()
        reports = _reports(answer)
        return Measured(
            brokers=self._brokers(answer, at),
            bundles=answer.filter(pc.field("seen") >= at - self._horizon).select(BUNDLE_STATE.names),
            reports=reports,
            shards=shards,
            inside=pa.Table.from_struct_array(pc.list_flatten(answer["inside"].combine_chunks())),
        )

    def _shards(self, pods: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        """The pods of each task."""
        cores = self._engine.cores
        return tuple(tuple(pods[k::cores]) for k in range(min(cores, len(pods))))

    def _samples(
        self, spark: SparkSession, shards: Iterable[ShardRequest], at: float, ranges: Ranges | None = None
    ) -> DataFrame:
        request = ReadRequest.of(self._settings, at, shards)
        return (
            spark.read.format("prometheus").options(**read_options(request, self._settings.credentials, ranges)).load()
        )

    def _brokers(self, answer: pa.Table, at: float) -> pa.Table:
        """The brokers in `answer`, with the times of their newest samples that the history remembers."""
        last = pq.read_table(self._keeping.brokers.state(at, self._horizon))
        return with_last_times(pa.Table.from_struct_array(answer["broker"].drop_null()), last, at - self._horizon)

    def _observe_brokers(self, spark: SparkSession, topology: Topology, at: float) -> Observation:
        begin, shards = time.perf_counter(), self._shards(sorted({pod for pod in topology.pods if pod}))
        nothing = Measured(BROKER_STATE.empty_table(), BUNDLE_STATE.empty_table())
        if not shards:
            return Observation(align(nothing, topology, self._settings, at), {})
        asked = (ShardRequest.of(self._settings, shard).brokers_alone for shard in shards)
        try:
            answer = self._samples(spark, asked, at).select("broker", "report").toArrow()
            measured = replace(nothing, brokers=self._brokers(answer, at), reports=_reports(answer), shards=shards)
        except (PySparkException, Py4JError, OSError):
            self._keeping.doubt()
            raise
        load = align(measured, topology, self._settings, at)
        in_tasks = _in_tasks(measured)
        seconds = {"prometheus": in_tasks, "spark": time.perf_counter() - begin - in_tasks}
        return Observation(load, seconds, shown(measured, topology))

    def _observe(self, spark: SparkSession, topology: Topology, at: float) -> Observation:
        pods = sorted({pod for pod in topology.pods if pod})
        if not pods:
            nothing = Measured(BROKER_STATE.empty_table(), BUNDLE_STATE.empty_table())
            return Observation(align(nothing, topology, self._settings, at), {})
        clock = [time.perf_counter()]
        try:
            measured = self.measure(spark, pods, at, self._summing.ranges(topology))
        except (PySparkException, Py4JError, OSError):
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


def _reports(answer: pa.Table) -> tuple[Mapping[str, Any], ...]:
    """The tasks' reports. Raises `SourceUnavailableError` when none of them could measure anything."""
    reports = tuple(json.loads(text) for text in answer["report"].drop_null().to_pylist())
    if wrong := [report["error"] for report in reports if report.get("misconfigured")]:
        raise SourceMisconfiguredError(wrong[0])
    if not any(report["ok"] for report in reports):
        raise SourceUnavailableError(f"nothing could be measured: {reports[0]['error']}")
    return reports


def _in_tasks(measured: Measured) -> float:
    """Seconds that the slowest task spent on HTTP and parsing."""
    return float(max(report["seconds"] for report in measured.reports))
