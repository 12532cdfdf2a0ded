"""A sketch of the load inside of bundles, for backtests of splits: a few rows per bundle instead of all its topics."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.history.dataset import SKETCHES
from trimtab_pipeline.history.snapshot_tables import rounded_traffic
from trimtab_strategies.model.cluster_load import IntArray

_HEAVIEST, _PARTS = 16, 16
_RANGE = r"0x(?P<lower>[0-9a-f]{8})_0x(?P<upper>[0-9a-f]{8})$"


def sketched(topics: pa.Table) -> pa.Table:
    """Rows of `SKETCHES` about `topics` (columns `INSIDE`).

    In each bundle, the topics that carry the most bytes (in plus out) have rows of their own. The other topics share
    one row for each sixteenth of the bundle's range.
    """
    topics = topics.filter(pc.match_substring_regex(topics["bundle"], _RANGE))
    weight = pc.add(*(pc.coalesce(topics[name], 0.0) for name in ("throughput_in", "throughput_out")))
    topics = topics.append_column("weight", weight).sort_by([("bundle", "ascending"), ("weight", "descending")])
    heavy = _rank(topics["bundle"].combine_chunks()) < _HEAVIEST
    rest = topics.filter(pa.array(~heavy))
    lower, width = _parts(rest)
    place = rest["place"].to_numpy().astype(np.int64)
    part = lower + (place - lower) // width * width
    rest = rest.set_column(rest.column_names.index("place"), "place", pa.array(part))
    single = topics.filter(pa.array(heavy))
    rows = pa.concat_tables(
        [
            _shaped(single, pa.repeat(1, len(single))),
            _shaped(rest, pa.array(width)),
        ]
    )
    grouped = rows.group_by(["bundle", "place", "width"]).aggregate([(name, "sum") for name in ("topics", *TRAFFIC)])
    grouped = grouped.rename_columns([name.removesuffix("_sum") for name in grouped.column_names])
    ordered = rounded_traffic(grouped).sort_by([("bundle", "ascending"), ("place", "ascending")])
    return ordered.select(SKETCHES.columns.names).cast(SKETCHES.columns)


def _rank(bundles: pa.StringArray) -> IntArray:
    """Position of each row among the rows of its bundle; `bundles` is sorted."""
    names = bundles.dictionary_encode().indices.to_numpy()
    first = np.searchsorted(names, names) if len(names) else names
    rank: IntArray = np.arange(len(names)) - first
    return rank


def _parts(rest: pa.Table) -> tuple[IntArray, IntArray]:
    """Lower bound of each row's bundle, and the width of a sixteenth of its range."""
    ends = pc.extract_regex(rest["bundle"], _RANGE).combine_chunks()
    lower, upper = (
        np.array([int(text, 16) for text in ends.field(name).to_pylist()], np.int64) for name in ("lower", "upper")
    )
    return lower, np.maximum((upper - lower + _PARTS - 1) // _PARTS, 1)


def _shaped(rows: pa.Table, width: pa.Array) -> pa.Table:
    return pa.table(
        {
            "bundle": rows["bundle"],
            "place": rows["place"].cast(pa.int64()),
            "width": width.cast(pa.int64()),
            "topics": pa.repeat(1, len(rows)),
            **{name: rows[name] for name in TRAFFIC},
        }
    )
