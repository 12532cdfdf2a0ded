"""Raw samples of Prometheus as a DataFrame of Spark.

Each shard of each policy has a task, which sends the queries and parses the answers. A failed shard does not fail the
job, because Spark would then discard the other shards' rows. The shard's report row has the error.

Spark pickles the reader: the requests and the credentials are packed bytes in it. Plans and logs show only the name of
its method.
"""

from __future__ import annotations

import gc
import json
import pickle
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from trimtab_pipeline.prometheus.read_request import SAMPLES, ReadRequest, Secrets, TableName
from trimtab_pipeline.prometheus.sample_batches import batch
from trimtab_pipeline.prometheus.shard_reader import read_shard


def samples(
    spark: SparkSession, table: TableName, requests: Sequence[ReadRequest], secrets: Sequence[Secrets]
) -> DataFrame:
    """The samples of `table` that the requests ask for, as a lazy frame of `BROKER_SAMPLES` or `BUNDLE_SAMPLES`.

    secrets: one for each request.
    """
    shards = sum(len(request.shards) for request in requests)
    reader = SampleReader(table, packed(tuple(requests)), packed(tuple(secrets)))
    numbers = spark.range(0, shards, 1, numPartitions=max(shards, 1))
    return numbers.mapInArrow(reader.read_prometheus, from_arrow_schema(SAMPLES[table]))


def packed(value: object) -> bytes:
    """A value on its way to the tasks: pickled and compressed."""
    return zlib.compress(pickle.dumps(value), 1)


def _unpacked(content: bytes) -> Any:
    return pickle.loads(zlib.decompress(content))  # noqa: S301  (our own driver packed it)


class SampleReader:
    """Reads one table in tasks. Requests and secrets stay packed until a task needs them."""

    def __init__(self, table: TableName, requests: bytes, secrets: bytes) -> None:
        self._table: TableName = table
        self._requests, self._secrets = requests, secrets

    def read_prometheus(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the shards with these `numbers`, counted over all policies. Never raises."""
        requests, secrets = _unpacked(self._requests), _unpacked(self._secrets)
        shards = [(k, shard) for k, request in enumerate(requests) for shard in range(len(request.shards))]
        for number in (number for rows in numbers for number in rows["id"].to_pylist()):
            policy, shard = shards[number]
            yield from self._rows(requests[policy], shard, secrets[policy])
        _keep_imports()
        pa.default_memory_pool().release_unused()  # the task is over, but its process waits for the next cycle's task

    def _rows(self, request: ReadRequest, shard: int, secrets: Secrets) -> Iterator[pa.RecordBatch]:
        """The rows of one shard. The last one is its report."""
        try:
            rows = list(read_shard(self._table, request, shard, secrets))
        except Exception as error:  # noqa: BLE001  (the report carries it)
            hidden = secrets.brokers.hide(secrets.source.hide(f"{type(error).__name__}: {error}"))
            rows = [_failed(self._table, request.policy, shard, hidden)]
        return (one for one in rows if one.num_rows)


@cache
def _keep_imports() -> None:
    """Exempt from garbage collection what a Python worker has imported.

    PySpark collects garbage after each task. With the imports, that would take 30 ms of processor time.
    """
    gc.freeze()


def _failed(table: TableName, policy: str, shard: int, why: str) -> pa.RecordBatch:
    """The report of a shard that failed for an unforeseen reason."""
    found = {"ok": False, "error": f"the shard can't be read: {why}", "misconfigured": False, "seconds": 0.0}
    nothing: dict[str, Any] = {"warnings": [], "notes": [], "dropped": {}, "bundles": 0, "repeated": []}
    unknown = {"answered": None, "clock": None}
    columns = {
        "policy": pa.array([policy]),
        "shard": pa.array([shard], pa.int32()),
        "report": pa.array([json.dumps({"shard": shard, "table": table} | found | nothing | unknown)]),
    }
    return batch(SAMPLES[table], columns)
