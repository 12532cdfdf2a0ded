"""Columns of Arrow tables as numpy arrays, and back: NaN stands for null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray


def floats(table: pa.Table, name: str) -> FloatArray:
    """(n,) values of a column of numbers, NaN where one is null."""
    values: FloatArray = table[name].to_numpy().astype(np.float64, copy=False)
    return values


def block(table: pa.Table, names: Iterable[str]) -> FloatArray:
    """(n, k) values of these columns, NaN where one is null.

    The array is stored column by column, so arithmetic with one value per row, such as a weight, is fast.
    """
    columns = [table[name].to_numpy() for name in names]
    found = np.empty((len(columns), len(table)))
    for row, values in zip(found, columns, strict=True):
        row[:] = values
    return found.T


def nullable(values: FloatArray) -> pa.DoubleArray:
    """The values as a column, null where one is NaN."""
    return pa.array(values, pa.float64(), from_pandas=True)


def positions(wanted: pa.Array | pa.ChunkedArray, names: pa.Array | pa.ChunkedArray) -> IntArray:
    """(n,) first position of each wanted name among `names`, -1 where it is missing."""
    found = pc.index_in(wanted, value_set=names)
    whole = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    return np.asarray(pc.fill_null(whole, -1)).astype(np.int64)


def filled(schema: pa.Schema, rows: int, columns: Mapping[str, Any]) -> pa.Table:
    """A table of `schema` with these columns, null in the others."""
    return pa.table({f.name: columns.get(f.name, pa.nulls(rows, f.type)) for f in schema}, schema=schema)


def masked(values: FloatArray, keep: BoolArray) -> FloatArray:
    """The values, NaN where `keep` is false."""
    return np.where(keep, values, np.nan)


def texts(values: Sequence[str | None] | npt.NDArray[np.object_]) -> pa.StringArray:
    """A column of texts, null where one is None."""
    return pa.array(values, pa.string())
