"""Reads row groups of a table's files: one after the other, as a replay of the history does, or sorted by time.

Names of bundles and pods, and numbers of topics, rarely change from one cycle to the next. While such a column stays
equal, all cycles share one array. So what was derived from it can be kept.

Stored bytes could be compared without decoding them. But that needs PyArrow's metadata of columns, and PyArrow ends the
process when it reads damaged metadata.

Rows of several files are sorted by time in parts, because an hour of topics would not fit in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab_pipeline.history.files import AT, HistoryFile, HistoryTable, opened, row_group, row_groups
from trimtab_pipeline.history.location import Location

_TOGETHER = 2**15
"""Maximum number of rows that are read together. A single row group may have more."""

_GROUP = 2**17
"""Minimum number of rows of a table of `in_order`, about 20 MB of topics in memory. The last table may have fewer."""


class RowGroupReader:
    """Reads the row groups of files of `table`. steady: columns that rarely differ from those of the group before."""

    def __init__(self, table: HistoryTable, steady: Sequence[str]) -> None:
        self._table, self._steady = table, tuple(steady)
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._file: pq.ParquetFile

    @contextmanager
    def opened(self, place: Location) -> Iterator[pq.ParquetFile]:
        """The file whose row groups are read next. Raises `ForeignFileError`; `FileNotFoundError` if it is gone."""
        with opened(place, self._table.schema) as file:
            self._file = file
            yield file

    def read(self, groups: Sequence[int]) -> Iterator[pa.Table]:
        """Row groups of the open file, without the column of the evaluation time. Raises `ForeignFileError`.

        Small ones are read together, because each read has a fixed cost, as high as that of thousands of rows.
        """
        if not self._file.num_row_groups:
            yield from (self._table.columns.empty_table() for _ in groups)
            return
        rows = [self._file.metadata.row_group(group).num_rows for group in groups]
        together = max(1, _TOGETHER // max(1, *rows))
        for first in range(0, len(groups), together):
            part = slice(first, first + together)
            yield from self._read(groups[part], rows[part])

    def _read(self, groups: Sequence[int], rows: Sequence[int]) -> Iterator[pa.Table]:
        """Row groups. rows: the number of rows of each."""
        table = row_groups(self._file, groups, self._table.columns)
        for begin, count in zip(accumulate(rows[:-1], initial=0), rows, strict=True):
            yield self._shared(table.slice(begin, count))

    def _shared(self, group: pa.Table) -> pa.Table:
        """A row group, with the columns of earlier ones where they are equal."""
        for name in self._steady:
            if name not in self._columns or not group[name].equals(self._columns[name]):
                self._columns[name] = group[name]
        values = [self._columns[name] if name in self._steady else group[name] for name in group.column_names]
        return pa.table(values, schema=group.schema)


class TimedGroup(NamedTuple):
    """A row group of a file, with rows from `begin` to `end` (epoch ms)."""

    begin: float
    end: float
    file: HistoryFile
    group: int

    def read(self, table: HistoryTable) -> pa.Table:
        """Its rows. Raises `ForeignFileError`, `FileNotFoundError`."""
        with opened(self.file.place, table.schema) as file:
            return row_group(file, self.group, table.schema)


def parts_of(of: HistoryFile, table: HistoryTable) -> list[TimedGroup]:
    """The row groups of a file that have rows. Raises `ForeignFileError`, `FileNotFoundError`."""
    with opened(of.place, table.schema) as file:
        times = [row_group(file, group, pa.schema([AT]))["at"].cast(pa.int64()) for group in range(file.num_row_groups)]
    spans = {group: pc.min_max(at).as_py() for group, at in enumerate(times) if len(at)}
    return [TimedGroup(span["min"], span["max"], of, group) for group, span in spans.items()]


def in_order(parts: Iterable[TimedGroup], read: Callable[[TimedGroup], pa.Table | None]) -> Iterator[pa.Table]:
    """The rows of `parts`, sorted by time, in tables of `_GROUP` rows or more, except the last.

    Rows of the same time keep their order. read: returns the rows of a part, or None if there are none. Parts whose
    times overlap are in one table.
    """
    held, end = list[pa.Table](), -math.inf
    for part in sorted(parts, key=lambda part: part.begin):
        if held and part.begin > end and sum(map(len, held)) >= _GROUP:
            yield pa.concat_tables(held).sort_by("at")
            held = []
        if (rows := read(part)) is not None:
            held, end = [*held, rows], max(end, part.end)
    if held:
        yield pa.concat_tables(held).sort_by("at")
