"""Stores the decisions of a policy: the newest in a ConfigMap, all of them in the history.

The ConfigMap ``trimtab-decisions-<policy>`` is for people without access to the operator's disk. It holds decisions
that wrote something or changed their verdict. What came of a decision is added later. No cycle fails because of a
record.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.decision_log.build import decision_record
from trimtab_operator.decision_log.outcome import followed, measured
from trimtab_operator.decision_log.record import DecisionRecord, ForeignRecordError, ManualMove
from trimtab_operator.kube.client import CONFIG_MAPS, Api, ApiError, NotFoundError
from trimtab_operator.kube.naming import decisions_name
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.metrics import PolicyMetrics
from trimtab_pipeline.api import DecisionEntry, KeepsDecisions

log = logging.getLogger(__name__)


KEPT = 10
"""Decisions, at most."""

MOST_BYTES = 512 * 1024
"""Of the compressed records in base64; a ConfigMap holds a mebibyte, with a little besides."""

_KEY = "decisions.json.gz"


@dataclass(slots=True)
class DecisionStore:
    """Keeps one policy's decisions; `uid` is the policy's, so that a new one of its name begins anew."""

    api: Api
    namespace: str
    policy: str
    uid: str

    @property
    def name(self) -> str:
        """Name of the ConfigMap."""
        return decisions_name(self.policy)

    async def load(self) -> tuple[DecisionRecord, ...]:
        """What was stored last, oldest first; nothing where it is not ours. Raises `ApiError`."""
        try:
            found = await self.api.get(CONFIG_MAPS, self.namespace, self.name)
        except NotFoundError:
            return ()
        owners = [owner.get("uid") for owner in found["metadata"].get("ownerReferences") or ()]
        if self.uid not in owners:
            return ()
        try:
            return await asyncio.to_thread(unpacked, found)
        except ForeignRecordError as error:
            log.warning("policy %s: its recorded decisions are begun anew: %s", self.policy, error)
            return ()

    async def save(self, records: Sequence[DecisionRecord]) -> tuple[DecisionRecord, ...]:
        """Store the last `KEPT`, or fewer where these are too large; those that were kept. Raises `ApiError`."""
        text, kept = await asyncio.to_thread(packed, records)
        owner = {"apiVersion": API_VERSION, "kind": "BalancingPolicy", "name": self.policy, "uid": self.uid}
        body: dict[str, Any] = {
            "metadata": {"name": self.name, "ownerReferences": [owner]},
            "binaryData": {_KEY: text},
        }
        try:
            await self.api.patch(CONFIG_MAPS, self.namespace, self.name, body)
        except NotFoundError:
            await self.api.create(CONFIG_MAPS, self.namespace, {"apiVersion": "v1", "kind": "ConfigMap", **body})
        return kept


def packed(records: Sequence[DecisionRecord]) -> tuple[str, tuple[DecisionRecord, ...]]:
    """As a ConfigMap holds it, and how much of it that is: compressed JSON lines in base64, oldest first."""
    kept = tuple(records[-KEPT:])
    while True:
        lines = "\n".join(record.to_json() for record in kept)
        text = base64.b64encode(gzip.compress(lines.encode(), compresslevel=6, mtime=0)).decode()
        if len(text) <= MOST_BYTES or len(kept) == 1:
            return text, kept
        kept = kept[1:]


def unpacked(config_map: Mapping[str, Any]) -> tuple[DecisionRecord, ...]:
    """The decisions in a ConfigMap as the API server returns it, oldest first. Raises `ForeignRecordError`."""
    try:
        lines = gzip.decompress(base64.b64decode(config_map["binaryData"][_KEY])).decode().splitlines()
        versions = {json.loads(line).get("version", 1) for line in lines}
    except (AttributeError, KeyError, TypeError, ValueError, OSError, EOFError) as error:
        raise ForeignRecordError(f"it is not what Trimtab writes ({error!r:.200})") from error
    if versions - {1}:
        raise ForeignRecordError(f"it has version {max(versions)}, this Trimtab reads 1")
    return tuple(DecisionRecord.from_json(line) for line in lines)


MOST_BY_HAND = 100
"""Moves by hand that one record names, the latest."""


@dataclass(slots=True)
class Recorder:
    """Keeps the decisions of one policy: the latest ones in the API server, all of them in its history of load."""

    context: ClusterState
    policy: str
    uid: str
    meter: PolicyMetrics
    _kept: tuple[DecisionRecord, ...] | None = None
    _seen_until: float = 0.0
    _store: DecisionStore = field(init=False)

    def __post_init__(self) -> None:
        self._store = DecisionStore(self.context.api, self.context.namespace, self.policy, self.uid)

    async def cycle(self, result: CycleResult, settings: Settings, remembered: PolicyState) -> None:
        """Record a cycle; when that fails the log says so."""
        try:
            record = await asyncio.to_thread(decision_record, result, settings, remembered)
            record = self._with_manual_moves(record)
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

    def _with_manual_moves(self, record: DecisionRecord) -> DecisionRecord:
        """The record with what people moved since the last one."""
        since, self._seen_until = self._seen_until, self.context.now()
        found = self.context.ownership_changes.by_hand(lambda bundle: self.context.cares(self.policy, bundle), since)
        moves = tuple(
            ManualMove(name=move.bundle, source=move.left, destination=move.taken, at=move.at)
            for move in found[-MOST_BY_HAND:]
        )
        return record.model_copy(update={"by_hand": moves}) if moves else record

    def _compare(self, known: Sequence[DecisionRecord], before: Sequence[DecisionRecord]) -> None:
        """Have metrics tell of the decisions whose results are known by now, and were not before."""
        for new, old in zip(known, before, strict=True):
            if new.measured_at is not None and old.measured_at is None:
                self.meter.predicted(result.error for result in new.results if not result.disturbed)

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
    entries = [DecisionEntry(one.at, str(one.outcome), len(one.moves), one.to_json()) for one in (record, *learnt)]
    sources.keep_decisions(name, record.at, entries)
