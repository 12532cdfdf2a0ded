"""`UnloadController`: carries desired owners out on a Pulsar cluster, in place of the brokers.

For each Bundle whose desired owner is pending: find the owner. Unless that is the destination already, unload the
bundle to there. Read the owner back, as an answered unload says only that the old owner let go. Write the owner to the
Bundle's status. All state is in the objects and in Pulsar, so a new leader goes on.

`Backoff`: what failed is tried again later and later, as each unload cuts clients off.
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
from trimtab_operator.pulsar.bridge.ownership import OwnershipReader
from trimtab_operator.pulsar.bridge.unload import BundleUnload
from trimtab_operator.pulsar.bridge.unload_request import Landed, Leaving, UnloadRequest, UnloadResult
from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.splitting_bundles import unborn
from trimtab_strategies.model import Reason

FIRST, LONGEST = 2.0, 120.0
"""Seconds after the first failure, and at most."""


FORGET_AFTER = 3600.0
"""Seconds after which a failure no longer counts."""


@dataclass(slots=True)
class Backoff:
    """By bundle and destination. clock: seconds that never jump."""

    clock: Callable[[], float]
    _failures: dict[tuple[str, str], tuple[int, float]] = field(default_factory=dict)

    def may(self, bundle: str, destination: str) -> bool:
        """Whether it may be tried now."""
        times, last = self._failures.get((bundle, destination), (0, 0.0))
        return times == 0 or self.clock() >= last + min(LONGEST, FIRST * 2.0 ** (times - 1))

    def failed(self, bundle: str, destination: str) -> None:
        """It was tried in vain."""
        now = self.clock()
        self._failures = {key: seen for key, seen in self._failures.items() if now - seen[1] < FORGET_AFTER}
        times, _ = self._failures.get((bundle, destination), (0, 0.0))
        self._failures[bundle, destination] = times + 1, now

    def forget(self, bundle: str, destination: str) -> None:
        """It went well."""
        self._failures.pop((bundle, destination), None)


log = logging.getLogger(__name__)


LOOK_EVERY = 0.2
"""Seconds between two looks at the open wishes."""


FOUND_THERE_FOR = 10.0
"""Seconds that the mirror has for telling where it found a bundle that it has just made an object of."""


class UnloadController:
    """See the module. One for each client that is opened."""

    def __init__(self, context: ClusterState, admin: Admin) -> None:
        self._context = context
        urgent = admin.at_once()
        finder = OwnershipReader(urgent, lambda: list((context.link.ids or {}).values()), context.clock)
        self._unloading = BundleUnload(context, urgent, finder)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._shyness = Backoff(context.clock)

    def subscribe(self, landed: Landed, leaving: Leaving | None = None) -> None:
        """Have `landed` called after each move, and `leaving` awaited, for a moment, before each unload."""
        self._unloading.subscribe(landed, leaving)

    async def run(self) -> None:
        """Forever."""
        try:
            while True:
                self._begin()
                await asyncio.sleep(LOOK_EVERY)
        finally:
            self._context.pending_moves.end_turns(self._context.clock())
            await ended(*self._tasks.values())

    def _begin(self) -> None:
        """Begin with as many wishes as may be under way; those first that have waited longest."""
        spec, pending_moves = self._context.link.spec, self._context.pending_moves
        if self._context.link.ids is None:
            return
        pending_moves.take_turns()
        if (room := (spec.max_unloads if spec else 0) - len(self._tasks)) <= 0:
            return
        for record in sorted(self._waiting(), key=_waits_since)[:room]:
            pending_moves.begin(record.name, self._context.clock())
            self._tasks[record.name] = asyncio.create_task(self._carry(record), name=f"carrier {record.name}")
            self._tasks[record.name].add_done_callback(lambda _, name=record.name: self._tasks.pop(name))  # type: ignore[misc]

    def _waiting(self) -> list[BundleRecord]:
        """Bundles whose open wishes may be begun with now."""
        bundles, pending_moves = self._context.stores.bundles.items, self._context.pending_moves.open
        latest = self._context.clock() - FOUND_THERE_FOR
        old = {name for name, pending in pending_moves.items() if pending.since <= latest}
        found = (bundles.get(name) for name, pending in pending_moves.items() if not pending.overdue)
        return [
            record
            for record in found
            if record is not None
            and record.owner_pending
            and (record.name in old or not _found_there(record))
            and record.name not in self._tasks
            and not record.split  # that is the divider's
            and not unborn(record, bundles)
            and self._shyness.may(record.name, record.owner)
        ]

    async def _carry(self, record: BundleRecord) -> None:
        """One wish, from where it stands. Nothing that goes wrong with it concerns the others."""
        try:
            well = await self._carried(record)
        except (ApiError, PulsarError) as error:
            log.warning("bundle %s: %s", record.name, error)
            well = False
        except Exception:
            log.exception("bundle %s: its wish could not be carried out", record.name)
            well = False
        if well:
            self._shyness.forget(record.name, record.owner)
        else:
            self._shyness.failed(record.name, record.owner)

    async def _carried(self, record: BundleRecord) -> bool:
        """Whether the wish was carried out, or is not ours to carry out any more. Raises `ApiError`, `PulsarError`."""
        ids, spaces = self._context.link.ids or {}, self._context.stores.topic_namespaces.items
        if (space := spaces.get(record.topic_namespace)) is None:
            return False
        if record.owner not in ids:
            await self._unloading.inactive(record)
            return False
        full_name = f"{space.full_name}/{record.lower}_{record.upper}"
        order = UnloadRequest(record, full_name, ids.get(record.status_owner, ""), ids[record.owner])
        return await self._unloading.carry(order) in {None, UnloadResult.LANDED}


def _found_there(record: BundleRecord) -> bool:
    """Whether the wish only says where the mirror found the bundle; it is about to confirm that itself."""
    return record.generation == 1 and record.reason == Reason.FOUND


def _waits_since(record: BundleRecord) -> tuple[bool, float, str]:
    """When its wish was decided on; those that a person wrote come first.

    Before all comes what is wished back to where it was leaving from: it may be closed there, and its clients silent.
    """
    closed = record.state == BundleState.RELEASING and record.owner == record.status_owner
    return (not closed, 0.0 if math.isnan(record.assigned_at) else record.assigned_at, record.name)
