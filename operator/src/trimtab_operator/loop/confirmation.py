"""A confirmation round: what every reconcile does, in every mode, whether or not a cycle is due.

It follows pending moves until their destination confirms them, withdraws those that were not confirmed in time, and
repairs owners; `trimtab_operator.confirm` has the rules. It reports drains, finds what others did to the policy's
bundles, carries out what people ask by annotation, such as an approved proposal, and reports what is left of budgets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.interference.controller import InterferenceController
from trimtab_operator.loop.policy_memory import PolicyMemory
from trimtab_operator.loop.policy_phase import Action, facts_of, phase_of
from trimtab_operator.proposals.approver import Approver
from trimtab_operator.reconcile.brokers import DrainReporter
from trimtab_operator.reconcile.bundles import BundleReconciler
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import InvalidPolicyError, PolicyRun, Settings
from trimtab_operator.status.budget import BudgetReporter
from trimtab_operator.status.publisher import StatusPublisher


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The reconcile after a confirmation round. decide: whether a person asked for a new plan at once."""

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
        """One whole round. policy: as read (JSON). Raises `ApiError`."""
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
        """The part of a round that does not wait for a slow source; whether a new plan was asked for."""
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
        """Record what others did to the policy's bundles; the reconcile with the state after that."""
        state = await self.interference.attend(run, policy)
        if state is not run.state:
            run = replace(run, state=await self.memory.keep(state))
        await self.interference.publish(run, policy)
        return run

    async def _attend(self, run: PolicyRun, policy: Mapping[str, Any]) -> Confirmed:
        """Obey annotations and continue an approved proposal; the reconcile with its moves counted."""
        try:
            decide = await self.approver.attend(run, policy)
        finally:
            if written := self.approver.take_uncounted():
                self.memory.aside += written
                state = run.state.after(run.memory, written, self.cluster.now())
                run = replace(run, state=await self.memory.keep(state))
        return Confirmed(run, decide)
