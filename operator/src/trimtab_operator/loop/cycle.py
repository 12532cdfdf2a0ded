"""One cycle of a policy: refuse, or measure, decide, rule on what becomes of the plan, act, and sum up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trimtab_operator.aio import ended
from trimtab_operator.apply import carry_out
from trimtab_operator.decide import decide_plan
from trimtab_operator.kube.move_costs import Measured
from trimtab_operator.loop.gates import gate, refused_by_guard, refused_cycle, unmeasurable
from trimtab_operator.observe.snapshot import Snapshot, Stopwatch, snapshot
from trimtab_operator.observe.topology import cluster_records
from trimtab_operator.proposals.model import Proposal
from trimtab_operator.splits.controller import request, unspent
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.pulsar_link import distrust
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.sizing import UNASKED, Sizing
from trimtab_operator.state.splitting_bundles import KnownTopics
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.state.target_weights import broker_weights
from trimtab_operator.status.metrics import hit_counts
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_strategies.model import Decision, HeldBack, Memory, Plan

log = logging.getLogger(__name__)

RECONCILE_EVERY = 2.0
"""Seconds between two rounds of upkeep when nothing woke the loop."""

MEASURE_WITHIN = 90.0
"""Seconds after which a source that has not answered is given up. Sources have bounds of their own, below it."""


@dataclass(frozen=True, slots=True)
class CycleRunner:
    """Runs the cycles of one policy.

    meanwhile: what goes on while the cluster is measured.
    still_asks: whether the policy still says what it said when the settings were read.
    """

    context: ClusterState
    meanwhile: Callable[[PolicyRun], Awaitable[None]]
    publisher: StatusPublisher
    still_asks: Callable[[Settings], bool]

    async def cycle(self, run: PolicyRun) -> tuple[CycleResult, PolicyState] | None:
        """What came of one cycle, and what the policy remembers after it.

        None when the policy changed meanwhile, so that what was decided is no longer what it asks for.
        """
        settings, now, watch = run.settings, self.context.now(), Stopwatch()
        if (refusal := refused_cycle(self.context, settings)) is not None:
            return self._refused(run, now, watch, refusal)
        try:
            seen = self._crosschecked(await self._measured(run, now, watch))
        except SourceUnavailableError as error:
            return self._refused(run, now, watch, unmeasurable(error))
        decision = await self._plan(seen, run, watch)
        if not self.still_asks(settings):
            log.info("policy %s changed while its cluster was measured: deciding again", self.publisher.policy)
            return None
        result = await self._act(seen, decision, run, watch)
        memory = unspent(decision, run.memory, result.split_requests)
        remembered = run.state.after(memory, result.moves_made, now)
        return result, replace(remembered, of=settings.strategies)

    def _crosschecked(self, seen: Snapshot) -> Snapshot:
        """What was seen, without trust in brokers of which Pulsar has told something else for long."""
        link = self.context.link
        if not link.linked:
            return seen
        link.cross_check.see(seen.load, self.context.clock())
        return replace(seen, load=distrust(seen.load, link.cross_check))

    async def _plan(self, seen: Snapshot, run: PolicyRun, watch: Stopwatch) -> Decision:
        """The decision; without memory when that is what keeps it from being made, as it would do so for ever."""
        try:
            return await decide_plan(seen, run, watch)
        except Exception as error:
            if run.memory == Memory():
                raise
            log.exception("policy %s: no decision with what it remembers, trying without", self.publisher.policy)
            decision = await decide_plan(seen, run.forgetful, watch)
            what = f"{type(error).__name__}: {error}"
            await self.publisher.state_reset(
                f"what was remembered is dropped, as no decision could be made with it: {what}"
            )
            return decision

    @staticmethod
    def _refused(run: PolicyRun, now: float, watch: Stopwatch, refusal: HeldBack) -> tuple[CycleResult, PolicyState]:
        settings, seconds = run.settings, watch.seconds
        result = CycleResult(now, seconds, settings.generation, refusal=refusal, interval=settings.interval)
        return result, run.state

    async def _act(self, seen: Snapshot, decision: Decision, run: PolicyRun, watch: Stopwatch) -> CycleResult:
        ruling = gate(self.context, run)
        self.context.topics[run.settings.name] = KnownTopics.of(seen.load)
        requests = await request(decision.plan.splits, seen, ruling.actuator)
        self.context.expect(decision.plan.splits, seen.load)
        written = await carry_out(decision.plan.moves, seen, ruling.actuator, watch)
        names = {bundle: seen.records[bundle].name for bundle in decision.plan.named}
        costs = self.context.move_costs()
        return CycleResult(
            started=seen.load.now,
            seconds=watch.seconds,
            generation=run.settings.generation,
            load=seen.load,
            plan=decision.plan,
            namespace=self.context.namespace,
            refusal=refused_by_guard(decision.plan.held_back, moves=not decision.plan.empty),
            restraint=ruling.restraint,
            written=written,
            split_requests=requests,
            weights=broker_weights(decision.plan, decision.memory, seen.load.traits),
            proposal=_shown(decision.plan, seen, names, run, costs),
            names=names,
            sizing=self._sizing(seen, run),
            measured=costs,
            interval=run.settings.interval,
            hits=hit_counts(decision.memory),
            unwritten=seen.unwritten,
        )

    def _sizing(self, seen: Snapshot, run: PolicyRun) -> Sizing:
        """What is known of the cluster's size, this cycle included. While pods restart it stays as it was."""
        if (aim := run.settings.aim) is None:
            return UNASKED
        before = self.context.sizings.get(run.settings.name, Sizing())
        after = before if seen.evacuation.pause is not None else before.after(seen.load, aim)
        self.context.sizings[run.settings.name] = after
        return after

    async def _measured(self, run: PolicyRun, now: float, watch: Stopwatch) -> Snapshot:
        """Look at the cluster. Upkeep goes on meanwhile: nobody is to be without an owner for a slow Prometheus.

        Raises `SourceUnavailableError`.
        """
        looking = asyncio.create_task(snapshot(cluster_records(self.context, run.settings), run, now, watch))
        try:
            async with asyncio.timeout(MEASURE_WITHIN):
                while not (await asyncio.wait({looking}, timeout=RECONCILE_EVERY))[0]:
                    await self.meanwhile(run)
            return await looking
        except TimeoutError:
            raise SourceUnavailableError(f"the source did not answer within {MEASURE_WITHIN:g} s") from None
        finally:
            await ended(looking)


def _shown(
    plan: Plan, seen: Snapshot, names: Mapping[str, str], run: PolicyRun, costs: Measured | None
) -> Mapping[str, Any]:
    """The plan as the policy's status shows it."""
    load, generation = seen.load, run.settings.generation
    return Proposal.of(plan, load, names=names, generation=generation, made_at=load.now, measured=costs).shown()
