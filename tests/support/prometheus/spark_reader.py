"""A Spark session in its own process that measures shards, with all files that Spark writes.

It needs its own process because logging is configured when a session starts, and a process has only one session.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from trimtab_pipeline.sources.pipeline import ShardResult
from trimtab_pipeline.sources.policy_cycle import ShardOrders
from trimtab_pipeline.sources.shard_tasks import SparkShards

_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c: %m%n%ex
"""


@dataclass(frozen=True)
class SparkRead:
    """The results of the shards of all orders, and the plans as Spark shows them."""

    results: list[list[ShardResult]]
    plans: str


class SparkReader:
    """A context manager; `folder` gets the log at level INFO, the event log, and what Spark stores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads is not safe
        self._process = ProcessPoolExecutor(1, spawn)

    def __enter__(self) -> Self:
        self._process.submit(_start, self.folder).result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.submit(_stop).result()
        self._process.shutdown()

    def run(self, orders: Sequence[ShardOrders]) -> SparkRead:
        """What is measured of all shards."""
        return self._process.submit(_run, orders).result()


def _start(folder: Path) -> None:
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    settings = folder / "log4j2.properties"
    settings.write_text(_LOGGING.format(folder / "spark.log"))
    (folder / "events").mkdir()
    options = {
        "spark.driver.memory": "500m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={settings} -XX:TieredStopAtLevel=1",
        "spark.eventLog.compress": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder / "events",
        "spark.local.dir": folder,
        "spark.sql.adaptive.enabled": "false",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in options.items():
        builder = builder.config(name, str(value))
    builder.getOrCreate().sparkContext.setLogLevel("INFO")


def _session() -> SparkSession:
    session = SparkSession.getActiveSession()
    assert session is not None
    return session


def _run(orders: Sequence[ShardOrders]) -> SparkRead:
    shards, plans = SparkShards(_session(), 2), io.StringIO()
    frame = shards.frame(orders)
    with redirect_stdout(plans):
        for mode in ("extended", "cost", "codegen", "formatted"):
            frame.explain(mode=mode)
    return SparkRead(shards.run(orders), plans.getvalue() + str(frame._jdf.queryExecution().toString()))


def _stop() -> None:
    if (session := SparkSession.getActiveSession()) is not None:
        session.stop()
