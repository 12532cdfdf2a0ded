"""`StatusPublisher`: writes policy and broker status, Kubernetes Events, metrics and the log.

It posts an Event when a cycle moved something, for each condition that changed, and for each failed move. An idle
cluster gets none.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab_operator.actuators import WriteResult
from trimtab_operator.confirm import BundleRepairs
from trimtab_operator.kube.broker_records import BrokerRecord
from trimtab_operator.kube.client import BROKERS, BUNDLES, POLICIES, ConflictError, NotFoundError
from trimtab_operator.observe.snapshot import trusted_only
from trimtab_operator.resources.conditions import PolicyCondition
from trimtab_operator.resources.policy import Mode
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.pending_moves import MoveOutcome
from trimtab_operator.state.target_weights import BrokerWeight, changed_weights
from trimtab_operator.status.conditions import (
    event_type,
    landed_status,
    linked,
    policy_status,
    steered,
    transitions,
    where_to_ask,
    without_old_answer,
)
from trimtab_operator.status.metrics import PolicyMetrics
from trimtab_operator.status.summary import led, summarized
from trimtab_strategies.model import CPU, MEMORY, NETWORK_IN, NETWORK_OUT, ClusterLoad, Reason, counted, some
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.usage import measured_percent

log = logging.getLogger(__name__)

_NAMED = 5
"""Maximum number of bundles that Events of one kind name. The other bundles are only counted."""

_TRIES = 4
"""Attempts to write the policy's status while the policy is being edited."""

PACE = 2.0
"""Seconds between two writes of the number of pending moves. When all have landed, it is written immediately."""


@dataclass(slots=True)
class StatusPublisher:
    """Publishes the results of one policy."""

    cluster: ClusterState
    policy: str
    uid: str
    meter: PolicyMetrics = field(init=False)
    _reported_waiting: frozenset[tuple[str, str]] = frozenset()
    _in_flight: int | None = None
    _reported_landed: frozenset[str] = frozenset()
    _reported_at: float = 0.0
    _reported_circumstances: tuple[object, ...] = ()
    _ready: Mapping[str, Any] | None = None
    _planned: int = 0
    _destinations: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.meter = PolicyMetrics(self.cluster, self.policy)

    async def cycle(self, result: CycleResult) -> None:
        """Publish status, Events, metrics and log of one cycle. Raises `ApiError`."""
        self.meter.cycle(result)
        self.cluster.policies.refusals[self.policy] = result.refusal
        log.info("policy %s: %s, %d moved, %s", self.policy, result.outcome, len(result.moved), dict(result.held_back))
        await self._policy_status(result)
        await self._split(result)
        await self._moved(result)
        if result.plan is not None:
            weights = result.weights if result.refusal is None else None
            self.meter.usage(result.plan.brokers, result.plan.before, result.load)
            await self._broker_statuses(result.plan.brokers, trusted_only(result.plan.before, result.load), weights)

    async def _policy_status(self, result: CycleResult) -> None:
        in_flight = self.cluster.in_flight(self.policy)
        self._planned = 0 if result.plan is None else len(result.plan.moves)
        self._destinations = {result.names.get(move.bundle, move.bundle): move.destination for move in result.moved}
        circumstances = self._circumstances()

        def made(previous: Mapping[str, Any]) -> dict[str, Any]:
            status = policy_status(result, previous, in_flight)
            self._ready = next(one for one in status["conditions"] if one["type"] == PolicyCondition.READY)
            return status

        await self._status_and_events(made)
        self._in_flight, self._reported_landed, self._reported_at = in_flight, frozenset(), self.cluster.clock()
        self._reported_circumstances = circumstances

    def _circumstances(self) -> tuple[object, ...]:
        """What decides the conditions that do not come from a cycle."""
        link = self.cluster.link
        return self.cluster.process.leader, link.spec, link.problem, link.own_balancer.disabled

    async def landings(self) -> None:
        """Update the pending moves, the brokers' bundles, and the connection to Pulsar between two cycles.

        Raises `ApiError`.
        """
        in_flight, clock = self.cluster.in_flight(self.policy), self.cluster.clock()
        landed, circumstances = self._reported_landed | self._landed(), self._circumstances()
        before = (self._in_flight, self._reported_landed, self._reported_circumstances)
        same = (in_flight, landed, circumstances) == before
        if self._in_flight is None or same or (in_flight and clock - self._reported_at < PACE):
            return
        await self._status_and_events(lambda previous: landed_status(previous, in_flight, self._planned, landed))
        self._in_flight, self._reported_landed, self._reported_at = in_flight, landed, clock
        self._reported_circumstances = circumstances
        if not in_flight:
            await self.counts()

    def _landed(self) -> frozenset[str]:
        """The Bundles of the last plan that their destinations already serve."""
        bundles, planned = self.cluster.stores.bundles.items, self._destinations.items()
        return frozenset(name for name, to in planned if name in bundles and bundles[name].status_owner == to)

    async def _status_and_events(self, make: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        for condition in await self.status(make):
            await self.event(event_type(condition), condition["reason"], f"{condition['type']}: {condition['message']}")

    async def leader(self) -> None:
        """Write who leads, although no cycle has ended. Raises `ApiError`."""
        await self._status_and_events(lambda previous: {"conditions": previous.get("conditions") or []})

    async def status(self, make: Callable[[Mapping[str, Any]], dict[str, Any]]) -> list[Mapping[str, Any]]:
        """Write the merge-patch that `make` computes from the current status of the policy. Raises `ApiError`.

        Returns the conditions to post an Event for.
        """
        for tries_left in reversed(range(_TRIES)):
            try:
                return await self._write_status(make)
            except NotFoundError:
                break
            except ConflictError:
                if not tries_left:
                    raise
        return []

    async def _write_status(self, make: Callable[[Mapping[str, Any]], dict[str, Any]]) -> list[Mapping[str, Any]]:
        """Write the status once. Raises `ConflictError` if the policy was edited meanwhile."""
        cluster = self.cluster
        policy = await cluster.api.get(POLICIES, cluster.namespace, self.policy)
        if policy["metadata"]["uid"] != self.uid:
            return []  # a new policy of the same name, which has its own loop
        previous = policy.get("status") or {}
        status = make(previous)
        generation = policy["metadata"]["generation"]
        found = led(cluster, status["conditions"], generation)
        found = linked(found, cluster.link, generation, cluster.now())
        found = steered(found, cluster.link, generation, cluster.now())
        shown, mode = previous.get("conditions") or [], policy["spec"].get("mode", Mode.DRY_RUN)
        found = summarized(found, shown, self._ready, mode, cluster.now())
        status["conditions"] = without_old_answer(found, cluster.now())
        body = {"metadata": {"resourceVersion": policy["metadata"]["resourceVersion"]}, "status": status}
        await cluster.api.patch(POLICIES, cluster.namespace, self.policy, body, subresource="status")
        return transitions(previous.get("conditions") or [], status["conditions"])

    async def _split(self, result: CycleResult) -> None:
        if split := result.split:
            shown = some(
                split, _NAMED, "; ", lambda s: f"{result.names.get(s.bundle, s.bundle)} into {len(s.boundaries) + 1}"
            )
            text = f"splits {counted(len(split), 'bundle')}: {shown}"
            await self.event("Normal", str(split[0].reason), text)
        failed = _failed(result.split_requests) if result.restraint is None else []
        await self.failures([(str(w.reason), f"{w.bundle}: not split: {w.detail}") for w in failed])

    async def _moved(self, result: CycleResult) -> None:
        if moved := result.moved:
            shown = some(
                moved, _NAMED, "; ", lambda move: str(replace(move, bundle=result.names.get(move.bundle, move.bundle)))
            )
            text = f"moves {counted(len(moved), 'bundle')}: {shown}{where_to_ask(result.plan, result.namespace)}"
            await self.event("Normal", str(moved[0].reason), text)
        failed = _failed(result.written) if result.restraint is None else []
        await self.failures([(str(w.reason), f"{w.bundle}: not moved: {w.detail}") for w in failed])

    async def failures(self, failures: Sequence[tuple[str, str]]) -> None:
        """Post an Event for each of the first `_NAMED` failures. Then post the number of the others, by reason."""
        for reason, text in failures[:_NAMED]:
            await self.event("Warning", reason, text)
        for reason, count in Counter(reason for reason, _ in failures[_NAMED:]).items():
            await self.event("Warning", reason, f"and {counted(count, 'more bundle')}")

    async def brokers(self, load: ClusterLoad, seconds: float, *, paused: bool = False) -> None:
        """Write the brokers' load between two decisions. seconds: duration of its measurement. Raises `ApiError`.

        paused: whether the policy is paused; its metrics then show no load.
        """
        self.cluster.metrics.cycle_seconds.labels("brokers").observe(seconds)
        usage = measured_percent(load.brokers.usage, load.brokers.limit)
        if not paused:
            self.meter.usage(load.brokers.names, usage, load)
        await self._broker_statuses(load.brokers.names, trusted_only(usage, load))

    async def counts(self) -> None:
        """Update the number of bundles in the status of each broker, where it has changed. Raises `ApiError`."""
        for name, record in self.cluster.brokers_of(self.policy).items():
            if (count := len(self.cluster.served.get(name, ()))) != record.bundles:
                await self._patch_broker(name, {"status": {"bundles": count}})

    async def _broker_statuses(
        self, names: Sequence[str], usage: FloatArray, weights: Mapping[str, BrokerWeight] | None = None
    ) -> None:
        """Write the status of the brokers `names`. usage: (n, 5) percent, NaN if unknown.

        weights: broker -> its weight; empty: the shedder computes none. None: the weights in the statuses stay.
        """
        for row, name in enumerate(names):
            if (record := self.cluster.stores.brokers.items.get(name)) is None:
                continue
            changed: dict[str, Any] = {} if weights is None else dict(changed_weights(record, weights, names))
            load, count = _broker_load(usage[row]), len(self.cluster.served.get(name, ()))
            if _noticeable(record, load, count):
                shown = {key: None if value is None else float(round(value)) for key, value in load.items()}
                changed |= {"load": shown, "bundles": count}
            if changed:
                await self._patch_broker(name, {"status": changed})

    async def _patch_broker(self, name: str, body: dict[str, Any]) -> None:
        try:
            await self.cluster.api.patch(BROKERS, self.cluster.namespace, name, body, subresource="status")
        except NotFoundError:
            log.info("broker %s was deleted before its status could be written", name)

    async def outcomes(self, outcomes: Iterable[MoveOutcome]) -> None:
        """Count how moves ended, and post an Event for each that failed."""
        late = list[tuple[str, str]]()
        for outcome in outcomes:
            pending = outcome.pending
            self.cluster.metrics.moves.labels(self.policy, "", str(outcome.reason)).inc()
            log.info("bundle %s -> %s: %s", pending.bundle, pending.destination, outcome.reason)
            if outcome.reason is Reason.TIMED_OUT:
                what = f"did not confirm the move from {pending.source or 'no broker'}"
                late.append((str(outcome.reason), f"{pending.bundle}: {pending.destination} {what}"))
        await self.failures(late)

    async def repairs(self, work: BundleRepairs, done: Sequence[WriteResult]) -> None:
        """Post one Event for a round of reconciliation, with the number of bundles for each reason."""
        reasons = Counter(str(why) for _, why in work.unassigned)
        reasons.update(str(desired.reason) for desired in work.desired_owners)
        written = sum(w.reason is None for w in done)
        if written:
            text = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            await self.event(
                "Normal", "Assigned", f"wrote {counted(written, 'owner')} ({text or 'freed from lost brokers'})"
            )
        failed = [w for w in done if w.reason is not None]
        landed = {w.bundle for w in done} - {w.bundle for w in failed}
        await self._unknown_brokers(work, landed)
        await self._overlaps(work, landed)
        for reason, count in Counter(str(w.reason) for w in failed).items():
            self.cluster.metrics.held_back.labels(self.policy, reason).inc(count)
        if done:
            await self._waiting([(str(w.reason), w.detail) for w in failed if w.reason is not Reason.CONFLICT])

    async def _unknown_brokers(self, work: BundleRepairs, written: Collection[str]) -> None:
        """Post an Event on at most `_NAMED` of the Bundles whose desired owner does not exist."""
        unknown = [
            (bundle, f"it stays on {desired.owner}" if desired.owner else "it still has no owner")
            for desired in work.desired_owners
            if desired.reason is Reason.UNKNOWN_BROKER and (bundle := desired.bundle).name in written
        ]
        unknown += [
            (bundle, "it had no owner, and gets one")
            for bundle, why in work.unassigned
            if why is Reason.UNKNOWN_BROKER and bundle.name in written
        ]
        for bundle, what in unknown[:_NAMED]:
            text = f"spec.owner {bundle.owner} names no Broker: {what}. See the names with: kubectl get brokers"
            await self._about_bundle(bundle.name, str(Reason.UNKNOWN_BROKER), text)

    async def _overlaps(self, work: BundleRepairs, written: Collection[str]) -> None:
        """Post an Event on at most `_NAMED` of the Bundles whose desired owner was withdrawn because of an overlap."""
        withdrawn = [desired.bundle for desired in work.desired_owners if desired.reason is Reason.OVERLAP]
        for bundle in [bundle for bundle in withdrawn if bundle.name in written][:_NAMED]:
            text = f"spec.owner {bundle.owner} of {bundle.name} is withdrawn: another Bundle has its hashes. Delete one"
            await self._about_bundle(bundle.name, str(Reason.OVERLAP), text)

    async def _about_bundle(self, name: str, reason: str, text: str) -> None:
        try:
            bundle = await self.cluster.api.get(BUNDLES, self.cluster.namespace, name)
        except NotFoundError:
            log.info("bundle %s is gone: %s", name, text)
        else:
            await self.cluster.events.post(bundle, "Warning", reason, text, action="Assign")

    async def _waiting(self, failures: Sequence[tuple[str, str]]) -> None:
        """Post Events for unassigned bundles that no broker takes: once, and not at each attempt."""
        if (news := frozenset(failures)) - self._reported_waiting:
            await self.failures(failures)
        self._reported_waiting = news

    async def brake(self, text: str) -> None:
        """Report that the mass-failure brake stops all moves of lost brokers' bundles."""
        await self.event("Warning", str(Reason.MASS_FAILURE), text)

    async def state_reset(self, text: str) -> None:
        """Report that stored state could not be read, written or used."""
        log.warning("policy %s: %s", self.policy, text)
        await self.event("Warning", str(Reason.INTERNAL_ERROR), text)

    async def event(self, kind: str, reason: str, message: str) -> None:
        """Post an Event about the policy. kind: ``Normal`` or ``Warning``."""
        event = kind, reason, message
        await self.cluster.post("BalancingPolicy", self.policy, event, action="Balance", uid=self.uid)


def _failed(written: Iterable[WriteResult]) -> list[WriteResult]:
    """The writes that failed. A move that waits for a budget has not failed. The status says why it waits."""
    return [w for w in written if w.reason not in {None, Reason.DISRUPTION_BUDGET}]


def _noticeable(record: BrokerRecord, load: Mapping[str, float | None], count: int) -> bool:
    """Whether the count differs from the status, or a load by a point or more. An idle cluster causes no writes."""
    return count != record.bundles or any(_differs(record.load.get(key), load[key]) for key in load)


def _differs(before: float | None, now: float | None) -> bool:
    return (before is None) != (now is None) or (before is not None and now is not None and abs(before - now) >= 1)


def _broker_load(usage: FloatArray) -> dict[str, float | None]:
    """A broker's load for its status. usage: (5,) percent. None: unknown."""
    columns = {"cpu": CPU, "memory": MEMORY, "networkIn": NETWORK_IN, "networkOut": NETWORK_OUT}
    return {name: _known(usage[column]) for name, column in columns.items()}


def _known(percent: float) -> float | None:
    return float(percent) if np.isfinite(percent) else None
