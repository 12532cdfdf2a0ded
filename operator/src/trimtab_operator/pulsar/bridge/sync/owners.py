"""One sweep over the brokers of a Pulsar cluster: who serves what, and what of the bundles' status that changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.aio import at_most
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.pulsar.bridge.ownership import OwnershipVerifier
from trimtab_operator.pulsar.bridge.sync.diff import Owned, reflect_owners, systems_own
from trimtab_operator.pulsar.client.api import Admin, LoadManager
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.client.transport import Budget
from trimtab_operator.state.cluster import ClusterState

log = logging.getLogger(__name__)

LOOKS = 8
"""Requests under way at once."""

Change = tuple[BundleRecord, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class OwnersFound:
    """What a sweep found: changes of status, and the namespaces of bundles for which there is no object."""

    changes: list[Change]
    unknown: frozenset[str]


@dataclass(slots=True)
class OwnerSweep:
    """Asks all active brokers what they serve, as fast as `budget` allows; see `verifying` for the modular ones.

    stuck_after: seconds after which an open wish no longer keeps the truth from being told.
    """

    context: ClusterState
    admin: Admin
    budget: Budget
    stuck_after: float = 60.0
    owned: Owned = field(default_factory=Owned)
    _verifier: OwnershipVerifier = field(init=False)
    _answered: bool = False
    _silent: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._verifier = OwnershipVerifier(self.admin, self.budget)

    async def sweep(self, ids: Mapping[str, str]) -> OwnersFound:
        """Ask the brokers `ids` (name of the object -> id). What they say is compared with the objects of before.

        A write that somebody makes meanwhile thus meets a resourceVersion that is out of date, and is not overwritten.
        """
        stores = self.context.stores
        bundles = dict(stores.bundles.items)
        full_names = {r.name: r.full_name for r in stores.topic_namespaces.items.values()}
        stuck = self._stuck()
        if await self.admin.load_manager() is LoadManager.MODULAR:
            self.owned = await self._verified(ids, bundles.values(), full_names)
        else:
            self.owned = await self._told(ids)
        return await asyncio.to_thread(_compared, bundles, full_names, self.owned, stuck, self.context.now())

    async def _told(self, ids: Mapping[str, str]) -> Owned:
        """By what each broker says that it serves."""
        heard = await self._ask(ids, self.admin.owned)
        answered = heard.keys() == ids.keys() == (self.context.link.ids or {}).keys()
        before, complete = self.owned.by_bundle.keys(), answered and self._answered
        self._answered = answered
        return Owned({bundle: name for name, found in heard.items() for bundle in found}, before, complete)

    async def _verified(
        self, ids: Mapping[str, str], bundles: Iterable[BundleRecord], full_names: Mapping[str, str]
    ) -> Owned:
        """By what any broker says of each bundle; what was not asked for yet stays as its status has it."""
        reports = await self._ask(ids, self.admin.reported)
        names = {broker: name for name, broker in ids.items()}
        told = {_full(b, full_names): b.status_owner for b in bundles if b.topic_namespace in full_names}
        statuses = {bundle: ids.get(owner, owner) for bundle, owner in told.items()}
        found = await self._verifier.verify({ids[name]: listed for name, listed in reports.items()}, statuses)
        nobodys = {bundle for bundle, owner in found.items() if not owner}
        served = {bundle: names[owner] for bundle, owner in found.items() if owner in names}
        by_bundle = {bundle: name for bundle, name in (told | served).items() if name and bundle not in nobodys}
        return Owned(by_bundle, told.keys() - nobodys, complete=True)

    async def _ask(
        self, ids: Mapping[str, str], ask: Callable[[str], Awaitable[frozenset[str]]]
    ) -> dict[str, frozenset[str]]:
        """What each broker that answers says; in the order of the answers, so that the latest word counts."""
        heard: dict[str, frozenset[str]] = {}
        failed: dict[str, str] = {}

        async def one(name: str) -> None:
            await self.budget.wait()
            try:
                heard[name] = await ask(ids[name])
            except PulsarError as error:
                failed[name] = str(error)

        await at_most(LOOKS, one, list(ids))
        for name in failed.keys() - self._silent:
            log.warning("broker %s does not say what it serves; nothing changes of that: %s", name, failed[name])
        self._silent = frozenset(failed)
        return heard

    def _stuck(self) -> Collection[str]:
        now = self.context.clock()
        return {name for name, f in self.context.pending_moves.open.items() if now - f.since > self.stuck_after}


def _full(bundle: BundleRecord, full_names: Mapping[str, str]) -> str:
    """Pulsar's spelling of a bundle."""
    return f"{full_names[bundle.topic_namespace]}/{bundle.lower}_{bundle.upper}"


def _compared(
    bundles: Mapping[str, BundleRecord],
    full_names: Mapping[str, str],
    owned: Owned,
    stuck: Collection[str],
    now: float,
) -> OwnersFound:
    """60,000 comparisons: run off the event loop."""
    changes = list(reflect_owners(bundles.values(), full_names, owned, stuck, now))
    known = {f"{full_names.get(b.topic_namespace)}/{b.lower}_{b.upper}" for b in bundles.values()}
    unknown = {bundle.rpartition("/")[0] for bundle in owned.by_bundle if bundle not in known}
    return OwnersFound(changes, frozenset(space for space in unknown if not systems_own(space)))
