"""A PySpark Python Data Source that reads brokers and bundles from Prometheus, one partition per shard of brokers.

All work on samples happens inside the Spark task (`trimtab_pipeline.reading`); the driver sees one Arrow table. A shard
that fails does not fail the job, as Spark would throw away the other shards' answers: it says so in its report.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from trimtab_pipeline.asking import ReadRequest
from trimtab_pipeline.ranges import Ranges
from trimtab_pipeline.reading import SCHEMA, read_shard
from trimtab_pipeline.samples import Samples
from trimtab_pipeline.source import NO_CREDENTIALS, Credentials

DRY_URL = "dry:"
"""The URL that stands for made-up samples, so that a session can be warmed up without a server."""
_DRY_ROWS = 2_000

_SECRET = "secret"  # noqa: S105  (the name of a place, not what is there)
"""Name of the option that holds the credentials: Spark hides options of such names wherever it shows them."""


def read_options(request: ReadRequest, credentials: Credentials, ranges: Ranges | None = None) -> dict[str, str]:
    """Options of the data source. Py4J is kept from logging them, as it does with whatever passes at level DEBUG.

    ranges: all bundles, for topics to be summed up to; None when bundles are known to be measured themselves.
    """
    logging.getLogger("py4j").setLevel(logging.INFO)
    known = {} if ranges is None else {"ranges": ranges.to_text()}
    return {"request": request.to_json(), _SECRET: credentials.to_json(), **known}


class PrometheusDataSource(DataSource):
    """``spark.read.format("prometheus").option("request", ReadRequest.to_json())``.

    `read_options` makes the options, with the credentials apart from the request.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.request = ReadRequest.from_json(options["request"])
        self._credentials = Credentials.from_json(options[_SECRET]) if _SECRET in options else NO_CREDENTIALS
        self._ranges = options.get("ranges")

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "prometheus"

    def schema(self) -> str:
        """`SCHEMA` as Spark's SQL writes it."""
        return ", ".join(f"{field.name} {_ddl(field.type)}" for field in SCHEMA)

    def reader(self, schema: Any) -> PrometheusReader:  # noqa: ARG002  (there is only one)
        """A reader of the request."""
        return PrometheusReader(self.request, self._credentials, self._ranges)


class PrometheusReader(DataSourceReader):
    """Reads each shard in a task of its own."""

    def __init__(
        self, request: ReadRequest, credentials: Credentials = NO_CREDENTIALS, ranges: str | None = None
    ) -> None:
        self.request = request
        self._credentials = credentials
        self._ranges = ranges

    def partitions(self) -> list[InputPartition]:
        """One per shard."""
        return [InputPartition(shard) for shard in range(len(self.request.shards))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one shard, then its report."""
        shard: int = partition.value
        if self.request.url == DRY_URL:
            yield from read_shard(self.request, shard, _dry_samples)
            return
        ranges = None if self._ranges is None else Ranges.from_text(self._ranges)
        with self.request.server(self._credentials) as server:
            yield from read_shard(
                self.request,
                shard,
                lambda promql: server.query(promql, self.request.at),
                ranges,
                lambda: server.clock_ahead,
            )


def _ddl(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_ddl(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{_ddl(kind.value_type)}>"
    return {pa.string(): "string", pa.float64(): "double"}[kind]


def _dry_samples(_: str) -> Samples:
    names = pa.array([f"dry/{row}" for row in range(_DRY_ROWS)])
    return Samples({"bundle": names, "pod": names}, pa.array(np.ones(_DRY_ROWS)))
