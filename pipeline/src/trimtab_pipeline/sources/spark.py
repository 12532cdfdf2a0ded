"""`LoadSources` on Spark.

The operator does not import this module; `trimtab_pipeline.factory.spark_sources` does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from trimtab_pipeline.api import KEEP_A_DAY, DecisionEntry, Fact, PrometheusSettings, Retention
from trimtab_pipeline.history.decisions import DecisionHistories
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.writer import HistoryTidier, HistoryWriter
from trimtab_pipeline.sources.policy import Ask, PolicySource
from trimtab_pipeline.spark.session import Engine
from trimtab_pipeline.spark.settings import SparkSettings
from trimtab_pipeline.spark.tasks import DRY_URL, spread

T = TypeVar("T")
_DRY_CYCLES = 2


class SparkLoadSources:
    """One Spark session, and a source per policy on it.

    history_dir: folder of the histories, one folder per policy; on Connect the server must see it under the same path.
    master:      as in `SparkSettings`. memory: heap of the embedded JVM.
    deadline:    seconds a cycle may take, waiting for other policies included.
    Raises `JavaMissingError` when Spark is to be embedded and there is no Java.
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
        self.history_dir = history_dir
        self._deadline = deadline
        self._retention = retention
        self._engine = Engine(SparkSettings(master, memory))
        self._workshop = _OnSpark(self._engine)
        self._background = HistoryTidier()
        self._decisions = DecisionHistories(history_dir)

    def open(self, policy: str, settings: PrometheusSettings, *, deadline: float | None = None) -> PolicySource:
        """A source for `policy` (``namespace/name``), whose cycles may take `deadline` seconds (default: the engine's).

        Raises `ValueError` for a name that leads out of the folder of histories, or an unknown preset.
        """
        writer = HistoryWriter(self.history_dir, policy, self._retention, self._background)
        return PolicySource(self._workshop, settings, deadline or self._deadline, writer)

    def warm_up(self) -> Future[None]:
        """Run two cycles on made-up samples; otherwise the first real cycle would take some seconds longer."""
        return self._workshop.run(self._dry_cycles, deadline=max(self._deadline, 120.0))

    def keep_decisions(self, policy: str, at: float, entries: Sequence[DecisionEntry]) -> None:
        """See `KeepsDecisions`."""
        self._decisions.keep_decisions(policy, at, entries)

    def write_facts(self, policy: str, at: float, facts: Iterable[Fact], complete: Collection[str] = ()) -> None:
        """See `KeepsFacts`."""
        self._decisions.write_facts(policy, at, facts, complete)

    def keep_policy(self, policy: str, at: float, spec: Any, memory: Any) -> None:
        """See `KeepsFacts`."""
        self._decisions.keep_policy(policy, at, spec, memory)

    def close(self) -> None:
        """Cancel what runs and stop Spark. Idempotent."""
        self._background.close()
        self._engine.close()

    def _dry_cycles(self, ask: Ask) -> None:
        settings = PrometheusSettings(url=DRY_URL, namespace="dry")
        with tempfile.TemporaryDirectory(prefix="dry-") as folder:
            writer = HistoryWriter(folder, "dry/dry", self._retention, self._background)
            source = PolicySource(self._workshop, settings, self._deadline, writer)
            pods = [f"dry/{n}" for n in range(self._workshop.cores)]
            for cycle in range(_DRY_CYCLES):
                source.measure(ask, pods, at=1.0 + cycle)


class _OnSpark:
    """`Workshop` on a Spark session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.remote = engine.settings.remote

    @property
    def cores(self) -> int:
        """Number of tasks that run at once."""
        return self._engine.parallelism

    @property
    def closed(self) -> bool:
        """Whether the engine was closed."""
        return self._engine.closed

    def run(self, job: Callable[[Ask], T], deadline: float) -> Future[T]:
        """See `Workshop.run`: it runs in the engine's thread, one job per cycle."""
        return self._engine.run(lambda spark: job(lambda work: spread(spark, work).toArrow()), deadline)
