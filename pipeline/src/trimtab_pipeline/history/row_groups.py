"""Reads row groups of a table's files one after the other, as a replay of the history does.

Names of bundles and pods, and numbers of topics, rarely change from one cycle to the next. While such a column stays
equal, all cycles share one array. So what was derived from it can be kept.

Stored bytes could be compared without decoding them. But that needs PyArrow's metadata of columns, and PyArrow ends the
process when it reads damaged metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab_pipeline.history.files import HistoryTable, opened, row_groups
from trimtab_pipeline.history.location import Location

_TOGETHER = 2**15
"""Maximum number of rows that are read together. A single row group may have more."""


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
