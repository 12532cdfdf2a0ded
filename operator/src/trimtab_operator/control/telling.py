"""Tells people and machines what happened: policy and broker status, Kubernetes Events, metrics, the log.

One Event when a cycle moved something or a condition changed, one per failed move; none when idle.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab_operator.actuators import Written
from trimtab_operator.cluster.api import BROKERS, POLICIES, NotFoundError
from trimtab_operator.control.context import Context
from trimtab_operator.control.flights import Outcome
from trimtab_operator.control.report import CycleResult, broker_load, cpu_range, policy_status, transitions
from trimtab_operator.control.upkeep import Upkeep
from trimtab_operator.resources.common import API_VERSION
from trimtab_strategies.model import RESOURCES, Plan, Reason

log = logging.getLogger(__name__)

_NAMED = 5
"""Bundles named in one Event; the rest is a number."""


@dataclass(slots=True)
class Teller:
    """Speaks for one policy."""

    context: Context
    policy: str
    uid: str
    _loads: dict[str, tuple[Mapping[str, float | None], int]] = field(default_factory=dict)

    async def cycle(self, result: CycleResult) -> None:
        """Status, Events, metrics and log of one cycle. Raises `ApiError`."""
        self._count(result)
        log.info("policy %s: %s, %d moved, %s", self.policy, result.outcome, len(result.moved), dict(result.held_back))
        await self._policy_status(result)
        await self._moved(result)
        if result.plan is not None:
            await self._broker_statuses(result.plan)

    async def _policy_status(self, result: CycleResult) -> None:
        context = self.context
        try:
            policy = await context.api.get(POLICIES, context.namespace, self.policy)
        except NotFoundError:
            return
        previous = policy.get("status") or {}
        status = policy_status(result, previous, len(context.flights.open))
        body = {"metadata": {"resourceVersion": policy["metadata"]["resourceVersion"]}, "status": status}
        await context.api.patch(POLICIES, context.namespace, self.policy, body, subresource="status")
        for condition in transitions(previous.get("conditions") or [], status["conditions"]):
            kind = "Normal" if condition["status"] == "True" else "Warning"
            await self._event(kind, condition["reason"], f"{condition['type']}: {condition['message']}")

    async def _moved(self, result: CycleResult) -> None:
        if moved := result.moved:
            shown = "; ".join(str(move) for move in moved[:_NAMED])
            more = f" and {len(moved) - _NAMED} more" if len(moved) > _NAMED else ""
            await self._event("Normal", str(moved[0].reason), f"moves {len(moved)} bundles: {shown}{more}")
        for written in result.written:
            if written.reason not in {None, Reason.DRY_RUN}:
                await self._event("Warning", str(written.reason), f"{written.bundle}: not moved: {written.detail}")

    async def _broker_statuses(self, plan: Plan) -> None:
        owned = Counter(bundle.status_owner for bundle in self.context.stores.bundles.items.values())
        for row, name in enumerate(plan.brokers):
            load, count = broker_load(plan, row), owned[name]
            if self._noticeable(name, load, count):
                body = {"status": {"load": load, "bundles": count}}
                await self._patch_broker(name, body)
                self._loads[name] = (load, count)

    def _noticeable(self, name: str, load: Mapping[str, float | None], count: int) -> bool:
        """A point or more, so that an idle cluster writes nothing."""
        if name not in self._loads:
            return True
        before, counted = self._loads[name]
        return count != counted or any(_differs(before[key], load[key]) for key in load)

    async def _patch_broker(self, name: str, body: dict[str, Any]) -> None:
        try:
            await self.context.api.patch(BROKERS, self.context.namespace, name, body, subresource="status")
        except NotFoundError:
            log.info("broker %s went away before its status could be written", name)

    async def outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """How moves ended: counted all, told those that failed."""
        for outcome in outcomes:
            flight = outcome.flight
            self.context.metrics.moves.labels(self.policy, "", str(outcome.reason)).inc()
            log.info("bundle %s -> %s: %s", flight.bundle, flight.destination, outcome.reason)
            if outcome.reason is Reason.TIMED_OUT:
                text = (
                    f"{flight.bundle}: {flight.destination} did not confirm the move from {flight.source or 'nobody'}"
                )
                await self._event("Warning", str(outcome.reason), text)

    async def upkeep(self, work: Upkeep, done: Sequence[Written]) -> None:
        """What upkeep did: one Event for the round, naming how many bundles each reason concerned."""
        reasons = Counter(str(why) for _, why in work.homeless)
        reasons.update(str(wish.reason) for wish in work.wishes)
        written = sum(w.reason is None for w in done)
        if written:
            text = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            await self._event("Normal", "Assigned", f"wrote {written} owners ({text or 'freed from lost brokers'})")
        for reason, count in Counter(str(w.reason) for w in done if w.reason is not None).items():
            self.context.metrics.held_back.labels(self.policy, reason).inc(count)

    async def brake(self, text: str) -> None:
        """The mass-failure brake took hold."""
        await self._event("Warning", str(Reason.MASS_FAILURE), text)

    async def _event(self, kind: str, reason: str, message: str) -> None:
        involved = {
            "apiVersion": API_VERSION,
            "kind": "BalancingPolicy",
            "name": self.policy,
            "namespace": self.context.namespace,
            "uid": self.uid,
        }
        await self.context.events.post(involved, kind, reason, message, action="Balance")

    def _count(self, result: CycleResult) -> None:
        metrics = self.context.metrics
        metrics.cycles.labels(self.policy, str(result.outcome)).inc()
        for phase, value in result.seconds.items():
            metrics.cycle_seconds.labels(phase).observe(value)
        for move in result.moved:
            metrics.moves.labels(self.policy, str(move.reason), "Written").inc()
        for reason, count in result.held_back.items():
            metrics.held_back.labels(self.policy, reason).inc(count)
        metrics.in_flight.labels(self.policy).set(len(self.context.flights.open))
        if (ends := cpu_range(result.plan)) is not None:
            metrics.cpu_range.labels(self.policy).set((ends[1] - ends[0]) / 100)
        if result.load is not None:
            for reason, count in result.load.quality.dropped.items():
                metrics.dropped_samples.labels(reason).inc(count)
        if result.plan is not None:
            _gauge_usage(metrics.broker_usage, result.plan)


def _gauge_usage(gauge: Any, plan: Plan) -> None:
    for row, name in enumerate(plan.brokers):
        for column, resource in enumerate(RESOURCES):
            if np.isfinite(value := plan.before[row, column]):
                gauge.labels(name, resource).set(value / 100)


def _differs(before: float | None, now: float | None) -> bool:
    return (before is None) != (now is None) or (before is not None and now is not None and abs(before - now) >= 1)
