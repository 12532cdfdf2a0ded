"""Tells people and machines what happened: policy and broker status, Kubernetes Events, metrics, the log.

One Event when a cycle moved something or a condition changed, one per failed move; none when idle.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab_operator.actuators import Written
from trimtab_operator.cluster.api import BROKERS, POLICIES, ConflictError, NotFoundError
from trimtab_operator.cluster.brokers import BrokerRecord
from trimtab_operator.control.context import Context
from trimtab_operator.control.flights import Outcome
from trimtab_operator.control.leading import led
from trimtab_operator.control.linked import linked
from trimtab_operator.control.metering import Meter
from trimtab_operator.control.one_hand import steered
from trimtab_operator.control.pointing import where_to_ask
from trimtab_operator.control.report import CycleResult, broker_load, policy_status, transitions
from trimtab_operator.control.upkeep import Upkeep
from trimtab_operator.control.weights import BrokerWeight, changed_weights
from trimtab_operator.resources.common import API_VERSION
from trimtab_strategies.model import ClusterLoad, Reason, counted, some
from trimtab_strategies.model.load import FloatArray
from trimtab_strategies.usage import percent

log = logging.getLogger(__name__)

_NAMED = 5
"""Bundles named in Events of one kind; the rest is a number."""

_TRIES = 4
"""Attempts at the policy's status when somebody edits the policy at the same time."""


@dataclass(slots=True)
class Teller:
    """Speaks for one policy."""

    context: Context
    policy: str
    uid: str
    meter: Meter = field(init=False)
    _told_waiting: frozenset[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        self.meter = Meter(self.context, self.policy)

    async def cycle(self, result: CycleResult) -> None:
        """Status, Events, metrics and log of one cycle. Raises `ApiError`."""
        self.meter.cycle(result)
        log.info("policy %s: %s, %d moved, %s", self.policy, result.outcome, len(result.moved), dict(result.held_back))
        await self._policy_status(result)
        await self._split(result)
        await self._moved(result)
        if result.plan is not None:
            weights = result.weights if result.refusal is None else None
            self.meter.usage(result.plan.brokers, result.plan.before, result.load)
            await self._broker_statuses(result.plan.brokers, result.plan.before, weights)

    async def _policy_status(self, result: CycleResult) -> None:
        in_flight = self.context.in_flight(self.policy)
        for condition in await self.status(lambda previous: policy_status(result, previous, in_flight)):
            kind = "Normal" if condition["status"] == "True" else "Warning"
            await self.event(kind, condition["reason"], f"{condition['type']}: {condition['message']}")

    async def status(self, make: Callable[[Mapping[str, Any]], dict[str, Any]]) -> list[Mapping[str, Any]]:
        """Write the merge-patch that `make` makes of the policy's status as it is now. Raises `ApiError`.

        Returns the conditions that deserve an Event.
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
        """`ConflictError`: somebody edited the policy meanwhile."""
        context = self.context
        policy = await context.api.get(POLICIES, context.namespace, self.policy)
        if policy["metadata"]["uid"] != self.uid:
            return []  # a new policy of the same name, which speaks for itself
        previous = policy.get("status") or {}
        status = make(previous)
        generation = policy["metadata"]["generation"]
        found = led(context, status["conditions"], generation)
        found = linked(found, context.link, generation, context.now())
        status["conditions"] = steered(found, context.link, generation, context.now())
        body = {"metadata": {"resourceVersion": policy["metadata"]["resourceVersion"]}, "status": status}
        await context.api.patch(POLICIES, context.namespace, self.policy, body, subresource="status")
        return transitions(previous.get("conditions") or [], status["conditions"])

    async def _split(self, result: CycleResult) -> None:
        if split := result.split:
            shown = some(
                split, _NAMED, "; ", lambda s: f"{result.names.get(s.bundle, s.bundle)} into {len(s.boundaries) + 1}"
            )
            text = f"divides {counted(len(split), 'bundle')}: {shown}"
            await self.event("Normal", str(split[0].reason), text)
        failed = [w for w in result.split_requests if w.reason is not None] if result.restraint is None else []
        await self.failures([(str(w.reason), f"{w.bundle}: not divided: {w.detail}") for w in failed])

    async def _moved(self, result: CycleResult) -> None:
        if moved := result.moved:
            shown = some(
                moved, _NAMED, "; ", lambda move: str(replace(move, bundle=result.names.get(move.bundle, move.bundle)))
            )
            text = f"moves {counted(len(moved), 'bundle')}: {shown}{where_to_ask(result.plan, result.namespace)}"
            await self.event("Normal", str(moved[0].reason), text)
        failed = [w for w in result.written if w.reason is not None] if result.restraint is None else []
        await self.failures([(str(w.reason), f"{w.bundle}: not moved: {w.detail}") for w in failed])

    async def failures(self, failures: Sequence[tuple[str, str]]) -> None:
        """One Event for each (reason, text), but only a number for those that are more than a person would read."""
        for reason, text in failures[:_NAMED]:
            await self.event("Warning", reason, text)
        for reason, count in Counter(reason for reason, _ in failures[_NAMED:]).items():
            await self.event("Warning", reason, f"and {counted(count, 'more bundle')}")

    async def brokers(self, load: ClusterLoad, seconds: float) -> None:
        """The brokers' load between two decisions, which took so many seconds to measure. Raises `ApiError`."""
        self.context.metrics.cycle_seconds.labels("brokers").observe(seconds)
        usage = percent(load.brokers.usage, load.brokers.limit).astype(np.float64)
        self.meter.usage(load.brokers.names, usage, load)
        await self._broker_statuses(load.brokers.names, usage)

    async def _broker_statuses(
        self, names: Sequence[str], usage: FloatArray, weights: Mapping[str, BrokerWeight] | None = None
    ) -> None:
        """usage: (n, 5) percent, NaN unknown. weights: by name, None where nothing was found out about them."""
        for row, name in enumerate(names):
            if (record := self.context.stores.brokers.items.get(name)) is None:
                continue
            changed: dict[str, Any] = {} if weights is None else dict(changed_weights(record, weights, names))
            load, count = broker_load(usage[row]), len(self.context.served.get(name, ()))
            if _noticeable(record, load, count):
                shown = {key: None if value is None else float(round(value)) for key, value in load.items()}
                changed |= {"load": shown, "bundles": count}
            if changed:
                await self._patch_broker(name, {"status": changed})

    async def _patch_broker(self, name: str, body: dict[str, Any]) -> None:
        try:
            await self.context.api.patch(BROKERS, self.context.namespace, name, body, subresource="status")
        except NotFoundError:
            log.info("broker %s went away before its status could be written", name)

    async def outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """How moves ended: counted all, told those that failed."""
        late = list[tuple[str, str]]()
        for outcome in outcomes:
            flight = outcome.flight
            self.context.metrics.moves.labels(self.policy, "", str(outcome.reason)).inc()
            log.info("bundle %s -> %s: %s", flight.bundle, flight.destination, outcome.reason)
            if outcome.reason is Reason.TIMED_OUT:
                what = f"did not confirm the move from {flight.source or 'nobody'}"
                late.append((str(outcome.reason), f"{flight.bundle}: {flight.destination} {what}"))
        await self.failures(late)

    async def upkeep(self, work: Upkeep, done: Sequence[Written]) -> None:
        """What upkeep did: one Event for the round, naming how many bundles each reason concerned."""
        reasons = Counter(str(why) for _, why in work.homeless)
        reasons.update(str(wish.reason) for wish in work.wishes)
        written = sum(w.reason is None for w in done)
        if written:
            text = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
            await self.event(
                "Normal", "Assigned", f"wrote {counted(written, 'owner')} ({text or 'freed from lost brokers'})"
            )
        failed = [w for w in done if w.reason is not None]
        for reason, count in Counter(str(w.reason) for w in failed).items():
            self.context.metrics.held_back.labels(self.policy, reason).inc(count)
        if done:
            await self._waiting([(str(w.reason), w.detail) for w in failed if w.reason is not Reason.CONFLICT])

    async def _waiting(self, failures: Sequence[tuple[str, str]]) -> None:
        """Bundles that nobody takes, told once and not at each attempt."""
        if (news := frozenset(failures)) - self._told_waiting:
            await self.failures(failures)
        self._told_waiting = news

    async def brake(self, text: str) -> None:
        """The mass-failure brake took hold."""
        await self.event("Warning", str(Reason.MASS_FAILURE), text)

    async def amnesia(self, text: str) -> None:
        """What the policy remembers could not be read, or not be stored."""
        log.warning("policy %s: %s", self.policy, text)
        await self.event("Warning", str(Reason.INTERNAL_ERROR), text)

    async def event(self, kind: str, reason: str, message: str) -> None:
        """An Event about the policy; kind: ``Normal`` or ``Warning``."""
        involved = {
            "apiVersion": API_VERSION,
            "kind": "BalancingPolicy",
            "name": self.policy,
            "namespace": self.context.namespace,
            "uid": self.uid,
        }
        await self.context.events.post(involved, kind, reason, message, action="Balance")


def _noticeable(record: BrokerRecord, load: Mapping[str, float | None], count: int) -> bool:
    """A point or more away from what the status shows, so that an idle cluster writes nothing."""
    return count != record.bundles or any(_differs(record.load.get(key), load[key]) for key in load)


def _differs(before: float | None, now: float | None) -> bool:
    return (before is None) != (now is None) or (before is not None and now is not None and abs(before - now) >= 1)
