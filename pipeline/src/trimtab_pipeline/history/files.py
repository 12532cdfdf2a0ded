"""The files of a history: their names, and how one is written: it is complete or absent, whatever happens.

A cycle's file is named by its evaluation time, an hour's file by the hour whose cycles were merged into it. All times
are UTC. Every file holds one row group per cycle, and an hour's file says which cycles those are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab_pipeline.prometheus.bodies import json_of

HOUR = 3600.0
"""Seconds that an hour's file spans."""
VERSION_KEY = b"trimtab.schema"
"""Metadata of every file: name and version of its schema, e.g. ``bundles/2``."""
CYCLES_KEY = b"trimtab.cycles"
"""Metadata of an hour's file: JSON list of the evaluation times (epoch s) of its row groups."""
AT = pa.field("at", pa.timestamp("ms", "UTC"))
"""First column of every file: the evaluation time of the row's cycle."""

_CYCLE_NAME = "%Y%m%dT%H%M%S.%fZ"
_HOUR_NAME = "%Y%m%dT%HZ"
_REPEATING = {
    "at",
    "pod",
    "topics",
    "sessions",
    "seen",
    "time",
    "count",
}  # others take three times as long with a dictionary

State = Path | bytes
"""The state that a cycle continues from: a file, or the content of one that could not be written."""


class ForeignFileError(ValueError):
    """A file that is unreadable or not part of this history. The message says what was expected and found."""


@dataclass(frozen=True, slots=True, order=True)
class HistoryFile:
    """A file of a history, ordered by time.

    begin, end: epoch seconds; of a cycle both are its evaluation time, an hour's `end` is the next hour's `begin`.
    """

    begin: float
    end: float
    path: Path

    @property
    def merged(self) -> bool:
        """Whether it holds an hour's cycles."""
        return self.end > self.begin


def cycle_file(folder: Path, at: float) -> HistoryFile:
    """The file of the cycle at `at` (epoch s, to the millisecond)."""
    return HistoryFile(at, at, folder / f"{datetime.fromtimestamp(at, UTC).strftime(_CYCLE_NAME)}.parquet")


def hour_file(folder: Path, at: float) -> HistoryFile:
    """The file of the hour that contains `at` (epoch s)."""
    begin = at // HOUR * HOUR
    return HistoryFile(
        begin, begin + HOUR, folder / f"{datetime.fromtimestamp(begin, UTC).strftime(_HOUR_NAME)}.parquet"
    )


def parsed(path: Path) -> HistoryFile | None:
    """The file that the name of `path` stands for; None for any other name."""
    for form, span in ((_CYCLE_NAME, 0.0), (_HOUR_NAME, HOUR)):
        try:
            time = datetime.strptime(path.stem, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if path.suffix == ".parquet" and time.strftime(form) == path.stem:
            return HistoryFile(time.timestamp(), time.timestamp() + span, path)
    return None


def listed(folder: Path) -> list[HistoryFile]:
    """The history's files in `folder`, oldest first; other files are skipped, a missing folder has none."""
    found = (parsed(path) for path in folder.iterdir()) if folder.is_dir() else iter(())
    return sorted(file for file in found if file)


def pinned(columns: pa.Schema, version: str) -> pa.Schema:
    """The schema of a history's files: `AT`, then `columns`, marked with `version`."""
    return pa.schema([AT, *columns], {VERSION_KEY: version.encode()})


def stamped(rows: pa.Table, at: float, schema: pa.Schema) -> pa.Table:
    """`rows` (columns in any order, others are dropped) of the cycle at `at`, in `schema`."""
    time = pa.repeat(pa.scalar(round(at * 1000), AT.type), len(rows))
    return rows.select(schema.names[1:]).add_column(0, AT, time).cast(schema)


def opened(path: Path, schema: pa.Schema) -> pq.ParquetFile:
    """The file, if it can be read and is of `schema`. Raises `ForeignFileError`; `FileNotFoundError` if it is gone."""
    try:
        file = pq.ParquetFile(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise ForeignFileError(f"it can't be read ({error})") from error
    wanted, found = schema.metadata[VERSION_KEY], (file.schema_arrow.metadata or {}).get(VERSION_KEY, b"(none)")
    if found != wanted:
        version = found.decode(errors="replace")
        raise ForeignFileError(f"it is of version {version}, this program reads {wanted.decode()}")
    if not file.schema_arrow.equals(schema, check_metadata=False):
        raise ForeignFileError(f"its columns are not those of {wanted.decode()}")
    return file


def cycles_in(file: pq.ParquetFile, of: HistoryFile) -> list[float]:
    """Evaluation times (epoch s) of the row groups of `file`. Raises `ForeignFileError` when it lacks them."""
    if not of.merged:
        return [of.begin]
    try:
        times = [float(time) for time in json_of(file.metadata.metadata[CYCLES_KEY])]
    except (KeyError, TypeError, ValueError) as error:
        raise ForeignFileError("it does not say which cycles it holds") from error
    if len(times) != file.num_row_groups:
        raise ForeignFileError(f"it names {len(times)} cycles and holds {file.num_row_groups}")
    return times


def put(path: Path, schema: pa.Schema, cycles: Iterable[pa.Table], times: Callable[[], Sequence[float]] | None) -> None:
    """Write a file with a row group per cycle under a temporary name, then rename it.

    times: called at the end; the times that an hour's file records. Such a file is also forced to the disk, since the
    files that it replaces are then removed. Raises `OSError`, which leaves `path` unchanged and no temporary file.
    """
    aside = path.with_name(f"_{path.name}.tmp")  # other tools skip such names
    repeating = [name for name in schema.names if name in _REPEATING]
    try:
        with pq.ParquetWriter(aside, schema, compression="zstd", use_dictionary=repeating) as writer:
            for table in cycles:
                writer.write_table(table, row_group_size=max(1, len(table)))
            if times is not None:
                writer.add_key_value_metadata({CYCLES_KEY: json.dumps(list(times()))})
        if times is not None:
            _force(aside)
        aside.replace(path)
        if times is not None:
            _force(path.parent)
    except BaseException:
        aside.unlink(missing_ok=True)  # half a file takes space on a full disk
        raise


def in_memory(schema: pa.Schema, rows: pa.Table) -> bytes:
    """The content of the file of a cycle with these rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows.cast(schema), sink, compression="zstd")
    return bytes(sink.getvalue())


def read_state(state: State, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a state. Raises `OSError` or `pyarrow.ArrowException` when its file can't be read."""
    source = pa.BufferReader(state) if isinstance(state, bytes) else state
    return pq.read_table(source, columns=None if columns is None else list(columns), use_threads=False)


def _force(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_cycles(of: HistoryFile, schema: pa.Schema) -> Iterator[tuple[float, pa.Table]]:
    """(evaluation time, rows) of each cycle, one in memory at once. Raises `ForeignFileError`, `FileNotFoundError`."""
    with opened(of.path, schema) as file:
        for group, time in enumerate(cycles_in(file, of)):
            yield time, _group(file, group, schema)


def cycle_times(of: HistoryFile, schema: pa.Schema) -> list[float]:
    """Evaluation times (epoch s) of a file's cycles. Raises `ForeignFileError`, `FileNotFoundError`."""
    with opened(of.path, schema) as file:
        return cycles_in(file, of)


def read_cycle(of: HistoryFile, at: float, schema: pa.Schema) -> pa.Table:
    """Rows of the cycle at `at`, one of `cycle_times`. Raises `ForeignFileError`, `FileNotFoundError`."""
    with opened(of.path, schema) as file:
        return _group(file, cycles_in(file, of).index(at), schema)


def _group(file: pq.ParquetFile, group: int, schema: pa.Schema) -> pa.Table:
    if not file.num_row_groups:
        return schema.empty_table()
    try:
        return file.read_row_group(group).cast(schema)
    except (pa.ArrowException, OSError) as error:
        raise ForeignFileError(f"it can't be read ({error})") from error
