"""Runs the loop of each BalancingPolicy of a cluster, from the policy's creation to its deletion.

A policy has a finalizer only while its deletion leaves something to restore: settings of Pulsar's own balancer that
Trimtab switched off. Then the deletion waits until they are restored, for a minute at most. Any other policy is deleted
at once, even if no operator runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.aio import ended
from trimtab_operator.kube.client import POLICIES, ApiError, ConflictError, NotFoundError
from trimtab_operator.loop.policy_loop import GRACE, PolicyLoop
from trimtab_operator.pulsar.own_balancer.restore import allows_switching_off, release_balancer
from trimtab_operator.resources.common import FINALIZER
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between two comparisons of the policies with the loops that run. A change starts one immediately."""


@dataclass(slots=True)
class _Running:
    """A policy and the task of its loop. policy: the object (JSON) as last seen. stop: ends the loop."""

    policy: Mapping[str, Any]
    stop: asyncio.Event
    task: asyncio.Task[None]


@dataclass(slots=True)
class PolicyTasks:
    """The loops of one cluster's policies, by uid: a new policy of a deleted one's name gets a loop of its own."""

    cluster: ClusterState
    _running: dict[str, _Running] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.cluster.stores.policies.subscribe(lambda _old, _new: self._changed.set())

    async def run(self) -> None:
        """Follow the policies until cancelled. Then stop the loops; their writes have `GRACE` seconds to finish."""
        try:
            while True:
                self._changed.clear()
                await self.follow()
                waiting = asyncio.ensure_future(self._changed.wait())
                try:
                    await asyncio.wait({waiting}, timeout=LOOK_EVERY)
                finally:
                    await ended(waiting)
        finally:
            await self._end()

    async def follow(self) -> None:
        """Compare once: start and stop loops, and set or remove finalizers."""
        found = {policy["metadata"]["uid"]: policy for policy in self.cluster.stores.policies.items.values()}
        for uid, policy in found.items():
            if uid not in self._running:
                self._start(uid, policy)
            running = self._running[uid]
            running.policy = policy
            if _deleted(policy):
                running.stop.set()
            else:
                await self._guard(policy)
        for uid, running in [(uid, one) for uid, one in self._running.items() if uid not in found]:
            meta = {**running.policy["metadata"], "finalizers": []}  # it is gone
            running.policy = {**running.policy, "metadata": meta}
            running.stop.set()
            if running.task.done():
                del self._running[uid]

    def _start(self, uid: str, policy: Mapping[str, Any]) -> None:
        stop, name = asyncio.Event(), policy["metadata"]["name"]
        loop = PolicyLoop(name, uid, self.cluster, read=lambda: self._running[uid].policy)
        task = asyncio.create_task(self._live(uid, loop, stop), name=f"policy {name}")
        self._running[uid] = _Running(policy, stop, task)

    async def _live(self, uid: str, loop: PolicyLoop, stop: asyncio.Event) -> None:
        """Run the loop until it is stopped. If the policy is being deleted, restore what it switched off."""
        while not stop.is_set():
            try:
                await loop.run(stop)
            except Exception:
                log.exception("the loop of policy %s ended, starting it again", loop.name)
                await asyncio.sleep(LOOK_EVERY)
        while _held(policy := self._running[uid].policy):
            await release_balancer(self.cluster)
            await self._write(policy, [name for name in _finalizers(policy) if name != FINALIZER])
            await asyncio.sleep(LOOK_EVERY)

    async def _guard(self, policy: Mapping[str, Any]) -> None:
        """Set or remove the finalizer of a policy, unless it is unknown whether there is something to restore."""
        link, has = self.cluster.link, FINALIZER in _finalizers(policy)
        wanted = bool(link.switched_off) and (has or allows_switching_off(policy))
        if wanted != has and link.switched_off is not None:
            kept = [name for name in _finalizers(policy) if name != FINALIZER]
            await self._write(policy, [*kept, FINALIZER] if wanted else kept)

    async def _write(self, policy: Mapping[str, Any], finalizers: list[str]) -> None:
        """Write the finalizers, unless the policy has changed. After an error, the next comparison tries again."""
        meta = policy["metadata"]
        body = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": finalizers}}
        try:
            await self.cluster.api.patch(POLICIES, self.cluster.namespace, meta["name"], body)
        except (ConflictError, NotFoundError) as error:
            log.info("policy %s changed before its finalizers were written: %s", meta["name"], error)
        except ApiError as error:
            log.warning("policy %s: its finalizers can't be written yet: %s", meta["name"], error)

    async def _end(self) -> None:
        """Stop all loops, and wait until they have ended."""
        for running in self._running.values():
            running.stop.set()
        if tasks := [running.task for running in self._running.values()]:
            await asyncio.wait(tasks, timeout=GRACE + LOOK_EVERY)
        await ended(*tasks)
        self._running.clear()


def _finalizers(policy: Mapping[str, Any]) -> list[str]:
    return list(policy["metadata"].get("finalizers") or ())


def _deleted(policy: Mapping[str, Any]) -> bool:
    return bool(policy["metadata"].get("deletionTimestamp"))


def _held(policy: Mapping[str, Any]) -> bool:
    """Whether our finalizer holds a policy that is being deleted."""
    return _deleted(policy) and FINALIZER in _finalizers(policy)
