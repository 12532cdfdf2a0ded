"""An archive of Spark's classes, which a JVM maps into memory instead of loading and verifying each one again.

It saves some 40 % of a start's work and takes 155 MB in the cache folder. `trimtab_pipeline.factory` makes one, and
every embedded JVM uses the one that fits. It holds for one Java and for the very files of Spark it was made of, so both
are in its name; a JVM that finds it unfit all the same goes on without. Nothing fails for want of one.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from importlib.util import find_spec
from pathlib import Path

_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"  # to be without it is no news

KEPT = 3
"""Archives that stay in the cache folder, the newest ones."""
_BUILD = r".+ \(build [^,)]+"


def cache_folder() -> Path:
    """``$TRIMTAB_CACHE``, else ``$XDG_CACHE_HOME/trimtab``, else ``~/.cache/trimtab``."""
    if own := os.environ.get("TRIMTAB_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trimtab"


def archive_for(java: str) -> Path:
    """Where the archive is kept, if there is one. java: what this Java says of its version.

    What it says beside its builds depends on the options of the moment.
    """
    key = hashlib.sha256("\n".join(re.findall(_BUILD, java)).encode())
    for jar in _jars():
        about = jar.stat()
        key.update(f"\0{jar}\0{about.st_size}\0{about.st_mtime_ns}".encode())
    return cache_folder() / f"spark-{key.hexdigest()[:16]}.jsa"


def using(archive: Path) -> str:
    """Options for a JVM that is to use `archive`; empty when there is none that may be trusted."""
    return f'"-XX:SharedArchiveFile={archive}" {_QUIET}' if trusted(archive) else ""


def writing(archive: Path) -> str:
    """Options for a JVM that is to write `archive` when it ends."""
    return f'"-XX:ArchiveClassesAtExit={archive}" {_QUIET}'


def trusted(archive: Path) -> bool:
    """Whether it exists and only we, or root, could have written it: what is in it is code."""
    try:
        about = archive.stat()
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISREG(about.st_mode) and about.st_uid in {0, os.geteuid()} and not about.st_mode & others


def forget_older(folder: Path) -> None:
    """Remove the archives of installations that are gone: 150 MB each, and every new installation has its own.

    A JVM that uses one has it open, and one that no longer finds its own starts without.
    """
    found = sorted(folder.glob("spark-*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in found[KEPT:]:
        path.unlink(missing_ok=True)


def _jars() -> list[Path]:
    """Spark's own files, without loading PySpark."""
    spec = find_spec("pyspark")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    return sorted(jar for folder in folders for jar in (folder / "jars").glob("*.jar"))
