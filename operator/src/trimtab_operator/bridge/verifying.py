"""Who serves what on brokers with the modular load manager, which can't be asked for all they serve (`Admin.owned`).

Their load reports are hints: each lists the bundles of whose topics the broker has statistics, up to a minute late, and
not those that nobody uses. So bundles are asked for one by one (`Admin.owner`): first those of which the reports say
something new, then the others, those first that were asked for longest ago, as many in a sweep as `most` allows. In a
small cluster that is all of them; in a large one what is in use is seen within a sweep of its report.

A report is never believed over a status: an operator that has just begun would take a bundle that moved half a minute
ago for back where it was, and for moved again when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from trimtab_operator.bridge.finding import told
from trimtab_operator.control.cycle import at_most
from trimtab_operator.pulsar.admin import Admin
from trimtab_operator.pulsar.budget import Budget
from trimtab_operator.pulsar.errors import PulsarError

LOOKS = 8
"""Requests under way at once."""


@dataclass(slots=True)
class Verifier:
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
        await at_most(LOOKS, partial(self._ask, list(reports), hints, answers), asked)
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
