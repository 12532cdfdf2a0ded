"""The loop of one policy: a cycle every `interval`, and a confirmation round in between and after each event.

What a reconcile does depends on the phase of the policy. The first row whose condition holds applies. The table is
`policy_phase.TABLE`, and `policy_phase.phase_of` walks it. In a process that does not lead, no loop runs.

| phase | condition | action | reason |
|---|---|---|---|
| invalid edit | the spec is invalid, and was valid before | report; repair with last valid settings | InvalidPolicy |
| invalid | the spec is invalid | report | InvalidPolicy |
| overlapping | an older policy has some of its brokers | report | InvalidPolicy |
| conflicting | the oldest policy names another Pulsar cluster | report | InvalidPolicy |
| not synced | a store is not complete, or not fresh | report | StoreNotSynced |
| refused URL | no Broker, and `--allow-url` refuses a URL of the policy | report | InvalidPolicy |
| cut off | no Broker, and Pulsar does not answer | report | SourceUnavailable |
| discovering | no Broker, or none ready yet, in the first seconds | wait | NoBrokers |
| no brokers | the policy selects no Broker | report | NoBrokers |
| warming up | the load sources are not ready | confirm; refresh brokers | |
| between cycles | the next cycle is not due | confirm; refresh brokers | |
| paused | paused by spec or annotation | confirm; report | Paused |
| unknown brokers | spec.brokers.names has a name without a Broker | confirm; report | UnknownBroker |
| dry run | mode DryRun | confirm; cycle that shows its plan | DryRun |
| approve | mode Approve | confirm; cycle that offers its plan as a proposal | NotApproved |
| approved plan | an approved plan is being carried out | confirm; cycle that applies drains only | InFlight |
| stood down | a competing balancer undid too many moves | confirm; cycle that applies drains only | CompetingBalancer |
| unreachable | Pulsar does not answer | confirm; cycle that applies drains only | SourceUnavailable |
| two balancers | Pulsar's own balancer is active | confirm; cycle that applies drains only | PulsarBalancerActive |
| outside window | `spec.windows` are closed | confirm; cycle that applies drains only | OutsideWindow |
| auto | mode Auto | confirm; cycle that applies its plan | |

An error in a reconcile is reported and counted. The next reconcile starts from the objects again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.actuators import DeclarativeActuator
from trimtab_operator.aio import ended
from trimtab_operator.decision_log.store import Recorder
from trimtab_operator.interference.controller import InterferenceController
from trimtab_operator.kube.client import ApiError, ApiUnavailableError
from trimtab_operator.loop.broker_refresh import BrokerRefresh
from trimtab_operator.loop.confirmation import Confirmation
from trimtab_operator.loop.cycle import RECONCILE_EVERY, CycleRunner
from trimtab_operator.loop.gates import RefusalReporter
from trimtab_operator.loop.policy_memory import PolicyMemory
from trimtab_operator.loop.policy_phase import CYCLES, Action, PolicyFacts, PolicyPhase, facts_of, none_ready, phase_of
from trimtab_operator.loop.schedule import Schedule
from trimtab_operator.observe.load_source import SourceProvider
from trimtab_operator.proposals.approver import Approver
from trimtab_operator.reconcile.brokers import DrainReporter
from trimtab_operator.reconcile.bundles import BundleReconciler
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.other_leaders import deposed_at, term_of
from trimtab_operator.state.settings import InvalidPolicyError, PolicyRun, Settings, claim_of
from trimtab_operator.state.strategy_state import PolicyStateStore
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import HeldBack, Reason

log = logging.getLogger(__name__)

GATHER = 0.2
"""Seconds between the first change that wakes the loop and the reconcile."""

DISCOVER_WITHIN = 10.0
"""Seconds that discovery has to find a ready broker before a policy reports that there is none."""

GRACE = 2.0
"""Seconds that a reconcile has to finish its writes once the loop is asked to stop."""


@dataclass(slots=True)
class PolicyLoop:
    """Runs one BalancingPolicy until it is asked to stop.

    read: returns the policy object as it is now (JSON), so that an edit counts at the next reconcile without a restart.
    """

    name: str
    uid: str
    cluster: ClusterState
    read: Callable[[], Mapping[str, Any]]
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    memory: PolicyMemory = field(init=False)
    sources: SourceProvider = field(init=False)
    schedule: Schedule = field(init=False)
    confirmation: Confirmation = field(init=False)
    refusals: RefusalReporter = field(init=False)
    cycles: CycleRunner = field(init=False)
    _begun: float | None = None

    def __post_init__(self) -> None:
        cluster, name, uid = self.cluster, self.name, self.uid
        publisher = StatusPublisher(cluster, name, uid)
        store = PolicyStateStore(cluster.api, cluster.namespace, name, uid, cluster.clock)
        approver = Approver(cluster, name, uid, publisher)
        self.memory = PolicyMemory(cluster, store, publisher, self.read)
        self.sources = SourceProvider(cluster, name)
        self.schedule = Schedule(cluster)
        self.refusals = RefusalReporter(cluster, publisher, approver)
        self.confirmation = Confirmation(
            cluster,
            publisher,
            self.memory,
            bundles=BundleReconciler(cluster),
            drains=DrainReporter(cluster, publisher),
            interference=InterferenceController(cluster, name, publisher),
            approver=approver,
        )
        self.cycles = CycleRunner(
            cluster,
            publisher,
            recorder=Recorder(cluster, name, uid, publisher.meter),
            approver=approver,
            refresh=BrokerRefresh(cluster, publisher),
            refusals=self.refusals,
            memory=self.memory,
            meanwhile=self._while_measuring,
            still_asks=self._still_asks,
        )

    async def run(self, stopped: asyncio.Event) -> None:
        """Reconcile until `stopped`. Writes that are under way then have `GRACE` seconds to finish."""
        self.cluster.policies.wakers[self.name] = self.wake
        try:
            while not stopped.is_set():
                await self._reconcile_until(stopped)
                await self._rest(stopped)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Remove the policy from the shared state, unless a new policy of its name is there already."""
        cluster = self.cluster
        if cluster.policies.wakers.get(self.name) is self.wake:
            del cluster.policies.wakers[self.name]
            cluster.leave(self.name)

    async def _rest(self, stopped: asyncio.Event) -> None:
        """Wait until there is something to do, and a moment longer, so that a burst of changes causes one reconcile."""
        stop, wake = asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(self.wake.wait())
        until_due = self.schedule.due - self.cluster.clock()
        # a cycle that is due but could not run is tried again only after RECONCILE_EVERY
        pause = min(RECONCILE_EVERY, until_due) if until_due > 0 else RECONCILE_EVERY
        try:
            await asyncio.wait({stop, wake}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({stop}, timeout=GATHER)
        finally:
            await ended(stop, wake)
        self.wake.clear()

    async def _reconcile_until(self, stopped: asyncio.Event) -> None:
        """Run one reconcile. It is cancelled if it still runs `GRACE` seconds after the loop was asked to stop."""
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
            log.warning("policy %s: the API server is unavailable, trying again: %s", self.name, error)
        except ApiError as error:
            log.warning("policy %s: the API server refused a request, trying again: %s", self.name, error)
            await self._report_failure(str(error))
        except Exception as error:
            log.exception("policy %s: this reconcile failed, the next one starts from the objects again", self.name)
            await self._report_failure(f"{type(error).__name__}: {error}")

    async def _report_failure(self, text: str) -> None:
        """Report in the status that a reconcile failed. If that fails too, it is only logged."""
        try:
            await self._refuse(self.read(), HeldBack("", Reason.INTERNAL_ERROR, text))
        except ApiError as error:
            log.warning("policy %s: the failure could not be reported either: %s", self.name, error)
        except Exception:
            log.exception("policy %s: the failure could not be reported either", self.name)

    async def reconcile(self) -> None:
        """Do what the phase of the policy requires. Raises `ApiError`."""
        policy = self.read()
        if not await self._leads(policy):
            return
        settings, phase = self._phase(policy)
        if phase.held is not None and phase.action in {Action.REPORT, Action.REPAIR}:
            await self._refuse(policy, phase.held)
        if settings is None or phase.action in {Action.WAIT, Action.REPORT}:
            return
        run = await self._run(settings, afresh=phase.action in CYCLES)
        if phase.action is Action.REPAIR:
            await self.confirmation.repair(run)
            return
        confirmed = await self.confirmation.confirm(run, policy)
        if confirmed.decide:
            self._decide_at_once()
        if phase.action in CYCLES:
            await self._cycle(confirmed.run, phase)
        else:
            await self._between_cycles(confirmed.run)

    async def _leads(self, policy: Mapping[str, Any]) -> bool:
        """Whether this process decides for the policy (`state.other_leaders`). Raises `ApiError`.

        If the status says that another leader does, and it does not, the status is corrected.
        """
        process, leaders = self.cluster.process, self.cluster.policies.leaders
        leaders.pop(self.name, None)
        if (other := term_of(policy, process.lease)) is not None:
            leaders[self.name] = other
        if process.deposed or (other is not None and other.outranks(process.term)):
            return False
        if process.lease and (other is not None or deposed_at(policy)):
            await self.confirmation.publisher.leader()
        return True

    def _phase(self, policy: Mapping[str, Any]) -> tuple[Settings | None, PolicyPhase]:
        """The settings to reconcile with (None: there are none), and the phase of the policy."""
        cluster = self.cluster
        try:
            settings = Settings.of(policy)
        except InvalidPolicyError as error:
            return self._invalid(policy, str(error))
        cluster.policies.claims[self.name] = settings.claim
        if self.name in cluster.share_out().standing:
            cluster.policies.settings[self.name] = settings
        else:
            cluster.policies.settings.pop(self.name, None)
        cluster.relink()
        due, warm = self.schedule.is_due(settings), cluster.engine.is_set()
        facts = facts_of(cluster, settings, due=due, warm=warm)
        if not facts.stale and self._early():  # discovery waits for the stores, too
            discovers = settings.pod_labels or settings.pulsar
            awaited = facts.no_brokers or none_ready(cluster, settings)
            facts = replace(facts, discovering=awaited if discovers else "")
        return settings, phase_of(facts)

    def _invalid(self, policy: Mapping[str, Any], text: str) -> tuple[Settings | None, PolicyPhase]:
        """Settings and phase of an invalid policy. It keeps its brokers; repairs use the last valid settings."""
        cluster = self.cluster
        last = cluster.policies.settings.get(self.name)
        phase = phase_of(PolicyFacts(invalid=text, ran=last is not None))
        if last is None:
            if (claim := claim_of(policy)) is not None:
                cluster.policies.claims[self.name] = claim
            return None, phase
        cluster.share_out()
        repairs = phase_of(facts_of(cluster, last, due=False)).action is Action.CONFIRM
        return (last if repairs else None), phase

    def _early(self) -> bool:
        """Whether it is too early to report that no broker is ready: discovery may still be finding pods."""
        if self._begun is None:
            self._begun = self.cluster.clock()
        return self.cluster.clock() - self._begun < DISCOVER_WITHIN

    async def _run(self, settings: Settings, *, afresh: bool) -> PolicyRun:
        """Create the run of a reconcile. afresh: read the source's Secrets and the moves again. Raises `ApiError`."""
        cluster = self.cluster
        state = await (self.memory.recall_moves() if afresh else self.memory.recall())
        epoch = max(state.epoch, cluster.process.epoch)  # another namespace may have raised it since
        actuator = DeclarativeActuator(cluster.api, cluster.namespace, self.name, epoch, cluster.now)
        return PolicyRun(settings, actuator, await self.sources.source(settings, afresh=afresh), state)

    async def _cycle(self, run: PolicyRun, phase: PolicyPhase) -> None:
        settings, schedule = run.settings, self.schedule
        beat, early = schedule.beat, self.cluster.clock() < schedule.beat
        schedule.next(settings.interval)
        schedule.generation = settings.generation
        if phase.action is Action.REFUSE and phase.held is not None:
            await self.cycles.refuse(run, phase.held, self.cluster.now())
        elif not await self.cycles.cycle(run, early=early):
            schedule.beat = beat
            self._decide_at_once()

    async def _between_cycles(self, run: PolicyRun) -> None:
        """Publish completed moves, and refresh the brokers when due. A refresh may make a cycle start early."""
        cluster, refresh = self.cluster, self.cycles.refresh
        await self.confirmation.publisher.landings()
        if cluster.engine.is_set() and cluster.clock() >= refresh.due:
            why = await refresh.refresh(run)
            if why and not run.settings.paused:
                log.info("policy %s: decides early: %s", self.name, why)
                self._decide_at_once()

    async def _while_measuring(self, run: PolicyRun) -> None:
        if await self.confirmation.while_measuring(run):
            self._decide_at_once()

    def _decide_at_once(self) -> None:
        self.schedule.at_once()
        self.wake.set()

    async def _refuse(self, policy: Mapping[str, Any], refusal: HeldBack) -> None:
        await self.refusals.report(refusal, policy["metadata"].get("generation", 0))

    def _still_asks(self, settings: Settings) -> bool:
        """Whether the policy is as when the cycle began: not edited, paused, or refused because of an older policy."""
        try:
            now = Settings.of(self.read())
        except InvalidPolicyError:
            return False
        same = (now.generation, now.paused) == (settings.generation, settings.paused)
        return same and self.name in self.cluster.policies.shares.standing
