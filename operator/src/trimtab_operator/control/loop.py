"""The loop of one policy: a decision every `interval`, and upkeep in between and whenever something happened.

Every turn does upkeep (wishes, lost owners, homeless bundles: in every mode); when the interval is over, or the policy
was edited, it also runs a cycle. Nothing is done before the stores are complete and fresh. An error of one turn is
told, counted and survived: the next turn starts from the resources again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from trimtab_operator.actuators.declarative import DeclarativeActuator, DryRunActuator
from trimtab_operator.cluster.api import ApiError
from trimtab_operator.control.context import Context
from trimtab_operator.control.cycle import Stopwatch, carry_out, look, plan
from trimtab_operator.control.memory import ForeignMemoryError, MemoryStore, Remembered
from trimtab_operator.control.report import CycleResult
from trimtab_operator.control.settings import InvalidPolicyError, Settings
from trimtab_operator.control.telling import Teller
from trimtab_operator.control.tending import Tender
from trimtab_operator.control.turn import Turn
from trimtab_operator.resources.policy import Mode
from trimtab_pipeline.source import LoadSource, PrometheusSettings, SourceUnavailableError
from trimtab_strategies.model import HeldBack, Reason

log = logging.getLogger(__name__)

TEND_EVERY = 2.0
"""Seconds between two turns when nothing woke the loop."""


GRACE = 2.0
"""Seconds that the writes of a turn get once the loop is told to stop."""


class Stopped(Protocol):
    """What tells a loop to stop: an `asyncio.Event`, or Kopf's own."""

    def is_set(self) -> bool:
        """Whether it was told."""

    def wait(self) -> Awaitable[object]:
        """Done once it is told."""


@dataclass(slots=True)
class PolicyLoop:
    """Runs one BalancingPolicy until it is told to stop.

    read: returns the policy object as it is now (JSON), so that an edit counts at the next turn without a restart.
    """

    name: str
    uid: str
    context: Context
    read: Callable[[], Mapping[str, Any]]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _remembered: Remembered | None = None
    _memory: MemoryStore = field(init=False)
    _tender: Tender = field(init=False)
    _teller: Teller = field(init=False)
    _source: LoadSource | None = None
    _source_of: PrometheusSettings | None = None
    _due: float = 0.0
    _generation: int = -1

    def __post_init__(self) -> None:
        context = self.context
        self._memory = MemoryStore(context.api, context.namespace, self.name, self.uid)
        self._tender = Tender(context)
        self._teller = Teller(context, self.name, self.uid)

    async def run(self, stopped: Stopped) -> None:
        """Turn after turn until `stopped`. Writes that are under way when it is set are finished first."""
        self.context.wakers[self.name] = self.wake
        try:
            while not stopped.is_set():
                await self._turn_until(stopped)
                await self._rest(stopped)
        finally:
            self.context.wakers.pop(self.name, None)
            self.context.policies.pop(self.name, None)
            self.context.born.pop(self.name, None)
            if self._source is not None:
                self._source.close()

    async def _rest(self, stopped: Stopped) -> None:
        waits = [asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(self.wake.wait())]
        pause = min(TEND_EVERY, max(0.0, self._due - self.context.now()))
        _, pending = await asyncio.wait(waits, timeout=max(pause, 0.05), return_when=asyncio.FIRST_COMPLETED)
        for wait in pending:
            wait.cancel()
        self.wake.clear()

    async def _turn_until(self, stopped: Stopped) -> None:
        """One turn. When told to stop, writes get a moment to finish; a measurement is not waited for."""
        turn, stop = asyncio.create_task(self._turn_safely()), asyncio.ensure_future(stopped.wait())
        await asyncio.wait({turn, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not turn.done():
            await asyncio.wait({turn}, timeout=GRACE)
        turn.cancel()
        stop.cancel()
        await asyncio.gather(turn, stop, return_exceptions=True)

    async def _turn_safely(self) -> None:
        try:
            await self.turn()
        except ApiError as error:
            log.warning("policy %s: the API server did not do as asked, trying again: %s", self.name, error)
        except Exception:
            log.exception("policy %s: this turn failed, the next one starts afresh", self.name)
            self._due = self.context.now() + TEND_EVERY

    async def turn(self) -> None:
        """Upkeep, and a cycle when one is due. Raises `ApiError`."""
        policy = self.read()
        try:
            settings = Settings.of(policy)
        except InvalidPolicyError as error:
            await self._refuse(policy, Reason.INVALID_POLICY, str(error))
            return
        context = self.context
        context.policies[self.name] = settings
        context.born[self.name] = policy["metadata"].get("creationTimestamp", "")
        if (first := context.first_policy()) != self.name:
            await self._refuse(policy, Reason.INVALID_POLICY, _second(self.name, first))
            return
        if stale := context.stores.stale():
            if self._is_due(settings):
                await self._refuse(policy, Reason.STORE_NOT_SYNCED, stale)
            return
        remembered = await self._recall()
        actuator = DeclarativeActuator(context.api, context.namespace, self.name, remembered.epoch, context.now)
        turn = Turn(settings, actuator, self._open_source(settings), remembered)
        await self._tender.tend(turn, self._teller)
        if self._is_due(settings) and context.engine.is_set():
            self._due = self._next_due(settings)
            self._generation = settings.generation
            await self._teller.cycle(await self._cycle(turn))

    def _is_due(self, settings: Settings) -> bool:
        return self.context.now() >= self._due or settings.generation != self._generation

    def _next_due(self, settings: Settings) -> float:
        """At a fixed rate: a slow cycle does not push the later ones back, missed ones are not caught up with."""
        now = self.context.now()
        return (
            max(self._due + settings.interval, now) if self._due + settings.interval > now else now + settings.interval
        )

    async def _refuse(self, policy: Mapping[str, Any], reason: Reason, detail: str) -> None:
        generation = policy["metadata"].get("generation", 0)
        now = self.context.now()
        self._due = now + TEND_EVERY if reason is Reason.STORE_NOT_SYNCED else now + 30.0
        self._generation = generation
        result = CycleResult(now, {}, generation, refusal=HeldBack("", reason, detail))
        await self._teller.cycle(result)

    async def _recall(self) -> Remembered:
        """Memory as stored, once per start; each start counts as a new epoch."""
        if self._remembered is None:
            try:
                found = await self._memory.load()
            except ForeignMemoryError as error:
                log.warning("policy %s starts without memory: %s", self.name, error)
                found = Remembered()
            self._remembered = Remembered(found.strategies, found.moved_at, found.epoch + 1)
            await self._memory.save(self._remembered)
        return self._remembered

    def _open_source(self, settings: Settings) -> LoadSource:
        if self._source is None or self._source_of != settings.prometheus:
            if self._source is not None:
                self._source.close()
            self._source = self.context.sources.open(f"{self.context.namespace}/{self.name}", settings.prometheus)
            self._source_of = settings.prometheus
        return self._source

    async def _cycle(self, turn: Turn) -> CycleResult:
        context, settings, now = self.context, turn.settings, self.context.now()
        if (refusal := self._refusal(settings)) is not None:
            return CycleResult(now, {}, settings.generation, refusal=refusal)
        watch = Stopwatch()
        try:
            seen = await look(context.picture(settings), turn, now, watch)
        except SourceUnavailableError as error:
            refusal = HeldBack("", Reason.SOURCE_UNAVAILABLE, str(error))
            return CycleResult(now, watch.seconds, settings.generation, refusal=refusal)
        decision = await plan(seen, turn, watch)
        acting = turn.actuator if settings.mode is Mode.AUTO else DryRunActuator()
        written = await carry_out(decision.plan.moves, seen, acting, watch)
        result = CycleResult(
            started=now,
            seconds=watch.seconds,
            generation=settings.generation,
            load=seen.load,
            plan=decision.plan,
            refusal=_whole_cycle(decision.plan.held_back, moves=bool(decision.plan.moves)),
            written=written,
            names={move.bundle: seen.records[move.bundle].name for move in decision.plan.moves},
        )
        moved_at = turn.remembered.moved(len(result.moved), now)
        self._remembered = Remembered(decision.memory, moved_at, turn.remembered.epoch)
        await self._memory.save(self._remembered)
        return result

    def _refusal(self, settings: Settings) -> HeldBack | None:
        if settings.paused:
            return HeldBack("", Reason.PAUSED, "spec.paused or the annotation trimtab.dev/paused says so")
        if missing := self.context.missing_brokers(settings):
            names = ", ".join(missing)
            return HeldBack("", Reason.UNKNOWN_BROKER, f"spec.brokers.names: no Broker object is called {names}")
        if not self.context.stores.brokers.items:
            self._due = self.context.now() + TEND_EVERY
            return HeldBack("", Reason.NO_BROKERS, "there is no Broker object yet, and no pod that became one")
        return None


def _second(name: str, first: str) -> str:
    return f"policies {first} and {name} would balance the same brokers: {first} is older and goes on, delete one"


_REFUSALS = frozenset(
    {
        Reason.MASS_FAILURE,
        Reason.NO_LOAD_DATA,
        Reason.OUT_DATED_DATA,
        Reason.UNTRUSTED,
        Reason.PARTIAL_DATA,
        Reason.NO_BROKERS,
    },
)


def _whole_cycle(held_back: tuple[HeldBack, ...], *, moves: bool) -> HeldBack | None:
    """The guard's refusal of the whole cycle, which names no subject."""
    if moves:
        return None
    return next((held for held in held_back if not held.subject and held.reason in _REFUSALS), None)
