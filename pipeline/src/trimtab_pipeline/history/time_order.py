"""Rows of several files, sorted by time. They are read in parts, because an hour of topics would not fit in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.history.files import AT, HistoryFile, HistoryTable, opened, row_group

_GROUP = 2**17
"""Minimum number of rows of a table of `in_order`, about 20 MB of topics in memory. The last table may have fewer."""


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
