"""`LoadSources` without Spark: threads of this process run the tasks of a cycle.

For a single measurement, as in `trimtab observe`: it gives the same figures as a cycle on Spark, whose start would take
ten times as long. All threads share one interpreter, so regular cycles of a large cluster are faster on Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

import pyarrow as pa

from trimtab_pipeline.api import KEEP_A_DAY, PrometheusSettings
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.writer import HistoryTidier, HistoryWriter
from trimtab_pipeline.sources.broker_refresh import aside
from trimtab_pipeline.sources.policy import Ask, PolicySource
from trimtab_pipeline.spark.settings import SparkSettings
from trimtab_pipeline.spark.tasks import ANSWER, ShardTask, answer

T = TypeVar("T")


class DirectLoadSources:
    """A source per policy, with its history below `history_dir`. deadline: seconds that a measurement may take."""

    def __init__(self, history_dir: Place, *, deadline: float = 60.0) -> None:
        self._history_dir, self._deadline = history_dir, deadline
        self._workshop = _Threads()
        self._background = HistoryTidier()

    def open(self, policy: str, settings: PrometheusSettings) -> PolicySource:
        """A source for `policy`. Raises `ValueError` as `HistoryWriter` does, or for an unknown preset."""
        keeping = HistoryWriter(self._history_dir, policy, KEEP_A_DAY, self._background)
        return PolicySource(self._workshop, settings, self._deadline, keeping)

    def warm_up(self) -> Future[None]:
        """Do nothing: there is nothing to warm up."""
        warm: Future[None] = Future()
        warm.set_result(None)
        return warm

    def close(self) -> None:
        """Refuse further measurements. Idempotent."""
        self._workshop.closed = True
        self._background.close()


class _Threads:
    """`Workshop` with a thread per task, and one more that joins them."""

    def __init__(self) -> None:
        self.cores, self.remote, self.closed = SparkSettings().cores, False, False

    def run(self, job: Callable[[Ask], T], deadline: float) -> Future[T]:
        """See `Workshop.run`."""
        return aside(lambda _: job(_carried_out), deadline)


def _carried_out(work: ShardTask) -> pa.Table:
    futures: list[Future[list[pa.RecordBatch]]] = [Future() for _ in work.request.shards]
    for shard, one in enumerate(futures):
        Thread(target=_task, args=(work, shard, one), name=f"shard-{shard}", daemon=True).start()
    return pa.Table.from_batches([batch for one in futures for batch in one.result()], ANSWER)


def _task(work: ShardTask, shard: int, future: Future[list[pa.RecordBatch]]) -> None:
    try:
        future.set_result(list(answer(list(work.shard(shard)), work)))
    except Exception as error:  # noqa: BLE001  (the future carries it)
        future.set_exception(error)
