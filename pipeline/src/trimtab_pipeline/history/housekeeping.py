"""Housekeeping of a policy's history: merge the files of each hour, and remove what is too old or takes too much space.

It runs in its own thread, alongside the cycles. It touches no file that a cycle reads, because an hour is merged some
time after its end. It may be killed at any point: an hour's file is complete before the files that it replaces are
removed. If replaced files still exist, the next run merges the hour again. Two processes may merge the same hour. If
one of them finds a file missing, it leaves the hour to the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from trimtab_pipeline.api import Retention
from trimtab_pipeline.history.dataset import BASE, TABLES, HistoryDataset, PolicyDataset
from trimtab_pipeline.history.files import (
    HOUR,
    HistoryFile,
    HistoryTable,
    cycle_times,
    hour_of,
    merged_from,
    put,
    read_cycle,
)
from trimtab_pipeline.history.location import Location, Place
from trimtab_pipeline.history.row_groups import TimedGroup, in_order, parts_of
from trimtab_pipeline.history.state import usable

Stopping = Callable[[], bool]


class _Stopped(Exception):  # noqa: N818  (no error: the program closes)
    """Housekeeping was asked to stop in the middle of an hour."""


def never() -> bool:
    """Never stop."""
    return False


class Housekeeping:
    """Merges and removes the files of a policy's history by `retention`."""

    def __init__(self, history: PolicyDataset, retention: Retention) -> None:
        self._history, self._retention = history, retention
        self._cleaned = False

    def tidy(self, at: float, stopping: Stopping = never) -> None:
        """Do the work due at `at` (epoch s, of the newest cycle). Once `stopping` is true, abandon a merge and return.

        Raises `OSError` when the disk can't be written. No cycle is lost then, and the next call continues. Old files
        are removed even after a failure, because a full volume has no space for an hour's file.
        """
        try:
            self.compact(at, stopping)
        except _Stopped:
            return
        except Exception:
            self._retire(at)
            raise
        self._retire(at)

    def compact(self, at: float, stopping: Stopping = never) -> int:
        """Merge each hour that ended at least `merge_after` seconds before `at`. Returns the number of files written.

        Raises `OSError`.
        """
        if not self._cleaned:
            self._remove_halves(at)
            self._cleaned = True
        written = 0
        for table in TABLES.values():
            due = [file for file in self._history.files(table) if file.hour + HOUR <= at - self._retention.merge_after]
            for hour, found in itertools.groupby(due, key=lambda file: file.hour):
                files = list(found)
                if any(not file.merged for file in files):
                    written += _merge(self._history, table, hour, files, stopping)
        return written

    def _remove_halves(self, at: float) -> None:
        """Remove partly written files of past hours. In the current hour, a cycle may be writing such a file."""
        for table in TABLES.values():
            current = self._history.hour(table, at)
            for place in self._history.folder(table).files(recursive=True):
                if place.name.endswith(".tmp") and place.parent != current:
                    place.remove()

    def _retire(self, at: float) -> None:
        """Remove what is too old. While the history is too large, also remove files from the future, then the oldest.

        Files are from the future if a clock was ahead. The tables `BASE` of an hour are removed after its other tables.
        """
        files = [(table.name in BASE, file) for table, file in self._history.all_files()]
        oldest = at - self._retention.seconds - HOUR
        old = [file for _, file in files if file.hour < oldest]
        future = sorted(
            ((base, file) for base, file in files if file.begin > at), key=lambda one: (-one[1].hour, one[0])
        )
        rest = sorted(
            ((base, file) for base, file in files if file.begin <= at and file.hour >= oldest),
            key=lambda one: (one[1].hour, one[0], one[1].order),
        )
        removed = list(old)
        total = sum(file.bytes for _, file in files) - sum(file.bytes for file in old)
        for base, file in [*future, *rest]:
            if total <= self._retention.bytes:
                break
            if base and file.hour == hour_of(at):
                continue
            total -= file.bytes
            removed.append(file)
        for file in removed:
            file.place.remove()
        gone = {file.place for file in removed}
        used = {file.place.parent for _, file in files if file.place not in gone or file.hour == hour_of(at)}
        for hour in {file.place.parent for file in removed} - used:
            _clear(hour)


def compact(root: Place, policy: str, at: float) -> int:
    """Merge the hours of `policy` (``namespace/name``) below `root` that are over at `at` (epoch s).

    Returns the number of files written. An operator may be running. Raises `OSError`, `ValueError`.
    """
    return Housekeeping(HistoryDataset(root).of(policy), Retention(merge_after=0.0)).compact(at)


def _clear(hour: Location) -> None:
    """Remove the folder of an hour with what is left in it, and the folder of its day if that is then empty."""
    for place in hour.files():
        place.remove()
    for folder in (hour, hour.parent):
        if not folder.files() and not folder.folders():
            folder.filesystem.delete_dir(folder.path)


def _merge(
    history: PolicyDataset, table: HistoryTable, hour: float, files: Sequence[HistoryFile], stopping: Stopping
) -> int:
    """Merge the hour's `files` into one, then remove them. Returns 1, or 0 if another process merged them meanwhile."""
    target = history.hour_file(table, hour)
    cycles: list[float] = []
    names: list[str] = []
    try:
        if table.by_cycle:
            put(target, table, _by_cycle(table, files, cycles, stopping), lambda: cycles)
        else:
            put(target, table, _in_order(table, files, names, stopping), lambda: names)
    except FileNotFoundError:
        return 0
    for file in files:
        if not file.merged:
            file.place.remove()
    return 1


def _by_cycle(
    table: HistoryTable, files: Sequence[HistoryFile], written: list[float], stopping: Stopping
) -> Iterator[pa.Table]:
    """Rows of each cycle, oldest first. Adds its time to `written`; sets an unreadable file aside."""
    for time, file in sorted(_sources(table, files).items(), key=lambda source: source[0]):
        if stopping():
            raise _Stopped
        rows = usable(file, partial(read_cycle, file, time, table))
        if rows is not None:
            written.append(time)
            yield rows


def _sources(table: HistoryTable, files: Sequence[HistoryFile]) -> Mapping[float, HistoryFile]:
    """The file to read each cycle from. A cycle's own file is newer than its copy in the hour's file."""
    sources: dict[float, HistoryFile] = {}
    for file in sorted(files, key=lambda file: not file.merged):
        sources |= dict.fromkeys(usable(file, partial(cycle_times, file, table)) or (), file)
    return sources


def _in_order(
    table: HistoryTable, files: Sequence[HistoryFile], written: list[str], stopping: Stopping
) -> Iterator[pa.Table]:
    """All rows, sorted by time. Adds the names of the files to `written`; sets an unreadable file aside."""

    def read(part: TimedGroup) -> pa.Table | None:
        if stopping():
            raise _Stopped
        return usable(part.file, partial(part.read, table))

    yield from in_order(list(_parts(table, files, written)), read)


def _parts(table: HistoryTable, files: Sequence[HistoryFile], written: list[str]) -> Iterator[TimedGroup]:
    """The parts of `files`, file after file. See `_in_order`."""
    for file in sorted(files, key=lambda file: (not file.merged, file.order)):
        if file.place.name in written:
            continue  # the hour's file has the rows of this one, whose removal was interrupted
        parts = usable(file, partial(parts_of, file, table))
        if parts is not None:
            written += merged_from(file, table) if file.merged else [file.place.name]
            yield from parts
