"""What the rules of the pipeline made of 2,000 random worlds (`drawn_relations`), recorded as data.

The worlds were recorded with an independent implementation of the same rules, in SQL on Spark. If a rule is to change,
read the differences that the test shows, then record anew:

    .venv/bin/python tests/support/recorded_worlds.py
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import drawn_relations as drawn
from trimtab_pipeline.sources.pipeline import ShardResult, doubted_loads, with_idle
from trimtab_pipeline.transform.averages import averaged
from trimtab_pipeline.transform.relations import BROKER_LOAD
from trimtab_pipeline.transform.reports import Report
from trimtab_pipeline.transform.topics import bundle_sums
from trimtab_pipeline.transform.trust import judged

WORLDS = 2000
SHARDS = (0, 1)
CLOSE = 1e-12
"""Relative and absolute difference of two figures that count as equal: sums may be added up in another order."""
_FOLDER = Path(__file__).parents[1] / "pipeline" / "transform" / "recorded"
_DRAWN = b"drawn"
"""Metadata of the files: checksums of the drawn samples."""
_KEYS = ("world", "broker", "bundle", "pod", "topics", "rate_in")


def brokers(seed: int) -> tuple[pa.Table, pa.Table]:
    """The samples of a world, and `BROKER_LOAD`."""
    one = drawn.brokers(seed, f"p{seed}")
    shards = [(of_shard(one.targets, k), *of_shard_read(one.samples, k)) for k in SHARDS]
    unassigned = one.targets.filter(one.targets["shard"].is_null())
    loads = [doubted_loads(rows, targets, one.cycle, answered=told["ok"]) for targets, rows, told in shards]
    loads.append(doubted_loads(one.samples.slice(0, 0), unassigned, one.cycle))
    return one.samples, judged(pa.concat_tables(loads)).drop_columns("doubts")


def bundles(seed: int) -> tuple[pa.Table, pa.Table]:
    """The samples of a world, and `BUNDLE_LOAD`."""
    one = drawn.bundles(seed, f"p{seed}")
    return one.samples, averaged(measured_bundles(seed), one.times, one.state, one.cycle)


def measured_bundles(seed: int) -> pa.Table:
    """`BUNDLE_SUMS` of a world, with the idle bundles."""
    one, shards = drawn.bundles(seed, f"p{seed}"), []
    for rows, told in (of_shard_read(one.samples, k) for k in SHARDS):
        shards.append(ShardResult(BROKER_LOAD.empty_table(), bundle_sums(rows, one.ranges), (told,)))
    return with_idle(shards, one.ranges, one.times)


def of_shard(table: pa.Table, shard: int) -> pa.Table:
    return table.filter(pc.equal(table["shard"], shard))


def of_shard_read(samples: pa.Table, shard: int) -> tuple[pa.Table, Report]:
    """The samples of a shard, and its report."""
    rows = of_shard(samples, shard)
    return rows.filter(rows["report"].is_null()), json.loads(rows["report"].drop_null()[0].as_py())


KINDS: dict[str, Callable[[int], tuple[pa.Table, pa.Table]]] = {"brokers": brokers, "bundles": bundles}


def found(kind: str, worlds: Sequence[int]) -> pa.Table:
    """What the rules make of these worlds, with the column ``world``, and checksums of the samples as metadata."""
    tables, drawn_sums = [], []
    for seed in worlds:
        samples, rows = KINDS[kind](seed)
        tables.append(rows.add_column(0, "world", pa.repeat(pa.scalar(seed, pa.int32()), len(rows))))
        drawn_sums.append(_checksum(samples))
    return pa.concat_tables(tables).replace_schema_metadata({_DRAWN: json.dumps(drawn_sums)})


def _checksum(samples: pa.Table) -> int:
    return zlib.crc32(repr(samples.drop_columns("policy").to_pydict()).encode())


@cache
def recorded(kind: str) -> pa.Table:
    """What was recorded of all worlds."""
    return pq.read_table(_FOLDER / f"{kind}.parquet")


def differences(kind: str, worlds: Sequence[int]) -> Iterator[str]:
    """How what the rules make of these worlds differs from what was recorded."""
    expected, actual = recorded(kind), found(kind, worlds)
    checksums = json.loads(expected.schema.metadata[_DRAWN])
    if json.loads(actual.schema.metadata[_DRAWN]) != [checksums[seed] for seed in worlds]:
        yield "other worlds are drawn than were recorded: draw new faults in new functions of drawn_relations"
        return
    expected, actual = (_sorted(t) for t in (expected.filter(pc.is_in(expected["world"], pa.array(worlds))), actual))
    names = [name for name in _KEYS[:4] if name in expected.column_names]
    if not actual.select(names).equals(expected.select(names)):
        rows = [{tuple(row.values()) for row in table.select(names).to_pylist()} for table in (expected, actual)]
        yield f"rows {names} are missing: {sorted(rows[0] - rows[1], key=repr)[:5]}"
        yield f"rows {names} are new: {sorted(rows[1] - rows[0], key=repr)[:5]}"
        return
    for name in expected.column_names:
        for row in np.flatnonzero(~_same(expected[name], actual[name])).tolist():
            place = {key: expected[key][row].as_py() for key in names}
            yield f"{place}: {name} was {expected[name][row].as_py()}, is {actual[name][row].as_py()}"


def _sorted(table: pa.Table) -> pa.Table:
    keys = [(name, "ascending") for name in _KEYS if name in table.column_names]
    return table.sort_by(keys).combine_chunks()


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if not pa.types.is_floating(one.type):
        return np.array([ours == theirs for ours, theirs in zip(one.to_pylist(), other.to_pylist(), strict=True)])
    assert not any(pc.any(pc.is_nan(column)).as_py() for column in (one, other))
    return np.isclose(one.to_numpy(), other.to_numpy(), rtol=CLOSE, atol=CLOSE, equal_nan=True)


def main() -> None:
    """Record anew, and say what has changed."""
    for kind in KINDS:
        changes = list(differences(kind, range(WORLDS)))
        sys.stdout.write("\n    ".join([f"{kind}: {len(changes)} differences", *changes[:20], ""]))
        pq.write_table(
            found(kind, range(WORLDS)), _FOLDER / f"{kind}.parquet", compression="zstd", compression_level=19
        )


if __name__ == "__main__":
    main()
