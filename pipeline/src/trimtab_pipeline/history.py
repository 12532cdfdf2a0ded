"""One Parquet file per table and cycle, named by the cycle's evaluation time. The newest one *is* the state.

A file is complete or absent (written aside, then renamed), carries the version of its schema, and is never changed.
Whatever else is found under a history's name is set aside as ``*.bad`` with a warning and never read again: a state
that can't be read costs the averages' past, not the cycle.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_LOGGER = logging.getLogger(__name__)
_VERSION_KEY = b"trimtab.schema"
_REPEATING = {"pod", "topics", "sessions", "seen"}  # a dictionary of the others takes three times the time to write
_NAME = "%Y%m%dT%H%M%S.%fZ"


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history stays: at most `files` files per table, none older than `seconds`; always the newest one."""

    files: int = 120
    seconds: float = 7200.0


TWO_HOURS = Retention()
"""Two hours of cycles a minute apart."""


class History:
    """The files of one table of one policy.

    folder:  where they lie; made when the state is first asked for. What can't be read or written raises `OSError`.
    schema:  what every file holds; `version` names it and changes with its meaning.
    """

    def __init__(self, folder: Path, schema: pa.Schema, version: str, retention: Retention = TWO_HOURS) -> None:
        self.folder = folder
        self.schema = schema.with_metadata({_VERSION_KEY: version.encode()})
        self._retention = retention
        self._ours: set[Path] = set()
        self._prepared = False

    @property
    def ddl(self) -> str:
        """The schema as Spark's SQL writes it; with it Spark need not open a file to plan."""
        words = {pa.string(): "string", pa.float64(): "double"}
        return ", ".join(f"{column.name} {words[column.type]}" for column in self.schema)

    def state(self, at: float, horizon: float) -> Path:
        """The newest readable file older than `at` by at most `horizon` seconds; an empty one when there is none."""
        self._prepare()
        for path in reversed(self.files()):
            time = _time(path)
            if time >= at:
                continue
            if time < at - horizon:
                break
            if self._readable(path):
                return path
        return self._empty()

    def write(self, rows: pa.Table, at: float) -> Path:
        """Keep `rows` as the state at `at` (epoch seconds, to the millisecond), and let go of what is too old."""
        path = self.folder / f"{_stem(at)}.parquet"
        self._put(rows, path)
        self._ours.add(path)
        self._retire(at, newest=path)
        return path

    def doubt(self) -> None:
        """Check the files again before the next one is used: something went wrong with what was read."""
        self._ours.clear()

    def files(self) -> list[Path]:
        """Files of the history, oldest first."""
        return [path for path in sorted(self.folder.glob("*.parquet")) if self._named(path)]

    def set_aside(self, path: Path, why: str) -> None:
        """Rename a file that can't be used, so that it is never read again but can be looked at."""
        bad = path.with_suffix(".bad")
        path.replace(bad)
        self._ours.discard(path)
        _LOGGER.warning("history file %s is set aside as %s: %s", path, bad.name, why)

    def _prepare(self) -> None:
        """Make the folder, and remove what a crash left half written; once."""
        if self._prepared:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for found in list(self.folder.iterdir()):  # a search by pattern takes a folder it can't read for an empty one
            if found.suffix == ".tmp":
                found.unlink()
        self._prepared = True

    def _named(self, path: Path) -> bool:
        try:
            _time(path)
        except ValueError:
            self.set_aside(path, "its name is no evaluation time")
            return False
        return True

    def _readable(self, path: Path) -> bool:
        if path in self._ours:
            return True
        try:
            schema = pq.read_table(path).schema
        except (pa.ArrowException, OSError) as error:
            self.set_aside(path, f"it can't be read ({error})")
            return False
        if not schema.equals(self.schema, check_metadata=False):
            self.set_aside(path, f"its columns are not those of {self.schema.metadata[_VERSION_KEY].decode()}")
            return False
        found = (schema.metadata or {}).get(_VERSION_KEY, b"(none)")
        if found != self.schema.metadata[_VERSION_KEY]:
            self.set_aside(path, f"it is of version {found.decode(errors='replace')}, this program writes another")
            return False
        self._ours.add(path)
        return True

    def _empty(self) -> Path:
        """A state without rows, so that the first cycle runs the same statement as the others."""
        path = self.folder / "empty.state"
        if not path.exists():
            self._put(self.schema.empty_table(), path)
        return path

    def _put(self, rows: pa.Table, path: Path) -> None:
        aside = path.with_name(path.name + ".tmp")
        table = rows.select(self.schema.names).cast(self.schema)
        repeating = [name for name in self.schema.names if name in _REPEATING]
        try:
            pq.write_table(table, aside, compression="zstd", use_dictionary=repeating)
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)  # half a file takes room on a disk that is full
            raise

    def _retire(self, at: float, newest: Path) -> None:
        """Let go of old files. Those of the future (a clock was ahead) count apart: they would push out all others."""
        files = self.files()
        past = [path for path in files if _time(path) <= at]
        count = max(1, self._retention.files)
        keep = {newest, *past[-count:], *files[len(past) :][-count:]}
        for path in files:
            if path not in keep or (_time(path) < at - self._retention.seconds and path != newest):
                path.unlink(missing_ok=True)
                self._ours.discard(path)


def _stem(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(_NAME)


def _time(path: Path) -> float:
    return datetime.strptime(path.stem, _NAME).replace(tzinfo=UTC).timestamp()
