"""A Spark driver in a process of its own, and the job that it runs in the tests of a Spark cluster.

A process has one Spark context at most, so a test on another master needs another process. `Driver` calls functions of
this module in its process.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline_clusters import topology
from trimtab_pipeline.api import LoadSources, PrometheusSettings
from trimtab_pipeline.factory import spark_sources
from trimtab_pipeline.spark.session import Engine
from trimtab_pipeline.spark.settings import SparkSettings
from trimtab_strategies.model import ClusterLoad

DEADLINE = 240.0
"""Seconds for a job, the start of Spark included."""
FIRST, SECOND = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
"""The bundles of `cycles`, on brokers a and b."""

_engines: list[Engine] = []


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about the driver's engine."""

    parallelism: int
    shuffle_partitions: int
    reads_files: bool
    folder: Path


@dataclass(frozen=True, slots=True)
class Part:
    """What one task reports: its row and sum, its attempt, and the folder of its executor."""

    row: int
    total: int
    attempt: int
    executor: Path
    sees_driver: bool


def cycle(session: SparkSession, *, tasks: int, seconds: float, driver_file: str) -> list[Part]:
    """A job of `tasks` tasks that take `seconds` each.

    Each sums the numbers up to its row, and leaves the file ``begun-ROW`` in its executor's folder.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415  (in the worker)

        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            for row in batch.column(0).to_pylist():
                Path(f"begun-{row}").touch()
                time.sleep(seconds)
                answer = (
                    row,
                    sum(range(row + 1)),
                    context.attemptNumber(),
                    str(Path.cwd()),
                    Path(driver_file).exists(),
                )
                names = ("row", "total", "attempt", "executor", "sees_driver")
                yield pa.RecordBatch.from_pydict({name: [value] for name, value in zip(names, answer, strict=True)})

    schema = "row bigint, total bigint, attempt bigint, executor string, sees_driver boolean"
    answers = session.range(0, tasks, 1, tasks).mapInArrow(work, schema).toArrow().to_pylist()
    return [Part(**row | {"executor": Path(row["executor"])}) for row in answers]


class Driver:
    """A process with an engine on `master`, whose temporary files are in `folder`. A context manager."""

    def __init__(self, master: str, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        spawn = multiprocessing.get_context("spawn")
        self._process = ProcessPoolExecutor(1, mp_context=spawn, initializer=_start, initargs=(master, folder))

    def cycle(self, *, tasks: int, seconds: float = 0.3) -> Future[list[Part]]:
        """The parts of a `cycle`."""
        return self._process.submit(_cycle, tasks, seconds)

    def facts(self) -> Facts:
        """Facts about the engine."""
        return self._process.submit(_facts).result(DEADLINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.submit(_stop).result(120)
        self._process.shutdown()


def _start(master: str, folder: Path) -> None:
    tempfile.tempdir = str(folder)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # on a cluster, the Python of the executors' machines
    _engines.append(Engine(SparkSettings(master, "480m")))


def _cycle(tasks: int, seconds: float) -> list[Part]:
    with tempfile.NamedTemporaryFile() as file:
        job = _engines[0].run(lambda spark: cycle(spark, tasks=tasks, seconds=seconds, driver_file=file.name), DEADLINE)
        return job.result()


def _facts() -> Facts:
    (engine,) = _engines

    def shuffle_partitions(session: SparkSession) -> int:
        engine.measure(session)
        return int(session.conf.get("spark.sql.shuffle.partitions") or 0)

    partitions = engine.run(shuffle_partitions, DEADLINE).result()
    return Facts(engine.parallelism, partitions, engine.reads_files, Path(tempfile.gettempdir()))


def _stop() -> None:
    _engines.pop().close()


def cycles(sources: LoadSources, url: str) -> list[ClusterLoad]:
    """Three cycles of two brokers, a minute apart: from the second one on, averages continue from the state."""
    world = topology({"broker-a": "a", "broker-b": "b"}, {FIRST: "broker-a", SECOND: "broker-b"})
    source = sources.open("tests/cluster", PrometheusSettings(url, "pulsar"))
    return [source.observe(world, 1_750_000_000.0 + 60 * minute).result(DEADLINE).load for minute in range(3)]


def cycles_on_cluster(master: str, url: str, folder: Path) -> list[ClusterLoad]:
    """The `cycles` on the cluster `master`; all files of this process, which drives them, are in `folder`."""
    tempfile.tempdir = str(folder)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # on a cluster, the Python of the executors' machines
    sources = spark_sources(folder / "history", master=master, memory="480m", deadline=DEADLINE)
    try:
        return cycles(sources, url)
    finally:
        sources.close()
