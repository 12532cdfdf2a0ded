"""Factories of load sources, with or without Spark, and of task pools. They load PySpark when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab_pipeline.api import KEEP_A_DAY, LoadSources, Retention
from trimtab_pipeline.history.location import Place

if TYPE_CHECKING:
    from trimtab_pipeline.spark.task_pool import TaskPool


def spark_sources(
    history_dir: Place,
    *,
    master: str = "local[*]",
    memory: str = "700m",
    deadline: float = 60.0,
    retention: Retention = KEEP_A_DAY,
) -> LoadSources:
    """Sources on a Spark session that starts in the background; the first call in a process loads PySpark.

    history_dir: folder or URI of the histories and states of all policies.
    master:      ``local[N]``, ``local[*]``, ``spark://host:port``, or ``sc://host:port`` of a Connect server.
    memory:      heap of this process's JVM. deadline: seconds one cycle may take.
    retention:   how much of each policy's history is kept.
    Raises `SourceUnavailableError` without Java 17 or later, unless a Connect server runs the driver.
    """
    from trimtab_pipeline.sources.spark import SparkLoadSources  # noqa: PLC0415  (keeps PySpark out until it is needed)

    return SparkLoadSources(history_dir, master=master, memory=memory, deadline=deadline, retention=retention)


def direct_sources(history_dir: Place, *, retention: Retention = KEEP_A_DAY) -> LoadSources:
    """Sources without Spark and Java: threads of this process measure. The figures are the same as on Spark.

    history_dir, retention: as in `spark_sources`.
    """
    from trimtab_pipeline.sources.direct import DirectLoadSources  # noqa: PLC0415  (loads PySpark, starts no Spark)

    return DirectLoadSources(history_dir, retention=retention)


def task_pool(master: str) -> TaskPool:
    """A Spark session that runs calls of a function in parallel; see `TaskPool`.

    Raises `ValueError` for a wrong `master`, and `SourceUnavailableError` if Java, or PySpark's client, is missing.
    """
    from trimtab_pipeline.spark.task_pool import TaskPool  # noqa: PLC0415  (keeps PySpark out until it is needed)

    return TaskPool(master)
