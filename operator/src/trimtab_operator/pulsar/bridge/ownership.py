"""Reads from Pulsar which broker serves a bundle. Reading has no side effects.

The two load managers need different requests, so `OwnershipReader` has two implementations.

- `ModularOwnership` asks any broker for one bundle. A modular broker that is asked for all its bundles may hang
  (`Admin.owned`).
- `ExtensibleOwnership` asks brokers for all their bundles.

`for_load_manager` chooses between them. It is the only place that branches on the load manager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from trimtab_operator.aio import at_most
from trimtab_operator.pulsar.bridge.unload_request import UnloadRequest
from trimtab_operator.pulsar.client.api import LoadManager
from trimtab_operator.pulsar.client.errors import PulsarError, PulsarUnavailableError
from trimtab_operator.pulsar.client.http import Admin

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOKUPS_AT_ONCE = 8
"""Requests under way at the same time."""

OTHERS_AFTER = 0.5
"""Seconds after a release. From then on, brokers other than the destination are asked, too."""

SOURCE_AFTER = 2.0
"""Seconds after a release. An old owner that has the bundle later than that has taken it back."""

LOOKUP_AFTER = 2.0
"""Seconds after a release. If the bundle is still unowned then, no client requests its topics, so a lookup is sent.

A lookup at the same moment as a client's lookup may assign the bundle to another broker.
"""

PATIENCE = 5.0
"""Seconds to wait until a broker has taken a released bundle."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 0.5


class OwnershipReader(Protocol):
    """Reads the owners of bundles. Owners are broker ids, empty for an unowned bundle."""

    assigns_on_unload: ClassVar[bool]
    """Whether Pulsar remembers the destination when it unloads an unowned bundle."""
    closes_topics: ClassVar[bool]
    """Whether a bundle's topics stay closed if a broker was releasing the bundle and takes it back."""

    remembers_by_range: ClassVar[bool]
    """Whether Pulsar remembers the destination of an unload by the range of the bundle, whatever its namespace is."""

    async def owner(self, request: UnloadRequest) -> str:
        """Read the current owner. Raises `PulsarUnavailableError` if no broker serves it and some did not answer."""

    async def new_owner(self, request: UnloadRequest, since: float) -> str:
        """Read which broker has taken a released bundle; empty if none has yet. since: seconds since the release."""

    async def owners_of(self, bundles: Collection[str], brokers: Sequence[str]) -> dict[str, str]:
        """Read the owners of the bundles that `brokers` (ids, likely ones first) serve. Raises `PulsarError`."""


@dataclass(frozen=True, slots=True)
class ModularOwnership:
    """Ownership under the modular load manager. active: returns the ids of the active brokers."""

    admin: Admin
    active: Callable[[], Iterable[str]] = tuple
    assigns_on_unload: ClassVar[bool] = True
    closes_topics: ClassVar[bool] = False
    remembers_by_range: ClassVar[bool] = True

    async def owner(self, request: UnloadRequest) -> str:
        """Read the current owner from the destination, or from the next broker that answers."""
        return await owner_by_any(self.admin, request.full_name, dict.fromkeys((request.destination, *self.active())))

    async def new_owner(self, request: UnloadRequest, since: float) -> str:
        """Read the owner. Until `SOURCE_AFTER` the old owner counts as none."""
        try:
            found = await self.owner(request)
        except PulsarUnavailableError:
            return ""  # the next poll asks again
        return "" if found == request.source != request.destination and since < SOURCE_AFTER else found

    async def owners_of(self, bundles: Collection[str], brokers: Sequence[str]) -> dict[str, str]:
        """Ask for each bundle separately."""
        owners = await at_most(LOOKUPS_AT_ONCE, lambda bundle: owner_by_any(self.admin, bundle, brokers), list(bundles))
        return {bundle: owner for bundle, owner in zip(bundles, owners, strict=True) if owner}


@dataclass(frozen=True, slots=True)
class ExtensibleOwnership:
    """Ownership under the extensible load manager. active: returns the ids of the active brokers."""

    admin: Admin
    active: Callable[[], Iterable[str]] = tuple
    assigns_on_unload: ClassVar[bool] = False
    closes_topics: ClassVar[bool] = True
    remembers_by_range: ClassVar[bool] = False

    async def owner(self, request: UnloadRequest) -> str:
        """Ask the source and the destination, then all other brokers."""
        likely = [broker for broker in dict.fromkeys((request.source, request.destination)) if broker]
        others = [broker for broker in self.active() if broker not in likely]
        found, silent = await self._first(request, likely)
        if not found:
            found, more = await self._first(request, others)
            silent += more
        if not found and silent:
            raise PulsarUnavailableError(f"{', '.join(silent)} gave no answer, and no other broker serves the bundle")
        return found

    async def new_owner(self, request: UnloadRequest, since: float) -> str:
        """Ask the destination, and from `OTHERS_AFTER` on the other brokers."""
        if await self._serves(request.destination, request):
            return request.destination
        if since < OTHERS_AFTER:
            return ""
        others = [broker for broker in self.active() if broker != request.destination]
        found, _ = await self._first(request, [b for b in others if b != request.source or since >= SOURCE_AFTER])
        return found

    async def owners_of(self, bundles: Collection[str], brokers: Sequence[str]) -> dict[str, str]:
        """Ask one broker after the other until each bundle is found."""
        found = dict[str, str]()
        for broker in brokers:
            owned = await self.admin.owned(broker)
            found |= {bundle: broker for bundle in bundles if bundle in owned}
            if len(found) == len(bundles):
                break
        return found

    async def _serves(self, broker: str, request: UnloadRequest) -> bool:
        try:
            return request.full_name in await self.admin.owned(broker)
        except PulsarError:
            return False  # the next poll asks again, or another broker has it

    async def _first(self, request: UnloadRequest, brokers: list[str]) -> tuple[str, list[str]]:
        """The broker of `brokers` that serves the bundle, empty for none; and the brokers that did not answer."""
        found, silent = list[str](), list[str]()

        async def one(broker: str) -> None:
            try:
                if request.full_name in await self.admin.owned(broker):
                    found.append(broker)
            except PulsarError:
                silent.append(broker)

        await at_most(LOOKUPS_AT_ONCE, one, brokers)
        return (found[0] if found else ""), silent


async def for_load_manager(admin: Admin, modular: T, extensible: T) -> T:
    """`modular` or `extensible`, by the load manager that the cluster runs now. Raises `PulsarError`."""
    return modular if await admin.load_manager() is LoadManager.MODULAR else extensible


async def ownership_reader(admin: Admin, active: Callable[[], Iterable[str]] = tuple) -> OwnershipReader:
    """The reader for the load manager that the cluster runs now. Raises `PulsarError`."""
    modular: OwnershipReader = ModularOwnership(admin, active)
    extensible: OwnershipReader = ExtensibleOwnership(admin, active)
    return await for_load_manager(admin, modular, extensible)


@dataclass(frozen=True, slots=True)
class OwnershipSource:
    """Reads owners under either load manager. active: returns the ids of the active brokers.

    clock: seconds of a monotonic clock.
    """

    admin: Admin
    active: Callable[[], Iterable[str]]
    clock: Callable[[], float]

    async def reader(self) -> OwnershipReader:
        """The reader for the load manager that the cluster runs now. Raises `PulsarError`."""
        return await ownership_reader(self.admin, self.active)

    async def wait_for_owner(self, request: UnloadRequest) -> str:
        """Wait until a broker has taken the released bundle; empty if none has within `PATIENCE`.

        Without clients, the modular load manager leaves a bundle unowned. The next lookup gives it to the destination
        that Pulsar remembers, so a lookup is sent. Raises `UnknownError` if the namespace no longer exists.
        """
        begun, pause, lookup_at = self.clock(), _FIRST_PAUSE, LOOKUP_AFTER
        while (since := self.clock() - begun) < PATIENCE:
            found = await (await self.reader()).new_owner(request, since)
            if found == request.destination or (found and since >= OTHERS_AFTER):
                return found
            if since >= lookup_at:
                lookup_at = since + LOOKUP_AFTER
                if (found := await self._lookup(request)) not in {"", request.destination}:
                    return found
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        return ""

    async def _lookup(self, request: UnloadRequest) -> str:
        """The owner by a lookup; empty when it fails, as it does while a broker is about to take the bundle."""
        if not (topic := request.topic()):
            return ""
        try:
            return await self.admin.lookup(topic)
        except PulsarUnavailableError as error:
            log.info("bundle %s: %s", request.record.name, error)
            return ""


async def owner_by_any(admin: Admin, bundle: str, brokers: Iterable[str]) -> str:
    """Ask one broker after the other, until one answers, for the id of the owner of `bundle`; empty for unowned.

    Works only with the modular load manager. Raises `PulsarError`.
    """
    silent = PulsarUnavailableError("there is no active broker to ask")
    for broker in brokers:
        try:
            return await admin.owner(bundle, broker)
        except PulsarUnavailableError as error:
            silent = error
    raise silent
