"""`LoadSources` without Spark: threads of this process read the shards, and the stages run in numpy.

Three kinds of measurements use it: those of ``trimtab run --spark none``, single ones as in `trimtab observe`, and the
refreshes of brokers between two cycles. The figures are the same as on Spark. Each measurement has its own threads, so
it waits for no other. They are daemon threads, so the program's exit does not wait for a server that does not answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from trimtab_pipeline.api import KEEP_A_DAY, Retention, SourceUnavailableError
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.sources.direct_stages import DirectStages
from trimtab_pipeline.sources.measurement import measure
from trimtab_pipeline.sources.policy import T, Wanted
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_pipeline.spark.outcomes import as_source_error, promised, settle
from trimtab_pipeline.spark.settings import SparkSettings


class DirectLoadSources(PolicySources):
    """A source per policy, whose measurements run on threads of this process. Arguments: as of `SparkLoadSources`."""

    def __init__(self, history_dir: Place, *, deadline: float = 60.0, retention: Retention = KEEP_A_DAY) -> None:
        self._runner = runner = DirectRunner()
        super().__init__(history_dir, cycles=runner, refreshes=runner, deadline=deadline, retention=retention)

    def warm_up(self) -> Future[None]:
        """Do nothing: there is nothing to warm up."""
        warm: Future[None] = Future()
        warm.set_result(None)
        return warm

    def close(self) -> None:
        """Refuse further measurements. Idempotent."""
        self._runner.close()
        self._tidier.close()


class DirectRunner:
    """`MeasurementRunner` with a thread per measurement and per shard. closed: says whether its engine was closed."""

    def __init__(self, closed: Callable[[], bool] = lambda: False) -> None:
        self._engine_closed, self._closed = closed, False
        self._parallelism = SparkSettings().cores

    def close(self) -> None:
        """Refuse further measurements."""
        self._closed = True

    def run(self, wanted: Wanted[T]) -> Future[T]:
        """See `MeasurementRunner.run`."""
        outcome: Future[T] = promised(wanted.left)
        threading.Thread(target=self._measure, args=(wanted, outcome), name="measurement", daemon=True).start()
        return outcome

    def _measure(self, wanted: Wanted[T], outcome: Future[T]) -> None:
        try:
            settle(outcome.set_result, self._measured(wanted, outcome))
        except Exception as error:  # noqa: BLE001  (the future carries it)
            settle(outcome.set_exception, as_source_error(error))

    def _measured(self, wanted: Wanted[T], outcome: Future[T]) -> T:
        if self._closed or self._engine_closed():
            raise SourceUnavailableError("the operator is stopping")
        one = wanted.prepared()
        try:
            measured = measure([one], DirectStages(self._parallelism, outcome.done), bundles=wanted.bundles)[one.name]
        except Exception:
            wanted.failed()
            raise
        if isinstance(measured, SourceUnavailableError):
            raise measured
        return wanted.finished(measured)
