"""Housekeeping of a policy's history: merge cycles into hours, and remove what is too old or too large.

It runs beside the cycles, in its own thread, and touches no file that they read: an hour is merged some time after its
end, and the newest cycle is never removed. It may be killed at any point: an hour's file is complete before its cycles'
files are removed, and if those still exist afterwards, the next run merges them again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from trimtab_pipeline.api import Retention
from trimtab_pipeline.history.files import (
    ForeignFileError,
    HistoryFile,
    cycle_times,
    hour_file,
    listed,
    put,
    read_cycle,
)
from trimtab_pipeline.history.store import History

Stopping = Callable[[], bool]


class _Stopped(Exception):  # noqa: N818  (no error: the program closes)
    """Housekeeping was asked to stop in the middle of an hour."""


def never() -> bool:
    """Never stop."""
    return False


class Housekeeping:
    """Merges and removes the files of a policy's `histories` by `retention`."""

    def __init__(self, histories: Sequence[History], retention: Retention) -> None:
        self._histories = histories
        self._retention = retention

    def tidy(self, at: float, stopping: Stopping = never) -> None:
        """Do the work due at `at` (epoch s, of the newest cycle); drop an unfinished hour once `stopping` is true.

        Raises `OSError` when the disk can't be written; no cycle is lost, and the next call continues. Old files are
        removed even then: a full volume has no space for an hour's file.
        """
        try:
            for history in self._histories:
                self._merge_hours(history, at, stopping)
        except _Stopped:
            return
        except OSError:
            self._retire(at)
            raise
        self._retire(at)

    def _merge_hours(self, history: History, at: float, stopping: Stopping) -> None:
        """Merge each hour that ended `merge_after` seconds ago."""
        done = _past(history.cycles(), at)[:-1]
        due = [file for file in done if _end(file) <= at - self._retention.merge_after]
        for _, files in itertools.groupby(due, key=_end):
            _merge(history, list(files), stopping)

    def _retire(self, at: float) -> None:
        """Remove what is too old; then, while the history is too large, files from the future (a clock was ahead), then
        the oldest. Never a table's state.
        """
        states = {file.path for history in self._histories for file in _past(history.cycles(), at)[-1:]}
        files = sorted(file for history in self._histories for file in listed(history.folder))
        removable = [file for file in files if file.path not in states]
        old = [file for file in removable if file.end < at - self._retention.seconds]
        future = [file for file in reversed(removable) if file.begin > at]
        rest = [file for file in removable if file not in old and file not in future]
        for file in old:
            file.path.unlink(missing_ok=True)
        total = sum(_size(file) for file in files)
        for file in [*future, *rest]:
            if total <= self._retention.bytes:
                break
            total -= _size(file)
            file.path.unlink(missing_ok=True)


def _past(files: Sequence[HistoryFile], at: float) -> list[HistoryFile]:
    """The cycles up to `at`, the last of which is the state."""
    return [file for file in files if file.begin <= at]


def _end(file: HistoryFile) -> float:
    return hour_file(file.path.parent, file.begin).end


def _size(file: HistoryFile) -> int:
    try:
        return file.path.stat().st_size
    except FileNotFoundError:  # it was removed in the meantime
        return 0


def _merge(history: History, files: Sequence[HistoryFile], stopping: Stopping) -> None:
    """Write the hour of `files` (cycles) together with its present content, then remove them."""
    hour = hour_file(history.folder, files[0].begin)
    written: list[float] = []
    put(hour.path, history.schema, _cycles(history, _sources(history, hour, files), written, stopping), lambda: written)
    for file in files:
        file.path.unlink(missing_ok=True)


def _sources(history: History, hour: HistoryFile, files: Sequence[HistoryFile]) -> dict[float, HistoryFile]:
    """The file to read each cycle of the hour from. A cycle's own file is newer than its copy in the hour."""
    held: list[float] = []
    if hour.path.exists():
        try:
            held = cycle_times(hour, history.schema)
        except ForeignFileError as error:
            history.set_aside(hour.path, str(error))
    return {**dict.fromkeys(held, hour), **{file.begin: file for file in files}}


def _cycles(
    history: History, sources: Mapping[float, HistoryFile], written: list[float], stopping: Stopping
) -> Iterator[pa.Table]:
    """Rows of each cycle, oldest first. Adds its time to `written`; renames an unreadable file."""
    for time, file in sorted(sources.items()):
        if stopping():
            raise _Stopped
        try:
            rows = read_cycle(file, time, history.schema)
        except ForeignFileError as error:
            if file.path.exists():  # an hour comes once for each of its cycles
                history.set_aside(file.path, str(error))
            continue
        except FileNotFoundError:  # it was just renamed
            continue
        written.append(time)
        yield rows
