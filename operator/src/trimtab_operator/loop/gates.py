"""Gates of a cycle: why a cycle is refused, and how its plan is applied.

| gate | function |
|---|---|
| the load source can't measure | `unmeasurable` |
| the guard refused the whole plan | `refused_by_guard` |
| reports of refusals | `RefusalReporter`: immediately if the reason is new, else once in `REMIND` seconds |
| mode, approved plan, other balancers, windows | `gate`, by the last rows of `policy_phase.TABLE` |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab_operator.actuators import Actuator, DryRunActuator, WriteResult
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.loop.policy_phase import GATES, Action, facts_of, phase_of
from trimtab_operator.proposals.approver import Approver
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.settings import PolicyRun
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_pipeline.api import SourceMisconfiguredError, SourceUnavailableError
from trimtab_strategies.model import HeldBack, Plan, Reason, Split
from trimtab_strategies.planner.drain import EVACUATIONS

REMIND = 60.0
"""Seconds between two reports of the same refusal."""


def unmeasurable(error: SourceUnavailableError) -> HeldBack:
    """Why nothing was measured: the policy's source is misconfigured, or it does not answer."""
    misconfigured = isinstance(error, SourceMisconfiguredError)
    return HeldBack("", Reason.INVALID_POLICY if misconfigured else Reason.SOURCE_UNAVAILABLE, str(error))


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


def refused_by_guard(plan: Plan) -> HeldBack | None:
    """Why the guard refused the whole cycle: the first `HeldBack`, if it has no subject. None: it did not refuse.

    Entries for single bundles, such as those that were never measured, come later and do not refuse the cycle.
    """
    if not plan.empty:
        return None
    return next((held for held in plan.held_back[:1] if not held.subject and held.reason in _REFUSALS), None)


@dataclass(frozen=True, slots=True)
class Gate:
    """How a plan is applied: through `actuator`. restraint: why it is only shown; None when it is applied."""

    actuator: Actuator
    restraint: HeldBack | None = None


@dataclass(frozen=True, slots=True)
class DrainsOnly:
    """Applies drains through `acting`, and everything else through `otherwise`."""

    acting: Actuator
    otherwise: Actuator

    async def set_owner(self, bundle: BundleRecord, owner: str, reason: Reason) -> WriteResult:
        """Write `owner` for a drain; else delegate to `otherwise`."""
        through = self.acting if reason in EVACUATIONS else self.otherwise
        return await through.set_owner(bundle, owner, reason)

    async def free(self, bundle: BundleRecord) -> WriteResult:
        """Delegate to `otherwise`."""
        return await self.otherwise.free(bundle)

    async def request_split(self, bundle: BundleRecord, split: Split) -> WriteResult:
        """Delegate to `otherwise`."""
        return await self.otherwise.request_split(bundle, split)


def gate(cluster: ClusterState, run: PolicyRun, *, approved: bool = False) -> Gate:
    """How the plan of this cycle is applied. approved: whether an approved plan is being carried out."""
    phase = phase_of(replace(facts_of(cluster, run.settings, run.state), approved=approved), GATES)
    if phase.held is None:
        return Gate(run.actuator)
    shown = DryRunActuator(phase.held.reason)
    return Gate(DrainsOnly(run.actuator, shown) if phase.action is Action.DRAIN else shown, phase.held)


@dataclass(slots=True)
class RefusalReporter:
    """Reports the refusals of one policy.

    last: generation and reason of the last reported refusal, and its text if the policy is invalid. remind_at: when it
    is reported again, in seconds of the cluster's clock.
    """

    cluster: ClusterState
    publisher: StatusPublisher
    approver: Approver
    last: tuple[int, Reason, str] | None = None
    remind_at: float = 0.0

    async def report(self, refusal: HeldBack, generation: int) -> None:
        """Report `refusal` of the policy's `generation`. Raises `ApiError`."""
        clock = self.cluster.clock()
        news = generation, refusal.reason, refusal.detail if refusal.reason is Reason.INVALID_POLICY else ""
        if self.last == news and clock < self.remind_at:
            return
        await self.publisher.cycle(CycleResult(self.cluster.now(), {}, generation, refusal=refusal))
        if refusal.reason is Reason.INVALID_POLICY:
            await self.approver.bar(refusal, generation)
        self.last, self.remind_at = news, clock + REMIND

    def clear(self) -> None:
        """Report the next refusal immediately, because a cycle has run since the last one."""
        self.last = None
