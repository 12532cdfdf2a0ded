"""The loop of one policy: a decision every `interval`, and upkeep in between and whenever something happened.

Every turn does upkeep (wishes, lost owners, homeless bundles: in every mode); when the interval is over, or the policy
was edited, it also runs a cycle. In between it glances at the brokers every `brokerInterval`, which may bring the next
cycle forward. Nothing is done before the stores are complete and fresh. An error of one turn is
told, counted and survived: the next turn starts from the resources again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from trimtab_operator.actuators.declarative import DeclarativeActuator
from trimtab_operator.cluster.api import ApiError, ApiUnavailableError
from trimtab_operator.control.approving import Approver
from trimtab_operator.control.context import Context
from trimtab_operator.control.cycle import ended
from trimtab_operator.control.deciding import TEND_EVERY, Decider
from trimtab_operator.control.draining import Drainage
from trimtab_operator.control.glancing import Watch, glance
from trimtab_operator.control.memory import ForeignMemoryError, MemoryStore, Remembered
from trimtab_operator.control.recorder import Recorder
from trimtab_operator.control.refusal import refused_turn
from trimtab_operator.control.report import CycleResult
from trimtab_operator.control.settings import InvalidPolicyError, Settings, claim_of
from trimtab_operator.control.sourcing import Sourcing
from trimtab_operator.control.telling import Teller
from trimtab_operator.control.tending import Tender
from trimtab_operator.control.turn import Turn
from trimtab_operator.control.unnoted import moved_lately
from trimtab_operator.control.vigil import Vigil
from trimtab_pipeline.source import SourceUnavailableError
from trimtab_strategies.model import HeldBack, Reason

log = logging.getLogger(__name__)

GATHER = 0.2
"""Seconds from the first change that wakes the loop to the turn."""

JITTER = 0.05
"""Ratio of the interval by which a cycle may begin late."""

DISCOVER_WITHIN = 10.0
"""Seconds that discovery gets to find the first broker before a policy complains."""

REMIND = 60.0
"""Seconds between two reports of the same refusal."""

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
    _sourcing: Sourcing = field(init=False)
    _decider: Decider = field(init=False)
    _drainage: Drainage = field(init=False)
    _recorder: Recorder = field(init=False)
    _approver: Approver = field(init=False)
    _aside: int = 0
    _vigil: Vigil = field(init=False)
    _watch: Watch = field(default_factory=Watch)
    _due: float = 0.0
    _beat: float = 0.0
    _generation: int = -1
    _refused: tuple[int, Reason] | None = None
    _remind_at: float = 0.0
    _begun: float | None = None
    _leaving: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        context = self.context
        self._memory = MemoryStore(context.api, context.namespace, self.name, self.uid, context.clock)
        self._tender = Tender(context)
        self._teller = Teller(context, self.name, self.uid)
        self._sourcing = Sourcing(context, self.name)
        self._recorder = Recorder(context, self.name, self.uid, self._teller.meter)
        self._drainage = Drainage(context, self._teller)
        self._vigil = Vigil(context, self.name, self._teller)
        self._approver = Approver(context, self.name, self.uid, self._teller)
        self._decider = Decider(context, self._meanwhile, self._teller, self._still_asks)

    async def run(self, stopped: Stopped) -> None:
        """Turn after turn until `stopped`. Writes that are under way when it is set are finished first."""
        self.context.wakers[self.name] = self.wake
        try:
            while not stopped.is_set():
                await self._turn_until(stopped)
                await self._rest(stopped)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Take the policy off the lists, unless a new one of its name is on them by now."""
        context = self.context
        if context.wakers.get(self.name) is self.wake:
            del context.wakers[self.name]
            context.leave(self.name)
        self._sourcing.close()

    async def _rest(self, stopped: Stopped) -> None:
        """Until there is something to do, and then a moment more: a burst of changes is to make one turn."""
        stop, wake = asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(self.wake.wait())
        until_due = self._due - self.context.clock()
        pause = min(TEND_EVERY, until_due) if until_due > 0 else TEND_EVERY  # due, and kept from it: no hurry
        try:
            await asyncio.wait({stop, wake}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({stop}, timeout=GATHER)
        finally:
            await ended(stop, wake)
        self.wake.clear()

    async def _turn_until(self, stopped: Stopped) -> None:
        """One turn. When told to stop, writes get a moment to finish; a measurement is not waited for."""
        turn, stop = asyncio.create_task(self._turn_safely()), asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait({turn, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                await asyncio.wait({turn}, timeout=GRACE)
        finally:
            await ended(turn, stop)

    async def _turn_safely(self) -> None:
        try:
            await self.turn()
        except ApiUnavailableError as error:
            log.warning("policy %s: the API server did not do as asked, trying again: %s", self.name, error)
        except ApiError as error:
            log.warning("policy %s: the API server refused, trying again: %s", self.name, error)
            await self._confess(str(error))
        except Exception as error:
            log.exception("policy %s: this turn failed, the next one starts afresh", self.name)
            await self._confess(f"{type(error).__name__}: {error}")

    async def _confess(self, text: str) -> None:
        """Say in the status that a turn failed; when that fails too, the log has to do."""
        try:
            await self._refuse(self.read(), HeldBack("", Reason.INTERNAL_ERROR, text))
        except ApiError as error:
            log.warning("policy %s: nor could that be told: %s", self.name, error)
        except Exception:
            log.exception("policy %s: nor could that be told", self.name)

    async def turn(self) -> None:
        """Upkeep, and a cycle when one is due. Raises `ApiError`."""
        policy, context = self.read(), self.context
        try:
            settings = Settings.of(policy)
        except InvalidPolicyError as error:
            await self._refuse(policy, HeldBack("", Reason.INVALID_POLICY, str(error)))
            await self._get_by(policy)
            return
        context.claims[self.name] = settings.claim
        if self.name in context.share_out().standing:
            context.policies[self.name] = settings
        else:
            context.policies.pop(self.name, None)
        context.relink()
        if (refusal := refused_turn(context, self.name)) is not None:
            if not self._still_discovering(settings, refusal):
                await self._refuse(policy, refusal)
            return
        remembered = await self._recall()
        actuator = DeclarativeActuator(context.api, context.namespace, self.name, remembered.epoch, context.now)
        self._make_way(settings)
        due = self._is_due(settings) and context.engine.is_set()
        turn = Turn(settings, actuator, await self._sourcing.source(settings, afresh=due), remembered)
        await self._tender.tend(turn, self._teller)
        await self._drainage.tell(settings)
        turn = await self._watch_over(turn, policy)
        turn = await self._attend(turn, policy)
        if due:
            await self._decide(turn)
        elif context.engine.is_set() and context.clock() >= self._watch.due and not settings.paused:
            await self._glance(turn)

    async def _get_by(self, policy: Mapping[str, Any]) -> None:
        """What is left of a turn of a policy that can't be run: upkeep, as it was written before. Raises `ApiError`."""
        context = self.context
        if (settings := context.policies.get(self.name)) is None:
            if (claim := claim_of(policy)) is not None:
                context.claims[self.name] = claim
            return
        context.share_out()
        if refused_turn(context, self.name) is None:
            remembered, source = await self._recall(), await self._sourcing.source(settings, afresh=False)
            actuator = DeclarativeActuator(context.api, context.namespace, self.name, remembered.epoch, context.now)
            await self._tender.tend(Turn(settings, actuator, source, remembered), self._teller)

    async def _watch_over(self, turn: Turn, policy: Mapping[str, Any]) -> Turn:
        """Take note of what others did to the policy's bundles; the turn with what is remembered of it."""
        remembered = await self._vigil.attend(turn, policy)
        if remembered is not turn.remembered:
            turn = replace(turn, remembered=await self._remember(remembered))
        await self._vigil.tell(turn, policy)
        return turn

    async def _attend(self, turn: Turn, policy: Mapping[str, Any]) -> Turn:
        """Take what people ask by annotation, and go on with an approved proposal; the turn, its moves counted."""
        attended = await self._approver.attend(turn, policy)
        if attended.decide:
            self._due = self.context.clock()
            self.wake.set()
        if not attended.written:
            return turn
        self._aside += attended.written
        remembered = turn.remembered.after(turn.memory, attended.written, self.context.now())
        return replace(turn, remembered=await self._remember(remembered))

    async def _meanwhile(self, turn: Turn) -> None:
        """While a cycle measures: upkeep, and what people ask and approved. Nobody waits for a slow Prometheus."""
        if refused_turn(self.context, self.name) is not None:
            return
        await self._tender.tend(turn, self._teller)
        policy = self.read()
        try:
            now = replace(turn, settings=Settings.of(policy), remembered=self._remembered or turn.remembered)
        except InvalidPolicyError:
            return
        await self._attend(now, policy)

    async def _glance(self, turn: Turn) -> None:
        """Look at the brokers alone; decide at once when one died or crossed the overload line. Raises `ApiError`."""
        context, settings, begun = self.context, turn.settings, time.monotonic()
        self._watch.next(settings, context.clock())
        picture = context.picture(settings, of_bundles=False)
        why = self._watch.dead(picture)
        try:
            load = await glance(picture, turn, context.now())
        except SourceUnavailableError as error:
            log.debug("policy %s: a glance failed, the next decision will tell: %s", self.name, error)
        else:
            context.link.crosscheck.see(load, context.clock())
            await self._teller.brokers(load, time.monotonic() - begun)
            why = why or self._watch.crossed(load, settings)
        if why:
            log.info("policy %s: decides early: %s", self.name, why)
            self._due = context.clock()
            self.wake.set()

    def _still_discovering(self, settings: Settings, refusal: HeldBack) -> bool:
        """Whether it is too early to complain that there are no brokers: their pods are only being found."""
        if self._begun is None:
            self._begun = self.context.clock()
        early = self.context.clock() - self._begun < DISCOVER_WITHIN
        return early and refusal.reason is Reason.NO_BROKERS and bool(settings.pod_labels)

    async def _decide(self, turn: Turn) -> None:
        self._aside = 0
        beat, early = self._beat, self.context.clock() < self._beat
        self._due = self._next_due(turn.settings.interval)
        self._generation = turn.settings.generation
        if (decided := await self._decider.cycle(turn)) is None:
            self._beat = beat
            self._due = self.context.clock()
            self.wake.set()
            return
        result, remembered = decided
        if self._aside:  # moves that were approved, and written while this cycle measured
            remembered = remembered.after(remembered.strategies, self._aside, self.context.now())
        spare = early and (result.plan is None or result.plan.empty)  # no interval has passed that counters could count
        if remembered is not turn.remembered and not spare:
            await self._remember(remembered)
        self._refused = None
        self._watch.dead(self.context.picture(turn.settings, of_bundles=False))
        if result.load is not None:
            self._watch.crossed(result.load, turn.settings)
        self._watch.next(turn.settings, self.context.clock())
        await self._teller.cycle(result)
        await self._recorder.cycle(result, turn.settings, remembered)
        await self._approver.offer(result, turn.settings)

    def _make_way(self, settings: Settings) -> None:
        """Decide at once when another broker is to be emptied, or can take what one gives that restarts next."""
        departures = self.context.departures(settings.name)
        leaving = departures.drained | (departures.rollout.following if departures.rollout.restarted else frozenset())
        if leaving - self._leaving:
            self._due = self.context.clock()
        self._leaving = leaving

    def _is_due(self, settings: Settings) -> bool:
        return self.context.clock() >= self._due or settings.generation != self._generation

    def _next_due(self, interval: float) -> float:
        """At a fixed rate: a slow cycle does not push the later ones back, missed ones are not caught up with.

        An early cycle (the policy was edited) begins a new rhythm: the interval may be another one. Each beat is late
        by a random bit, so that the policies of many clusters do not ask one Prometheus in step.
        """
        now, planned = self.context.clock(), self._beat + interval
        self._beat = planned if self._beat <= now < planned else now + interval
        return self._beat + JITTER * interval * self.context.chance()

    async def _refuse(self, policy: Mapping[str, Any], refusal: HeldBack) -> None:
        """Tell why nothing is done: at once when it is news, else once in `REMIND` seconds."""
        generation, clock = policy["metadata"].get("generation", 0), self.context.clock()
        if self._refused == (generation, refusal.reason) and clock < self._remind_at:
            return
        await self._teller.cycle(CycleResult(self.context.now(), {}, generation, refusal=refusal))
        if refusal.reason is Reason.INVALID_POLICY:
            await self._approver.bar(refusal, generation)
        self._refused, self._remind_at = (generation, refusal.reason), clock + REMIND

    async def _recall(self) -> Remembered:
        """Memory as stored, once per start. The epoch is the leader's; where nobody is elected, starts are counted."""
        if self._remembered is None:
            try:
                found = await self._memory.load()
            except ForeignMemoryError as error:
                await self._teller.amnesia(f"begins without memory: {error}")
                found = Remembered()
            bundles = self.context.stores.bundles.items.values()
            found = found.caught_up(moved_lately(bundles, self.read(), self.context.now()))
            self._remembered = await self._remember(replace(found, epoch=self.context.epoch or found.epoch + 1))
        return self._remembered

    async def _remember(self, remembered: Remembered) -> Remembered:
        """Keep it, and store it; what was done is done, whether or not that works."""
        self._remembered = remembered
        try:
            await self._memory.save(remembered)
        except ApiError as error:
            await self._teller.amnesia(f"memory is not stored and would not survive a restart: {error}")
        return remembered

    def _still_asks(self, settings: Settings) -> bool:
        """Whether the policy says what it said when the cycle began. An edit, a pause or an older policy ends that."""
        try:
            now = Settings.of(self.read())
        except InvalidPolicyError:
            return False
        same = (now.generation, now.paused) == (settings.generation, settings.paused)
        return same and self.name in self.context.shares.standing
