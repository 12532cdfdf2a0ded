"""Stores the decisions of a policy: the latest in a ConfigMap, all of them in the history.

The ConfigMap ``trimtab-decisions-<policy>`` is for people without access to the operator's disk. It omits decisions
that only repeat the one before. Outcomes are added later. An error in a record never makes a cycle fail.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trimtab_operator.decision_log.build import decision_record
from trimtab_operator.decision_log.outcome import followed, measured
from trimtab_operator.decision_log.record import DecisionRecord, ManualMove
from trimtab_operator.kube.client import Api, ApiError
from trimtab_operator.kube.config_map_store import (
    ConfigMapStore,
    PolicyOwner,
    StoredFormat,
    UnreadableContentError,
    check_version,
)
from trimtab_operator.kube.naming import policy_part
from trimtab_operator.observe.departures import Departures, departures_of
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.metrics import PolicyMetrics
from trimtab_pipeline.api import DecisionEntry, Fact, KeepsDecisions, KeepsFacts
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_strategies.model import BrokerTraits, ClusterLoad, NamespacePolicy

log = logging.getLogger(__name__)


KEPT = 10
"""Maximum number of decisions in the ConfigMap."""

MOST_BYTES = 384 * 1024
"""Maximum number of bytes of the compressed records: 512 KiB in base64."""

_KEY = "decisions.json.gz"

Records = tuple[DecisionRecord, ...]
"""Decisions, oldest first."""


def _decoded(texts: Mapping[str, str]) -> Records:
    lines = texts[_KEY].splitlines()
    for line in lines:
        check_version("it", json_of(line).get("version", 1))
    return tuple(DecisionRecord.from_json(line) for line in lines)


DECISIONS: StoredFormat[Records] = StoredFormat(
    encode=lambda records, _: {_KEY: lambda: "\n".join(record.to_json() for record in records)},
    decode=_decoded,
    remedy="use a trimtab that is as new as the operator",
    shorten=lambda records: records[1:] if len(records) > 1 else None,
    most_bytes=MOST_BYTES,
)
"""The last decisions as JSON lines. If they are too large, the oldest are left out."""


def decision_store(api: Api, namespace: str, policy: str, uid: str) -> ConfigMapStore[Records]:
    """The store of one policy's decisions. uid: the policy's; a new policy of the same name starts empty."""
    return ConfigMapStore(api, namespace, policy_part("decisions", policy), DECISIONS, PolicyOwner(policy, uid))


MOST_MANUAL_MOVES = 100
"""Maximum number of manual moves in one record. The latest ones are kept."""


@dataclass(slots=True)
class Recorder:
    """Records the decisions of one policy: the latest ones in a ConfigMap, all of them in the policy's history."""

    cluster: ClusterState
    policy: str
    uid: str
    meter: PolicyMetrics
    _kept: tuple[DecisionRecord, ...] | None = None
    _seen_until: float = 0.0
    _store: ConfigMapStore[Records] = field(init=False)

    def __post_init__(self) -> None:
        self._store = decision_store(self.cluster.api, self.cluster.namespace, self.policy, self.uid)

    async def cycle(self, result: CycleResult, settings: Settings, remembered: PolicyState) -> None:
        """Record a cycle. A failure is logged."""
        try:
            record = await asyncio.to_thread(decision_record, result, settings, remembered)
            record = self._with_manual_moves(record)
            before = self._kept if self._kept is not None else await self._recorded()
            self._kept = before
            known = await asyncio.to_thread(self._learnt, record, before)
            self._compare(known, before)
            await self._note(record, [new for new, old in zip(known, before, strict=True) if new is not old])
            await self._note_facts(result, settings, remembered)
            after = known if known and record.says_the_same(known[-1]) else (*known, record)
            if len(after) > len(before) or any(a is not b for a, b in zip(after, before, strict=True)):
                self._kept = await self._store.save(after[-KEPT:])
        except ApiError as error:
            log.warning("policy %s: a decision could not be stored for `trimtab explain`: %s", self.policy, error)
        except Exception:
            log.exception("policy %s: a decision could not be recorded for `trimtab explain`", self.policy)

    async def _recorded(self) -> Records:
        try:
            return await self._store.load() or ()
        except UnreadableContentError as error:
            log.warning("policy %s: earlier decisions are lost to `trimtab explain`: %s", self.policy, error)
            return ()

    def _with_manual_moves(self, record: DecisionRecord) -> DecisionRecord:
        """The record with the manual moves since the last record."""
        since, self._seen_until = self._seen_until, self.cluster.now()
        found = self.cluster.ownership_changes.manual_moves(
            lambda bundle: self.cluster.cares(self.policy, bundle), since
        )
        moves = tuple(
            ManualMove(name=move.bundle, source=move.left, destination=move.taken, at=move.at)
            for move in found[-MOST_MANUAL_MOVES:]
        )
        return record.model_copy(update={"manual_moves": moves}) if moves else record

    def _compare(self, known: Sequence[DecisionRecord], before: Sequence[DecisionRecord]) -> None:
        """Record the prediction errors of decisions whose results are new."""
        for new, old in zip(known, before, strict=True):
            if new.measured_at is not None and old.measured_at is None:
                self.meter.predicted(result.error for result in new.results if not result.disturbed)

    async def _note(self, record: DecisionRecord, learnt: Sequence[DecisionRecord]) -> None:
        """Write the decision, and new outcomes of earlier ones, into the history, if there is one."""
        sources = self.cluster.sources
        if isinstance(sources, KeepsDecisions):
            name = f"{self.cluster.namespace}/{self.policy}"
            try:
                await asyncio.to_thread(_keep, sources, name, record, learnt)
            except OSError as error:
                log.warning("policy %s: a decision could not be written to the history: %s", self.policy, error)

    async def _note_facts(self, result: CycleResult, settings: Settings, remembered: PolicyState) -> None:
        """Write the policy, and `facts` of brokers and namespaces, into the history, if there is one."""
        sources, load, plan = self.cluster.sources, result.load, result.plan
        if isinstance(sources, KeepsFacts) and load is not None and plan is not None:
            known = facts(load, plan.target_weights, departures_of(self.cluster, self.policy))
            name, memory = f"{self.cluster.namespace}/{self.policy}", json.loads(remembered.to_json())
            try:
                await asyncio.to_thread(sources.write_facts, name, load.now, known, FACTS)
                await asyncio.to_thread(sources.keep_policy, name, load.now, settings.spec, memory)
            except OSError as error:
                log.warning("policy %s: facts could not be written to the history: %s", self.policy, error)

    def _learnt(self, record: DecisionRecord, before: tuple[DecisionRecord, ...]) -> tuple[DecisionRecord, ...]:
        """The decisions of `before` with their outcomes. A decision without news is returned as it is."""
        bundles, now = self.cluster.stores.bundles.items, self.cluster.now()
        known = [followed(old, bundles, now) for old in before]
        return tuple(measured(old, record, known[k + 1 :]) for k, old in enumerate(known))


def _keep(sources: KeepsDecisions, name: str, record: DecisionRecord, learnt: Sequence[DecisionRecord]) -> None:
    entries = [DecisionEntry(one.at, str(one.outcome), len(one.moves), one.to_json()) for one in (record, *learnt)]
    sources.keep_decisions(name, record.at, entries)


FACTS = ("traits", "namespace", "publishGap", "targetWeight", "leaving")
"""Kinds of facts that each decision lists completely. A fact that is not listed no longer holds."""


def facts(load: ClusterLoad, target_weights: Mapping[str, float], leaving: Departures) -> list[Fact]:
    """Facts of brokers and namespaces that only the Kubernetes objects and the plan contain."""
    causes = {"drained": leaving.drained, "cordoned": leaving.cordoned, "ending": leaving.ending}
    return [
        *(Fact("traits", broker, _plain(traits)) for broker, traits in load.traits.items()),
        *(Fact("namespace", space, _plain(policy)) for space, policy in load.policies.items()),
        *(Fact("publishGap", space, {"seconds": gap}) for space, gap in load.publish_gaps.items()),
        *(Fact("targetWeight", broker, {"weight": weight}) for broker, weight in target_weights.items()),
        *(
            Fact("leaving", broker, {"causes": [cause for cause, brokers in causes.items() if broker in brokers]})
            for broker in sorted(frozenset().union(*causes.values()))
        ),
    ]


def _plain(value: BrokerTraits | NamespacePolicy) -> dict[str, Any]:
    """The fields as JSON values. NaN becomes null, because JSON has no NaN."""
    return {key: None if item != item else item for key, item in asdict(value).items()}  # noqa: PLR0124
