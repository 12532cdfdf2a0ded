"""Runs the loop of each BalancingPolicy of a cluster, from the policy's creation to its deletion.

A policy has a finalizer only while its deletion leaves something to restore: settings of Pulsar's own balancer that
Trimtab switched off. Then the deletion waits until they are restored, for a minute at most. Any other policy is deleted
at once, even if no operator runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.aio import RESTART_AFTER, ended
from trimtab_operator.kube.client import POLICIES, ApiError, ConflictError, NotFoundError
from trimtab_operator.loop.policy_loop import GRACE, PolicyLoop
from trimtab_operator.pulsar.own_balancer.restore import allows_switching_off, release_balancer
from trimtab_operator.resources.common import FINALIZER
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between two comparisons of the policies with the loops that run."""

LIST_EVERY = 30.0
"""Seconds between two lists, which find deletions that Kopf's watch missed."""

WRITE_AGAIN = 10.0
"""Seconds until finalizers are written again after an error."""

Policy = Mapping[str, Any]
"""A BalancingPolicy object (JSON)."""


@dataclass(slots=True)
class _Running:
    """A policy as last seen, and the task of its loop. stop: ends the loop. write_at: as `PolicyTasks._list_at`."""

    policy: Policy
    stop: asyncio.Event
    task: asyncio.Task[None]
    write_at: float = 0.0


@dataclass(slots=True)
class PolicyTasks:
    """The loops of one cluster's policies, by uid: a new policy of a deleted one's name gets a loop of its own.

    watched: uid -> policy, as Kopf's watch shows it. _list_at: when to list again, in seconds of the cluster's clock.
    """

    cluster: ClusterState
    watched: dict[str, Policy]
    _running: dict[str, _Running] = field(default_factory=dict)
    _list_at: float = 0.0

    async def run(self) -> None:
        """Follow the policies until cancelled. Then stop the loops; their writes have `GRACE` seconds to finish."""
        try:
            while True:
                await self.follow()
                await asyncio.sleep(LOOK_EVERY)
        finally:
            for running in self._running.values():
                running.stop.set()
            if tasks := [running.task for running in self._running.values()]:
                await asyncio.wait(tasks, timeout=GRACE + LOOK_EVERY)
            await ended(*tasks)
            self._running.clear()

    async def follow(self) -> None:
        """Compare once: start and stop loops, and set or remove finalizers."""
        await self._drop_deleted()
        for uid, running in list(self._running.items()):
            if uid not in self.watched:
                running.policy = {**running.policy, "metadata": {**running.policy["metadata"], "finalizers": []}}
                running.stop.set()
                if running.task.done():
                    del self._running[uid]
        names = {running.policy["metadata"]["name"] for running in self._running.values()}
        for uid, policy in list(self.watched.items()):
            if uid not in self._running and policy["metadata"]["name"] in names:
                continue  # the loop of a deleted policy of this name has to end first
            running = self._running.get(uid) or self._start(uid, policy)
            running.policy = policy
            if _deleted(policy):
                running.stop.set()
            else:
                await self._guard(running)

    async def _drop_deleted(self) -> None:
        """Drop the policies that a list does not have any more."""
        cluster, before = self.cluster, set(self.watched)
        if cluster.clock() < self._list_at:
            return
        self._list_at = cluster.clock() + LIST_EVERY
        with suppress(ApiError):  # the next list will do
            pages = [page.items async for page in cluster.api.list(POLICIES, cluster.namespace)]
            for uid in before - {policy["metadata"]["uid"] for items in pages for policy in items}:
                self.watched.pop(uid, None)

    def _start(self, uid: str, policy: Policy) -> _Running:
        stop = asyncio.Event()
        task = asyncio.create_task(self._live(uid, stop), name=f"policy {policy['metadata']['name']}")
        self._running[uid] = _Running(policy, stop, task)
        return self._running[uid]

    async def _live(self, uid: str, stop: asyncio.Event) -> None:
        """Run the loop until it is stopped. If the policy is being deleted, restore what it switched off."""
        running = self._running[uid]
        name = running.policy["metadata"]["name"]
        while not stop.is_set():
            try:
                await PolicyLoop(name, uid, self.cluster, read=lambda: running.policy).run(stop)
            except Exception:
                log.exception("the loop of policy %s ended, starting it again in %.0f s", name, RESTART_AFTER)
                with suppress(TimeoutError):
                    async with asyncio.timeout(RESTART_AFTER):
                        await stop.wait()
        while _deleted(running.policy) and FINALIZER in _finalizers(running.policy):
            await release_balancer(self.cluster)
            await self._hold(running, wanted=False)
            await asyncio.sleep(LOOK_EVERY)

    async def _guard(self, running: _Running) -> None:
        """Set or remove the finalizer of a policy, unless it is unknown whether there is something to restore."""
        switched_off, has = self.cluster.link.switched_off, FINALIZER in _finalizers(running.policy)
        wanted = bool(switched_off) and (has or allows_switching_off(running.policy))
        if wanted != has and switched_off is not None and self.cluster.clock() >= running.write_at:
            await self._hold(running, wanted=wanted)

    async def _hold(self, running: _Running, *, wanted: bool) -> None:
        """Set or remove the finalizer, unless the policy has changed. After an error, a later call tries again."""
        meta, kept = running.policy["metadata"], [name for name in _finalizers(running.policy) if name != FINALIZER]
        finalizers = [*kept, FINALIZER] if wanted else kept
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": finalizers}}
        try:
            await self.cluster.api.patch(POLICIES, self.cluster.namespace, meta["name"], body)
        except (ConflictError, NotFoundError) as error:
            log.info("policy %s changed before its finalizers were written: %s", meta["name"], error)
        except ApiError as error:
            log.warning("policy %s: its finalizers can't be written yet: %s", meta["name"], error)
            running.write_at = self.cluster.clock() + WRITE_AGAIN


def _finalizers(policy: Policy) -> list[str]:
    return list(policy["metadata"].get("finalizers") or ())


def _deleted(policy: Policy) -> bool:
    return bool(policy["metadata"].get("deletionTimestamp"))
