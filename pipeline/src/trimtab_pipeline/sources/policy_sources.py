"""`LoadSources`: a source for each policy, whose measurements run on Spark or on threads of this process."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from trimtab_pipeline.api import DecisionEntry, Fact, PrometheusSettings, Retention
from trimtab_pipeline.history.decisions import DecisionHistories
from trimtab_pipeline.history.location import Place
from trimtab_pipeline.history.recalled_samples import recalled_samples
from trimtab_pipeline.history.writer import HistoryTidier, HistoryWriter
from trimtab_pipeline.sources.policy import MeasurementRunner, PolicySource
from trimtab_strategies.shedding.trim.samples import CycleSamples


class PolicySources:
    """The sources of all policies, and their histories below `history_dir`.

    cycles, refreshes: run the sources' measurements. deadline: seconds a cycle may take, waiting included.
    """

    def __init__(
        self,
        history_dir: Place,
        *,
        cycles: MeasurementRunner,
        refreshes: MeasurementRunner,
        deadline: float,
        retention: Retention,
    ) -> None:
        self.history_dir = history_dir
        self._cycles, self._refreshes = cycles, refreshes
        self._deadline, self._retention = deadline, retention
        self._tidier = HistoryTidier()
        self._decisions = DecisionHistories(history_dir)

    def open(self, policy: str, settings: PrometheusSettings, *, deadline: float | None = None) -> PolicySource:
        """A source for `policy` (``namespace/name``), whose cycles may take `deadline` seconds (None: the common one).

        Raises `ValueError` for a name that leads out of the folder of histories, or an unknown preset.
        """
        writer = HistoryWriter(self.history_dir, policy, self._retention, self._tidier)
        return self._opened(policy, settings, writer, deadline or self._deadline)

    def _opened(
        self, policy: str, settings: PrometheusSettings, writer: HistoryWriter, deadline: float
    ) -> PolicySource:
        return PolicySource(policy, settings, deadline, writer, cycles=self._cycles, refreshes=self._refreshes)

    def keep_decisions(self, policy: str, at: float, entries: Sequence[DecisionEntry]) -> None:
        """See `KeepsDecisions`."""
        self._decisions.keep_decisions(policy, at, entries)

    def write_facts(self, policy: str, at: float, facts: Iterable[Fact], complete: Collection[str] = ()) -> None:
        """See `KeepsFacts`."""
        self._decisions.write_facts(policy, at, facts, complete)

    def keep_policy(self, policy: str, at: float, spec: Any, memory: Any) -> None:
        """See `KeepsFacts`."""
        self._decisions.keep_policy(policy, at, spec, memory)

    def recall_samples(self, policy: str, begin: float, end: float) -> Iterator[CycleSamples]:
        """See `RecallsSamples`."""
        return recalled_samples(self.history_dir, policy, begin, end)
