"""Row groups of a table's files that are read one after the other, as a replay of the history does.

Names of bundles and pods, and numbers of topics, are mostly those of the cycle before. They are compared as they are
stored. If the bytes are the same, so is the column, and it is not decoded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.files import HistoryTable, opened
from trimtab_pipeline.history.location import Location

_Stored = tuple[str, bytes]
"""A column chunk: its compression, and its bytes, which say how the rest is encoded."""


class RowGroupReader:
    """Reads the row groups of files of `table`. steady: columns that are mostly the same as in the group before."""

    def __init__(self, table: HistoryTable, steady: Sequence[str]) -> None:
        self._table, self._steady = table, tuple(steady)
        self._others = tuple(name for name in table.columns.names if name not in steady)
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

    def read(self, group: int) -> pa.Table:
        """A row group of the open file, without the evaluation time. Raises `ForeignFileError`."""
        schema, file = self._table.columns, self._file
        if not file.num_row_groups:
            return schema.empty_table()
        try:
            stored = {name: self._chunk(group, name) for name in self._steady}
            new = [name for name in self._steady if stored[name] != self._stored.get(name)]
            rows = file.read_row_group(group, columns=[*self._others, *new], use_threads=False)
            self._columns |= {name: rows[name].cast(schema.field(name).type) for name in new}
        except (pa.ArrowException, OSError) as error:
            raise ForeignFileError(f"it can't be read ({error})") from error
        self._stored = stored
        columns = [self._columns[name] if name in self._steady else rows[name] for name in schema.names]
        return pa.table(columns, schema=schema)

    def _chunk(self, group: int, name: str) -> _Stored:
        """A column of a row group, as it is stored."""
        about = self._file.metadata.row_group(group).column(self._table.schema.get_field_index(name))
        begin = about.dictionary_page_offset or about.data_page_offset
        return about.compression, self._source.read_at(about.total_compressed_size, begin)
