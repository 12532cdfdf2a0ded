"""A confirmation round: what a reconcile does in every mode, whether or not a cycle is due.

It follows pending moves until their destination confirms them, withdraws those that were not confirmed in time, and
repairs owners (`trimtab_operator.confirm` has the rules). It reports drains, and detects other clients that move the
policy's bundles. It carries out what people request by annotation, such as an approved proposal. It reports what is
left of budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.budget.report import BudgetReporter
from trimtab_operator.interference.controller import InterferenceController
from trimtab_operator.loop.policy_memory import PolicyMemory
from trimtab_operator.loop.policy_phase import Action, facts_of, phase_of
from trimtab_operator.proposals.approver import Approver
from trimtab_operator.reconcile.brokers import DrainReporter
from trimtab_operator.reconcile.bundles import BundleReconciler
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import InvalidPolicyError, PolicyRun, Settings
from trimtab_operator.status.publisher import StatusPublisher


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The run after a confirmation round. decide: whether a person requested a new plan immediately."""

    run: PolicyRun
    decide: bool = False


@dataclass(slots=True)
class Confirmation:
    """Confirmation rounds of one policy."""

    cluster: ClusterState
    publisher: StatusPublisher
    memory: PolicyMemory
    bundles: BundleReconciler
    drains: DrainReporter
    interference: InterferenceController
    approver: Approver
    budgets: BudgetReporter = field(init=False)

    def __post_init__(self) -> None:
        self.budgets = BudgetReporter(self.cluster, self.publisher)

    async def confirm(self, run: PolicyRun, policy: Mapping[str, Any]) -> Confirmed:
        """Run a whole round. policy: the object as read (JSON). Raises `ApiError`."""
        await self.repair(run)
        await self.drains.publish(run.settings)
        run = await self._detect_interference(run, policy)
        confirmed = await self._attend(run, policy)
        await self.budgets.publish(confirmed.run.settings)
        return confirmed

    async def repair(self, run: PolicyRun) -> None:
        """Follow pending moves and repair desired owners. Raises `ApiError`."""
        await self.bundles.reconcile(run, self.publisher)

    async def while_measuring(self, run: PolicyRun) -> bool:
        """Run the part of a round that a slow source must not delay. Returns whether a new plan was requested."""
        if phase_of(facts_of(self.cluster, run.settings, due=False)).action is not Action.CONFIRM:
            return False
        await self.repair(run)
        await self.publisher.landings()
        policy = self.memory.read()
        try:
            now = replace(run, settings=Settings.of(policy), state=self.memory.state or run.state)
        except InvalidPolicyError:
            return False
        return (await self._attend(now, policy)).decide

    async def _detect_interference(self, run: PolicyRun, policy: Mapping[str, Any]) -> PolicyRun:
        """Detect other clients that move the policy's bundles. Returns the run with the state after that."""
        state = await self.interference.attend(run, policy)
        if state is not run.state:
            run = replace(run, state=await self.memory.keep(state))
        await self.interference.publish(run, policy)
        return run

    async def _attend(self, run: PolicyRun, policy: Mapping[str, Any]) -> Confirmed:
        """Obey annotations and continue an approved proposal. Returns the run with the proposal's moves counted."""
        try:
            decide = await self.approver.attend(run, policy)
        finally:
            if written := self.approver.take_uncounted():
                self.memory.aside += written
                state = run.state.after(run.memory, written, self.cluster.now())
                run = replace(run, state=await self.memory.keep(state))
        return Confirmed(run, decide)
