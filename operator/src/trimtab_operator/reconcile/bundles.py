"""Carries out upkeep: follows moves until they end, repairs wishes, and finds owners for bundles that have none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from trimtab_operator.actuators import WRITERS, Actuator, WriteResult, apply_moves
from trimtab_operator.aio import at_most
from trimtab_operator.decide import assign_owners
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.observe.snapshot import Snapshot, observe, unmeasured_snapshot
from trimtab_operator.state.bundle_repairs import BundleRepairs, repairs_of
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.splitting_bundles import unborn
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_strategies.guard import mass_failure
from trimtab_strategies.model import HeldBack, Reason

log = logging.getLogger(__name__)

ASSIGN_WITHIN = 5.0
"""Seconds that homeless bundles wait for their cluster to be measured; then they get owners without."""

MANY = 2_000
"""Bundles from which on upkeep is worked out off the event loop: it takes some 2 ms per thousand."""

RETRY_UNASSIGNED = 10.0
"""Seconds before the same homeless bundles are tried again after no broker could take them."""

APPEARS_WITHIN = 10.0
"""Seconds for which bundles that make way for a restart wait for the pod that has just restarted to count as a broker.
A StatefulSet ends the next pod as soon as that one is ready; anywhere else they would have to move once more."""


@dataclass(slots=True)
class BundleReconciler:
    """Upkeep for one policy."""

    context: ClusterState
    _tried: frozenset[str] = frozenset()
    _retry_at: float = 0.0
    _mass: bool = False
    _waits_until: float = inf

    async def reconcile(self, run: PolicyRun, publisher: StatusPublisher) -> None:
        """One round. Raises `ApiError` only for what concerns the whole round; a bundle's conflict is its own."""
        settings, now, pending_moves = run.settings, self.context.clock(), self.context.pending_moves

        def mine(bundle: str) -> bool:
            return self.context.cares(settings.name, bundle)

        lost, ending = self._lost(settings, now), self.context.departures(settings.name).ending
        linked = self.context.link.linked
        overdue = {pending.bundle for pending in pending_moves.overdue(now, settings.move_timeout, mine, turns=linked)}
        await publisher.outcomes(pending_moves.outcomes(mine))
        pending_moves.forget_landed(now, settings.prometheus.window, mine)
        bundles = [bundle for bundle in self._concerned(lost | ending) if mine(bundle.name)]
        known = self.context.stores.brokers.items.keys()
        work = await _worked_out(
            bundles, partial(repairs_of, lost=lost, overdue=overdue, ending=ending, known=known, linked=linked)
        )
        await self._brake(work, lost, settings, publisher)
        if work.empty:
            return
        await self._note(work.notes, run.actuator)
        done = await self._write(work, run.actuator)
        done += await self._assign(work, run)
        await publisher.upkeep(work, done)

    def _lost(self, settings: Settings, now: float) -> frozenset[str]:
        brokers = self.context.stores.brokers.items
        present = [name for name, broker in brokers.items() if broker.ready]
        self.context.lost_brokers.update(present, [*brokers, *self.context.owners()], now)
        return self.context.lost_brokers.lost(now, settings.lost_after)

    def _concerned(self, leaving: frozenset[str]) -> list[BundleRecord]:
        context, bundles = self.context, self.context.stores.bundles.items
        names = context.care.union(*(context.served.get(broker, ()) for broker in leaving))
        found = [bundles[name] for name in names if name in bundles]
        return [bundle for bundle in found if not unborn(bundle, bundles)]

    async def _brake(
        self, work: BundleRepairs, lost: frozenset[str], settings: Settings, publisher: StatusPublisher
    ) -> None:
        """When too many brokers are gone at once, the picture is more likely wrong than they: leave their bundles."""
        brokers = self.context.brokers_of(settings.name)
        gone = sum(name in lost for name in brokers)
        mass = mass_failure(gone, len(brokers), settings.limits)
        if mass:
            work.frees.clear()
            work.unassigned = [(bundle, why) for bundle, why in work.unassigned if why is Reason.UNOWNED]
        if mass and not self._mass:
            await publisher.brake(f"{gone} of {len(brokers)} brokers are lost: their bundles stay where they are")
        self._mass = mass

    async def _note(self, notes: Sequence[BundleRecord], actuator: Actuator) -> None:
        """Note that people wished these owners; what can't be written is tried again in the next round."""
        noted = await at_most(WRITERS, lambda bundle: actuator.set_owner(bundle, bundle.owner, Reason.ADMIN), notes)
        for written in noted:
            if written.reason is not None:
                log.info("bundle %s: not noted as wished by a person yet: %s", written.bundle, written.detail)

    async def _write(self, work: BundleRepairs, actuator: Actuator) -> list[WriteResult]:
        frees = await at_most(WRITERS, actuator.free, work.frees)
        desired_owners = await at_most(
            WRITERS,
            lambda desired: actuator.set_owner(desired.bundle, desired.owner, desired.reason),
            work.desired_owners,
        )
        return [*frees, *desired_owners]

    async def _assign(self, work: BundleRepairs, run: PolicyRun) -> list[WriteResult]:
        freed, spaces = {bundle.name for bundle in work.frees}, self.context.stores.topic_namespaces.items
        # a bundle whose TopicNamespace is gone is about to go, too: nobody knows by which name it would be measured
        unassigned = [(b, why) for b, why in work.unassigned if b.name not in freed and b.topic_namespace in spaces]
        unassigned = await self._with_a_place(unassigned)
        if self._appearing(run.settings.name):
            unassigned = [(bundle, why) for bundle, why in unassigned if why is not Reason.ROLLING_OUT]
        names, now = frozenset(bundle.name for bundle, _ in unassigned), self.context.clock()
        if not unassigned or (names == self._tried and now < self._retry_at):
            return []
        self._tried, self._retry_at = names, now + RETRY_UNASSIGNED
        seen = await self._look(run)
        spelling = {record.name: full for full, record in seen.records.items()}
        done: list[WriteResult] = []
        for why in sorted({why for _, why in unassigned}):
            wanted = [spelling[b.name] for b, reason in unassigned if reason is why and b.name in spelling]
            done += await _place(wanted, why, seen, run)
        return done

    async def _with_a_place(self, unassigned: list[tuple[BundleRecord, Reason]]) -> list[tuple[BundleRecord, Reason]]:
        """Those of them that have their hashes to themselves: an owner for one that overlaps would be a second one."""
        rings = self.context.rings
        await rings.examined({bundle.topic_namespace for bundle, _ in unassigned})
        return [(bundle, why) for bundle, why in unassigned if not rings.overlaps(bundle)]

    def _appearing(self, policy: str) -> bool:
        """Whether a pod that has restarted is ready, and is about to count as a broker, but does not yet."""
        brokers, now = self.context.brokers_of(policy), self.context.clock()
        if all(brokers[name].ready for name in self.context.departures(policy).rollout.restarted):
            self._waits_until = inf
            return False
        self._waits_until = min(self._waits_until, now + APPEARS_WITHIN)
        return now < self._waits_until

    async def _look(self, run: PolicyRun) -> Snapshot:
        """The cluster as measured; when that fails, for whatever cause, as the resources describe it."""
        if self.context.engine.is_set():
            try:
                async with asyncio.timeout(ASSIGN_WITHIN):
                    return await observe(self.context, run)
            except (SourceUnavailableError, TimeoutError) as error:
                log.info("policy %s: finds owners without load: %s", run.settings.name, error or "no answer in time")
            except Exception:
                log.exception("policy %s: finds owners without load", run.settings.name)
        return await unmeasured_snapshot(self.context, run)


async def _worked_out(
    bundles: list[BundleRecord], found: Callable[[list[BundleRecord]], BundleRepairs]
) -> BundleRepairs:
    """The upkeep of `bundles` in the order of their names, as `found` has it."""

    def in_order() -> BundleRepairs:
        return found(sorted(bundles, key=lambda bundle: bundle.name))

    return in_order() if len(bundles) < MANY else await asyncio.to_thread(in_order)


async def _place(wanted: Sequence[str], why: Reason, seen: Snapshot, run: PolicyRun) -> list[WriteResult]:
    plan = (await assign_owners(seen, wanted, why, run)).decision.plan
    written = await apply_moves(plan.moves, seen.records, run.actuator)
    return [*written, *(_not_placed(held) for held in plan.held_back)]


def _not_placed(held: HeldBack) -> WriteResult:
    return WriteResult(held.subject, held.reason, f"{held.subject}: {held.detail}" if held.subject else held.detail)
