"""Carries out upkeep: follows moves until they end, repairs wishes, and finds owners for bundles that have none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from trimtab_operator.actuators import Actuator, Written
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.control.context import Context
from trimtab_operator.control.cycle import WRITERS, Look, Stopwatch, at_most, carry_out, house, look, unmeasured_look
from trimtab_operator.control.divided import unborn
from trimtab_operator.control.settings import Settings
from trimtab_operator.control.telling import Teller
from trimtab_operator.control.turn import Turn
from trimtab_operator.control.upkeep import Upkeep, upkeep
from trimtab_pipeline.source import SourceUnavailableError
from trimtab_strategies.constraints import mass_failure
from trimtab_strategies.model import HeldBack, Memory, Reason

log = logging.getLogger(__name__)

HOUSE_WITHIN = 5.0
"""Seconds that homeless bundles wait for their cluster to be measured; then they get owners without."""

MANY = 2_000
"""Bundles from which on upkeep is worked out off the event loop: it takes some 2 ms per thousand."""

RETRY_HOMELESS = 10.0
"""Seconds before the same homeless bundles are tried again after no broker could take them."""

APPEARS_WITHIN = 10.0
"""Seconds for which bundles that make way for a restart wait for the pod that has just restarted to count as a broker.
A StatefulSet ends the next pod as soon as that one is ready; anywhere else they would have to move once more."""


@dataclass(slots=True)
class Tender:
    """Upkeep for one policy."""

    context: Context
    _tried: frozenset[str] = frozenset()
    _retry_at: float = 0.0
    _mass: bool = False
    _waits_until: float = inf

    async def tend(self, turn: Turn, teller: Teller) -> None:
        """One round. Raises `ApiError` only for what concerns the whole round; a bundle's conflict is its own."""
        settings, now, flights = turn.settings, self.context.clock(), self.context.flights

        def mine(bundle: str) -> bool:
            return self.context.cares(settings.name, bundle)

        lost, ending = self._lost(settings, now), self.context.departures(settings.name).ending
        linked = self.context.link.linked
        overdue = {flight.bundle for flight in flights.overdue(now, settings.move_timeout, mine, turns=linked)}
        await teller.outcomes(flights.outcomes(mine))
        flights.forget_landed(now, settings.prometheus.window, mine)
        bundles = [bundle for bundle in self._concerned(lost | ending) if mine(bundle.name)]
        work = await _worked_out(bundles, lost, overdue, ending, linked=linked)
        await self._brake(work, lost, settings, teller)
        if work.empty:
            return
        done = await self._write(work, turn.actuator)
        done += await self._house(work, turn)
        await teller.upkeep(work, done)

    def _lost(self, settings: Settings, now: float) -> frozenset[str]:
        brokers = self.context.stores.brokers.items
        present = [name for name, broker in brokers.items() if broker.ready]
        self.context.absences.see(present, [*brokers, *self.context.owners()], now)
        return self.context.absences.lost(now, settings.lost_after)

    def _concerned(self, leaving: frozenset[str]) -> list[BundleRecord]:
        context, bundles = self.context, self.context.stores.bundles.items
        names = context.care.union(*(context.served.get(broker, ()) for broker in leaving))
        found = [bundles[name] for name in names if name in bundles]
        return [bundle for bundle in found if not unborn(bundle, bundles)]

    async def _brake(self, work: Upkeep, lost: frozenset[str], settings: Settings, teller: Teller) -> None:
        """When too many brokers are gone at once, the picture is more likely wrong than they: leave their bundles."""
        brokers = self.context.brokers_of(settings.name)
        gone = sum(name in lost for name in brokers)
        mass = mass_failure(gone, len(brokers), settings.limits)
        if mass:
            work.frees.clear()
            work.homeless = [(bundle, why) for bundle, why in work.homeless if why is Reason.UNOWNED]
        if mass and not self._mass:
            await teller.brake(f"{gone} of {len(brokers)} brokers are lost: their bundles stay where they are")
        self._mass = mass

    async def _write(self, work: Upkeep, actuator: Actuator) -> list[Written]:
        frees = await at_most(WRITERS, actuator.free, work.frees)
        wishes = await at_most(WRITERS, lambda wish: actuator.wish(wish.bundle, wish.owner, wish.reason), work.wishes)
        return [*frees, *wishes]

    async def _house(self, work: Upkeep, turn: Turn) -> list[Written]:
        freed, spaces = {bundle.name for bundle in work.frees}, self.context.stores.topic_namespaces.items
        # a bundle whose TopicNamespace is gone is about to go, too: nobody knows by which name it would be measured
        homeless = [(b, why) for b, why in work.homeless if b.name not in freed and b.topic_namespace in spaces]
        if self._appearing(turn.settings.name):
            homeless = [(bundle, why) for bundle, why in homeless if why is not Reason.ROLLING_OUT]
        names, now = frozenset(bundle.name for bundle, _ in homeless), self.context.clock()
        if not homeless or (names == self._tried and now < self._retry_at):
            return []
        self._tried, self._retry_at = names, now + RETRY_HOMELESS
        seen = await self._look(turn)
        spelling = {record.name: full for full, record in seen.records.items()}
        done: list[Written] = []
        for why in sorted({why for _, why in homeless}):
            wanted = [spelling[b.name] for b, reason in homeless if reason is why and b.name in spelling]
            done += await _place(wanted, why, seen, turn)
        return done

    def _appearing(self, policy: str) -> bool:
        """Whether a pod that has restarted is ready, and is about to count as a broker, but does not yet."""
        brokers, now = self.context.brokers_of(policy), self.context.clock()
        if all(brokers[name].ready for name in self.context.departures(policy).rollout.restarted):
            self._waits_until = inf
            return False
        self._waits_until = min(self._waits_until, now + APPEARS_WITHIN)
        return now < self._waits_until

    async def _look(self, turn: Turn) -> Look:
        """The cluster as measured; when that fails, for whatever cause, as the resources describe it."""
        picture, now = self.context.picture(turn.settings), self.context.now()
        if self.context.engine.is_set():
            try:
                async with asyncio.timeout(HOUSE_WITHIN):
                    return await look(picture, turn, now, Stopwatch())
            except (SourceUnavailableError, TimeoutError) as error:
                log.info("policy %s: finds owners without load: %s", turn.settings.name, error or "no answer in time")
            except Exception:
                log.exception("policy %s: finds owners without load", turn.settings.name)
        return await unmeasured_look(picture, turn, now)


async def _worked_out(
    bundles: list[BundleRecord], lost: frozenset[str], overdue: set[str], ending: frozenset[str], *, linked: bool
) -> Upkeep:
    """The upkeep of `bundles`, in the order of their names."""

    def in_order() -> Upkeep:
        return upkeep(sorted(bundles, key=lambda bundle: bundle.name), lost, overdue, ending, linked=linked)

    return in_order() if len(bundles) < MANY else await asyncio.to_thread(in_order)


async def _place(wanted: Sequence[str], why: Reason, seen: Look, turn: Turn) -> list[Written]:
    try:
        decision = await house(seen, wanted, why, turn)
    except Exception:
        if turn.memory == Memory():
            raise
        log.exception("policy %s: no owner can be found with what it remembers, trying without", turn.settings.name)
        decision = await house(seen, wanted, why, turn.forgetful)
    written = await carry_out(decision.plan.moves, seen, turn.actuator, Stopwatch())
    return [*written, *(_not_placed(held) for held in decision.plan.held_back)]


def _not_placed(held: HeldBack) -> Written:
    return Written(held.subject, held.reason, f"{held.subject}: {held.detail}" if held.subject else held.detail)
