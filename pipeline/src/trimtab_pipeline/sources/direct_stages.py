"""The stages of a batch in numpy, on threads of this process: a thread per shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.prometheus.client import side_by_side
from trimtab_pipeline.prometheus.read_request import SAMPLES, ReadRequest, TableName
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.sources.batch import Batch, PolicyCycle
from trimtab_pipeline.transform.averages import averaged
from trimtab_pipeline.transform.brokers import broker_loads
from trimtab_pipeline.transform.rates import broker_signals
from trimtab_pipeline.transform.relations import BROKER_LOAD, BUNDLE_LOAD
from trimtab_pipeline.transform.topics import summed
from trimtab_pipeline.transform.trust import judged


class DirectStages:
    """`Stages` without Spark. unwanted: says whether the result is no longer needed; then no further query is sent."""

    def __init__(self, parallelism: int, unwanted: Callable[[], bool]) -> None:
        self.parallelism, self._unwanted = parallelism, unwanted

    def brokers(self, batch: Batch, reads: Sequence[ReadRequest]) -> pa.Table:
        """See `Stages.brokers`."""
        found = [BROKER_LOAD.empty_table()]
        for one, shards, read in zip(batch.due, batch.shards, reads, strict=True):
            signals = broker_signals(self._read("brokers", one, read), one.cycle)
            found.append(judged(broker_loads(signals, one.targets(shards), one.cycle), one.cycle))
        return pa.concat_tables(found)

    def bundles(self, batch: Batch, reads: Sequence[ReadRequest], times: pa.Table) -> pa.Table:
        """See `Stages.bundles`."""
        found = [BUNDLE_LOAD.empty_table()]
        for one, read in zip(batch.due, reads, strict=True):
            rows, known = self._read("bundles", one, read), times.filter(pc.equal(times["policy"], one.name))
            bundles = rows if one.ranges is None else summed(rows, one.ranges, known)
            found.append(averaged(bundles, known, one.state(), one.cycle))
        return pa.concat_tables(found)

    def topics(self, batch: Batch, reads: Sequence[ReadRequest]) -> pa.Table:
        """See `Stages.topics`."""
        both = zip(batch.due, reads, strict=True)
        return pa.concat_tables([self._read("topics", one, read) for one, read in both])

    def _read(self, table: TableName, one: PolicyCycle, read: ReadRequest) -> pa.Table:
        """All shards of a read, in parallel."""

        def rows(shard: int) -> list[pa.RecordBatch]:
            return list(read_shard(table, read, shard, one.secrets, self._unwanted))

        numbers = range(len(read.shards))
        shards = side_by_side({number: partial(rows, number) for number in numbers}, at_once=len(numbers))
        return pa.Table.from_batches([batch for shard in shards.values() for batch in shard], SAMPLES[table])
