"""Writes and reads the files of a history. A file is either complete or absent.

A cycle's file is named after its evaluation time, an hour's file after the hour whose files were merged into it. All
times are UTC. Every file has the version of its columns. An hour's file lists what was merged into it.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.location import Location
from trimtab_pipeline.prometheus.response_limits import json_of

HOUR = 3600.0
"""Seconds that an hour's file spans."""
VERSION_KEY = b"trimtab.schema"
"""Metadata of every file: name and version of its columns, e.g. ``demand/1``."""
CYCLES_KEY = b"trimtab.cycles"
"""Metadata of an hour's file with a row group per cycle: JSON list of their evaluation times (epoch s)."""
FILES_KEY = b"trimtab.files"
"""Metadata of an hour's file of any other table: JSON list of the names of the files that were merged into it."""
AT = pa.field("at", pa.timestamp("ms", "UTC"))
"""First column of every file: the evaluation time of the row's cycle."""

_CYCLE_NAME = "%Y%m%dT%H%M%S.%fZ"
_HOUR_NAME = "%Y%m%dT%HZ"
_WRITER_NAME = re.compile(r"(?P<time>[0-9T.]+Z)(?:-(?P<writer>[a-z]+))?")
_DICTIONARY_PAGE = 2**22  # bytes, so that a column of many pods or topics keeps its dictionary


State: TypeAlias = str | pa.Table
"""The bundles that a cycle continues from: the path or URI of a file that Spark can read, or the rows themselves."""


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """A table of the history.

    columns:  all but the evaluation time; `version` changes when they or their meaning change.
    by_cycle: whether an hour's file has a row group per cycle. Otherwise a row group may have rows of several cycles.
    plain:    encoding of the columns that a dictionary would not make smaller.
    codec:    compression: zstd for the history, snappy for the state, which the next cycle reads.
    """

    name: str
    columns: pa.Schema
    version: int = 1
    by_cycle: bool = False
    plain: Mapping[str, str] | None = None
    codec: str = "zstd"

    @property
    def schema(self) -> pa.Schema:
        """The schema of its files: `AT`, then `columns`, marked with the version."""
        return pa.schema([AT, *self.columns], {VERSION_KEY: f"{self.name}/{self.version}".encode()})


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A file of a history.

    begin, end: epoch seconds. For a cycle, both are its evaluation time. For an hour, `end` is the next hour's `begin`.
    writer:     who wrote it, if a table has several writers; else empty.
    """

    begin: float
    end: float
    place: Location
    bytes: int = 0
    writer: str = ""

    @property
    def merged(self) -> bool:
        """Whether it holds an hour's cycles."""
        return self.end > self.begin

    @property
    def hour(self) -> float:
        """Beginning of its hour, epoch seconds."""
        return hour_of(self.begin)

    @property
    def order(self) -> tuple[float, float, str]:
        """Sort key: files by time."""
        return self.begin, self.end, self.place.path


def hour_of(at: float) -> float:
    """Beginning of the hour of `at`, epoch seconds."""
    return at // HOUR * HOUR


def cycle_name(at: float, writer: str = "") -> str:
    """Name of the file of the cycle at `at` (epoch s, to the millisecond)."""
    stem = datetime.fromtimestamp(at, UTC).strftime(_CYCLE_NAME)
    return f"{stem}-{writer}.parquet" if writer else f"{stem}.parquet"


def hour_name(at: float) -> str:
    """Name of the file of the hour that contains `at` (epoch s)."""
    return f"{datetime.fromtimestamp(hour_of(at), UTC).strftime(_HOUR_NAME)}.parquet"


def parsed(place: Location, size: int = 0) -> HistoryFile | None:
    """The history's file at `place`, as its name describes it; None for any other name."""
    stem, _, suffix = place.name.rpartition(".")
    found = _WRITER_NAME.fullmatch(stem)
    if suffix != "parquet" or found is None:
        return None
    for form, span in ((_CYCLE_NAME, 0.0), (_HOUR_NAME, HOUR)):
        try:
            time = datetime.strptime(found["time"], form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if time.strftime(form) == found["time"]:
            return HistoryFile(time.timestamp(), time.timestamp() + span, place, size, found["writer"] or "")
    return None


def listed(folder: Location, *, recursive: bool = False) -> list[HistoryFile]:
    """The history's files in `folder`, oldest first, without other files; none if the folder does not exist."""
    found = (parsed(place, size) for place, size in folder.files(recursive=recursive).items())
    return sorted((file for file in found if file), key=lambda file: file.order)


def stamped(rows: pa.Table, at: float, schema: pa.Schema) -> pa.Table:
    """`rows` of the cycle at `at` with the columns of `schema`; other columns are dropped."""
    time = pa.repeat(pa.scalar(round(at * 1000), AT.type), len(rows))
    return rows.select(schema.names[1:]).add_column(0, AT, time).cast(schema)


Sources = Callable[[], Sequence[float] | Sequence[str]]


def put(place: Location, table: HistoryTable, groups: Iterable[pa.Table], sources: Sources | None = None) -> None:
    """Write a file with a row group for each of `groups`. The file is then either complete or absent.

    sources: called at the end; returns what was merged into an hour's file. On a local disk such a file is also synced,
    because the files that it replaces are then removed. Raises `OSError`; then `place` is unchanged and there is no
    temporary file.
    """
    if place.renames:
        _put_aside(place, table, groups, sources)
    else:
        sink = pa.BufferOutputStream()  # an object store would keep a partly written file
        _write(sink, table, groups, sources)
        with place.filesystem.open_output_stream(place.path) as stream:
            stream.write(sink.getvalue())


def _put_aside(place: Location, table: HistoryTable, groups: Iterable[pa.Table], sources: Sources | None) -> None:
    """See `put`. An hour's temporary file has a unique name: an operator and a person may merge the same hour."""
    mark = "" if sources is None else f".{secrets.token_hex(4)}"
    aside = place.parent / f"_{place.name}{mark}.tmp"  # other tools skip such names
    place.parent.make()
    try:
        with aside.filesystem.open_output_stream(aside.path) as stream:
            _write(stream, table, groups, sources)
        if place.local and sources is not None:
            _force(aside.path)
        aside.move(place)
        if place.local and sources is not None:
            _force(place.parent.path)
    except BaseException:
        with suppress(OSError):
            aside.remove()  # it takes space on a full disk
        raise


def _write(sink: Any, table: HistoryTable, groups: Iterable[pa.Table], sources: Sources | None) -> None:
    plain = dict(table.plain or {})
    with pq.ParquetWriter(
        sink,
        table.schema,
        compression=table.codec,
        use_dictionary=[name for name in table.schema.names if name not in plain],
        column_encoding=plain or None,
        dictionary_pagesize_limit=_DICTIONARY_PAGE,
    ) as writer:
        for rows in groups:
            writer.write_table(rows, row_group_size=max(1, len(rows)))
        if sources is not None:
            key = CYCLES_KEY if table.by_cycle else FILES_KEY
            writer.add_key_value_metadata({key: json.dumps(list(sources()))})


def _force(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def opened(place: Location, schema: pa.Schema) -> pq.ParquetFile:
    """The file, if it can be read and has `schema`. Raises `ForeignFileError`; `FileNotFoundError` if it is gone."""
    try:
        file = pq.ParquetFile(place.path, filesystem=place.filesystem)
        about = file.schema_arrow
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: Arrow decodes a column's name itself
        raise ForeignFileError(f"it can't be read ({error})") from error
    wanted, found = schema.metadata[VERSION_KEY], (about.metadata or {}).get(VERSION_KEY, b"(none)")
    if found != wanted:
        version = found[:100].decode(errors="replace")
        raise ForeignFileError(f"it is of version {version}, this program reads {wanted.decode()}")
    if not about.equals(schema, check_metadata=False):
        raise ForeignFileError(f"its columns are not those of {wanted.decode()}")
    return file


def cycle_times(of: HistoryFile, table: HistoryTable) -> list[float]:
    """Times (epoch s) of the cycles in a file of a `by_cycle` table. Raises `ForeignFileError`, `FileNotFoundError`."""
    with opened(of.place, table.schema) as file:
        return cycles_in(file, of)


def merged_from(of: HistoryFile, table: HistoryTable) -> list[str]:
    """Names of the files that an hour's file was merged from. Raises `ForeignFileError`, `FileNotFoundError`."""
    with opened(of.place, table.schema) as file:
        return [str(name) for name in _origin(file, FILES_KEY)]


def cycles_in(file: pq.ParquetFile, of: HistoryFile) -> list[float]:
    """Times (epoch s) of the cycles in an open file, one for each row group. Raises `ForeignFileError`."""
    if not of.merged:
        return [of.begin]
    times = _origin(file, CYCLES_KEY)
    if len(times) != file.num_row_groups:
        raise ForeignFileError(f"it names {len(times)} cycles and holds {file.num_row_groups}")
    return [float(time) for time in times]


def _origin(file: pq.ParquetFile, key: bytes) -> list[Any]:
    kind = float if key == CYCLES_KEY else str
    try:
        return [kind(item) for item in json_of(file.metadata.metadata[key])]
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ForeignFileError("it does not say which cycles it holds") from error


def read_cycle(of: HistoryFile, at: float, table: HistoryTable) -> pa.Table:
    """Rows of the cycle at `at`, one of `cycle_times`. Raises `ForeignFileError`, `FileNotFoundError`."""
    with opened(of.place, table.schema) as file:
        return row_group(file, cycles_in(file, of).index(at), table.schema)


def read_all(of: HistoryFile, table: HistoryTable) -> pa.Table:
    """All rows of a file. Raises `ForeignFileError`, `FileNotFoundError`."""
    with opened(of.place, table.schema) as file:
        groups = [row_group(file, group, table.schema) for group in range(file.num_row_groups)]
    return pa.concat_tables([table.schema.empty_table(), *groups])


def damage(of: HistoryFile, table: HistoryTable, *, whole: bool) -> str:
    """Why a file can't be read; empty if it can, or is gone. whole: read all rows, not only the metadata."""
    try:
        if table.by_cycle:
            cycle_times(of, table)
        if whole:
            read_all(of, table)
        else:
            opened(of.place, table.schema).close()
    except ForeignFileError as error:
        return str(error)
    except FileNotFoundError:
        pass
    return ""


def between(rows: pa.Table, begin: float, end: float) -> pa.Table:
    """The rows of the cycles from `begin` to `end` (epoch s, may be infinite)."""
    if math.isfinite(begin):
        rows = rows.filter(pc.greater_equal(rows["at"], pa.scalar(round(max(begin, 0) * 1000), AT.type)))
    if math.isfinite(end):
        rows = rows.filter(pc.less_equal(rows["at"], pa.scalar(round(max(end, 0) * 1000), AT.type)))
    return rows


def row_group(file: pq.ParquetFile, group: int, schema: pa.Schema) -> pa.Table:
    """The columns `schema` of a row group of an open file. Raises `ForeignFileError`."""
    return row_groups(file, [group], schema) if file.num_row_groups else schema.empty_table()


def row_groups(file: pq.ParquetFile, groups: Sequence[int], schema: pa.Schema) -> pa.Table:
    """The columns `schema` of some row groups of an open file, one after the other. Raises `ForeignFileError`."""
    try:
        rows = file.read_row_groups(groups, columns=schema.names, use_threads=False).cast(schema)
        rows.validate(full=True)  # Parquet's reader accepts any bytes as text
    except (pa.ArrowException, OSError) as error:
        raise ForeignFileError(f"it can't be read ({error})") from error
    return rows


def read_state(state: State, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a state. Raises `OSError` or `pyarrow.ArrowException` when its file can't be read."""
    wanted = None if columns is None else list(columns)
    if isinstance(state, pa.Table):
        return state if wanted is None else state.select(wanted)
    place = Location.of(state)
    with pq.ParquetFile(place.path, filesystem=place.filesystem) as file:
        return file.read(columns=wanted, use_threads=False)
