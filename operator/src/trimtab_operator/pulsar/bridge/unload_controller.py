"""`UnloadController`: starts unloads, a few at a time, until bundles are at their desired owners; repeats failed ones.

For each Bundle with a pending desired owner, an attempt (`BundleUnload`) reads the owner. If the owner is not the
destination, the attempt unloads the bundle to the destination. It then reads the owner again, because the answer to an
unload says only that the old owner released the bundle. Finally it writes the owner to the Bundle's status. All state
is in the objects and in Pulsar, so a new leader can continue.

A failed attempt is repeated after a pause (`Backoff`). The pause doubles with each failure, because each unload
disconnects clients.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab_operator.aio import ended
from trimtab_operator.kube.client import ApiError
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.pulsar.bridge.ownership import OwnershipSource
from trimtab_operator.pulsar.bridge.unload_attempt import BundleUnload
from trimtab_operator.pulsar.bridge.unload_request import AfterLanding, UnloadRequest, UnloadResult
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.splitting_bundles import unborn
from trimtab_strategies.model import Reason

log = logging.getLogger(__name__)

POLL_INTERVAL = 0.2
"""Seconds between two reads of the pending moves."""

DISCOVERY_GRACE = 10.0
"""Seconds that the cluster sync has to confirm the owner of a bundle whose object it has just created."""

NOTE_GRACE = 10.0
"""Seconds that the policy's reconciliation has to record that a person wrote a desired owner. Recording it during the
attempt would end the attempt."""

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 120.0
"""Pause after the first failure, and maximum pause, in seconds."""

_DOUBLINGS = 10  # enough to reach the maximum pause, and too few for an overflow

FORGET_AFTER = 3600.0
"""Seconds after which a failure no longer counts."""


@dataclass(slots=True)
class Backoff:
    """Pauses after failures, by bundle and destination. clock: seconds of a monotonic clock."""

    clock: Callable[[], float]
    _failures: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)

    def is_over(self, bundle: str, destination: str) -> bool:
        """Whether the next attempt may begin now."""
        times, last = self._failures.get((bundle, destination), (0, 0.0))
        return times == 0 or self.clock() >= last + min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(times - 1, _DOUBLINGS))

    def failed(self, bundle: str, destination: str) -> None:
        """Record a failed attempt."""
        now = self.clock()
        self._failures = {key: entry for key, entry in self._failures.items() if now - entry[1] < FORGET_AFTER}
        times, _ = self._failures.get((bundle, destination), (0, 0.0))
        self._failures[bundle, destination] = times + 1, now

    def succeeded(self, bundle: str, destination: str) -> None:
        """Forget the failures."""
        self._failures.pop((bundle, destination), None)


class UnloadController:
    """Unloads bundles to their desired owners. Each open Pulsar client has one controller.

    landed: called after each completed move.
    """

    def __init__(self, cluster: ClusterState, admin: Admin, landed: AfterLanding) -> None:
        self._cluster = cluster
        unbudgeted = admin.without_budget()
        ownership = OwnershipSource(unbudgeted, lambda: list((cluster.link.ids or {}).values()), cluster.clock)
        self._ownership, self._unload = ownership, BundleUnload(cluster, unbudgeted, ownership, landed)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ranges: dict[str, tuple[str, str]] = {}  # ranges of the bundles being moved, by bundle name
        self._backoff = Backoff(cluster.clock)

    async def run(self) -> None:
        """Move bundles until cancelled."""
        try:
            while True:
                await self._start_due()
                await asyncio.sleep(POLL_INTERVAL)
        finally:
            self._cluster.pending_moves.end_turns(self._cluster.clock())
            await ended(*self._tasks.values())

    async def _start_due(self) -> None:
        """Start as many moves as `spec.pulsar.maxUnloads` allows, the longest waiting ones first."""
        spec, pending_moves = self._cluster.link.spec, self._cluster.pending_moves
        if self._cluster.link.ids is None:
            return
        pending_moves.take_turns()
        if (room := (spec.max_unloads if spec else 0) - len(self._tasks)) <= 0:
            return
        for record in (await self._apart(sorted(self._due(), key=_priority)))[:room]:
            pending_moves.begin(record.name, self._cluster.clock())
            self._ranges[record.name] = record.lower, record.upper
            self._tasks[record.name] = asyncio.create_task(self._attempt(record), name=f"unload {record.name}")
            self._tasks[record.name].add_done_callback(lambda _, name=record.name: self._ended(name))  # type: ignore[misc]

    def _ended(self, bundle: str) -> None:
        del self._tasks[bundle], self._ranges[bundle]

    async def _apart(self, due: list[BundleRecord]) -> list[BundleRecord]:
        """`due` without bundles that could land at the destination of another bundle.

        The leader of the modular load manager remembers the destination of an unload by the range of the bundle alone
        (Pulsar 4.0.8, `NamespacesBase.internalUnloadNamespaceBundleAsync`). Namespaces with the same number of bundles
        have the same ranges. So only one bundle of each range is unloaded at a time.
        """
        taken, apart = set(self._ranges.values()), list[BundleRecord]()
        for record in due:
            if (extent := (record.lower, record.upper)) not in taken:
                taken.add(extent)
                apart.append(record)
        return apart if len(apart) < len(due) and await self._remembers_by_range() else due

    async def _remembers_by_range(self) -> bool:
        try:
            return (await self._ownership.reader()).remembers_by_range
        except PulsarError:
            return True  # it may be the modular load manager

    def _due(self) -> list[BundleRecord]:
        """Bundles with a pending desired owner whose move may start now."""
        bundles, pending_moves = self._cluster.stores.bundles.items, self._cluster.pending_moves.open
        now = self._cluster.clock()
        age = {name: now - pending.since for name, pending in pending_moves.items()}
        found = (bundles.get(name) for name, pending in pending_moves.items() if not pending.overdue)
        return [
            record
            for record in found
            if record is not None
            and record.owner_pending
            and not (_just_discovered(record) and age[record.name] < DISCOVERY_GRACE)
            and not (record.overruled and age[record.name] < NOTE_GRACE)
            and record.name not in self._tasks
            and not record.split  # the split controller moves it
            and not unborn(record, bundles)
            and self._backoff.is_over(record.name, record.owner)
        ]

    async def _attempt(self, record: BundleRecord) -> None:
        """Move one bundle. A failure does not affect other moves."""
        try:
            succeeded = await self._move(record)
        except (ApiError, PulsarError) as error:
            log.warning("bundle %s: %s", record.name, error)
            succeeded = False
        except Exception:
            log.exception("bundle %s: unexpected error while moving it to its desired owner", record.name)
            succeeded = False
        if succeeded:
            self._backoff.succeeded(record.name, record.owner)
        else:
            self._backoff.failed(record.name, record.owner)

    async def _move(self, record: BundleRecord) -> bool:
        """Whether the move is complete or no longer wanted. Raises `ApiError`, `PulsarError`."""
        ids, namespaces = self._cluster.link.ids or {}, self._cluster.stores.topic_namespaces.items
        if (namespace := namespaces.get(record.topic_namespace)) is None:
            return False
        if record.owner not in ids:
            await self._unload.report_inactive(record)
            return False
        full_name = f"{namespace.full_name}/{record.lower}_{record.upper}"
        request = UnloadRequest(record, full_name, ids.get(record.status_owner, ""), ids[record.owner])
        return await self._unload.run(request) in {None, UnloadResult.LANDED}


def _just_discovered(record: BundleRecord) -> bool:
    """Whether the desired owner is only the broker where the cluster sync found the bundle. The sync confirms it."""
    return record.generation == 1 and record.reason == Reason.FOUND


def _priority(record: BundleRecord) -> tuple[bool, bool, float, str]:
    """Sort key: bundles whose topics may be closed, then those with a desired owner that a person wrote, then others.

    Within each of the three groups, the oldest assignment comes first.
    Topics may be closed if the desired owner is the broker that was releasing the bundle. Their clients then have no
    service.
    """
    closed = record.state == BundleState.RELEASING and record.owner == record.status_owner
    at = 0.0 if math.isnan(record.assigned_at) else record.assigned_at
    return (not closed, not record.asked_by_person, at, record.name)
