"""`LoadSources` without Spark: threads of this process measure the shards.

Three kinds of measurements use it: those of ``trimtab run --spark none``, single ones as in `trimtab observe`, and the
refreshes of brokers between two cycles. The figures are the same as on Spark. Each measurement has its own threads, so
a refresh waits for no cycle. They are daemon threads, so the program's exit does not wait for a server that does not
answer.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from trimtab_pipeline.api import KEEP_A_DAY, Retention, SourceUnavailableError
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.prometheus.client import side_by_side
from trimtab_pipeline.sources.pipeline import Measurement, ShardResult, measure, reduced
from trimtab_pipeline.sources.policy import T, Turn, Wanted
from trimtab_pipeline.sources.policy_cycle import ShardOrders
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_pipeline.spark.outcomes import as_history_error, promised, settle

_SHARDS = 2
"""Shards of a measurement. Python's lock lets few threads work at the same time, and more would load Prometheus."""
_AT_ONCE = 2
"""Whole cycles that run at the same time: each holds its answers in memory."""
_ENDS_WITHIN = 5.0
"""Seconds that closing waits for measurements that run."""


class DirectLoadSources(PolicySources):
    """A source per policy, whose measurements run on threads of this process.

    history_dir: folder or URI of the histories of all policies. deadline: seconds a cycle may take, waiting included.
    """

    def __init__(self, history_dir: Place, *, deadline: float = 60.0, retention: Retention = KEEP_A_DAY) -> None:
        self._runner = runner = DirectRunner()
        super().__init__(history_dir, cycles=runner, refreshes=runner, deadline=deadline, retention=retention)

    def warm_up(self) -> Future[None]:
        """Do nothing: there is nothing to warm up."""
        warm: Future[None] = Future()
        warm.set_result(None)
        return warm

    def close(self) -> None:
        """Refuse further measurements, and wait some seconds for those that run. Idempotent."""
        self._runner.close()
        self._tidier.close()


class DirectRunner:
    """`MeasurementRunner` with a thread per measurement and per shard.

    Cycles of one policy wait for each other, because each begins with the state that the last one wrote.
    closed: says whether its engine was closed.
    """

    def __init__(self, closed: Callable[[], bool] = lambda: False) -> None:
        self._engine_closed, self._closed = closed, False
        self._threads: set[threading.Thread] = set()
        self._places = threading.BoundedSemaphore(_AT_ONCE)
        self._turns: dict[str, threading.Lock] = {}

    def close(self) -> None:
        """Refuse further measurements, and wait some seconds for those that run."""
        self._closed = True
        end = time.monotonic() + _ENDS_WITHIN
        for thread in tuple(self._threads):
            thread.join(max(0.0, end - time.monotonic()))

    def run(self, wanted: Wanted[T]) -> Future[T]:
        """See `MeasurementRunner.run`."""
        outcome: Future[T] = promised(wanted.left)
        thread = threading.Thread(target=self._measure, args=(wanted, outcome), name="measurement", daemon=True)
        self._threads.add(thread)
        thread.start()
        return outcome

    def _measure(self, wanted: Wanted[T], outcome: Future[T]) -> None:
        try:
            with self._turn(wanted):
                settle(outcome.set_result, self._measured(wanted, outcome))
        except Exception as error:  # noqa: BLE001  (the future carries it)
            settle(outcome.set_exception, _light(as_history_error(error)))
        finally:
            self._threads.discard(threading.current_thread())

    @contextmanager
    def _turn(self, wanted: Wanted[Any]) -> Iterator[None]:
        """Wait until no other cycle of the policy runs, and there is a place for a cycle. Others begin at once."""
        if wanted.turn is not Turn.CYCLE:
            yield
            return
        turn = self._turns.setdefault(wanted.name, threading.Lock())
        if not turn.acquire(timeout=min(wanted.left, threading.TIMEOUT_MAX)):
            raise SourceUnavailableError(f"the last measurement of {wanted.name} still runs")
        try:
            with self._places:
                yield
        finally:
            turn.release()

    def _measured(self, wanted: Wanted[T], outcome: Future[T]) -> T:
        self._check(outcome)
        one, expected = wanted.prepared(), weakref.ref(outcome)  # errors of shards would keep the outcome
        shards = ThreadShards(lambda: self._unwanted(expected()))
        found = measure([one], shards, bundles=wanted.bundles)[one.name]
        if not isinstance(found, Measurement):
            wanted.failed()
            raise found
        self._check(outcome)  # what comes late must not replace a newer state
        return wanted.finished(found)

    def _check(self, outcome: Future[Any]) -> None:
        """Raise `SourceUnavailableError` if the result is no longer needed."""
        if self._unwanted(outcome):
            raise SourceUnavailableError("the measurement is no longer needed")

    def _unwanted(self, outcome: Future[Any] | None) -> bool:
        return outcome is None or outcome.done() or self._closed or self._engine_closed()


class ThreadShards:
    """`ShardEngine` with a thread per shard. unwanted: says whether the results are no longer needed."""

    parallelism = _SHARDS

    def __init__(self, unwanted: Callable[[], bool]) -> None:
        self._unwanted = unwanted

    def run(self, orders: Sequence[ShardOrders]) -> list[list[ShardResult]]:
        """See `ShardEngine.run`."""
        return [self._shards(one) for one in orders]

    def _shards(self, one: ShardOrders) -> list[ShardResult]:
        jobs = {number: partial(reduced, one, number, self._unwanted) for number in range(len(one.read.shards))}
        return list(side_by_side(jobs, at_once=len(jobs)).values())


def _light(error: Exception) -> Exception:
    """The error; without tracebacks if it is an expected one. Their frames would keep the measurement in memory."""
    cause: BaseException | None = error if isinstance(error, SourceUnavailableError) else None
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    return error
