"""Runs the shards of a batch as tasks of Spark: one job for all policies, a task for each shard, or small cluster.

Spark only schedules the tasks, and moves what they return. A task returns one row for its shard, with the tables as
bytes (Arrow's IPC format). So the JVM converts no table to rows, and generates no code.

Spark pickles `ShardTasks`: the orders, which have the credentials, are packed bytes in it. Plans and logs show only the
name of its method. What rarely changes, the hash ranges of the bundles, is packed once, and unpacked once by a worker.
"""

from __future__ import annotations

import gc
import json
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.prometheus.client import side_by_side
from trimtab_pipeline.sources.pipeline import ShardResult, reduced
from trimtab_pipeline.sources.policy_cycle import ShardOrders
from trimtab_pipeline.transform.topic_to_bundle import HashRanges

RESULT = pa.schema([("task", pa.int32()), ("brokers", pa.binary()), ("bundles", pa.binary()), ("reports", pa.string())])
"""A row per shard: the number of its task, its tables as Arrow's IPC streams, its reports as JSON."""


class SparkShards:
    """`ShardEngine` on a session."""

    def __init__(self, session: SparkSession, parallelism: int) -> None:
        self.parallelism = parallelism
        self._session = session

    def run(self, orders: Sequence[ShardOrders]) -> list[list[ShardResult]]:
        """See `ShardEngine.run`."""
        count = sum(len(one.read.shards) for one in orders)
        if not count:
            return [[] for _ in orders]
        rows = self.frame(orders).toArrow().sort_by("task")
        if rows["task"].to_pylist() != list(range(count)):
            raise SourceUnavailableError(f"Spark returned {len(rows)} shards instead of {count}")
        results = iter([_result(rows, number) for number in range(count)])
        return [[next(results) for _ in one.read.shards] for one in orders]

    def frame(self, orders: Sequence[ShardOrders]) -> DataFrame:
        """The job, with a row of `RESULT` for each shard. It has not run yet."""
        count = sum(len(one.read.shards) for one in orders)
        tasks = sum(1 if one.small else len(one.read.shards) for one in orders)
        numbers = self._session.range(0, count, 1, numPartitions=tasks)
        return numbers.mapInArrow(ShardTasks.of(orders).measure_shards, from_arrow_schema(RESULT))


@dataclass(frozen=True, slots=True)
class ShardTasks:
    """What the tasks get: the orders, packed, and the hash ranges of each order, packed, or None."""

    orders: bytes
    ranges: tuple[bytes | None, ...]

    @classmethod
    def of(cls, orders: Sequence[ShardOrders]) -> ShardTasks:
        """The tasks for all shards of the orders."""
        ranges = tuple(None if one.ranges is None else one.ranges.packed for one in orders)
        return cls(zlib.compress(pickle.dumps([replace(one, ranges=None) for one in orders]), 1), ranges)

    def measure_shards(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A row for each shard with these `numbers`, which are measured at the same time."""
        orders: list[ShardOrders] = pickle.loads(zlib.decompress(self.orders))  # noqa: S301  (our own driver packed it)
        shards = [(policy, shard) for policy, one in enumerate(orders) for shard in range(len(one.read.shards))]
        jobs: dict[int, Callable[[], ShardResult]] = {}
        for number in (number for rows in numbers for number in rows["id"].to_pylist()):
            policy, shard = shards[number]
            ranges = self.ranges[policy]
            known = replace(orders[policy], ranges=None if ranges is None else HashRanges.unpacked(ranges))
            jobs[number] = partial(reduced, known, shard)
        for number, found in side_by_side(jobs, at_once=len(jobs)).items():
            row = [number, _stream(found.brokers), _stream(found.bundles), json.dumps(found.reports)]
            columns = [pa.array([value], field.type) for value, field in zip(row, RESULT, strict=True)]
            yield pa.RecordBatch.from_arrays(columns, schema=RESULT)
        _keep_imports()
        pa.default_memory_pool().release_unused()  # the task is over, but its process waits for the next cycle's task


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _result(rows: pa.Table, number: int) -> ShardResult:
    brokers, bundles = (
        pa.ipc.open_stream(rows[name][number].as_buffer()).read_all() for name in ("brokers", "bundles")
    )
    return ShardResult(brokers, bundles, tuple(json.loads(rows["reports"][number].as_py())))


@cache
def _keep_imports() -> None:
    """Exempt from garbage collection what a Python worker has imported.

    PySpark collects garbage after each task. With the imports, that would take 30 ms of processor time.
    """
    gc.freeze()
