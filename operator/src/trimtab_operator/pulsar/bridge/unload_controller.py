"""`Carrier`: plays the part of the brokers where a Pulsar cluster stands behind the objects, and carries wishes out.

For each Bundle with an open wish: find the owner; unless that is the destination already, unload the bundle to there;
read the owner back, as an unload that was answered well says no more than that the old owner let go; write who serves
it to the Bundle's status. All state is in the objects and in Pulsar: a new leader finds the same open wishes, looks who
serves the bundles, and goes on.
"""

from __future__ import annotations

import asyncio
import logging
import math

from trimtab_operator.bridge.finding import Finder
from trimtab_operator.bridge.orders import Landed, Leaving, Order, Result
from trimtab_operator.bridge.shyness import Shyness
from trimtab_operator.bridge.unloading import Unloading
from trimtab_operator.cluster.api import ApiError
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.control.context import Context
from trimtab_operator.control.cycle import ended
from trimtab_operator.control.divided import unborn
from trimtab_operator.pulsar.admin import Admin
from trimtab_operator.pulsar.errors import PulsarError
from trimtab_operator.resources.bundle import BundleState
from trimtab_strategies.model import Reason

log = logging.getLogger(__name__)

LOOK_EVERY = 0.2
"""Seconds between two looks at the open wishes."""

FOUND_THERE_FOR = 10.0
"""Seconds that the mirror has for telling where it found a bundle that it has just made an object of."""


class Carrier:
    """See the module. One for each client that is opened."""

    def __init__(self, context: Context, admin: Admin) -> None:
        self._context = context
        urgent = admin.at_once()
        finder = Finder(urgent, lambda: list((context.link.ids or {}).values()), context.clock)
        self._unloading = Unloading(context, urgent, finder)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._shyness = Shyness(context.clock)

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
            self._context.flights.end_turns(self._context.clock())
            await ended(*self._tasks.values())

    def _begin(self) -> None:
        """Begin with as many wishes as may be under way; those first that have waited longest."""
        spec, flights = self._context.link.spec, self._context.flights
        if self._context.link.ids is None:
            return
        flights.take_turns()
        if (room := (spec.max_unloads if spec else 0) - len(self._tasks)) <= 0:
            return
        for record in sorted(self._waiting(), key=_waits_since)[:room]:
            flights.begin(record.name, self._context.clock())
            self._tasks[record.name] = asyncio.create_task(self._carry(record), name=f"carrier {record.name}")
            self._tasks[record.name].add_done_callback(lambda _, name=record.name: self._tasks.pop(name))  # type: ignore[misc]

    def _waiting(self) -> list[BundleRecord]:
        """Bundles whose open wishes may be begun with now."""
        bundles, flights = self._context.stores.bundles.items, self._context.flights.open
        latest = self._context.clock() - FOUND_THERE_FOR
        old = {name for name, flight in flights.items() if flight.since <= latest}
        found = (bundles.get(name) for name, flight in flights.items() if not flight.overdue)
        return [
            record
            for record in found
            if record is not None
            and record.open_wish
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
        order = Order(record, full_name, ids.get(record.status_owner, ""), ids[record.owner])
        return await self._unloading.carry(order) in {None, Result.LANDED}


def _found_there(record: BundleRecord) -> bool:
    """Whether the wish only says where the mirror found the bundle; it is about to confirm that itself."""
    return record.generation == 1 and record.reason == Reason.FOUND


def _waits_since(record: BundleRecord) -> tuple[bool, float, str]:
    """When its wish was decided on; those that a person wrote come first.

    Before all comes what is wished back to where it was leaving from: it may be closed there, and its clients silent.
    """
    closed = record.state == BundleState.RELEASING and record.owner == record.status_owner
    return (not closed, 0.0 if math.isnan(record.assigned_at) else record.assigned_at, record.name)
