"""Makes load sources: on Spark, or without it. PySpark is loaded when one is asked for."""

from __future__ import annotations

from pathlib import Path

from trimtab_pipeline.api import KEEP_A_DAY, LoadSources, Retention


def spark_sources(
    history_dir: Path,
    *,
    master: str = "local[*]",
    memory: str = "700m",
    deadline: float = 60.0,
    retention: Retention = KEEP_A_DAY,
) -> LoadSources:
    """Sources on a Spark session that starts in the background; the first call in a process loads PySpark.

    history_dir: where each policy's history lies, which is also its state.
    master:      ``local[N]``, ``local[*]``, or ``sc://host:port`` of a Spark Connect server.
    memory:      heap of the embedded JVM. deadline: seconds one cycle may take.
    retention:   how much of each policy's history is kept.
    Raises `SourceUnavailableError` when Spark is to be embedded and there is no Java 17 or later.
    """
    from trimtab_pipeline.spark_source import SparkLoadSources  # noqa: PLC0415  (keeps PySpark out until it is asked for)

    return SparkLoadSources(history_dir, master=master, memory=memory, deadline=deadline, retention=retention)


def direct_sources(history_dir: Path, *, deadline: float = 60.0) -> LoadSources:
    """Sources that need no Java: threads of this process do what tasks do on Spark, with the same figures.

    For a look now and then; see `spark_sources` for the arguments.
    """
    from trimtab_pipeline.direct_source import DirectLoadSources  # noqa: PLC0415  (loads PySpark, though no Spark)

    return DirectLoadSources(history_dir, deadline=deadline)


def archive_classes() -> tuple[Path, bool]:
    """Keep Spark's classes in a form that saves an embedded session's start some 40 % of its work (`archiving`).

    Returns the archive's path, and whether it was made now: it takes a start of Spark and some 10 s.
    Raises `SourceUnavailableError` without Java, or when Spark writes none, and `OSError` for a folder that can't be
    written.
    """
    from trimtab_pipeline.archiving import archive_classes  # noqa: PLC0415  (as above)

    return archive_classes()
