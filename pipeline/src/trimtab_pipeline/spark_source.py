"""`LoadSource` on Spark: measure, remember, align, one cycle at a time.

The operator does not import this module; `trimtab_pipeline.source.spark_sources` does when asked for an engine.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from trimtab_pipeline.align import Measured, align, only_one_each
from trimtab_pipeline.cycle import BROKER_STATE, BUNDLE_STATE, broker_sql, bundle_sql, horizon
from trimtab_pipeline.datasource import DRY_URL, ReadRequest
from trimtab_pipeline.history import TWO_HOURS, History, Retention
from trimtab_pipeline.queries import BUNDLES, Table, brokers, render
from trimtab_pipeline.session import Engine, SparkSettings
from trimtab_pipeline.source import Observation, PrometheusSettings, SourceUnavailableError, Topology

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
        retention: Retention = TWO_HOURS,
    ) -> None:
        self._history_dir = history_dir
        self._deadline = deadline
        self._retention = retention
        self._engine = Engine(SparkSettings(master, memory))

    def open(self, policy: str, settings: PrometheusSettings) -> SparkLoadSource:
        """A source for `policy` (``namespace/name``). Raises `ValueError` for a name that is no relative path."""
        folder = self._history_dir / policy
        if not folder.resolve().is_relative_to(self._history_dir.resolve()):
            raise ValueError(f"policy {policy!r} would keep its history outside {self._history_dir}")
        return SparkLoadSource(self._engine, folder, settings, self._deadline, self._retention)

    def warm_up(self) -> Future[None]:
        """Run two cycles on made-up samples: the first real one would otherwise take some seconds longer."""
        return self._engine.run(self._dry_cycles, deadline=max(self._deadline, 120.0))

    def close(self) -> None:
        """Cancel what runs and stop Spark. Idempotent."""
        self._engine.close()

    def _dry_cycles(self, spark: SparkSession) -> None:
        settings = PrometheusSettings(url=DRY_URL, namespace="dry")
        with tempfile.TemporaryDirectory(prefix="dry-", dir=_made(self._history_dir)) as folder:
            source = SparkLoadSource(self._engine, Path(folder), settings, self._deadline, self._retention)
            pods = [f"dry/{n}" for n in range(self._engine.cores)]
            for cycle in range(_DRY_CYCLES):
                source.measure(spark, pods, at=1.0 + cycle)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True, slots=True)
class _Answer:
    """One table as read in one cycle: its rows without reports, the reports, and seconds by phase."""

    rows: pa.Table
    reports: Sequence[Mapping[str, Any]]
    prometheus: float
    spark: float


class SparkLoadSource:
    """The cycle of one policy. Its state is the newest file of each history below `folder`."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        settings: PrometheusSettings,
        deadline: float,
        retention: Retention,
    ) -> None:
        self._engine, self._settings, self._deadline = engine, settings, deadline
        self._brokers = brokers(settings.resources)
        self._broker_history = History(folder / "brokers", BROKER_STATE, "brokers/1", retention)
        self._bundle_history = History(folder / "bundles", BUNDLE_STATE, "bundles/1", retention)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """See `LoadSource.observe`."""
        return self._engine.run(lambda spark: self._observe(spark, topology, at), self._deadline)

    def close(self) -> None:
        """Nothing of its own runs: the thread belongs to the engine."""

    def measure(self, spark: SparkSession, pods: Sequence[str], at: float) -> tuple[Measured, dict[str, float]]:
        """What `pods` are measured to carry at `at`, and seconds by phase; runs in the engine's thread.

        Raises `SourceUnavailableError` when no shard answered.
        """
        shards = [tuple(pods[k :: self._engine.cores]) for k in range(min(self._engine.cores, len(pods)))]
        tau = self._settings.short_tau, self._settings.long_tau
        broker_text, bundle_text = broker_sql(self._brokers, at, tau[1]), bundle_sql(at, *tau)
        of_brokers = self._read(spark, self._brokers, self._broker_history, broker_text, shards=shards, at=at)
        of_bundles = self._read(spark, BUNDLES, self._bundle_history, bundle_text, shards=shards, at=at)
        seconds = {
            "prometheus": of_brokers.prometheus + of_bundles.prometheus,
            "spark": of_brokers.spark + of_bundles.spark,
        }
        return _combined(of_brokers, of_bundles, shards), seconds

    def _observe(self, spark: SparkSession, topology: Topology, at: float) -> Observation:
        pods = sorted({pod for pod in topology.pods if pod})
        if not pods:
            return Observation(align(self._nothing(), topology, self._settings, at), {})
        measured, seconds = self.measure(spark, pods, at)
        begin = time.perf_counter()
        bundles, twice = only_one_each(measured.bundles, topology)
        if twice:
            measured = replace(measured, bundles=bundles, dropped={**measured.dropped, "Duplicate": twice})
        aligning = time.perf_counter() - begin
        seconds["write"] = self._remember(measured, at)
        begin = time.perf_counter()
        load = align(measured, topology, self._settings, at)
        seconds["align"] = aligning + time.perf_counter() - begin
        return Observation(load, seconds)

    def _read(
        self,
        spark: SparkSession,
        table: Table,
        history: History,
        sql: str,
        *,
        shards: Sequence[Sequence[str]],
        at: float,
    ) -> _Answer:
        begin = time.perf_counter()
        request = ReadRequest(
            url=self._settings.url,
            at=at,
            timeout=self._settings.timeout,
            keys=table.keys,
            columns=table.columns,
            shards=tuple(render(table, self._settings, shard) for shard in shards),
        )
        samples = spark.read.format("prometheus").option("request", request.to_json()).load()
        state = spark.read.schema(history.ddl).parquet(
            str(history.state(at, horizon(self._settings.long_tau)).resolve())
        )
        answer = spark.sql(sql, samples=samples, state=state).toArrow()
        reported = answer["report"].is_valid()
        reports = [json.loads(text) for text in answer.filter(reported)["report"].to_pylist()]
        _raise_if_all_failed(reports, table.name)
        in_tasks = max(report["seconds"] for report in reports)
        rows = answer.filter(pc.invert(reported)).drop_columns(["report"])
        return _Answer(rows, reports, in_tasks, time.perf_counter() - begin - in_tasks)

    def _remember(self, measured: Measured, at: float) -> float:
        begin = time.perf_counter()
        self._broker_history.write(measured.brokers, at)
        self._bundle_history.write(measured.bundles, at)
        return time.perf_counter() - begin

    def _nothing(self) -> Measured:
        return Measured(self._broker_history.schema.empty_table(), self._bundle_history.schema.empty_table())


def _raise_if_all_failed(reports: Sequence[Mapping[str, Any]], table: str) -> None:
    if not any(report["ok"] for report in reports):
        raise SourceUnavailableError(f"no {table} could be measured: {reports[0]['error']}")


def _combined(of_brokers: _Answer, of_bundles: _Answer, shards: Sequence[Sequence[str]]) -> Measured:
    """Both tables and what their shards reported."""
    dropped = Counter[str]()
    failed: list[tuple[str, str]] = []
    failed_pods: set[str] = set()
    warnings: set[str] = set()
    for name, answer in (("brokers", of_brokers), ("bundles", of_bundles)):
        for report in answer.reports:
            dropped.update(report["dropped"])
            warnings.update(report["warnings"])
            if not report["ok"]:
                pods = shards[report["shard"]]
                failed_pods.update(pods)
                failed.append((f"{name} of {len(pods)} brokers ({pods[0]}, ...)", report["error"]))
    return Measured(
        of_brokers.rows,
        of_bundles.rows,
        frozenset(failed_pods),
        dict(dropped),
        tuple(failed),
        tuple(sorted(warnings)),
    )
