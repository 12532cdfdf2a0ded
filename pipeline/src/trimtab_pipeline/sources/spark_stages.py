"""The stages of a batch as Spark jobs: read, rules, and one collect per table."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from trimtab_pipeline.prometheus.data_source import samples
from trimtab_pipeline.prometheus.read_request import ReadRequest
from trimtab_pipeline.sources.batch import Batch
from trimtab_pipeline.transform.brokers import expected_samples, joined
from trimtab_pipeline.transform.cycle import table
from trimtab_pipeline.transform.frames import broker_load, bundle_load
from trimtab_pipeline.transform.relations import STATE

_STATE = from_arrow_schema(STATE)


class SparkStages:
    """`Stages` on a session. reads_files: whether tasks see the files of this process."""

    def __init__(self, session: SparkSession, parallelism: int, *, reads_files: bool) -> None:
        self.parallelism = parallelism
        self._session, self._reads_files = session, reads_files
        logging.getLogger("py4j").setLevel(logging.WARNING)  # at DEBUG it logs all traffic, credentials too

    def brokers(self, batch: Batch, reads: Sequence[ReadRequest]) -> pa.Table:
        """See `Stages.brokers`."""
        targets = [one.targets(shards) for one, shards in zip(batch.due, batch.shards, strict=True)]
        expected = self._frame(expected_samples(pa.concat_tables(targets)))
        read = samples(self._session, "brokers", reads, batch.secrets)
        loads = broker_load(read.unionAll(expected), self._cycles(batch)).toArrow()
        return pa.concat_tables(
            joined(loads.filter(pc.equal(loads["policy"], one.name)), rows)
            for one, rows in zip(batch.due, targets, strict=True)
        )

    def bundles(self, batch: Batch, reads: Sequence[ReadRequest], times: pa.Table) -> pa.Table:
        """See `Stages.bundles`."""
        read = samples(self._session, "bundles", reads, batch.secrets)
        tables = [one.ranges.table(one.name) for one in batch.due if one.ranges is not None]
        ranges = self._frame(pa.concat_tables(tables)) if tables else None
        return bundle_load(read, self._cycles(batch), self._frame(times), self._state(batch), ranges).toArrow()

    def topics(self, batch: Batch, reads: Sequence[ReadRequest]) -> pa.Table:
        """See `Stages.topics`."""
        return samples(self._session, "topics", reads, batch.secrets).toArrow()

    def _cycles(self, batch: Batch) -> DataFrame:
        return self._frame(table(one.cycle for one in batch.due))

    def _frame(self, rows: pa.Table) -> DataFrame:
        return self._session.createDataFrame(rows, from_arrow_schema(rows.schema))  # Connect infers none from no rows

    def _state(self, batch: Batch) -> DataFrame:
        """The bundles after the last cycles: read from files that tasks see, else sent along."""
        places = [one.last.bundles for one in batch.due if self._seen(one.last.bundles)]
        sent = [one.state() for one in batch.due if not self._seen(one.last.bundles)]
        frames = [self._session.read.schema(_STATE).parquet(*places)] if places else []
        frames += [self._frame(pa.concat_tables(sent))] if sent else []
        return reduce(DataFrame.unionAll, frames)

    def _seen(self, state: str | pa.Table) -> bool:
        return isinstance(state, str) and (self._reads_files or "://" in state)
