"""Factories: load sources with or without Spark, and the archive of Spark's classes. They load PySpark when called."""

from __future__ import annotations

import tempfile
from pathlib import Path

from trimtab_pipeline.api import KEEP_A_DAY, LoadSources, Retention, SourceUnavailableError
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.spark.class_archive import archive_for, forget_older, trusted

ARCHIVE_DEADLINE = 900.0
"""Seconds for Spark to become warm before it writes the archive; a build does this once, on a busy machine."""


def spark_sources(
    history_dir: Place,
    *,
    master: str = "local[*]",
    memory: str = "700m",
    deadline: float = 60.0,
    retention: Retention = KEEP_A_DAY,
) -> LoadSources:
    """Sources on a Spark session that starts in the background; the first call in a process loads PySpark.

    history_dir: folder of the policies' histories, which are also their state.
    master:      ``local[N]``, ``local[*]``, or ``sc://host:port`` of a Spark Connect server.
    memory:      heap of the embedded JVM. deadline: seconds one cycle may take.
    retention:   how much of each policy's history is kept.
    Raises `SourceUnavailableError` when Spark is to be embedded and there is no Java 17 or later.
    """
    from trimtab_pipeline.sources.spark import SparkLoadSources  # noqa: PLC0415  (keeps PySpark out until it is asked for)

    return SparkLoadSources(history_dir, master=master, memory=memory, deadline=deadline, retention=retention)


def direct_sources(history_dir: Place, *, deadline: float = 60.0) -> LoadSources:
    """Sources without Java: threads of this process run the tasks, with the same figures as on Spark.

    For occasional measurements; see `spark_sources` for the arguments.
    """
    from trimtab_pipeline.sources.direct import DirectLoadSources  # noqa: PLC0415  (loads PySpark, though no Spark)

    return DirectLoadSources(history_dir, deadline=deadline)


def archive_classes() -> tuple[Path, bool]:
    """Write the archive of Spark's classes (`class_archive`), which saves about 40 % of the work of an embedded start.

    Only a JVM that ends can write it, and that takes about 10 s more, so this starts a Spark for nothing else.
    Returns the archive's path, and whether it was written now: a usable one stays.
    Raises `JavaMissingError` without Java, `SourceUnavailableError` when Spark does not start or writes no archive,
    `OSError` when the cache folder can't be written.
    """
    from trimtab_pipeline.spark.settings import java_version, require_java  # noqa: PLC0415  (as above)

    archive = archive_for(java_version(require_java()))
    if trusted(archive):
        return archive, False
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="archive-", dir=archive.parent) as folder:
        written = Path(folder) / archive.name
        _write(written, Path(folder) / "history")
        if not written.exists():
            raise SourceUnavailableError("Spark's JVM wrote no archive of its classes; starts are as fast as before")
        written.chmod(0o644)  # in an image another user runs what root has made
        written.replace(archive)
    forget_older(archive.parent)
    return archive, True


def _write(archive: Path, history: Path) -> None:
    from trimtab_pipeline.sources.spark import SparkLoadSources  # noqa: PLC0415  (as above)

    sources = SparkLoadSources(history, deadline=ARCHIVE_DEADLINE, archive=archive)
    try:
        sources.warm_up().result()
    finally:
        sources.close()
