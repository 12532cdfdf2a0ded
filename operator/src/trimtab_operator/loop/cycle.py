"""One cycle of a policy: observe -> decide -> gate -> apply -> confirm -> report. See `CycleRunner.cycle`.

The path of one sample, from Prometheus to a confirmed owner:

| step | what happens to it | where |
|---|---|---|
| observe | it becomes a row of the `ClusterLoad`, with traits, pending moves and distrust | `observe` |
| decide | shedder, placement and splitter plan within the guard's limits | `decide`, strategies |
| gate | mode, approved plan, other balancers and windows say how the plan is applied | `gates` |
| | disruption budgets say which moves of the plan may be made now | `budget.admission` |
| apply | `spec.owner` of a bundle is written, with the resourceVersion that was decided on | `actuators` |
| confirm | the write is counted; later reconciles follow the pending move (see below) | `confirmation` |
| report | status, Events, metrics, decision log, and in mode Approve the proposal | `status`, `proposals` |

A pending move ends when `status.owner` of the bundle names the new broker. The broker writes this field. If a Pulsar
cluster is connected, `pulsar.bridge` writes it once the owner is verified. A move that takes too long is withdrawn.

`trimtab plan` calls the same functions up to the gate (`loop.preview`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from trimtab_operator.actuators import WriteResult, apply_moves
from trimtab_operator.aio import ended
from trimtab_operator.budget.report import budget_uses
from trimtab_operator.decide import decide_plan
from trimtab_operator.decision_log.store import Recorder
from trimtab_operator.kube.client import ApiError
from trimtab_operator.loop.broker_refresh import BrokerRefresh
from trimtab_operator.loop.budget_gate import admitted_plan, with_budget_details
from trimtab_operator.loop.gates import Gate, RefusalReporter, gate, refused_by_guard, unmeasurable
from trimtab_operator.loop.policy_memory import PolicyMemory
from trimtab_operator.loop.policy_phase import outside_windows
from trimtab_operator.observe.snapshot import Snapshot, Stopwatch, observe
from trimtab_operator.proposals.approver import Approver
from trimtab_operator.proposals.automatic import Findings
from trimtab_operator.proposals.model import Proposal
from trimtab_operator.splits.controller import request, unspent
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.splitting_bundles import KnownTopics
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.state.target_weights import broker_weights
from trimtab_operator.status.metrics import hit_counts
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_strategies.model import Decision, HeldBack, Memory, Plan
from trimtab_strategies.protocols import Predictions, ScoresPredictions
from trimtab_strategies.sizing import UNASKED, Sizing

log = logging.getLogger(__name__)

RECONCILE_EVERY = 2.0
"""Seconds between two confirmation rounds when nothing wakes the loop."""

MEASURE_WITHIN = 90.0
"""Seconds after which a source that has not answered is given up. Sources have their own, shorter time limits."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The results of a plan's moves and splits, in order. restraint: why the plan was only shown; None if applied."""

    moves: tuple[WriteResult, ...]
    splits: tuple[WriteResult, ...]
    restraint: HeldBack | None


@dataclass(frozen=True, slots=True)
class CycleRunner:
    """Runs the cycles of one policy.

    meanwhile: the confirmation round that runs while the cluster is measured.
    still_asks: whether the policy still has the settings of the cycle.
    """

    cluster: ClusterState
    publisher: StatusPublisher
    recorder: Recorder
    approver: Approver
    refresh: BrokerRefresh
    refusals: RefusalReporter
    memory: PolicyMemory
    meanwhile: Callable[[PolicyRun], Awaitable[None]]
    still_asks: Callable[[Settings], bool]

    async def cycle(self, run: PolicyRun, *, early: bool = False) -> bool:
        """Run one cycle. False: the policy changed meanwhile, so the plan was dropped.

        early: the interval is not over. The state after such a cycle is kept only if it plans something.
        """
        now, watch, self.memory.aside = self.cluster.now(), Stopwatch(), 0
        try:
            snapshot = await self._observe(run, watch)
        except SourceUnavailableError as error:
            await self.refuse(run, unmeasurable(error), now, watch.seconds)
            return True
        decision = await self._decide(snapshot, run, watch)
        if not self.still_asks(run.settings):
            log.info("policy %s changed while its cluster was measured: deciding again", run.settings.name)
            return False
        plan, passed = decision.plan, gate(self.cluster, run, approved=self.approver.under_way)
        applied = await self._apply(plan, snapshot, passed, run, watch)
        result, proposal = self._result(run, snapshot, decision, applied, watch)
        state = await self._confirm(run, decision, result, now, count=not early or not plan.empty)
        await self._report(result, run.settings, state, proposal)
        return True

    async def refuse(
        self, run: PolicyRun, refusal: HeldBack, now: float, seconds: Mapping[str, float] | None = None
    ) -> None:
        """Report that a cycle, begun at `now` (epoch seconds), makes no plan. refusal: why. seconds: per phase."""
        settings = run.settings
        result = CycleResult(now, seconds or {}, settings.generation, refusal=refusal, interval=settings.interval)
        await self._report(result, settings, self.memory.state or run.state)

    async def _observe(self, run: PolicyRun, watch: Stopwatch) -> Snapshot:
        """Measure the snapshot. Confirmation continues meanwhile, so that a slow Prometheus delays no repair.

        Raises `SourceUnavailableError`.
        """
        observing = asyncio.create_task(observe(self.cluster, run, watch))
        try:
            async with asyncio.timeout(MEASURE_WITHIN):
                while not (await asyncio.wait({observing}, timeout=RECONCILE_EVERY))[0]:
                    await self._confirmed_meanwhile(run)
            snapshot = await observing
        except TimeoutError:
            raise SourceUnavailableError(f"the source did not answer within {MEASURE_WITHIN:g} s") from None
        finally:
            await ended(observing)
        if self.cluster.link.linked:
            self.cluster.link.cross_check.update(snapshot.load, self.cluster.clock())
        return snapshot

    async def _confirmed_meanwhile(self, run: PolicyRun) -> None:
        """Run a confirmation round. An error of the API server is only logged, so that the measurement continues."""
        try:
            await self.meanwhile(run)
        except ApiError as error:
            log.warning("policy %s: confirmation failed during the measurement: %s", run.settings.name, error)

    async def _decide(self, snapshot: Snapshot, run: PolicyRun, watch: Stopwatch) -> Decision:
        with watch.phase("decide"):
            decided = await decide_plan(snapshot, run)
        if decided.dropped:
            text = f"the strategy state is dropped, because no decision could be made with it: {decided.dropped}"
            await self.publisher.state_reset(text)
        return with_budget_details(self.cluster, run.settings, decided.decision, snapshot)

    async def _apply(self, plan: Plan, snapshot: Snapshot, passed: Gate, run: PolicyRun, watch: Stopwatch) -> Applied:
        self.cluster.policies.topics[run.settings.name] = KnownTopics.of(snapshot.load)
        with watch.phase("act"):
            allowed = await admitted_plan(self.cluster, run.settings, plan, snapshot, passed)
            splits = await request(allowed.plan.splits, snapshot, passed.actuator)
            moves = await apply_moves(allowed.plan.moves, snapshot.records, passed.actuator)
        self.cluster.expect(allowed.plan.splits, snapshot.load)
        return Applied(allowed.moves(moves), allowed.splits(splits), passed.restraint)

    async def _confirm(
        self, run: PolicyRun, decision: Decision, result: CycleResult, now: float, *, count: bool
    ) -> PolicyState:
        """The policy's state, with the moves that were written; stored if `count`."""
        memory = unspent(decision, run.memory, result.split_requests)
        state = run.state.after(memory, result.moves_made, now)
        if self.memory.aside:
            state = state.after(state.strategies, self.memory.aside, self.cluster.now())
        state = replace(state, of=run.settings.strategies)
        return await self.memory.keep(state) if count else state

    async def _report(
        self, result: CycleResult, settings: Settings, state: PolicyState, proposal: Proposal | None = None
    ) -> None:
        self.refusals.clear()
        self.refresh.after_cycle(result.load, settings)
        await self.publisher.cycle(result)
        await self.recorder.cycle(result, settings, state)
        if proposal is not None and result.load is not None:
            findings = Findings(outside_windows(settings, self.cluster.now()), result.predictions)
            await self.approver.offer(proposal, result.load, settings, findings)

    def _result(
        self, run: PolicyRun, snapshot: Snapshot, decision: Decision, applied: Applied, watch: Stopwatch
    ) -> tuple[CycleResult, Proposal]:
        load, plan, settings = snapshot.load, decision.plan, run.settings
        names = {bundle: snapshot.records[bundle].name for bundle in plan.named}
        proposal = proposal_of(self.cluster, plan, snapshot, settings)
        result = CycleResult(
            started=load.now,
            seconds=watch.seconds,
            generation=settings.generation,
            load=load,
            plan=plan,
            namespace=self.cluster.namespace,
            refusal=refused_by_guard(plan),
            restraint=applied.restraint,
            written=applied.moves,
            split_requests=applied.splits,
            weights=broker_weights(plan, decision.memory, load.traits),
            proposal=proposal.shown(),
            names=names,
            sizing=self._sizing(snapshot, run),
            interval=settings.interval,
            hits=hit_counts(decision.memory),
            predictions=_predictions(settings, decision.memory),
            unwritten=snapshot.unwritten,
            budget=budget_uses(self.cluster, settings),
        )
        return result, proposal

    def _sizing(self, snapshot: Snapshot, run: PolicyRun) -> Sizing:
        """Advice on the number of brokers, including this cycle. Unchanged while pods restart."""
        if (aim := run.settings.aim) is None:
            return UNASKED
        sizings, policy = self.cluster.policies.sizings, run.settings.name
        before = sizings.get(policy, Sizing())
        sizings[policy] = before if snapshot.drains.pause is not None else before.after(snapshot.load, aim)
        return sizings[policy]


def _predictions(settings: Settings, memory: Memory) -> Predictions | None:
    """How accurate the shedder's last predictions were; None if it makes none."""
    shedder = settings.pair.shedder
    return shedder.predictions(memory.shedder) if isinstance(shedder, ScoresPredictions) else None


def proposal_of(cluster: ClusterState, plan: Plan, snapshot: Snapshot, settings: Settings) -> Proposal:
    """The proposal of a plan that was made from `snapshot`."""
    return Proposal.of(
        plan,
        snapshot.load,
        names={bundle: snapshot.records[bundle].name for bundle in plan.named},
        generation=settings.generation,
        made_at=snapshot.load.now,
        expires_after=settings.approval_expires_after,
        measured=cluster.move_costs(),
        drained=snapshot.drains.drained,
    )
