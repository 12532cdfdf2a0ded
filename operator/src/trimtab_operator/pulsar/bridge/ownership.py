"""Who owns a bundle, read from Pulsar without side effects, and a lookup that gives an unowned one an owner.

With the modular load manager any broker is asked for one bundle; a broker that is asked for all it owns may hang
(`Admin.owned`). With the extensible one brokers are asked for all they own.

Modular brokers' load reports are hints. A report lists the bundles of whose topics the broker has statistics, up to a
minute late. So bundles are asked for one by one (`Admin.owner`): first those with news in a report, then those that
were asked for longest ago, at most `most` in a sweep. A small cluster is swept whole. In a large one a bundle in use
is seen within a sweep of its report.

A report is never believed over a status. A new leader would otherwise take a bundle that moved half a minute ago for
back where it was, and then for moved again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from trimtab_operator.aio import at_most
from trimtab_operator.pulsar.bridge.unload_request import UnloadRequest
from trimtab_operator.pulsar.client.api import Admin, LoadManager
from trimtab_operator.pulsar.client.errors import PulsarError, PulsarUnavailableError
from trimtab_operator.pulsar.client.transport import Budget

log = logging.getLogger(__name__)


LOOKUPS_AT_ONCE = 8
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
class OwnershipReader:
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

    async def owner(self, order: UnloadRequest) -> str:
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

    async def landed(self, order: UnloadRequest) -> str:
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

    async def _taken(self, order: UnloadRequest, since: float) -> str:
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

    async def _told_by_any(self, order: UnloadRequest) -> str:
        return await told(self.admin, order.full_name, dict.fromkeys((order.destination, *self.active())))

    async def _elsewhere(self, order: UnloadRequest, since: float) -> str:
        others = [broker for broker in self.active() if broker != order.destination]
        found, _ = await self._first(order, [b for b in others if b != order.source or since >= SOURCE_AFTER])
        return found

    async def _looked_up(self, order: UnloadRequest) -> str:
        """Whom a lookup names; empty when it fails, as it does while a broker is about to take the bundle."""
        if not (topic := order.topic()):
            return ""
        try:
            return await self.admin.lookup(topic)
        except PulsarUnavailableError as error:
            log.info("bundle %s: %s", order.record.name, error)
            return ""

    async def _serves(self, broker: str, order: UnloadRequest) -> bool:
        try:
            return order.full_name in await self.admin.owned(broker)
        except PulsarError:
            return False  # it is asked again, or somebody else has it

    async def _first(self, order: UnloadRequest, brokers: list[str]) -> tuple[str, list[str]]:
        """Which of `brokers` serves it, empty none; and those that did not answer."""
        found, silent = list[str](), list[str]()

        async def one(broker: str) -> None:
            try:
                if order.full_name in await self.admin.owned(broker):
                    found.append(broker)
            except PulsarError:
                silent.append(broker)

        await at_most(LOOKUPS_AT_ONCE, one, brokers)
        return (found[0] if found else ""), silent


VERIFICATIONS_AT_ONCE = 8
"""Requests under way at once."""


@dataclass(slots=True)
class OwnershipVerifier:
    """Remembers what was found of each bundle (Pulsar's spelling), and asks for some in each sweep.

    found: bundle -> id of the broker that serves it, empty nobody. most: bundles asked for in one sweep.
    """

    admin: Admin
    budget: Budget
    most: int = 80
    found: dict[str, str] = field(default_factory=dict)
    _hints: dict[str, frozenset[str]] = field(default_factory=dict)
    _tried: dict[str, int] = field(default_factory=dict)
    _sweep: int = 0

    async def verify(self, reports: Mapping[str, Iterable[str]], bundles: Mapping[str, str]) -> dict[str, str]:
        """Id of the broker, empty nobody, of each bundle that this sweep says something of.

        reports: id of a broker -> bundles. bundles: those that have an object -> id of the broker that its status
        names, empty nobody. Of these nothing is said but what was asked for now, or, of those never asked for that
        have nobody by their status, what a report says; the rest may have changed since.
        """
        self._sweep += 1
        hints = _by_bundle(reports)
        known = {*bundles, *hints}
        self._forget(known)
        asked = sorted(known, key=partial(self._turn, hints, bundles))[: self.most]
        answers = dict[str, str]()
        await at_most(VERIFICATIONS_AT_ONCE, partial(self._ask, list(reports), hints, answers), asked)
        self.found |= answers
        unseen = {bundle: owner for bundle, owner in self.found.items() if bundle not in bundles}
        open_to_hints = {b: at for b, at in hints.items() if b not in self.found and not bundles.get(b)}
        hinted = {b: next(iter(at)) for b, at in open_to_hints.items() if len(at) == 1}
        return hinted | unseen | answers

    def _turn(
        self, hints: Mapping[str, frozenset[str]], bundles: Mapping[str, str], bundle: str
    ) -> tuple[bool, int, str]:
        """Those first of which there is news; then those that were asked for longest ago."""
        heard, before = hints.get(bundle, frozenset()), self._hints.get(bundle)
        news = bool(heard - {bundles.get(bundle, "")}) if before is None else heard != before
        return not news, self._tried.get(bundle, 0), bundle

    async def _ask(
        self, brokers: list[str], hints: Mapping[str, frozenset[str]], answers: dict[str, str], bundle: str
    ) -> None:
        await self.budget.wait()
        self._tried[bundle] = self._sweep  # also if that fails: 80 that always do must not hold up all others
        self._hints[bundle] = hints.get(bundle, frozenset())
        with suppress(PulsarError):  # it was split, or nobody answers: what was known stays, and its turn comes again
            answers[bundle] = await told(self.admin, bundle, brokers)

    def _forget(self, known: set[str]) -> None:
        for bundle in self._tried.keys() - known:
            del self._tried[bundle], self._hints[bundle]
            self.found.pop(bundle, None)


def _by_bundle(reports: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """Ids of the brokers that list it, by bundle."""
    found: dict[str, frozenset[str]] = {}
    for broker, listed in reports.items():
        for bundle in listed:
            found[bundle] = found.get(bundle, frozenset()) | {broker}
    return found
