"""One wish after the other steps by which it is carried out, each of which looks again before it acts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.kube.client import BUNDLES, ConflictError, NotFoundError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.records import SEEN, WITHDRAWN, BundleRecord, bundle_record
from trimtab_operator.pulsar.bridge.ownership import OwnershipReader
from trimtab_operator.pulsar.bridge.unload_request import Landed, Landing, Leaving, UnloadRequest, UnloadResult, named
from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.pulsar.client.errors import (
    InactiveDestinationError,
    PulsarError,
    PulsarUnavailableError,
    SameBrokerError,
    StaleBundleError,
    UnknownError,
)
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.state.cluster import ClusterState
from trimtab_strategies.model import Reason, counted

log = logging.getLogger(__name__)

MOST_UNLOADS = 3
"""Unloads for one wish: each cuts clients off, so what goes elsewhere so often is told instead."""

_STAYS = SEEN | WITHDRAWN
"""Why upkeep wishes a bundle where it is believed to be. If it is elsewhere by now, that is told, and not undone."""

HELD_UP = 1.0
"""Seconds for which those who want to know of a move beforehand may hold it up."""


class _OverError(Exception):
    """The wish is no longer what it was: nothing is left to do."""


@dataclass(slots=True)
class BundleUnload:
    """Carries wishes out by `admin`, whose looks wait for no budget."""

    context: ClusterState
    admin: Admin
    finder: OwnershipReader
    _landed: list[Landed] = field(default_factory=list)
    _leaving: list[Leaving] = field(default_factory=list)
    _said: dict[str, int] = field(default_factory=dict)
    _unloads: dict[str, tuple[int, int]] = field(default_factory=dict)
    _unanswered: dict[str, str] = field(default_factory=dict)  # who was asked to let go, and said nothing

    def __post_init__(self) -> None:
        for result in UnloadResult:  # begun at 0, or `increase` would not see the first one
            self.context.metrics.pulsar_unloads.labels(str(result))

    def subscribe(self, landed: Landed, leaving: Leaving | None = None) -> None:
        """See `Carrier.subscribe`."""
        self._landed.append(landed)
        if leaving is not None:
            self._leaving.append(leaving)

    async def carry(self, order: UnloadRequest) -> UnloadResult | None:
        """Carry the wish out; None: there was nothing to do for us. Raises `ApiError`, `PulsarError`."""
        try:
            result = await self._attempt(order)
        except _OverError:
            return None
        except StaleBundleError as error:
            self.context.link.suspects.add(order.namespace)
            result = await self._give_up(order, UnloadResult.STALE, str(error))
        except UnknownError as error:
            self.context.link.suspects.add(order.namespace)
            result = await self._give_up(order, UnloadResult.FAILED, str(error))
        except PulsarError:
            self._count(UnloadResult.FAILED)
            raise
        return result

    async def inactive(self, record: BundleRecord) -> UnloadResult:
        """Say, once, that the destination is not there. The policy's upkeep withdraws the wish."""
        text = f"{record.owner} is not among the active brokers: {record.name} is not unloaded"
        if self._said.get(record.name) != record.generation:
            self._said[record.name] = record.generation
            self._count(UnloadResult.INACTIVE)
            await self._event(record, "Warning", "InactiveDestination", text)
        return UnloadResult.INACTIVE

    async def _attempt(self, order: UnloadRequest) -> UnloadResult | None:
        try:
            return await self._carry(order)
        except InactiveDestinationError:
            return await self._without_destination(order)

    async def _carry(self, order: UnloadRequest) -> UnloadResult | None:
        while True:
            self._still_wished(order)
            owner, unloads = await self._owner(order), self._unloads_of(order)
            if (owner == order.destination or unloads >= MOST_UNLOADS) and await self._stuck(order, owner):
                order = await self._free(order, owner)
                continue
            if owner == order.destination:
                await self._confirm(order)
                return None
            if owner and _withdrawn(order.record):
                await self._write(order, self._served(order, named(owner, self.context.link.ids or {})))
                return None
            if unloads >= MOST_UNLOADS:
                return await self._elsewhere(order, owner)
            order = await self._releasing(order, owner)
            asked = await self._ready(order)
            await self._unload(order, owner, unloads)
            released = self.context.now()
            if await self.finder.landed(order) == order.destination:
                owned = self.context.now()
                await self._confirm(order)
                self._tell(order, (asked, released, owned), unloads + 1)
                return UnloadResult.LANDED

    def _unloads_of(self, order: UnloadRequest) -> int:
        """How often the bundle was unloaded for this wish."""
        generation, times = self._unloads.get(order.record.name, (0, 0))
        return times if generation == order.record.generation else 0

    async def _ready(self, order: UnloadRequest) -> float:
        """Let those look at the bundle first who want to; epoch seconds after that."""
        await asyncio.gather(*(_for_a_moment(leaving(order)) for leaving in self._leaving))
        return self.context.now()

    def _still_wished(self, order: UnloadRequest) -> None:
        """Raises `_OverError` when somebody wished something else meanwhile, or the destination is gone."""
        now = self.context.stores.bundles.items.get(order.record.name)
        if now is None or now.generation != order.record.generation or now.split:
            raise _OverError
        if order.destination not in (self.context.link.ids or {}).values():
            raise InactiveDestinationError(f"{order.record.owner} is not active any more", status=0)

    async def _owner(self, order: UnloadRequest) -> str:
        """Who serves it, empty nobody. Raises `PulsarError`.

        The extensible load manager transfers only what somebody serves: it finds an owner first. The modular one
        remembers where what it unloads is to go, even if nobody served it.
        """
        if owner := await self.finder.owner(order):
            return owner
        modular = await self.finder.modular()
        return await self.admin.lookup(topic) if not modular and (topic := order.topic()) else ""

    async def _unload(self, order: UnloadRequest, owner: str, before: int) -> None:
        """Have `owner` unload it, which was done so often `before`. Raises `PulsarError`.

        A failure of no own meaning may be that of a rival who unloads it at the same time, or the loss of an answer:
        who serves the bundle then says what came of it.
        """
        self._unloads[order.record.name] = (order.record.generation, before + 1)
        try:
            await self.admin.unload(order.full_name, order.destination)
        except PulsarUnavailableError as error:
            log.warning("bundle %s: %s", order.record.name, error)
            self._unanswered[order.record.name] = owner
            self._count(UnloadResult.FAILED)
            return
        except SameBrokerError:
            log.info("bundle %s: %s has it already", order.record.name, order.record.owner)
        self._unanswered.pop(order.record.name, None)

    async def _stuck(self, order: UnloadRequest, owner: str) -> bool:
        """Whether `owner` was letting it go, and was made its owner again meanwhile.

        Pulsar's extensible load manager does that when the destination dies: the topics stay closed then, with their
        clients connected and silent, for as long as that broker has the bundle (measured with 4.0.8). An operator that
        has just begun can't know whether what is marked as leaving was unloaded, and takes it for that.
        """
        record = order.record
        if owner and owner != self._unanswered.get(record.name, owner):
            del self._unanswered[record.name]  # another one took it, and serves it
        left = record.state == BundleState.RELEASING and record.name not in self._unloads
        closed_at = {self._unanswered.get(record.name, ""), order.source if left else ""}
        return bool(owner) and owner in closed_at and not await self.finder.modular()

    async def _free(self, order: UnloadRequest, owner: str) -> UnloadRequest:
        """Unload it from `owner` to the broker that has the fewest bundles of the others. Raises `PulsarError`.

        Where it was to go comes last: that one may be dead, and be listed all the same.
        """
        served = Counter(record.status_owner for record in self.context.stores.bundles.items.values())
        ids = self.context.link.ids or {}
        if not (others := [name for name, broker in ids.items() if broker != owner]):
            raise PulsarUnavailableError(f"no other broker is active that could take {order.record.name}")
        name = min(others, key=lambda name: (ids[name] == order.destination, served[name], name))
        detour = replace(order, destination=ids[name])
        await self._unload(detour, owner, self._unloads_of(order))
        had = named(owner, ids) or owner
        if await self.finder.landed(detour) != detour.destination:
            raise PulsarUnavailableError(f"{had} does not let it go to {name} either")
        text = f"{had} had it again before it had let it go; moved to {name}"
        await self._give_up(order, UnloadResult.RETURNED, text)
        return await self._write(order, {"owner": name, "state": str(BundleState.OWNED)})

    async def _without_destination(self, order: UnloadRequest) -> UnloadResult:
        """Its destination is gone: what that left closed is opened, and the rest is told."""
        now = self.context.stores.bundles.items.get(order.record.name)
        if now is not None and now.name in self._unanswered:
            order = order.at(now)  # it was marked as leaving meanwhile
            if await self._stuck(order, owner := await self.finder.owner(order)):
                order = await self._free(order, owner)
        return await self.inactive(order.record)

    async def _releasing(self, order: UnloadRequest, owner: str) -> UnloadRequest:
        name = named(owner, self.context.link.ids or {}) or (order.record.status_owner if owner else "")
        state = BundleState.RELEASING if owner else BundleState.ASSIGNING
        return await self._write(order, {"owner": name, "state": str(state)})

    async def _confirm(self, order: UnloadRequest) -> None:
        self._unloads.pop(order.record.name, None)
        self._unanswered.pop(order.record.name, None)
        await self._write(order, self._served(order, order.record.owner))

    async def _elsewhere(self, order: UnloadRequest, owner: str) -> UnloadResult:
        """Tell where it is: the loop adopts that, or plans anew."""
        if not owner:
            return await self._give_up(order, UnloadResult.NOBODY, "it was released, and nobody was seen to take it")
        name = named(owner, self.context.link.ids or {})
        await self._write(order, self._served(order, name))
        text = f"{counted(MOST_UNLOADS, 'time')} unloaded to {order.record.owner}, and {name or owner} has it"
        return await self._give_up(order, UnloadResult.ELSEWHERE, text)

    def _served(self, order: UnloadRequest, owner: str) -> Mapping[str, Any]:
        state = BundleState.OWNED if owner else BundleState.FREE
        return {"owner": owner, "state": str(state), "observedGeneration": order.record.generation}

    async def _write(self, order: UnloadRequest, status: Mapping[str, Any]) -> UnloadRequest:
        """Write the status, if nobody has changed the bundle. Raises `_OverError`, `ApiError`."""
        record = order.record
        if (record.status_owner, record.state) != (status["owner"], status["state"]):
            status = {**status, "since": timestamp(self.context.now())}
        body = {"metadata": {"resourceVersion": record.resource_version}, "status": status}
        try:
            raw = await self.context.api.patch(BUNDLES, self.context.namespace, record.name, body, subresource="status")
        except (ConflictError, NotFoundError) as error:
            log.info("bundle %s: looking again: %s", record.name, error)
            raise _OverError from None
        return order.at(bundle_record(raw))

    def _tell(self, order: UnloadRequest, times: tuple[float, float, float], unloads: int) -> None:
        """The move has landed: say so to all who want to know. times: asked, released, owned."""
        record, ids, (asked, released, owned) = order.record, self.context.link.ids or {}, times
        source = named(order.source, ids) or record.status_owner
        landing = Landing(record.name, record.topic_namespace, order.full_name, source, record.owner, *times, unloads)
        log.info(
            "bundle %s: from %s to %s, released after %.0f ms, served again after %.0f ms, %s",
            *(record.name, source or "nobody", record.owner, 1000 * (released - asked), 1000 * (owned - asked)),
            counted(unloads, "unload"),
        )
        self._count(UnloadResult.LANDED)
        self.context.metrics.pulsar_landing_seconds.observe(owned - asked)
        for landed in self._landed:
            landed(landing)

    async def _give_up(self, order: UnloadRequest, result: UnloadResult, text: str) -> UnloadResult:
        self._count(result)
        reason = str(Reason.ELSEWHERE) if result is UnloadResult.ELSEWHERE else f"Unload{result}"
        await self._event(order.record, "Warning", reason, f"{order.record.name}: {text}")
        return result

    def _count(self, result: UnloadResult) -> None:
        self.context.metrics.pulsar_unloads.labels(str(result)).inc()

    async def _event(self, record: BundleRecord, kind: str, reason: str, text: str) -> None:
        log.warning("bundle %s: %s", record.name, text)
        meta = {"name": record.name, "namespace": self.context.namespace}
        involved = {"apiVersion": API_VERSION, "kind": "Bundle", "metadata": meta}
        await self.context.events.post(involved, kind, reason, text, action="Unload")


def _withdrawn(record: BundleRecord) -> bool:
    """Whether the wish only says that the bundle is to stay: it has landed after all, or somebody moved it."""
    return record.desired_for in _STAYS


async def _for_a_moment(waiting: Any) -> None:
    """Wait for it no longer than may be. What it raises is logged, and goes no further."""
    try:
        async with asyncio.timeout(HELD_UP):
            await waiting
    except TimeoutError:
        log.debug("what is to be known before a move took too long")
    except Exception:
        log.exception("what is to be known before a move failed")
