"""`LoadSources` on Spark: all waiting cycles are measured together, as one batch.

The operator does not import this module; `trimtab_pipeline.factory.spark_sources` does.
"""

from __future__ import annotations

import gc
import itertools
import logging
import math
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from trimtab_pipeline.api import KEEP_A_DAY, PrometheusSettings, Retention, Topology
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.writer import HistoryWriter
from trimtab_pipeline.prometheus.shard_reader import DRY_URL
from trimtab_pipeline.sources.direct import DirectRunner
from trimtab_pipeline.sources.pipeline import Measurement, Outcome, measure
from trimtab_pipeline.sources.policy import T, Wanted
from trimtab_pipeline.sources.policy_cycle import PolicyCycle
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_pipeline.sources.shard_tasks import SparkShards
from trimtab_pipeline.spark.outcomes import as_source_error, promised, settle
from trimtab_pipeline.spark.session import Engine
from trimtab_pipeline.spark.settings import SparkSettings

_COLLECT_EVERY = 5
"""Batches between garbage collections. Py4J's objects refer to themselves. So the JVM can drop their plans (5 MB per
batch) only after a collection."""
_Waiting = tuple[Wanted[Any], Future[Any]]
_NEVER = math.inf  # seconds: each measurement has a deadline of its own


class SparkLoadSources(PolicySources):
    """One Spark session, and a source per policy on it.

    history_dir: folder or URI of the histories of all policies.
    master:      as in `SparkSettings`. memory: heap of this process's JVM.
    deadline:    seconds a cycle may take, waiting included.
    Raises `JavaMissingError` if Spark's driver must run here and there is no Java.
    """

    def __init__(
        self,
        history_dir: Place,
        *,
        master: str = "local[*]",
        memory: str = "700m",
        deadline: float = 60.0,
        retention: Retention = KEEP_A_DAY,
    ) -> None:
        self._engine = engine = Engine(SparkSettings(master, memory))
        self._runner = runner = SparkRunner(engine)
        refreshes = runner if engine.settings.remote else DirectRunner(lambda: engine.closed)
        super().__init__(history_dir, cycles=runner, refreshes=refreshes, deadline=deadline, retention=retention)

    def warm_up(self) -> Future[None]:
        """Run a cycle without samples; otherwise the first real cycle would take some seconds longer."""
        return self._engine.run(self._dry_cycle, deadline=max(self._deadline, 120.0))

    def close(self) -> None:
        """Cancel what runs and stop Spark. Idempotent."""
        self._tidier.close()
        self._engine.close()

    def _dry_cycle(self, session: SparkSession) -> None:
        self._engine.measure(session)
        with tempfile.TemporaryDirectory(prefix="trimtab-dry-") as folder:
            writer = HistoryWriter(folder, "dry/dry", self._retention, self._tidier)
            source = self._opened("dry/dry", PrometheusSettings(url=DRY_URL, namespace="dry"), writer, self._deadline)
            wanted = source.wanted(_dry_topology(self._engine.parallelism), 1.0, bundles=True)
            self._runner.measured(session, [wanted.prepared()], bundles=True)


class SparkRunner:
    """`MeasurementRunner` on a Spark session. The cycles that wait when the session becomes free form one batch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: list[_Waiting] = []
        self._lock = Lock()
        self._numbers = itertools.count(1)

    def run(self, wanted: Wanted[T]) -> Future[T]:
        """See `MeasurementRunner.run`."""
        outcome: Future[T] = promised(wanted.left)
        outcome.add_done_callback(self._engine.check_after)
        with self._lock:
            self._waiting = [pair for pair in self._waiting if not pair[1].done()]
            self._waiting.append((wanted, outcome))
        job = self._engine.run(self._measure_waiting, _NEVER)
        job.add_done_callback(lambda job: _fail(outcome, job))
        return outcome

    def measured(self, session: SparkSession, due: Sequence[PolicyCycle], *, bundles: bool) -> dict[str, Outcome]:
        """The result of `pipeline.measure` on the session."""
        self._engine.measure(session)
        logging.getLogger("py4j").setLevel(logging.WARNING)  # at DEBUG it logs all traffic, credentials too
        return measure(due, SparkShards(session, self._engine.parallelism), bundles=bundles)

    def _measure_waiting(self, session: SparkSession) -> None:
        """Make all waiting measurements, in the order of their turns. A batch has each name at most once."""
        with self._lock:
            waiting = [(wanted, outcome) for wanted, outcome in self._waiting if not outcome.done()]
            self._waiting = []
        while waiting:
            turn = min(wanted.turn for wanted, _ in waiting)
            first = {wanted.name: (wanted, outcome) for wanted, outcome in reversed(waiting) if wanted.turn is turn}
            batch = list(first.values())
            waiting = [pair for pair in waiting if pair not in batch]
            self._run_batch(session, batch)

    def _run_batch(self, session: SparkSession, batch: Sequence[_Waiting]) -> None:
        """Measure a batch, then settle its outcomes. Its jobs are cancelled once no caller waits for any outcome."""
        ended, number = Future[None](), next(self._numbers)
        tag = f"batch-{number}"
        outcomes = [outcome for _, outcome in batch]

        def interrupt_abandoned(_: Future[Any]) -> None:
            if all(outcome.done() for outcome in outcomes) and not ended.done():
                self._engine.interrupt(session, tag, ended)

        session.addTag(tag)
        for outcome in outcomes:
            outcome.add_done_callback(interrupt_abandoned)
        try:
            found = self._measure_batch(session, batch)
        finally:
            ended.set_result(None)
            session.removeTag(tag)
            if number % _COLLECT_EVERY == 0:
                gc.collect()
        for wanted, outcome, measured in found:
            _settle(wanted, measured, outcome)

    def _measure_batch(
        self, session: SparkSession, batch: Sequence[_Waiting]
    ) -> list[tuple[Wanted[Any], Future[Any], Outcome]]:
        """The measured members of a batch. The futures of the others, which failed, are settled here."""
        ready: dict[str, tuple[PolicyCycle, Wanted[Any], Future[Any]]] = {}
        for wanted, outcome in batch:
            try:
                one = wanted.prepared()
                ready[one.name] = one, wanted, outcome
            except Exception as error:  # noqa: BLE001  (the future carries it)
                settle(outcome.set_exception, as_source_error(error))
        try:
            found = self.measured(session, [one for one, *_ in ready.values()], bundles=batch[0][0].bundles)
        except Exception as error:  # noqa: BLE001  (the futures carry it)
            for _, wanted, outcome in ready.values():
                wanted.failed()
                settle(outcome.set_exception, self._engine.error_of(error))
            return []
        return [(wanted, outcome, found[name]) for name, (_, wanted, outcome) in ready.items()]


def _settle(wanted: Wanted[T], measured: Outcome, outcome: Future[T]) -> None:
    if not isinstance(measured, Measurement):
        wanted.failed()
        settle(outcome.set_exception, as_source_error(measured))
        return
    try:
        settle(outcome.set_result, wanted.finished(measured))
    except Exception as error:  # noqa: BLE001  (the future carries it)
        settle(outcome.set_exception, as_source_error(error))


def _fail(outcome: Future[Any], job: Future[None]) -> None:
    """Fail a measurement whose job could not run."""
    if not job.cancelled() and (error := job.exception()) is not None:
        settle(outcome.set_exception, error)


def _dry_topology(brokers: int) -> Topology:
    names = tuple(f"dry-{n}" for n in range(brokers))
    nothing = np.empty(0, np.int64)
    return Topology(
        brokers=names,
        pods=names,
        declared_limit=np.full((brokers, 5), np.nan),
        ready=np.ones(brokers, bool),
        schedulable=np.ones(brokers, bool),
        namespaces=(),
        bundles=(),
        namespace=nothing,
        owner=nothing,
        last_unload=np.empty(0),
        pinned=np.empty(0, bool),
        in_flight=np.empty(0, bool),
        moving_from=nothing,
        moving_share=np.empty(0),
    )
