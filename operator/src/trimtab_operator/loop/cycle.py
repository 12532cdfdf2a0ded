"""One cycle of a policy: refuse, or measure, decide, rule on what becomes of the plan, act, and sum up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from trimtab_operator.control.advice import UNASKED, Sizing
from trimtab_operator.control.context import Context
from trimtab_operator.control.crosschecking import distrust
from trimtab_operator.control.cycle import Look, Stopwatch, carry_out, ended, look, plan
from trimtab_operator.control.divided import KnownTopics
from trimtab_operator.control.memory import Remembered
from trimtab_operator.control.metering import hit_counts
from trimtab_operator.control.refusal import refused_by_guard, refused_cycle, unmeasurable
from trimtab_operator.control.report import CycleResult
from trimtab_operator.control.ruling import rule
from trimtab_operator.control.settings import Settings
from trimtab_operator.control.split_requests import request, unspent
from trimtab_operator.control.telling import Teller
from trimtab_operator.control.turn import Turn
from trimtab_operator.control.weights import broker_weights
from trimtab_pipeline.source import SourceUnavailableError
from trimtab_strategies.model import Decision, HeldBack, Memory

log = logging.getLogger(__name__)

TEND_EVERY = 2.0
"""Seconds between two rounds of upkeep when nothing woke the loop."""

MEASURE_WITHIN = 90.0
"""Seconds after which a source that has not answered is given up. Sources have bounds of their own, below it."""


@dataclass(frozen=True, slots=True)
class Decider:
    """Runs the cycles of one policy.

    meanwhile: what goes on while the cluster is measured.
    still_asks: whether the policy still says what it said when the settings were read.
    """

    context: Context
    meanwhile: Callable[[Turn], Awaitable[None]]
    teller: Teller
    still_asks: Callable[[Settings], bool]

    async def cycle(self, turn: Turn) -> tuple[CycleResult, Remembered] | None:
        """What came of one cycle, and what the policy remembers after it.

        None when the policy changed meanwhile, so that what was decided is no longer what it asks for.
        """
        settings, now, watch = turn.settings, self.context.now(), Stopwatch()
        if (refusal := refused_cycle(self.context, settings)) is not None:
            return self._refused(turn, now, watch, refusal)
        try:
            seen = self._crosschecked(await self._measured(turn, now, watch))
        except SourceUnavailableError as error:
            return self._refused(turn, now, watch, unmeasurable(error))
        decision = await self._plan(seen, turn, watch)
        if not self.still_asks(settings):
            log.info("policy %s changed while its cluster was measured: deciding again", self.teller.policy)
            return None
        result = await self._act(seen, decision, turn, watch)
        memory = unspent(decision, turn.memory, result.split_requests)
        remembered = turn.remembered.after(memory, result.moves_made, now)
        return result, replace(remembered, of=settings.strategies)

    def _crosschecked(self, seen: Look) -> Look:
        """What was seen, without trust in brokers of which Pulsar has told something else for long."""
        link = self.context.link
        if not link.linked:
            return seen
        link.crosscheck.see(seen.load, self.context.clock())
        return replace(seen, load=distrust(seen.load, link.crosscheck))

    async def _plan(self, seen: Look, turn: Turn, watch: Stopwatch) -> Decision:
        """The decision; without memory when that is what keeps it from being made, as it would do so for ever."""
        try:
            return await plan(seen, turn, watch)
        except Exception as error:
            if turn.memory == Memory():
                raise
            log.exception("policy %s: no decision with what it remembers, trying without", self.teller.policy)
            decision = await plan(seen, turn.forgetful, watch)
            what = f"{type(error).__name__}: {error}"
            await self.teller.amnesia(f"what was remembered is dropped, as no decision could be made with it: {what}")
            return decision

    @staticmethod
    def _refused(turn: Turn, now: float, watch: Stopwatch, refusal: HeldBack) -> tuple[CycleResult, Remembered]:
        settings, seconds = turn.settings, watch.seconds
        result = CycleResult(now, seconds, settings.generation, refusal=refusal, interval=settings.interval)
        return result, turn.remembered

    async def _act(self, seen: Look, decision: Decision, turn: Turn, watch: Stopwatch) -> CycleResult:
        ruling = rule(self.context, turn)
        self.context.topics[turn.settings.name] = KnownTopics.of(seen.load)
        requests = await request(decision.plan.splits, seen, ruling.actuator)
        self.context.expect(decision.plan.splits, seen.load)
        written = await carry_out(decision.plan.moves, seen, ruling.actuator, watch)
        return CycleResult(
            started=seen.load.now,
            seconds=watch.seconds,
            generation=turn.settings.generation,
            load=seen.load,
            plan=decision.plan,
            namespace=self.context.namespace,
            refusal=refused_by_guard(decision.plan.held_back, moves=not decision.plan.empty),
            restraint=ruling.restraint,
            written=written,
            split_requests=requests,
            weights=broker_weights(decision.plan, decision.memory, seen.load.traits),
            names={bundle: seen.records[bundle].name for bundle in decision.plan.named},
            sizing=self._sizing(seen, turn),
            measured=self.context.move_costs(),
            interval=turn.settings.interval,
            hits=hit_counts(decision.memory),
        )

    def _sizing(self, seen: Look, turn: Turn) -> Sizing:
        """What is known of the cluster's size, this cycle included. While pods restart it stays as it was."""
        if (aim := turn.settings.aim) is None:
            return UNASKED
        before = self.context.sizings.get(turn.settings.name, Sizing())
        after = before if seen.evacuation.pause is not None else before.after(seen.load, aim)
        self.context.sizings[turn.settings.name] = after
        return after

    async def _measured(self, turn: Turn, now: float, watch: Stopwatch) -> Look:
        """Look at the cluster. Upkeep goes on meanwhile: nobody is to be without an owner for a slow Prometheus.

        Raises `SourceUnavailableError`.
        """
        looking = asyncio.create_task(look(self.context.picture(turn.settings), turn, now, watch))
        try:
            async with asyncio.timeout(MEASURE_WITHIN):
                while not (await asyncio.wait({looking}, timeout=TEND_EVERY))[0]:
                    await self.meanwhile(turn)
            return await looking
        except TimeoutError:
            raise SourceUnavailableError(f"the source did not answer within {MEASURE_WITHIN:g} s") from None
        finally:
            await ended(looking)
