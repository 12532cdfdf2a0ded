"""Reads row groups of a table's files one after the other, as a replay of the history does.

Names of bundles and pods, and numbers of topics, rarely change from one cycle to the next. So the stored bytes of these
columns are compared. A column whose bytes are the same is not decoded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.files import HistoryTable, opened
from trimtab_pipeline.history.location import Location

_TOGETHER = 2**15
"""Maximum number of rows that are read together. A single row group may have more."""

_Stored = tuple[int, bytes]
"""A column chunk: its size without compression, and its bytes, which include its encoding.

Trimtab compresses all files in the same way, so the kind of compression is not needed. To ask PyArrow for it would end
the process if a damaged file names an unknown kind.
"""


class RowGroupReader:
    """Reads the row groups of files of `table`. steady: columns that rarely differ from those of the group before."""

    def __init__(self, table: HistoryTable, steady: Sequence[str]) -> None:
        self._table, self._steady = table, tuple(steady)
        self._others = tuple(name for name in table.columns.names if name not in steady)
        self._places = {name: table.schema.get_field_index(name) for name in steady}
        self._stored: dict[str, _Stored] = {}
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._file: pq.ParquetFile
        self._source: pa.NativeFile

    @contextmanager
    def opened(self, place: Location) -> Iterator[pq.ParquetFile]:
        """The file whose row groups are read next. Raises `ForeignFileError`; `FileNotFoundError` if it is gone."""
        with opened(place, self._table.schema) as file:
            try:
                source = place.filesystem.open_input_file(place.path)
            except FileNotFoundError:
                raise
            except (pa.ArrowException, OSError) as error:
                raise ForeignFileError(f"it can't be read ({error})") from error
            with source:
                self._file, self._source = file, source
                yield file

    def read(self, groups: Sequence[int]) -> Iterator[pa.Table]:
        """Row groups of the open file, without the evaluation time. Raises `ForeignFileError`.

        Small ones are read together, because each read has a fixed cost, as high as that of thousands of rows.
        """
        if not self._file.num_row_groups:
            yield from (self._table.columns.empty_table() for _ in groups)
            return
        about = [self._file.metadata.row_group(group) for group in groups]
        if any(group.num_columns != len(self._table.schema) for group in about):  # PyArrow would end the process
            raise ForeignFileError("it can't be read (a row group lacks columns)")
        rows = [group.num_rows for group in about]
        together = max(1, _TOGETHER // max(1, *rows))
        for first in range(0, len(groups), together):
            part = slice(first, first + together)
            yield from self._read(groups[part], rows[part])

    def _read(self, groups: Sequence[int], rows: Sequence[int]) -> list[pa.Table]:
        """Row groups. rows: the number of rows of each."""
        schema, found = self._table.columns, []
        try:
            stored = [{name: self._chunk(group, name) for name in self._steady} for group in groups]
            new = [
                {name for name in self._steady if now[name] != before.get(name)}
                for before, now in pairwise([self._stored, *stored])
            ]
            columns = [*self._others, *set().union(*new)]
            table = self._file.read_row_groups(groups, columns=columns, use_threads=False)
            for number, begin in enumerate(accumulate(rows[:-1], initial=0)):
                group = table.slice(begin, rows[number])
                self._columns |= {name: group[name].cast(schema.field(name).type) for name in new[number]}
                values = [self._columns[name] if name in self._steady else group[name] for name in schema.names]
                found.append(pa.table(values, schema=schema))
        except (pa.ArrowException, OSError) as error:
            self._stored = {}  # the columns may be those of a later group
            raise ForeignFileError(f"it can't be read ({error})") from error
        self._stored = stored[-1]
        return found

    def _chunk(self, group: int, name: str) -> _Stored:
        """A column of a row group, as it is stored."""
        about = self._file.metadata.row_group(group).column(self._places[name])
        begin, size = about.dictionary_page_offset or about.data_page_offset, about.total_compressed_size
        if begin < 0 or size < 0 or begin + size > self._source.size():
            raise ForeignFileError(f"it can't be read (column {name} lies outside of the file)")
        return about.total_uncompressed_size, self._source.read_at(size, begin)
