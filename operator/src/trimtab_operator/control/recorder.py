"""Records each decision of a policy, and later what came of it. Balancing never waits for it, nor fails with it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from trimtab_operator.cluster.api import ApiError
from trimtab_operator.control.aftermath import followed, measured
from trimtab_operator.control.context import Context
from trimtab_operator.control.decision_store import KEPT, DecisionStore
from trimtab_operator.control.decisions import DecisionRecord
from trimtab_operator.control.memory import Remembered
from trimtab_operator.control.recounting import recounted
from trimtab_operator.control.report import CycleResult
from trimtab_operator.control.settings import Settings

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Recorder:
    """Keeps the decisions of one policy: the latest ones in the API server."""

    context: Context
    policy: str
    uid: str
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
            after = self._with(record, before)
            if after is not before:
                self._kept = await self._store.save(after)
        except ApiError as error:
            log.warning("policy %s: a decision could not be stored for `trimtab explain`: %s", self.policy, error)
        except Exception:
            log.exception("policy %s: a decision could not be recorded for `trimtab explain`", self.policy)

    def _with(self, record: DecisionRecord, before: tuple[DecisionRecord, ...]) -> tuple[DecisionRecord, ...]:
        """The decisions to be kept after `record`; `before` itself when there is no news."""
        bundles, now = self.context.stores.bundles.items, self.context.now()
        known = tuple(followed(old, bundles, now) for old in before)
        known = tuple(measured(old, record, known[k + 1 :]) for k, old in enumerate(known))
        if not known or not record.says_the_same(known[-1]):
            known = (*known, record)[-KEPT:]
        same = len(known) == len(before) and all(a is b for a, b in zip(known, before, strict=True))
        return before if same else known
