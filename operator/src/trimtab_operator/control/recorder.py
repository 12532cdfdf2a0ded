"""Records each decision of a policy, once it was carried out, and later what came of it. No cycle fails with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from trimtab_operator.cluster.api import ApiError
from trimtab_operator.control.aftermath import followed, measured
from trimtab_operator.control.context import Context
from trimtab_operator.control.decision_store import DecisionStore
from trimtab_operator.control.decisions import DecisionRecord
from trimtab_operator.control.memory import Remembered
from trimtab_operator.control.metering import Meter
from trimtab_operator.control.recounting import recounted
from trimtab_operator.control.report import CycleResult
from trimtab_operator.control.settings import Settings
from trimtab_pipeline.decision_entries import Entry, KeepsDecisions

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recorder:
    """Keeps the decisions of one policy: the latest ones in the API server, all of them in its history of load."""

    context: Context
    policy: str
    uid: str
    meter: Meter
    _kept: tuple[DecisionRecord, ...] | None = None
    _store: DecisionStore = field(init=False)

    def __post_init__(self) -> None:
        self._store = DecisionStore(self.context.api, self.context.namespace, self.policy, self.uid)

    async def cycle(self, result: CycleResult, settings: Settings, remembered: Remembered) -> None:
        """Record a cycle; when that fails the log says so."""
        try:
            record = await asyncio.to_thread(recounted, result, settings, remembered)
            before = self._kept if self._kept is not None else await self._store.load()
            self._kept = before
            known = await asyncio.to_thread(self._learnt, record, before)
            self._compare(known, before)
            await self._note(record, [new for new, old in zip(known, before, strict=True) if new is not old])
            after = known if known and record.says_the_same(known[-1]) else (*known, record)
            if len(after) > len(before) or any(a is not b for a, b in zip(after, before, strict=True)):
                self._kept = await self._store.save(after)
        except ApiError as error:
            log.warning("policy %s: a decision could not be stored for `trimtab explain`: %s", self.policy, error)
        except Exception:
            log.exception("policy %s: a decision could not be recorded for `trimtab explain`", self.policy)

    def _compare(self, known: Sequence[DecisionRecord], before: Sequence[DecisionRecord]) -> None:
        """Have metrics tell of the decisions whose results are known by now, and were not before."""
        for new, old in zip(known, before, strict=True):
            if new.measured_at is not None and old.measured_at is None:
                self.meter.predicted(new)

    async def _note(self, record: DecisionRecord, learnt: Sequence[DecisionRecord]) -> None:
        """Into the history, where there is one: the decision, and what has become of earlier ones."""
        sources = self.context.sources
        if isinstance(sources, KeepsDecisions):
            name = f"{self.context.namespace}/{self.policy}"
            try:
                await asyncio.to_thread(_keep, sources, name, record, learnt)
            except OSError as error:
                log.warning("policy %s: a decision could not be written to the history: %s", self.policy, error)

    def _learnt(self, record: DecisionRecord, before: tuple[DecisionRecord, ...]) -> tuple[DecisionRecord, ...]:
        """The decisions of `before` with what is known of them by now, each itself when that is nothing new."""
        bundles, now = self.context.stores.bundles.items, self.context.now()
        known = [followed(old, bundles, now) for old in before]
        return tuple(measured(old, record, known[k + 1 :]) for k, old in enumerate(known))


def _keep(sources: KeepsDecisions, name: str, record: DecisionRecord, learnt: Sequence[DecisionRecord]) -> None:
    entries = [Entry(one.at, str(one.outcome), len(one.moves), one.to_json()) for one in (record, *learnt)]
    sources.keep_decisions(name, record.at, entries)
