"""One Parquet file per table and cycle, named by the cycle's evaluation time. The newest one *is* the state.

A file is complete or absent (written aside, then renamed), carries the version of its schema, and is never changed.
Any other file under a history's name is renamed to ``_*.bad`` with a warning and never read again (other tools skip
such names too): an unreadable state costs past averages, not the cycle. State that can't be written can be held in
memory until a newer file exists: a volume that is full or gone costs files, not averages.
`history.housekeeping` merges and removes old files, but never the state, so a cycle opens one file of each
table.
"""

from __future__ import annotations

import logging
from pathlib import Path
from threading import RLock

import pyarrow as pa

from trimtab_pipeline.history.files import (
    ForeignFileError,
    HistoryFile,
    State,
    cycle_file,
    in_memory,
    listed,
    parsed,
    pinned,
    put,
    read_cycles,
    stamped,
)

_LOGGER = logging.getLogger(__name__)


class History:
    """The files of one table of one policy.

    folder:  their folder; created when it is missing. A folder that can't be read or written raises `OSError`.
    columns: columns of every file besides the evaluation time; `version` names them and changes with their meaning.
    """

    def __init__(self, folder: Path, columns: pa.Schema, version: str) -> None:
        self.folder = folder
        self.schema = pinned(columns, version)
        self._known: Path | None = None  # the last file that was written, or read as a whole
        self._held: tuple[float, bytes] | None = None  # evaluation time and file of a state that could not be written
        self._cleaned = False
        self._lock = RLock()  # a broker refresh reads the state beside a cycle

    def state(self, at: float, horizon: float) -> State:
        """The newest state older than `at` by at most `horizon` seconds; an empty one when there is none."""
        with self._lock:
            if self._held is not None and at - horizon <= self._held[0] < at:
                return self._held[1]
            try:
                self._prepare()
            except OSError:  # `write` tells it
                return self._nothing()
            for file in reversed(self.cycles()):
                if file.begin >= at:
                    continue
                if file.begin < at - horizon:
                    break
                if self._readable(file):
                    return file.path
            return self._empty()

    def write(self, rows: pa.Table, at: float) -> Path:
        """Keep `rows` as the state at `at` (epoch seconds, to the millisecond)."""
        path = cycle_file(self.folder, at).path
        with self._lock:
            self._prepare()
            put(path, self.schema, [stamped(rows, at, self.schema)], times=None)
            self._known, self._held = path, None
        return path

    def hold(self, rows: pa.Table, at: float) -> None:
        """Keep `rows` in memory as the state at `at` (epoch seconds), until `write` succeeds."""
        with self._lock:
            self._held = at, in_memory(self.schema, stamped(rows, at, self.schema))

    def doubt(self) -> None:
        """Check the files again before the next use: reading them failed."""
        self._known = None

    def cycles(self) -> list[HistoryFile]:
        """Files of one cycle each, oldest first."""
        return [file for file in listed(self.folder) if not file.merged]

    def set_aside(self, path: Path, why: str) -> None:
        """Rename an unusable file, so it is never read again but stays available for inspection."""
        bad = path.with_name(f"_{path.stem}.bad")
        path.replace(bad)
        _LOGGER.warning("history file %s is set aside as %s: %s", path, bad.name, why)

    def _prepare(self) -> None:
        """Create the folder; the first time, remove partly written files, and rename files of others."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._cleaned:
            return
        for found in list(self.folder.iterdir()):  # a search by pattern treats an unreadable folder as empty
            if found.suffix == ".tmp":
                found.unlink()
            elif found.suffix == ".parquet" and parsed(found) is None:
                self.set_aside(found, "its name is not an evaluation time")
        self._cleaned = True

    def _readable(self, file: HistoryFile) -> bool:
        """Whether the whole file can be read; tested once per file, as it costs as much as Spark's reading."""
        if file.path == self._known:
            return True
        try:
            for _ in read_cycles(file, self.schema):
                pass
        except ForeignFileError as error:
            self.set_aside(file.path, str(error))
            return False
        self._known = file.path
        return True

    def _empty(self) -> State:
        """A state without rows, so the first cycle runs the same code as the others."""
        path = self.folder / "empty.state"
        if not path.exists():
            try:
                put(path, self.schema, [self.schema.empty_table()], times=None)
            except OSError:
                return self._nothing()
        return path

    def _nothing(self) -> bytes:
        return in_memory(self.schema, self.schema.empty_table())
