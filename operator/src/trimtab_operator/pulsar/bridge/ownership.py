"""Who serves a bundle, read without side effects; and, where nobody does, a lookup that gives it an owner.

With the modular load manager any broker is asked for the bundle, as a broker that is asked for all it serves may hang
(`Admin.owned`). With the extensible one brokers are asked for all they serve.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from trimtab_operator.bridge.orders import Order
from trimtab_operator.control.cycle import at_most
from trimtab_operator.pulsar.admin import Admin
from trimtab_operator.pulsar.errors import PulsarError, PulsarUnavailableError
from trimtab_operator.pulsar.load_manager import LoadManager

log = logging.getLogger(__name__)

LOOKS = 8
"""Brokers asked at once."""

OTHERS_AFTER = 0.5
"""Seconds after a release from which on brokers other than the destination are looked at, too."""

SOURCE_AFTER = 2.0
"""Seconds after which its old owner is believed to have it again, and not still."""

LOOKUP_AFTER = 2.0
"""Seconds after a release from which on nobody's having it means that no client asks for its topics. A lookup at the
same moment as theirs may send it elsewhere."""

_FIRST, _LONGEST = 0.05, 0.5


async def told(admin: Admin, bundle: str, brokers: Iterable[str]) -> str:
    """Id of the broker that serves `bundle`, empty nobody, as the first of `brokers` (ids) says that answers.

    With the modular load manager only. Raises `PulsarError`.
    """
    silent = PulsarUnavailableError("there is no active broker to ask")
    for broker in brokers:
        try:
            return await admin.owner(bundle, broker)
        except PulsarUnavailableError as error:
            silent = error
    raise silent


async def owners_of(admin: Admin, bundles: Collection[str], brokers: Sequence[str]) -> dict[str, str]:
    """Id of the broker that serves it, by bundle, of those that one of `brokers` (ids, likely ones first) serves.

    With either load manager. Raises `PulsarError`.
    """
    if await admin.load_manager() is LoadManager.MODULAR:
        owners = await asyncio.gather(*(told(admin, bundle, brokers) for bundle in bundles))
        return {bundle: owner for bundle, owner in zip(bundles, owners, strict=True) if owner}
    found = dict[str, str]()
    for broker in brokers:
        owned = await admin.owned(broker)
        found |= {bundle: broker for bundle in bundles if bundle in owned}
        if len(found) == len(bundles):
            break
    return found


@dataclass(frozen=True, slots=True)
class Finder:
    """Looks for the owners of bundles. active: ids of the active brokers, now. clock: seconds that never jump.

    patience: seconds for which a landing is waited for.
    """

    admin: Admin
    active: Callable[[], Iterable[str]]
    clock: Callable[[], float]
    patience: float = 5.0

    async def modular(self) -> bool:
        """Whether the cluster runs the modular load manager. Raises `PulsarError`."""
        return await self.admin.load_manager() is LoadManager.MODULAR

    async def owner(self, order: Order) -> str:
        """Id of the broker that serves it, empty for nobody.

        Raises `PulsarUnavailableError` when it is with nobody who answers, and somebody does not answer.
        """
        if await self.modular():
            return await self._told_by_any(order)
        likely = [broker for broker in dict.fromkeys((order.source, order.destination)) if broker]
        others = [broker for broker in self.active() if broker not in likely]
        found, silent = await self._first(order, likely)
        if not found:
            found, more = await self._first(order, others)
            silent += more
        if not found and silent:
            raise PulsarUnavailableError(f"{', '.join(silent)} does not say what it serves, and no other serves it")
        return found

    async def landed(self, order: Order) -> str:
        """Id of the broker that took it after its release, empty if nobody was seen to in time.

        Where no client asks for its topics, the modular load manager leaves a bundle with nobody, and gives it to the
        destination it remembers at the next lookup: so there is one. Raises `UnknownError` when its namespace is gone.
        """
        begun, pause, look_up_at = self.clock(), _FIRST, LOOKUP_AFTER
        while (since := self.clock() - begun) < self.patience:
            found = await self._taken(order, since)
            if found == order.destination or (found and since >= OTHERS_AFTER):
                return found
            if since >= look_up_at:
                look_up_at = since + LOOKUP_AFTER
                if (found := await self._looked_up(order)) not in {"", order.destination}:
                    return found
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST)
        return ""

    async def _taken(self, order: Order, since: float) -> str:
        """Who is seen to have it, empty nobody."""
        if await self.modular():
            try:
                found = await self._told_by_any(order)
            except PulsarUnavailableError:
                return ""  # it is asked again
            return "" if found == order.source != order.destination and since < SOURCE_AFTER else found
        if await self._serves(order.destination, order):
            return order.destination
        return await self._elsewhere(order, since) if since >= OTHERS_AFTER else ""

    async def _told_by_any(self, order: Order) -> str:
        return await told(self.admin, order.full_name, dict.fromkeys((order.destination, *self.active())))

    async def _elsewhere(self, order: Order, since: float) -> str:
        others = [broker for broker in self.active() if broker != order.destination]
        found, _ = await self._first(order, [b for b in others if b != order.source or since >= SOURCE_AFTER])
        return found

    async def _looked_up(self, order: Order) -> str:
        """Whom a lookup names; empty when it fails, as it does while a broker is about to take the bundle."""
        if not (topic := order.topic()):
            return ""
        try:
            return await self.admin.lookup(topic)
        except PulsarUnavailableError as error:
            log.info("bundle %s: %s", order.record.name, error)
            return ""

    async def _serves(self, broker: str, order: Order) -> bool:
        try:
            return order.full_name in await self.admin.owned(broker)
        except PulsarError:
            return False  # it is asked again, or somebody else has it

    async def _first(self, order: Order, brokers: list[str]) -> tuple[str, list[str]]:
        """Which of `brokers` serves it, empty none; and those that did not answer."""
        found, silent = list[str](), list[str]()

        async def one(broker: str) -> None:
            try:
                if order.full_name in await self.admin.owned(broker):
                    found.append(broker)
            except PulsarError:
                silent.append(broker)

        await at_most(LOOKS, one, brokers)
        return (found[0] if found else ""), silent
