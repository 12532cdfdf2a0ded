"""Where a leader begins: in each namespace in which its epoch is the highest, and no other leader is active.

`state.other_leaders` has the rules for leaders with different Leases.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.aio import ended, kept_running
from trimtab_operator.kube.client import POLICIES, ApiError
from trimtab_operator.kube.conditions import condition_of, set_condition, timestamp
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.kube.leader_election import LAST_EPOCH, Elector
from trimtab_operator.resources.conditions import ConditionReason, PolicyCondition
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.clusters import Clusters
from trimtab_operator.state.other_leaders import (
    CLAIM_EVERY,
    Policy,
    Term,
    active,
    former,
    overtaken,
    settling,
    term_of,
)
from trimtab_operator.state.strategy_state import PolicyStateStore
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import Reason

log = logging.getLogger(__name__)

ADMIT_EVERY = 1.0
"""Seconds between two checks for added and removed namespaces."""

REPORT_WITHIN = 5.0
"""Seconds for the report that this leader is deposed."""

Writers = Callable[[ClusterState], Mapping[str, Callable[[], Awaitable[None]]]]
"""The tasks of a cluster that write, by name."""


async def policies_of(cluster: ClusterState) -> list[Policy]:
    """The policies of a cluster, as the API server has them. Raises `ApiError`."""
    return [policy async for page in cluster.api.list(POLICIES, cluster.namespace) for policy in page.items]


async def counted_epoch(cluster: ClusterState, elector: Elector) -> int:
    """As `unused_epoch`; the cluster then also knows who led there before. Raises `ApiError`."""
    epoch, policies = await unused_epoch(cluster), await policies_of(cluster)
    cluster.policies.former = former(policies, cluster.process.lease, epoch - 1 if epoch > elector.epoch else 0)
    return epoch


async def unused_epoch(cluster: ClusterState) -> int:
    """The smallest epoch above those of all bundles and policies. Raises `ApiError`.

    `LAST_EPOCH` does not count. Only an edit by hand sets it, and no leader could get past it.
    """
    used = [bundle.assigned_epoch for bundle in cluster.stores.bundles.items.values()]
    for policy in await policies_of(cluster):
        used.append(await _remembered_epoch(cluster, policy["metadata"]))
        if (other := term_of(policy, cluster.process.lease)) is not None:
            used.append(other.epoch)
    return max((epoch for epoch in used if epoch < LAST_EPOCH), default=0) + 1


async def _remembered_epoch(cluster: ClusterState, policy: Mapping[str, Any]) -> int:
    store = PolicyStateStore(cluster.api, cluster.namespace, policy["name"], policy["uid"])
    try:
        return (await store.load()).epoch
    except UnreadableContentError as error:
        log.warning("policy %s: %s", policy["name"], error)  # its loop reports that in the status
        return 0


@dataclass(slots=True)
class NamespaceAdmission:
    """Starts the policies of a namespace, and the tasks that write in it, once our epoch is above all its epochs.

    Elsewhere another leader is active, and this process stands down (`state.other_leaders`).

    stop: set when this leader is deposed. counted: namespaces whose epochs are known to be below ours. standing_down:
    namespace -> who leads there, and when that is reported again (clock seconds).
    """

    clusters: Clusters
    elector: Elector
    stop: asyncio.Event
    writers: Writers
    counted: set[str] = field(default_factory=set)
    standing_down: dict[str, tuple[Term, float]] = field(default_factory=dict)
    tasks: dict[str, tuple[ClusterState, list[asyncio.Task[None]]]] = field(default_factory=dict)

    async def run(self) -> None:
        """Repeat `look`. Never returns."""
        while True:
            await asyncio.sleep(ADMIT_EVERY)
            await self.look()

    async def look(self) -> None:
        """Admit added namespaces, and stop the tasks of removed ones. Raises `LeaseLostError`."""
        known = self.clusters.by_namespace
        for namespace in [space for space, (cluster, _) in self.tasks.items() if known.get(space) is not cluster]:
            self.counted.discard(namespace)
            await ended(*self.tasks.pop(namespace)[1])
        for cluster, _ in list(self.tasks.values()):
            bundles, told = cluster.stores.bundles.items.values(), cluster.policies.leaders.values()
            if why := overtaken(bundles, told, self.clusters.process.term):
                await self._depose(cluster, why)
                return
        for cluster in self.clusters.all():
            if cluster.namespace not in self.tasks and not cluster.stores.stale():
                try:
                    await self._admit(cluster)
                except ApiError as error:  # the next call tries again
                    log.warning("can't read yet which epochs were used in %s: %s", cluster.namespace, error)

    async def _admit(self, cluster: ClusterState) -> None:
        process, policies = self.clusters.process, await policies_of(cluster)
        if (other := active(policies, process.lease, cluster.now())) is not None:
            await self._stand_down(cluster, policies, other)
            return
        if settling(policies, cluster.now()):
            return
        counted = cluster.namespace in self.counted
        if not counted and (epoch := await counted_epoch(cluster, self.elector)) > process.epoch:
            process.epoch = await self.elector.claim(epoch)
            self.clusters.metrics.epoch.set(process.epoch)
        if self.standing_down.pop(cluster.namespace, None) is not None:
            await self._report(cluster, policies, "False", ConditionReason.ALONE, "no other client reverts its moves")
        running = [kept_running(name, run) for name, run in self.writers(cluster).items()]
        self.tasks[cluster.namespace] = (cluster, running)

    async def _depose(self, cluster: ClusterState, why: str) -> None:
        """End our term, and say so in the policies of a namespace where another leader counts."""
        self.clusters.process.deposed = f"{why}; this leader ends, and the next one claims a higher epoch"
        log.error("deposed in %s: %s", cluster.namespace, why)
        try:
            async with asyncio.timeout(REPORT_WITHIN):
                for policy in await policies_of(cluster):
                    meta = policy["metadata"]
                    await StatusPublisher(cluster, meta["name"], meta["uid"]).leader()
        except (ApiError, TimeoutError) as error:
            log.warning("%s: it can't be reported that this leader is deposed: %s", cluster.namespace, error)
        self.stop.set()

    async def _stand_down(self, cluster: ClusterState, policies: Sequence[Policy], other: Term) -> None:
        """Leave a namespace to the leader that is active there, and say so in its policies."""
        known, due = self.standing_down.get(cluster.namespace, (None, 0.0))
        if known == other and cluster.clock() < due:
            return
        us = f"{self.clusters.process.leader}, with the Lease {self.clusters.process.lease}, stands down"
        help_ = "run one operator for a namespace, or give all the same --lease-name and --lease-namespace"
        if known != other:
            log.warning("%s: %s; %s: %s", cluster.namespace, other, us, help_)
        text = f"{other}; {us} as of {timestamp(cluster.now())}: {help_}"
        await self._report(cluster, policies, "True", ConditionReason.OTHER_LEADER, text)
        self.standing_down[cluster.namespace] = other, cluster.clock() + CLAIM_EVERY

    async def _report(
        self, cluster: ClusterState, policies: Sequence[Policy], status: str, reason: ConditionReason, text: str
    ) -> None:
        """Write the condition `CompetingBalancer`, unless it says that moves are reverted. Raises `ApiError`."""
        for policy in policies:
            meta, kind = policy["metadata"], PolicyCondition.COMPETING_BALANCER
            conditions = (policy.get("status") or {}).get("conditions") or []
            if condition_of(conditions, kind)[1] == Reason.COMPETING_BALANCER:
                continue
            found = set_condition(conditions, kind, status, reason, text, meta["generation"], cluster.now())
            body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": {"conditions": found}}
            await cluster.api.patch(POLICIES, cluster.namespace, meta["name"], body, subresource="status")

    async def end(self) -> None:
        """Stop all tasks."""
        await ended(*(task for _, tasks in self.tasks.values() for task in tasks))
