"""Makes the archive of `trimtab_pipeline.class_archive`: a Spark that becomes warm, and whose JVM then writes it.

A JVM of version 17 can do so only at its end, which takes it some 10 s more; so it is a Spark for nothing else.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.class_archive import archive_for, trusted
from trimtab_pipeline.spark_settings import java_version, require_java
from trimtab_pipeline.spark_source import SparkLoadSources

PATIENCE = 900.0
"""Seconds for Spark to become warm: that is done once, in a build, beside whatever else the machine builds."""

KEPT = 3
"""Archives that stay in the cache folder, the newest ones."""


def archive_classes() -> tuple[Path, bool]:
    """The archive's path, and whether it was made now: one that fits is left as it is.

    Raises `JavaMissingError` without Java, `SourceUnavailableError` when Spark does not start or its JVM writes
    nothing, `OSError` when the cache folder can't be written.
    """
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


def forget_older(folder: Path) -> None:
    """Remove the archives of installations that are gone: 150 MB each, and every new installation has its own.

    A JVM that uses one has it open, and one that no longer finds its own starts without.
    """
    found = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[KEPT:]:
        path.unlink(missing_ok=True)


def _write(archive: Path, history: Path) -> None:
    sources = SparkLoadSources(history, deadline=PATIENCE, archive=archive)
    try:
        sources.warm_up().result()
    finally:
        sources.close()
