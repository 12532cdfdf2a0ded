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

from trimtab_operator.actuators import DeclarativeActuator
from trimtab_operator.aio import ended
from trimtab_operator.decision_log.store import Recorder
from trimtab_operator.interference.controller import InterferenceController
from trimtab_operator.kube.client import ApiError, ApiUnavailableError
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.loop.broker_refresh import BrokerWatch, refresh_brokers
from trimtab_operator.loop.cycle import RECONCILE_EVERY, CycleRunner
from trimtab_operator.loop.gates import moved_lately, refused_reconcile
from trimtab_operator.observe.load_source import SourceProvider
from trimtab_operator.observe.topology import cluster_records
from trimtab_operator.proposals.approver import Approver
from trimtab_operator.reconcile.brokers import DrainReporter
from trimtab_operator.reconcile.bundles import BundleReconciler
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.policy_run import PolicyRun
from trimtab_operator.state.settings import InvalidPolicyError, Settings, claim_of
from trimtab_operator.state.strategy_state import PolicyState, PolicyStateStore
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_pipeline.api import SourceUnavailableError
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
    context: ClusterState
    read: Callable[[], Mapping[str, Any]]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    _remembered: PolicyState | None = None
    _memory: PolicyStateStore = field(init=False)
    _reconciler: BundleReconciler = field(init=False)
    _publisher: StatusPublisher = field(init=False)
    _source_provider: SourceProvider = field(init=False)
    _decider: CycleRunner = field(init=False)
    _drain_reporter: DrainReporter = field(init=False)
    _recorder: Recorder = field(init=False)
    _approver: Approver = field(init=False)
    _aside: int = 0
    _interference: InterferenceController = field(init=False)
    _watch: BrokerWatch = field(default_factory=BrokerWatch)
    _due: float = 0.0
    _beat: float = 0.0
    _generation: int = -1
    _refused: tuple[int, Reason] | None = None
    _remind_at: float = 0.0
    _begun: float | None = None
    _leaving: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        context = self.context
        self._memory = PolicyStateStore(context.api, context.namespace, self.name, self.uid, context.clock)
        self._reconciler = BundleReconciler(context)
        self._publisher = StatusPublisher(context, self.name, self.uid)
        self._source_provider = SourceProvider(context, self.name)
        self._recorder = Recorder(context, self.name, self.uid, self._publisher.meter)
        self._drain_reporter = DrainReporter(context, self._publisher)
        self._interference = InterferenceController(context, self.name, self._publisher)
        self._approver = Approver(context, self.name, self.uid, self._publisher)
        self._decider = CycleRunner(context, self._while_measuring, self._publisher, self._still_asks)

    async def run(self, stopped: Stopped) -> None:
        """Turn after turn until `stopped`. Writes that are under way when it is set are finished first."""
        self.context.wakers[self.name] = self.wake
        try:
            while not stopped.is_set():
                await self._reconcile_until(stopped)
                await self._rest(stopped)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Take the policy off the lists, unless a new one of its name is on them by now."""
        context = self.context
        if context.wakers.get(self.name) is self.wake:
            del context.wakers[self.name]
            context.leave(self.name)
        self._source_provider.close()

    async def _rest(self, stopped: Stopped) -> None:
        """Until there is something to do, and then a moment more: a burst of changes is to make one turn."""
        stop, wake = asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(self.wake.wait())
        until_due = self._due - self.context.clock()
        pause = min(RECONCILE_EVERY, until_due) if until_due > 0 else RECONCILE_EVERY  # due, and kept from it: no hurry
        try:
            await asyncio.wait({stop, wake}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({stop}, timeout=GATHER)
        finally:
            await ended(stop, wake)
        self.wake.clear()

    async def _reconcile_until(self, stopped: Stopped) -> None:
        """One turn. When told to stop, writes get a moment to finish; a measurement is not waited for."""
        run, stop = asyncio.create_task(self._reconcile_safely()), asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait({run, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not run.done():
                await asyncio.wait({run}, timeout=GRACE)
        finally:
            await ended(run, stop)

    async def _reconcile_safely(self) -> None:
        try:
            await self.reconcile()
        except ApiUnavailableError as error:
            log.warning("policy %s: the API server did not do as asked, trying again: %s", self.name, error)
        except ApiError as error:
            log.warning("policy %s: the API server refused, trying again: %s", self.name, error)
            await self._report_failure(str(error))
        except Exception as error:
            log.exception("policy %s: this turn failed, the next one starts afresh", self.name)
            await self._report_failure(f"{type(error).__name__}: {error}")

    async def _report_failure(self, text: str) -> None:
        """Say in the status that a turn failed; when that fails too, the log has to do."""
        try:
            await self._refuse(self.read(), HeldBack("", Reason.INTERNAL_ERROR, text))
        except ApiError as error:
            log.warning("policy %s: nor could that be told: %s", self.name, error)
        except Exception:
            log.exception("policy %s: nor could that be told", self.name)

    async def reconcile(self) -> None:
        """Upkeep, and a cycle when one is due. Raises `ApiError`."""
        policy, context = self.read(), self.context
        try:
            settings = Settings.of(policy)
        except InvalidPolicyError as error:
            await self._refuse(policy, HeldBack("", Reason.INVALID_POLICY, str(error)))
            await self._reconcile_invalid(policy)
            return
        context.claims[self.name] = settings.claim
        if self.name in context.share_out().standing:
            context.policies[self.name] = settings
        else:
            context.policies.pop(self.name, None)
        context.relink()
        if (refusal := refused_reconcile(context, self.name)) is not None:
            if not self._still_discovering(settings, refusal):
                await self._refuse(policy, refusal)
            return
        remembered = await self._recall()
        actuator = DeclarativeActuator(context.api, context.namespace, self.name, remembered.epoch, context.now)
        self._decide_for_departures(settings)
        due = self._is_due(settings) and context.engine.is_set()
        run = PolicyRun(settings, actuator, await self._source_provider.source(settings, afresh=due), remembered)
        await self._reconciler.reconcile(run, self._publisher)
        await self._drain_reporter.tell(settings)
        run = await self._detect_interference(run, policy)
        run = await self._attend(run, policy)
        if due:
            await self._decide(run)
            return
        await self._publisher.landings()
        if context.engine.is_set() and context.clock() >= self._watch.due:
            await self._refresh_brokers(run)

    async def _reconcile_invalid(self, policy: Mapping[str, Any]) -> None:
        """What is left of a turn of a policy that can't be run: upkeep, as it was written before. Raises `ApiError`."""
        context = self.context
        if (settings := context.policies.get(self.name)) is None:
            if (claim := claim_of(policy)) is not None:
                context.claims[self.name] = claim
            return
        context.share_out()
        if refused_reconcile(context, self.name) is None:
            remembered, source = await self._recall(), await self._source_provider.source(settings, afresh=False)
            actuator = DeclarativeActuator(context.api, context.namespace, self.name, remembered.epoch, context.now)
            await self._reconciler.reconcile(PolicyRun(settings, actuator, source, remembered), self._publisher)

    async def _detect_interference(self, run: PolicyRun, policy: Mapping[str, Any]) -> PolicyRun:
        """Take note of what others did to the policy's bundles; the turn with what is remembered of it."""
        remembered = await self._interference.attend(run, policy)
        if remembered is not run.remembered:
            run = replace(run, remembered=await self._remember(remembered))
        await self._interference.tell(run, policy)
        return run

    async def _attend(self, run: PolicyRun, policy: Mapping[str, Any]) -> PolicyRun:
        """Take what people ask by annotation, and go on with an approved proposal; the turn, its moves counted."""
        attended = await self._approver.attend(run, policy)
        if attended.decide:
            self._due = self.context.clock()
            self.wake.set()
        if not attended.written:
            return run
        self._aside += attended.written
        remembered = run.remembered.after(run.memory, attended.written, self.context.now())
        return replace(run, remembered=await self._remember(remembered))

    async def _while_measuring(self, run: PolicyRun) -> None:
        """While a cycle measures: upkeep, and what people ask and approved. Nobody waits for a slow Prometheus."""
        if refused_reconcile(self.context, self.name) is not None:
            return
        await self._reconciler.reconcile(run, self._publisher)
        await self._publisher.landings()
        policy = self.read()
        try:
            now = replace(run, settings=Settings.of(policy), remembered=self._remembered or run.remembered)
        except InvalidPolicyError:
            return
        await self._attend(now, policy)

    async def _refresh_brokers(self, run: PolicyRun) -> None:
        """Look at the brokers alone; decide at once when one died or crossed the overload line, unless paused.

        Raises `ApiError`.
        """
        context, settings, begun = self.context, run.settings, time.monotonic()
        self._watch.next(settings, context.clock())
        records = cluster_records(context, settings, of_bundles=False)
        why = self._watch.dead(records)
        try:
            load = await refresh_brokers(records, run, context.now())
        except SourceUnavailableError as error:
            log.debug("policy %s: a glance failed, the next decision will tell: %s", self.name, error)
            await self._publisher.counts()
        else:
            context.link.cross_check.see(load, context.clock())
            await self._publisher.brokers(load, time.monotonic() - begun, paused=settings.paused)
            why = why or self._watch.crossed(load, settings)
        if why and not settings.paused:
            log.info("policy %s: decides early: %s", self.name, why)
            self._due = context.clock()
            self.wake.set()

    def _still_discovering(self, settings: Settings, refusal: HeldBack) -> bool:
        """Whether it is too early to complain that there are no brokers: their pods are only being found."""
        if self._begun is None:
            self._begun = self.context.clock()
        early = self.context.clock() - self._begun < DISCOVER_WITHIN
        return early and refusal.reason is Reason.NO_BROKERS and bool(settings.pod_labels)

    async def _decide(self, run: PolicyRun) -> None:
        self._aside = 0
        beat, early = self._beat, self.context.clock() < self._beat
        self._due = self._next_due(run.settings.interval)
        self._generation = run.settings.generation
        if (decided := await self._decider.cycle(run)) is None:
            self._beat = beat
            self._due = self.context.clock()
            self.wake.set()
            return
        result, remembered = decided
        if self._aside:  # moves that were approved, and written while this cycle measured
            remembered = remembered.after(remembered.strategies, self._aside, self.context.now())
        spare = early and (result.plan is None or result.plan.empty)  # no interval has passed that counters could count
        if remembered is not run.remembered and not spare:
            await self._remember(remembered)
        self._refused = None
        self._watch.dead(cluster_records(self.context, run.settings, of_bundles=False))
        if result.load is not None:
            self._watch.crossed(result.load, run.settings)
        self._watch.next(run.settings, self.context.clock())
        await self._publisher.cycle(result)
        await self._recorder.cycle(result, run.settings, remembered)
        await self._approver.offer(result, run.settings)

    def _decide_for_departures(self, settings: Settings) -> None:
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
        await self._publisher.cycle(CycleResult(self.context.now(), {}, generation, refusal=refusal))
        if refusal.reason is Reason.INVALID_POLICY:
            await self._approver.bar(refusal, generation)
        self._refused, self._remind_at = (generation, refusal.reason), clock + REMIND

    async def _recall(self) -> PolicyState:
        """Memory as stored, once per start. The epoch is the leader's; where nobody is elected, starts are counted."""
        if self._remembered is None:
            try:
                found = await self._memory.load()
            except UnreadableContentError as error:
                await self._publisher.state_reset(f"begins without memory: {error}")
                found = PolicyState()
            bundles = self.context.stores.bundles.items.values()
            found = found.caught_up(moved_lately(bundles, self.read(), self.context.now()))
            self._remembered = await self._remember(replace(found, epoch=self.context.epoch or found.epoch + 1))
        return self._remembered

    async def _remember(self, remembered: PolicyState) -> PolicyState:
        """Keep it, and store it; what was done is done, whether or not that works."""
        self._remembered = remembered
        try:
            await self._memory.save(remembered)
        except ApiError as error:
            await self._publisher.state_reset(f"memory is not stored and would not survive a restart: {error}")
        return remembered

    def _still_asks(self, settings: Settings) -> bool:
        """Whether the policy says what it said when the cycle began. An edit, a pause or an older policy ends that."""
        try:
            now = Settings.of(self.read())
        except InvalidPolicyError:
            return False
        same = (now.generation, now.paused) == (settings.generation, settings.paused)
        return same and self.name in self.context.shares.standing
