"""Spark's tasks: one per shard of brokers, which queries Prometheus and joins the answers with the last state.

All work on samples happens inside the task; the driver gets one Arrow table. A failed shard does not fail the job, as
Spark would then discard the other shards' answers: its report holds the error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, DoubleType, StringType, StructField, StructType

from trimtab_pipeline.api import (
    NO_CREDENTIALS,
    NOBODY_IN_PARTICULAR,
    Credentials,
    SourceMisconfiguredError,
    SourceUnavailableError,
    StatisticsSettings,
)
from trimtab_pipeline.columns import BROKER_STATE, BUNDLE_STATE, INSIDE
from trimtab_pipeline.history.files import State
from trimtab_pipeline.prometheus.broker_statistics import ask_brokers
from trimtab_pipeline.prometheus.read_request import ReadRequest
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.transform.averages import AveragingSettings, next_state
from trimtab_pipeline.transform.topic_to_bundle import HashRanges

DRY_URL = "dry:"
"""A URL that stands for made-up samples, so a session can be warmed up without a server."""
_DRY_ROWS = 2_000

_BROKER = pa.struct(list(BROKER_STATE))
ANSWER = pa.schema(
    [
        *BUNDLE_STATE,
        ("report", pa.string()),
        ("brokers", pa.list_(_BROKER)),
        ("inside", pa.list_(INSIDE)),
    ]
)
"""Columns of an answer. A row is a bundle's next state or, last of each task, a report
(`trimtab_pipeline.prometheus.shard_reader`) with the shard's brokers and the topics of its hottest bundles."""


@dataclass(frozen=True, slots=True)
class ShardTask:
    """The work of the tasks of one cycle.

    state: the last state of the bundles. ranges: all bundles, as `HashRanges.to_text`, for sums of topics; None when
    bundles have their own metrics. statistics: settings for requests to brokers.
    """

    request: ReadRequest
    state: State
    averages: AveragingSettings
    credentials: Credentials = NO_CREDENTIALS
    ranges: str | None = None
    statistics: StatisticsSettings = NOBODY_IN_PARTICULAR

    def shard(self, number: int) -> Iterator[pa.RecordBatch]:
        """The measured load of one shard of brokers, as by `read_shard`."""
        if self.request.url == DRY_URL:
            return read_shard(self.request, number, _dry_samples)
        return self._read(number)

    def _read(self, number: int) -> Iterator[pa.RecordBatch]:
        ranges = None if self.ranges is None else HashRanges.from_text(self.ranges)
        with self.request.server(self.credentials) as server:
            yield from read_shard(
                self.request,
                number,
                lambda promql: server.query(promql, self.request.at),
                ranges,
                lambda: server.clock_ahead,
                listen=partial(ask_brokers, settings=self.statistics),
            )


def spread(spark: SparkSession, work: ShardTask) -> DataFrame:
    """The answers of all shards as a lazy frame, a task each. Py4J must not log the credentials."""
    logging.getLogger("py4j").setLevel(logging.WARNING)  # at DEBUG it logs all traffic, at INFO each closing
    count = len(work.request.shards)
    return spark.range(0, count, 1, count).mapInArrow(partial(answers, work=work), _SPARK_SCHEMA)


def answers(shards: Iterator[pa.RecordBatch], work: ShardTask) -> Iterator[pa.RecordBatch]:
    """The rows of these shards (batches of numbers), in `ANSWER`."""
    for batch in shards:
        for shard in batch.column(0).to_pylist():
            yield from answer(list(work.shard(shard)), work)
    pa.default_memory_pool().release_unused()  # the task is over, but its process waits for the next cycle's task


def answer(batches: Sequence[pa.RecordBatch], work: ShardTask) -> Iterator[pa.RecordBatch]:
    """The result of `read_shard` for one shard, in `ANSWER`."""
    *measured, report = batches
    brokers = measured[0]["broker"] if measured else pa.array([], _BROKER)
    if measured and len(measured[1]):
        bundles = next_state(measured[1], work.state, work.averages)
        for batch in bundles.combine_chunks().to_batches():
            yield _wide(dict(zip(bundles.column_names, batch.columns, strict=True)))
    yield _wide({"report": report["report"], "brokers": one_list(brokers), "inside": report["inside"]})


def one_list(rows: pa.StructArray) -> pa.ListArray:
    """One row that holds all `rows` as a list."""
    return pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)


def flattened(lists: pa.ChunkedArray) -> pa.Table:
    """The table of the rows in `lists` of structs."""
    return pa.Table.from_struct_array(pc.list_flatten(lists.combine_chunks()))


def reports_in(answer: pa.Table) -> tuple[Mapping[str, Any], ...]:
    """The tasks' reports. Raises `SourceUnavailableError` when none of them could measure anything."""
    reports = tuple(json.loads(text) for text in answer["report"].drop_null().to_pylist())
    if wrong := [report["error"] for report in reports if report.get("misconfigured")]:
        raise SourceMisconfiguredError(wrong[0])
    if not any(report["ok"] for report in reports):
        raise SourceUnavailableError(f"nothing could be measured: {reports[0]['error']}")
    return reports


def _wide(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """A batch of `ANSWER` with these columns, null in the others."""
    (rows,) = {len(column) for column in columns.values()}
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in ANSWER]
    return pa.RecordBatch.from_arrays(arrays, schema=ANSWER)


def _dry_samples(_: str) -> Samples:
    names = pa.array([f"dry/{row}" for row in range(_DRY_ROWS)])
    return Samples({"bundle": names, "pod": names}, pa.array(np.ones(_DRY_ROWS)))


def _spark_type(kind: pa.DataType) -> DataType:
    if pa.types.is_struct(kind):
        return _spark_struct(kind)
    if pa.types.is_list(kind):
        return ArrayType(_spark_type(kind.value_type))
    return {pa.string(): StringType(), pa.float64(): DoubleType()}[kind]


def _spark_struct(fields: pa.Schema | pa.StructType) -> StructType:
    return StructType([StructField(field.name, _spark_type(field.type)) for field in fields])


_SPARK_SCHEMA = _spark_struct(ANSWER)
