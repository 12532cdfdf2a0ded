"""Reconciles bundles: follows moves until they end, repairs desired owners, and assigns unassigned bundles."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from trimtab_operator.actuators import WRITERS, Actuator, WriteResult, apply_moves
from trimtab_operator.aio import at_most
from trimtab_operator.budget.admission import MoveRequest, admit
from trimtab_operator.budget.prices import UNRESTRAINED
from trimtab_operator.confirm import BundleRepairs, DesiredOwner, repairs_of
from trimtab_operator.decide import assign_owners
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.observe.departures import departures_of
from trimtab_operator.observe.snapshot import Snapshot, observe, unmeasured_snapshot
from trimtab_operator.reconcile.brokers import left_behind
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.splitting_bundles import unborn
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_strategies.guard import mass_failure
from trimtab_strategies.model import HeldBack, Reason

log = logging.getLogger(__name__)

ASSIGN_WITHIN = 5.0
"""Seconds that unassigned bundles wait for a measurement of the cluster. After that they get owners without it."""

MANY = 2_000
"""From this number of bundles on, repairs are computed in a thread. They take about 2 ms per thousand bundles."""

RETRY_UNASSIGNED = 10.0
"""Seconds before the same unassigned bundles are tried again after no broker could take them."""

APPEARS_WITHIN = 10.0
"""Maximum seconds that bundles of a terminating pod wait for the pod that restarted last to count as a broker again.
A StatefulSet terminates the next pod as soon as the restarted pod is ready. If the bundles went to a broker that
restarts later, they would move again at its restart."""


@dataclass(slots=True)
class BundleReconciler:
    """Reconciles the bundles of one policy."""

    cluster: ClusterState
    _tried: frozenset[str] = frozenset()
    _retry_at: float = 0.0
    _mass: bool = False
    _waits_until: float = inf

    async def reconcile(self, run: PolicyRun, publisher: StatusPublisher) -> None:
        """Run one round. Raises `ApiError` only for errors of the whole round, not for a conflict on one bundle."""
        settings, now, pending_moves = run.settings, self.cluster.clock(), self.cluster.pending_moves

        def mine(bundle: str) -> bool:
            return self.cluster.cares(settings.name, bundle)

        lost, ending = self._lost(settings, now), departures_of(self.cluster, settings.name).ending
        linked = self.cluster.link.linked
        overdue = {pending.bundle for pending in pending_moves.overdue(now, settings.move_timeout, mine, turns=linked)}
        await publisher.outcomes(pending_moves.outcomes(mine))
        pending_moves.forget_landed(now, settings.prometheus.window, mine)
        bundles = [bundle for bundle in self._concerned(lost | ending) if mine(bundle.name)]
        known = self.cluster.stores.brokers.items.keys()
        work = await _worked_out(
            bundles,
            partial(
                repairs_of,
                lost=lost,
                overdue=overdue,
                ending=ending,
                known=known,
                linked=linked,
                left_behind=partial(left_behind, self.cluster),
            ),
        )
        await self._brake(work, bundles, lost, settings, publisher)
        await self._withdraw_overlaps(bundles, work)
        if work.empty:
            return
        await self._note(work.notes, run.actuator)
        done = await self._write(work, run.actuator)
        done += await self._assign(work, run)
        await publisher.repairs(work, done)

    def _lost(self, settings: Settings, now: float) -> frozenset[str]:
        brokers = self.cluster.stores.brokers.items
        present = [name for name, broker in brokers.items() if broker.ready]
        self.cluster.lost_brokers.update(present, [*brokers, *self.cluster.owners()], now)
        return self.cluster.lost_brokers.lost(now, settings.lost_after)

    def _concerned(self, leaving: frozenset[str]) -> list[BundleRecord]:
        cluster, bundles = self.cluster, self.cluster.stores.bundles.items
        names = cluster.care.union(*(cluster.served.get(broker, ()) for broker in leaving))
        found = [bundles[name] for name in names if name in bundles]
        return [bundle for bundle in found if not unborn(bundle, bundles)]

    async def _brake(
        self,
        work: BundleRepairs,
        bundles: Sequence[BundleRecord],
        lost: frozenset[str],
        settings: Settings,
        publisher: StatusPublisher,
    ) -> None:
        """Leave bundles with lost brokers if too many are lost at the same time: the snapshot is then probably wrong.

        A lost broker whose Broker object was deleted counts, too, as long as it owns one of `bundles`.
        """
        deleted = {bundle.status_owner for bundle in bundles} & lost - self.cluster.stores.brokers.items.keys()
        brokers = self.cluster.brokers_of(settings.name).keys() | deleted
        gone = sum(name in lost for name in brokers)
        mass = mass_failure(gone, len(brokers), settings.limits)
        if mass:
            work.frees.clear()
            work.unassigned = [(bundle, why) for bundle, why in work.unassigned if why is Reason.UNOWNED]
        if mass and not self._mass:
            await publisher.brake(f"{gone} of {len(brokers)} brokers are lost: their bundles stay where they are")
        self._mass = mass

    async def _note(self, notes: Sequence[BundleRecord], actuator: Actuator) -> None:
        """Record that people chose these desired owners. Failed writes are tried again in the next round."""
        noted = await at_most(WRITERS, lambda bundle: actuator.set_owner(bundle, bundle.owner, Reason.ADMIN), notes)
        for written in noted:
            if written.reason is not None:
                log.info("bundle %s: not yet noted as chosen by a person: %s", written.bundle, written.detail)

    async def _write(self, work: BundleRepairs, actuator: Actuator) -> list[WriteResult]:
        frees = await at_most(WRITERS, actuator.free, work.frees)
        desired_owners = await at_most(
            WRITERS,
            lambda desired: actuator.set_owner(desired.bundle, desired.owner, desired.reason),
            work.desired_owners,
        )
        return [*frees, *desired_owners]

    async def _assign(self, work: BundleRepairs, run: PolicyRun) -> list[WriteResult]:
        freed, spaces = {bundle.name for bundle in work.frees}, self.cluster.stores.topic_namespaces.items
        # a bundle whose TopicNamespace is gone will be deleted too, and its name in the metrics is unknown
        unassigned = [
            (bundle, why)
            for bundle, why in work.unassigned
            if bundle.name not in freed and (space := spaces.get(bundle.topic_namespace)) and not space.superfluous
        ]
        unassigned = await self._with_a_place(unassigned)
        if self._appearing(run.settings.name):
            unassigned = [(bundle, why) for bundle, why in unassigned if why is not Reason.ROLLING_OUT]
        names, now = frozenset(bundle.name for bundle, _ in unassigned), self.cluster.clock()
        if not unassigned or (names == self._tried and now < self._retry_at):
            return []
        self._tried, self._retry_at = names, now + RETRY_UNASSIGNED
        seen = await self._look(run)
        found = {record.name: (full, record.resource_version) for full, record in seen.records.items()}
        # a bundle that a person or a broker has changed since `work` was computed waits for the next round
        spelling = {
            b.name: found[b.name][0] for b, _ in unassigned if found.get(b.name, ("", ""))[1] == b.resource_version
        }
        if any(b.name in found and b.name not in spelling for b, _ in unassigned):
            self._retry_at = now
        done: list[WriteResult] = []
        for why in sorted({why for _, why in unassigned}):
            wanted = [spelling[b.name] for b, reason in unassigned if reason is why and b.name in spelling]
            done += await self._place(wanted, why, seen, run)
        return done

    async def _place(self, wanted: Sequence[str], why: Reason, seen: Snapshot, run: PolicyRun) -> list[WriteResult]:
        """Give owners to the bundles `wanted` (Pulsar's spelling). Budgets are charged, but hold none back."""
        plan = (await assign_owners(seen, wanted, why, run)).decision.plan
        if why in UNRESTRAINED:
            requests = [MoveRequest(seen.records[m.bundle], m.bundle, m.source, m.destination, why) for m in plan.moves]
            await admit(self.cluster, run.settings, requests)
        written = await apply_moves(plan.moves, seen.records, run.actuator)
        return [*written, *(_not_placed(held) for held in plan.held_back)]

    async def _with_a_place(self, unassigned: list[tuple[BundleRecord, Reason]]) -> list[tuple[BundleRecord, Reason]]:
        """The bundles that overlap no other. If an overlapping bundle got an owner, hashes would have two owners."""
        rings = self.cluster.rings
        await rings.examined({bundle.topic_namespace for bundle, _ in unassigned})
        return [(bundle, why) for bundle, why in unassigned if not rings.overlaps(bundle)]

    async def _withdraw_overlaps(self, bundles: Sequence[BundleRecord], work: BundleRepairs) -> None:
        """Withdraw the owner that a person wrote for a bundle that overlaps others, before a broker takes it."""
        rings, asked = self.cluster.rings, [b for b in bundles if b.owner_pending and not b.status_owner]
        if not asked or self.cluster.link.linked:
            return
        await rings.examined({bundle.topic_namespace for bundle in asked})
        overlapping = {bundle.name: bundle for bundle in asked if rings.overlaps(bundle)}
        kept = [desired for desired in work.desired_owners if desired.bundle.name not in overlapping]
        work.desired_owners = [*kept, *(DesiredOwner(b, "", Reason.OVERLAP) for b in overlapping.values())]
        work.unassigned = [(bundle, why) for bundle, why in work.unassigned if bundle.name not in overlapping]

    def _appearing(self, policy: str) -> bool:
        """Whether a restarted pod is ready, but does not count as a broker yet."""
        brokers, now = self.cluster.brokers_of(policy), self.cluster.clock()
        if all(brokers[name].ready for name in departures_of(self.cluster, policy).rollout.restarted):
            self._waits_until = inf
            return False
        self._waits_until = min(self._waits_until, now + APPEARS_WITHIN)
        return now < self._waits_until

    async def _look(self, run: PolicyRun) -> Snapshot:
        """The measured snapshot, or one from the Kubernetes objects alone if the measurement fails."""
        if self.cluster.engine.is_set():
            try:
                async with asyncio.timeout(ASSIGN_WITHIN):
                    return await observe(self.cluster, run)
            except (SourceUnavailableError, TimeoutError) as error:
                log.info("policy %s: assigns owners without load: %s", run.settings.name, error or "no answer in time")
            except Exception:
                log.exception("policy %s: assigns owners without load", run.settings.name)
        return await unmeasured_snapshot(self.cluster, run)


async def _worked_out(
    bundles: list[BundleRecord], found: Callable[[list[BundleRecord]], BundleRepairs]
) -> BundleRepairs:
    """The repairs of `bundles`, in the order of their names. found: the function that computes them."""

    def in_order() -> BundleRepairs:
        return found(sorted(bundles, key=lambda bundle: bundle.name))

    return in_order() if len(bundles) < MANY else await asyncio.to_thread(in_order)


def _not_placed(held: HeldBack) -> WriteResult:
    return WriteResult(held.subject, held.reason, f"{held.subject}: {held.detail}" if held.subject else held.detail)
