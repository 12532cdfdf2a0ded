"""Moves the files of an import into a history: all or none, even if the import is killed.

A journal below the root lists the files before the first one is moved. The journal is removed after the last one. The
next import removes what a killed one left. On a local file system, a lock shows whether another import still runs.
Elsewhere there is no lock, so the user must not run two imports at a time.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pyarrow import fs

from trimtab_pipeline.history.location import Location

_JOURNAL = "_import.json"
_LOCK = ".import.lock"
_STAGING = ".import-"
_LEVELS = 3  # levels of folders that may be empty after a file is removed: its hour, its date, the policy


class ImportRunsError(RuntimeError):
    """Another import into the same folder is running."""


@contextmanager
def staging(root: Location) -> Iterator[Path]:
    """A temporary folder for the files of an import into `root`; it is inside `root` if that is local.

    First removes what a killed import left. Raises `ImportRunsError`, `OSError`.
    """
    if not root.local:
        _roll_back(root)
        with tempfile.TemporaryDirectory(prefix=_STAGING) as folder:
            yield Path(folder)
        return
    with _locked(Path(root.path, _LOCK)):
        for left in Path(root.path).glob(f"{_STAGING}*"):
            shutil.rmtree(left)
        _roll_back(root)
        with tempfile.TemporaryDirectory(prefix=_STAGING, dir=root.path) as folder:
            yield Path(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ImportRunsError from None
        try:
            yield
        finally:
            path.unlink()


def place(staged: Path, root: Location, folders: Sequence[str]) -> None:
    """Move `folders` (relative paths) from `staged` to `root`, in their order.

    After an error, the files that were moved are removed again; if that fails, too, the next import removes them.
    """
    files = [path for folder in folders for path in sorted(Path(staged, folder).rglob("*.parquet"))]
    journal = Path(staged, _JOURNAL)
    journal.write_text(json.dumps({str(path.relative_to(staged)): path.stat().st_size for path in files}))
    try:
        _move(staged, root, _JOURNAL)
        for folder in folders:
            _move(staged, root, folder)
        (root / _JOURNAL).remove()
    except BaseException:
        with suppress(OSError):  # the next import tries again
            _roll_back(root)
        raise


def _move(staged: Path, root: Location, name: str) -> None:
    """Move a file or a folder to its place."""
    source, target = staged / name, root / name
    target.parent.make()
    if root.local:
        source.rename(target.path)
    elif source.is_dir():
        fs.copy_files(str(source), target.path, destination_filesystem=target.filesystem)
    else:
        with target.filesystem.open_output_stream(target.path) as stream:
            stream.write(source.read_bytes())


def _roll_back(root: Location) -> None:
    """Remove the files that a killed or failed import has moved. Raises `OSError`.

    A file whose size differs from the journal's stays, because another program has changed it.
    """
    journal = root / _JOURNAL
    if not journal.exists():
        return
    with journal.filesystem.open_input_stream(journal.path) as stream:
        text = stream.read()
    files: dict[str, int] = {}
    with suppress(ValueError):  # killed while it wrote the journal: no file was moved
        files = json.loads(text)
    for name, size in files.items():
        placed = root / name
        if placed.size() == size:
            placed.remove()
    for hour in {(root / name).parent for name in files}:
        _prune(hour)
    journal.remove()


def _prune(folder: Location) -> None:
    """Remove `folder` and its parents as long as they are empty."""
    for _ in range(_LEVELS):
        if not folder.exists() or folder.files() or folder.folders():
            return
        folder.filesystem.delete_dir(folder.path)
        folder = folder.parent
