"""One cycle of a policy in mode Shadow: observe -> set virtual owners -> decide -> compare -> report.

It decides with the same functions as any other cycle (`loop.cycle`). It writes only the policy's status, Events about
the policy, and the policy's ConfigMaps: no Bundle, Broker or BundleSplit, and nothing in Pulsar. It makes no splits,
and follows those that others make.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from trimtab_operator.actuators import DryRunActuator, apply_moves
from trimtab_operator.decide import Decided, assign_owners, decide_plan
from trimtab_operator.kube.client import ApiError
from trimtab_operator.kube.config_map_store import ConfigMapStore, UnreadableContentError
from trimtab_operator.loop.cycle import MEASURE_WITHIN, proposal_of
from trimtab_operator.loop.gates import RefusalReporter, gate, refused_by_guard, unmeasurable
from trimtab_operator.loop.policy_memory import PolicyMemory
from trimtab_operator.observe.snapshot import Snapshot, Stopwatch, observe
from trimtab_operator.observe.virtual_cluster import VirtualCluster, VirtualSnapshot
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.shadow_state import ShadowReport, ShadowState, fingerprint, recently_stored, shadow_store
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_strategies.model import Decision, HeldBack, Move, Plan, Reason

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ShadowRunner:
    """Runs the cycles of one policy while its mode is Shadow.

    still_asks: whether the policy still has the settings of the cycle.
    """

    cluster: ClusterState
    policy: str
    uid: str
    publisher: StatusPublisher
    refusals: RefusalReporter
    memory: PolicyMemory
    still_asks: Callable[[Settings], bool]
    _virtual: VirtualCluster = field(default_factory=VirtualCluster)
    _store: ConfigMapStore[ShadowState] = field(init=False)
    _stored: ShadowState | None = None
    _loaded: bool = False
    _kept: ShadowState | None = None

    def __post_init__(self) -> None:
        self._store = shadow_store(self.cluster.api, self.cluster.namespace, self.policy, self.uid)

    async def cycle(self, run: PolicyRun, *, early: bool = False) -> bool:  # noqa: ARG002  as `CycleRunner.cycle`
        """Run one cycle. False: the policy changed meanwhile, so what was measured is dropped. Raises `ApiError`."""
        now, watch = self.cluster.now(), Stopwatch()
        await self._load()
        try:
            async with asyncio.timeout(MEASURE_WITHIN):
                real = await observe(self.cluster, run, watch)
        except TimeoutError:
            error = SourceUnavailableError(f"the source did not answer within {MEASURE_WITHIN:g} s")
            await self.refuse(run, unmeasurable(error), now)
            return True
        except SourceUnavailableError as error:
            await self.refuse(run, unmeasurable(error), now)
            return True
        if not self.still_asks(run.settings):
            return False
        with watch.phase("decide"):
            seen = await asyncio.to_thread(virtual_snapshot, self.cluster, run, self._virtual, real, self._stored)
            given, decision = await self._decide(seen, run)
        plan, settings = decision.plan, run.settings
        with watch.phase("compare"):
            compared = await asyncio.to_thread(self._compared, seen, given, plan.moves, run)
        state = run.state.after(decision.memory, len(plan.moves), now)
        await self.memory.keep(replace(state, of=settings.strategies))
        report = await self._keep(compared)
        self.refusals.clear()
        await self.publisher.cycle(await self._result(seen.snapshot, plan, run, watch, report))
        return True

    async def refuse(self, run: PolicyRun, refusal: HeldBack, now: float) -> None:
        """Report that a cycle, begun at `now` (epoch seconds), compares nothing. refusal: why. Raises `ApiError`."""
        settings = run.settings
        self.refusals.clear()
        result = CycleResult(now, {}, settings.generation, refusal=refusal, interval=settings.interval)
        await self.publisher.cycle(result)

    def forget(self) -> None:
        """Forget the comparison, because the mode is not Shadow now. A new one begins when it is Shadow again."""
        if self._virtual.comparison is not None:
            self._virtual, self._stored, self._loaded = VirtualCluster(), None, True

    async def _load(self) -> None:
        """Read once what the last process stored."""
        if self._loaded:
            return
        try:
            self._stored = await self._store.load()
        except UnreadableContentError as error:
            await self.publisher.state_reset(f"the comparison begins anew: {error}")
        self._loaded = True

    async def _decide(self, seen: VirtualSnapshot, run: PolicyRun) -> tuple[tuple[Move, ...], Decision]:
        """Assign owners to bundles that have none, and make the plan; the decision has the memory after both."""
        given: tuple[Move, ...] = ()
        if seen.orphans:
            assigned = self._noted(await assign_owners(seen.snapshot, seen.orphans, Reason.BROKER_LOST, run))
            given, run = assigned.plan.moves, replace(run, state=replace(run.state, strategies=assigned.memory))
        return given, self._noted(await virtual_plan(seen, run))

    def _noted(self, decided: Decided) -> Decision:
        if decided.dropped:
            log.warning("policy %s: the strategy state is dropped: %s", self.policy, decided.dropped)
        return decided.decision

    def _compared(
        self, seen: VirtualSnapshot, given: Sequence[Move], moves: Sequence[Move], run: PolicyRun
    ) -> ShadowState:
        """Let the moves land, count the cycle, and return what must survive a restart. Slow: call it in a thread."""
        self._virtual.take(seen, given, moves, run.settings.interval)
        return self._virtual.state(seen, run.state.epoch)

    async def _keep(self, state: ShadowState) -> ShadowReport:
        """Store what must survive a restart, unless it was stored recently. If that fails, the comparison continues."""
        if not recently_stored(state, self._kept):
            try:
                await self._store.save(state)
            except ApiError as error:
                log.warning(
                    "policy %s: the comparison is not stored and would not survive a restart: %s", self.policy, error
                )
            else:
                self._kept = state
        return self._virtual.report(state)

    async def _result(
        self, snapshot: Snapshot, plan: Plan, run: PolicyRun, watch: Stopwatch, report: ShadowReport
    ) -> CycleResult:
        load, settings = snapshot.load, run.settings
        names = {bundle: snapshot.records[bundle].name for bundle in plan.named}
        proposal = proposal_of(self.cluster, plan, snapshot, settings)
        return CycleResult(
            started=load.now,
            seconds=watch.seconds,
            generation=settings.generation,
            load=load,
            plan=plan,
            namespace=self.cluster.namespace,
            refusal=refused_by_guard(plan),
            restraint=gate(self.cluster, run).restraint,
            written=await apply_moves(plan.moves, snapshot.records, DryRunActuator(Reason.SHADOW)),
            proposal=proposal.shown(),
            names=names,
            interval=settings.interval,
            unwritten=snapshot.unwritten,
            shadow=report,
        )


def virtual_snapshot(
    cluster: ClusterState, run: PolicyRun, virtual: VirtualCluster, real: Snapshot, stored: ShadowState | None
) -> VirtualSnapshot:
    """The snapshot of the next cycle with virtual owners, from the measured snapshot `real`."""
    settings = run.settings
    acting = cluster.acting(settings.name)
    beside = cluster.policies.settings.get(acting)
    of = fingerprint(settings.spec, beside.spec if beside is not None else {})
    return virtual.see(real, cluster.policies.samples[settings.name].ring, of, acting, stored)


async def virtual_plan(seen: VirtualSnapshot, run: PolicyRun) -> Decided:
    """What the policy would do with its virtual bundles. It splits none."""
    pair = replace(run.settings.pair, splitter=None)
    return await decide_plan(seen.snapshot, replace(run, settings=replace(run.settings, pair=pair)))
