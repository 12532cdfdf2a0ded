"""The stages of a batch as Spark jobs: read, rules, one collect per table."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from trimtab_pipeline.prometheus.data_source import samples
from trimtab_pipeline.prometheus.read_request import ReadRequest
from trimtab_pipeline.sources.batch import Batch
from trimtab_pipeline.transform.frames import broker_load, bundle_load
from trimtab_pipeline.transform.relations import STATE

_STATE = from_arrow_schema(STATE)


class SparkStages:
    """The stages on `session`. reads_files: whether tasks see the files of this process."""

    def __init__(self, session: SparkSession, parallelism: int, *, reads_files: bool) -> None:
        self._session, self.parallelism, self._reads_files = session, parallelism, reads_files
        logging.getLogger("py4j").setLevel(logging.WARNING)  # at DEBUG it logs all traffic, credentials too

    def brokers(self, batch: Batch) -> pa.Table:
        """See `Stages.brokers`."""
        read = samples(self._session, "brokers", batch.broker_reads(), batch.secrets)
        return broker_load(read, self._frame(batch.cycles()), self._frame(batch.targets())).toArrow()

    def bundles(self, batch: Batch, reads: Sequence[ReadRequest], times: pa.Table) -> pa.Table:
        """See `Stages.bundles`."""
        read, ranges = samples(self._session, "bundles", reads, batch.secrets), batch.ranges()
        cycles, known = self._frame(batch.cycles()), self._frame(times)
        placed = None if ranges is None else self._frame(ranges)
        return bundle_load(read, cycles, known, self._state(batch), placed).toArrow()

    def topics(self, batch: Batch, reads: Sequence[ReadRequest]) -> pa.Table:
        """See `Stages.topics`."""
        return samples(self._session, "topics", reads, batch.secrets).toArrow()

    def _frame(self, rows: pa.Table) -> DataFrame:
        return self._session.createDataFrame(rows)

    def _state(self, batch: Batch) -> DataFrame:
        """The bundles after the last cycles: from the files where tasks see them, else from this process."""
        ...
