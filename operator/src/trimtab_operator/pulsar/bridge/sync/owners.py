"""Reads the owners of all bundles from the brokers, and compares them with the Bundle objects.

With the extensible load manager each broker lists all its bundles. Modular brokers are asked for one bundle at a time
(`Admin.owner`), at most `most` in a round, so `OwnershipVerifier` chooses which. First come bundles whose brokers in
the load reports have changed, then those that were read longest ago. A small cluster is read completely in each round.

The load reports of modular brokers are hints. A report lists the bundles for whose topics the broker has statistics,
and is up to a minute old. It never overrides a status. Otherwise a new leader would believe that a bundle that moved
half a minute ago is back, and then that it moved again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trimtab_operator.aio import at_most
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.pulsar.bridge.ownership import for_load_manager, owner_by_any
from trimtab_operator.pulsar.bridge.sync.diff import ObservedOwners, owner_changes
from trimtab_operator.pulsar.client.api import is_system
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.pulsar.client.transport import Budget
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)

REQUESTS_AT_ONCE = 8
"""Requests under way at the same time."""


@dataclass(slots=True)
class OwnershipVerifier:
    """Reads the owners of some bundles in each round, and remembers the answers. Bundles have their names in Pulsar.

    found: bundle -> broker id, empty for unowned. most: bundles read in one round.
    """

    admin: Admin
    budget: Budget
    most: int = 80
    found: dict[str, str] = field(default_factory=dict)
    _hints: dict[str, frozenset[str]] = field(default_factory=dict)
    _read_in: dict[str, int] = field(default_factory=dict)
    _round: int = 0

    async def verify(self, reports: Mapping[str, Iterable[str]], bundles: Mapping[str, str]) -> dict[str, str]:
        """The owner of each bundle that this round found: bundle -> broker id, empty for unowned.

        reports: broker id -> bundles. bundles: bundle with an object -> broker id by its status, empty for unowned. The
        result has

        - the bundles that were read in this round;
        - the bundles without an object that were read in any round;
        - the bundles that were never read, are in exactly one report, and have no owner by their status.

        The owners of the other bundles may have changed since they were read.
        """
        self._round += 1
        hints = _by_bundle(reports)
        known = {*bundles, *hints}
        self._forget(known)
        asked = sorted(known, key=partial(self._priority, hints, bundles))[: self.most]
        answers = dict[str, str]()
        await at_most(REQUESTS_AT_ONCE, partial(self._ask, list(reports), hints, answers), asked)
        self.found |= answers
        without_object = {bundle: owner for bundle, owner in self.found.items() if bundle not in bundles}
        open_to_hints = {b: at for b, at in hints.items() if b not in self.found and not bundles.get(b)}
        hinted = {b: next(iter(at)) for b, at in open_to_hints.items() if len(at) == 1}
        return hinted | without_object | answers

    def _priority(
        self, hints: Mapping[str, frozenset[str]], bundles: Mapping[str, str], bundle: str
    ) -> tuple[bool, int, str]:
        """Sort key: bundles whose report changed first, then those read longest ago."""
        reported, before = hints.get(bundle, frozenset()), self._hints.get(bundle)
        news = bool(reported - {bundles.get(bundle, "")}) if before is None else reported != before
        return not news, self._read_in.get(bundle, 0), bundle

    async def _ask(
        self, brokers: list[str], hints: Mapping[str, frozenset[str]], answers: dict[str, str], bundle: str
    ) -> None:
        await self.budget.wait()
        self._read_in[bundle] = self._round  # also after a failure: 80 failing bundles must not block all others
        self._hints[bundle] = hints.get(bundle, frozenset())
        with suppress(PulsarError):  # it was split, or no broker answers: the last answer stays
            answers[bundle] = await owner_by_any(self.admin, bundle, brokers)

    def _forget(self, known: set[str]) -> None:
        for bundle in self._read_in.keys() - known:
            del self._read_in[bundle], self._hints[bundle]
            self.found.pop(bundle, None)


def _by_bundle(reports: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """bundle -> ids of the brokers whose reports list it."""
    found: dict[str, frozenset[str]] = {}
    for broker, listed in reports.items():
        for bundle in listed:
            found[bundle] = found.get(bundle, frozenset()) | {broker}
    return found


Change = tuple[BundleRecord, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class OwnerChanges:
    """Result of a round: status changes, and the namespaces of bundles without an object."""

    changes: list[Change]
    unknown: frozenset[str]


@dataclass(slots=True)
class OwnerSync:
    """Reads owners from all active brokers, as fast as `budget` allows.

    stuck_after: seconds after which the observed owner is written to the status of a Bundle, although its desired owner
    is still pending.
    """

    cluster: ClusterState
    admin: Admin
    budget: Budget
    stuck_after: float = 60.0
    owned: ObservedOwners = field(default_factory=ObservedOwners)
    _verifier: OwnershipVerifier = field(init=False)
    _answered: bool = False
    _silent: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._verifier = OwnershipVerifier(self.admin, self.budget)

    async def read(self, ids: Mapping[str, str]) -> OwnerChanges:
        """Read the owners from the brokers `ids` (object name -> id), and compare them with the objects.

        The objects are read before the brokers are asked. If another client writes a Bundle meanwhile, the status patch
        carries an old resourceVersion and does not overwrite it.
        """
        stores = self.cluster.stores
        bundles = dict(stores.bundles.items)
        full_names = {r.name: r.full_name for r in stores.topic_namespaces.items.values()}
        stuck = self._stuck()
        observe = await for_load_manager(self.admin, self._by_bundle, self._by_broker)
        self.owned = await observe(ids, bundles.values(), full_names)
        return await asyncio.to_thread(_compare, bundles, full_names, self.owned, stuck, self.cluster.now())

    async def _by_broker(
        self, ids: Mapping[str, str], _bundles: Iterable[BundleRecord], _full_names: Mapping[str, str]
    ) -> ObservedOwners:
        """Read the list of bundles of each broker."""
        lists = await self._ask(ids, self.admin.owned)
        answered = lists.keys() == ids.keys() == (self.cluster.link.ids or {}).keys()
        before, complete = self.owned.by_bundle.keys(), answered and self._answered
        self._answered = answered
        return ObservedOwners({bundle: name for name, found in lists.items() for bundle in found}, before, complete)

    async def _by_bundle(
        self, ids: Mapping[str, str], bundles: Iterable[BundleRecord], full_names: Mapping[str, str]
    ) -> ObservedOwners:
        """Read some bundles from any broker; the others keep the owner of their status."""
        reports = await self._ask(ids, self.admin.reported)
        names = {broker: name for name, broker in ids.items()}
        current = {_full(b, full_names): b.status_owner for b in bundles if b.topic_namespace in full_names}
        statuses = {bundle: ids.get(owner, owner) for bundle, owner in current.items()}
        found = await self._verifier.verify({ids[name]: listed for name, listed in reports.items()}, statuses)
        unowned = {bundle for bundle, owner in found.items() if not owner}
        served = {bundle: names[owner] for bundle, owner in found.items() if owner in names}
        by_bundle = {bundle: name for bundle, name in (current | served).items() if name and bundle not in unowned}
        return ObservedOwners(by_bundle, current.keys() - unowned, complete=True)

    async def _ask(
        self, ids: Mapping[str, str], ask: Callable[[str], Awaitable[frozenset[str]]]
    ) -> dict[str, frozenset[str]]:
        """broker -> its answer, in the order of arrival: if two brokers list a bundle, the later answer is used."""
        answers: dict[str, frozenset[str]] = {}
        failed: dict[str, str] = {}

        async def one(name: str) -> None:
            await self.budget.wait()
            try:
                answers[name] = await ask(ids[name])
            except PulsarError as error:
                failed[name] = str(error)

        await at_most(REQUESTS_AT_ONCE, one, list(ids))
        for name in failed.keys() - self._silent:
            log.warning("broker %s does not list its bundles, so their status stays: %s", name, failed[name])
        self._silent = frozenset(failed)
        return answers

    def _stuck(self) -> Collection[str]:
        now, pending_moves = self.cluster.clock(), self.cluster.pending_moves.open
        return {name for name, move in pending_moves.items() if move.late(now, self.stuck_after, turns=True)}


def _full(bundle: BundleRecord, full_names: Mapping[str, str]) -> str:
    """The name of a bundle that Pulsar uses."""
    return f"{full_names[bundle.topic_namespace]}/{bundle.lower}_{bundle.upper}"


def _compare(
    bundles: Mapping[str, BundleRecord],
    full_names: Mapping[str, str],
    owned: ObservedOwners,
    stuck: Collection[str],
    now: float,
) -> OwnerChanges:
    """Compare up to 60,000 bundles. Runs off the event loop."""
    changes = list(owner_changes(bundles.values(), full_names, owned, stuck, now))
    known = {f"{full_names.get(b.topic_namespace)}/{b.lower}_{b.upper}" for b in bundles.values()}
    unknown = {bundle.rpartition("/")[0] for bundle in owned.by_bundle if bundle not in known}
    return OwnerChanges(changes, frozenset(space for space in unknown if not is_system(space)))
