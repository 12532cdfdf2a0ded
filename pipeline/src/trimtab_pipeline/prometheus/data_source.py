"""Prometheus as a data source of Spark: ``spark.read.format("prometheus")`` gives raw samples.

Each shard of each policy is a partition, whose task sends the queries and parses the answers. A failed shard does not
fail the job, because Spark would then discard the other shards' rows. The shard's report row has the error.

The requests are one option of the data source, the credentials are another. Spark hides the credentials in plans and
logs because of the name of their option. Only the driver and the tasks see them.
"""

from __future__ import annotations

import base64
import gc
import json
import pickle
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, TableName
from trimtab_pipeline.prometheus.sample_batches import batch
from trimtab_pipeline.prometheus.shard_reader import read_shard

FORMAT = "prometheus"
"""Name of the data source."""
_TABLE, _REQUESTS, _SECRETS = "table", "requests", "secrets"
_SCHEMAS = {"brokers": BROKER_SAMPLES, "bundles": BUNDLE_SAMPLES, "topics": BUNDLE_SAMPLES}


def samples(
    spark: SparkSession, table: TableName, requests: Sequence[ReadRequest], secrets: Sequence[Secrets]
) -> DataFrame:
    """The samples of `table` that the requests ask for, as a lazy frame of `BROKER_SAMPLES` or `BUNDLE_SAMPLES`.

    secrets: one for each request.
    """
    spark.dataSource.register(PrometheusDataSource)
    options = {_TABLE: table, _REQUESTS: _packed(tuple(requests)), _SECRETS: _packed(tuple(secrets))}
    return spark.read.format(FORMAT).options(**options).load()


def _packed(value: object) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value), 1)).decode()


def _unpacked(text: str) -> Any:
    return pickle.loads(zlib.decompress(base64.b64decode(text)))  # noqa: S301  (our own driver packed it)


class PrometheusDataSource(DataSource):
    """The data source ``prometheus``; see `samples` for its options."""

    @classmethod
    def name(cls) -> str:
        """The name in ``spark.read.format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the table that is read."""
        _keep_imports()
        return from_arrow_schema(_SCHEMAS[self.options[_TABLE]])

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  (named so by Spark)
        """The reader of all shards of all policies."""
        table = cast("TableName", self.options[_TABLE])
        return PrometheusReader(table, self.options[_REQUESTS], self.options[_SECRETS])


@dataclass
class ShardPartition(InputPartition):
    """One shard of the policy whose request has the position `policy`."""

    policy: int
    shard: int


class PrometheusReader(DataSourceReader):
    """Reads one table. Requests and secrets stay packed until a task needs them."""

    def __init__(self, table: TableName, requests: str, secrets: str) -> None:
        self._table, self._requests, self._secrets = table, requests, secrets

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each shard of each policy."""
        _keep_imports()
        requests: tuple[ReadRequest, ...] = _unpacked(self._requests)
        return [ShardPartition(k, shard) for k, request in enumerate(requests) for shard in range(len(request.shards))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one shard, whose last one is its report. Never raises."""
        ours = cast("ShardPartition", partition)
        request, secrets = _unpacked(self._requests)[ours.policy], _unpacked(self._secrets)[ours.policy]
        try:
            rows = list(read_shard(self._table, request, ours.shard, secrets))
        except Exception as error:  # noqa: BLE001  (the report carries it)
            hidden = secrets.brokers.hide(secrets.source.hide(f"{type(error).__name__}: {error}"))
            rows = [_failed(self._table, request.policy, ours.shard, hidden)]
        _keep_imports()
        yield from (one for one in rows if one.num_rows)
        pa.default_memory_pool().release_unused()  # the task is over, but its process waits for the next cycle's task


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
    return batch(_SCHEMAS[table], columns)
