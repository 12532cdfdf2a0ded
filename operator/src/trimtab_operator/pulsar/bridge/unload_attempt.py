"""One attempt to move a bundle to its desired owner: unload, read the owner again, write the status.

Each step reads the current state before it acts. `UnloadController` starts attempts, and repeats failed ones later.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.kube.client import BUNDLES, ConflictError, NotFoundError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.records import SEEN, WITHDRAWN, BundleRecord, bundle_record
from trimtab_operator.observe.departures import departures_of
from trimtab_operator.pulsar.bridge.ownership import OwnershipSource
from trimtab_operator.pulsar.bridge.unload_request import (
    AfterLanding,
    Landing,
    UnloadRequest,
    UnloadResult,
    broker_name,
)
from trimtab_operator.pulsar.client.errors import (
    InactiveDestinationError,
    PulsarError,
    PulsarUnavailableError,
    SameBrokerError,
    StaleBundleError,
    UnknownError,
)
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.state.cluster import ClusterState
from trimtab_strategies.model import Reason, counted

log = logging.getLogger(__name__)

MOST_UNLOADS = 3
"""Maximum number of unloads for one desired owner, because each disconnects clients. After the last one, the actual
owner is reported."""

_STAYS = SEEN | WITHDRAWN
"""Reasons of a desired owner that only repeats the last known owner. If another broker has the bundle, the bundle stays
on that broker."""


class _SupersededError(Exception):
    """The bundle is gone, is being split or has changed: this attempt has nothing left to do."""


@dataclass(slots=True)
class BundleUnload:
    """Attempts to move bundles. admin: a client whose requests do not wait for the request budget.

    landed: called after each completed move.
    """

    cluster: ClusterState
    admin: Admin
    ownership: OwnershipSource
    landed: AfterLanding
    _reported: dict[str, int] = field(default_factory=dict)
    _unloads: dict[str, tuple[int, int]] = field(default_factory=dict)
    _unanswered: dict[str, str] = field(default_factory=dict)  # the owner that did not answer the unload, by bundle

    def __post_init__(self) -> None:
        for result in UnloadResult:  # each starts at 0, so that `increase` counts the first unload
            self.cluster.metrics.pulsar_unloads.labels(str(result))

    async def run(self, request: UnloadRequest) -> UnloadResult | None:
        """Move the bundle; None if nothing was left to do. Raises `ApiError`, `PulsarError`."""
        try:
            result = await self._attempt(request)
        except _SupersededError:
            return None
        except StaleBundleError as error:
            self.cluster.link.suspects.add(request.namespace)
            result = await self._give_up(request, UnloadResult.STALE, str(error))
        except UnknownError as error:
            self.cluster.link.suspects.add(request.namespace)
            result = await self._give_up(request, UnloadResult.FAILED, str(error))
        except PulsarError:
            self._count(UnloadResult.FAILED)
            raise
        return result

    async def report_inactive(self, record: BundleRecord) -> UnloadResult:
        """Report once that the destination is inactive. The policy's reconciliation withdraws the desired owner."""
        text = f"{record.owner} is not among the active brokers: {record.name} is not unloaded"
        if self._reported.get(record.name) != record.generation:
            self._reported[record.name] = record.generation
            self._count(UnloadResult.INACTIVE)
            await self._event(record, "Warning", "InactiveDestination", text)
        return UnloadResult.INACTIVE

    async def _attempt(self, request: UnloadRequest) -> UnloadResult | None:
        try:
            return await self._move(request)
        except InactiveDestinationError:
            return await self._without_destination(request)

    async def _move(self, request: UnloadRequest) -> UnloadResult | None:
        former, asked, released = "", math.nan, math.nan
        while True:
            self._check_wanted(request)
            owner, unloads = await self._owner(request), self._unloads_of(request)
            if (owner == request.destination or unloads >= MOST_UNLOADS) and await self._stuck(request, owner):
                request = await self._move_away(request, owner)
                continue
            if owner == request.destination:
                if math.isnan(asked):
                    await self._confirm(request)
                    return None
                return await self._land(request, former, (asked, released), unloads)
            if owner and _withdrawn(request.record):
                await self._write(request, self._served(request, broker_name(owner, self.cluster.link.ids or {})))
                return None
            if unloads >= MOST_UNLOADS:
                return await self._elsewhere(request, owner)
            request = await self._releasing(request, owner)
            former, asked = owner, self.cluster.now()
            await self._unload(request, owner, unloads)
            released = self.cluster.now()
            if await self.ownership.wait_for_owner(request) == request.destination:
                return await self._land(request, former, (asked, released), unloads + 1)

    async def _land(
        self, request: UnloadRequest, former: str, times: tuple[float, float], unloads: int
    ) -> UnloadResult:
        """Report a completed move, then confirm it: only the write may be repeated. times: see `_report_landed`."""
        self._report_landed(request, former, (*times, self.cluster.now()), unloads)
        await self._confirm(request)
        return UnloadResult.LANDED

    def _unloads_of(self, request: UnloadRequest) -> int:
        """How often the bundle was unloaded for this desired owner."""
        generation, times = self._unloads.get(request.record.name, (0, 0))
        return times if generation == request.record.generation else 0

    def _check_wanted(self, request: UnloadRequest) -> None:
        """Raise `_SupersededError` if the bundle is gone, is being split or has a new generation.

        Raise `InactiveDestinationError` if the desired owner is inactive.
        """
        now = self.cluster.stores.bundles.items.get(request.record.name)
        if now is None or now.generation != request.record.generation or now.split:
            raise _SupersededError
        if request.destination not in (self.cluster.link.ids or {}).values():
            raise InactiveDestinationError(f"{request.record.owner} is not active any more", status=0)

    async def _owner(self, request: UnloadRequest) -> str:
        """Id of the broker that serves the bundle, empty for none. Raises `PulsarError`.

        The extensible load manager transfers only owned bundles, so a lookup assigns an unowned one first. The modular
        one remembers the destination of an unload even for an unowned bundle.
        """
        reader = await self.ownership.reader()
        if owner := await reader.owner(request):
            return owner
        return await self.admin.lookup(topic) if not reader.assigns_on_unload and (topic := request.topic()) else ""

    async def _unload(self, request: UnloadRequest, owner: str, before: int) -> None:
        """Make `owner` unload the bundle. before: number of unloads so far. Raises `PulsarError`.

        A `PulsarUnavailableError` is only logged and counted: it may come from a concurrent unload or a lost answer.
        The next read of the owner shows the result.
        """
        self._unloads[request.record.name] = (request.record.generation, before + 1)
        try:
            await self.admin.unload(request.full_name, request.destination)
        except PulsarUnavailableError as error:
            log.warning("bundle %s: %s", request.record.name, error)
            self._unanswered[request.record.name] = owner
            self._count(UnloadResult.FAILED)
            return
        except SameBrokerError:
            log.info("bundle %s: %s has it already", request.record.name, request.record.owner)
        self._unanswered.pop(request.record.name, None)

    async def _stuck(self, request: UnloadRequest, owner: str) -> bool:
        """Whether `owner` was releasing the bundle, and became its owner again.

        Pulsar's extensible load manager makes `owner` the owner again when the destination dies. As long as `owner` has
        the bundle, the topics stay closed, with their clients connected and without messages (measured with 4.0.8). A
        new operator process can't know whether a bundle in state `Releasing` was unloaded, and assumes that it was.
        """
        record = request.record
        if owner and owner != self._unanswered.get(record.name, owner):
            del self._unanswered[record.name]  # another broker took the bundle, and serves it
        left = record.state == BundleState.RELEASING and record.name not in self._unloads
        closed_at = {self._unanswered.get(record.name, ""), request.source if left else ""}
        return bool(owner) and owner in closed_at and (await self.ownership.reader()).closes_topics

    async def _move_away(self, request: UnloadRequest, owner: str) -> UnloadRequest:
        """Unload the bundle from `owner` to another broker. Raises `PulsarError`."""
        ids = self.cluster.link.ids or {}
        if not (others := [name for name, broker in ids.items() if broker != owner]):
            raise PulsarUnavailableError(f"no other broker is active that could take {request.record.name}")
        served = Counter(record.status_owner for record in self.cluster.stores.bundles.items.values())
        name = best_detour(others, request.record.owner, self._unfit(request.record), served)
        detour = replace(request, destination=ids[name])
        await self._unload(detour, owner, self._unloads_of(request))
        had = broker_name(owner, ids) or owner
        if await self.ownership.wait_for_owner(detour) != detour.destination:
            raise PulsarUnavailableError(f"{had} does not release the bundle to {name} either")
        text = f"{had} became its owner again before the release had ended; moved to {name}"
        await self._give_up(request, UnloadResult.RETURNED, text)
        return await self._write(request, {"owner": name, "state": str(BundleState.OWNED)})

    def _unfit(self, record: BundleRecord) -> frozenset[str]:
        """Brokers that take no bundles, are being drained, or are not ready."""
        departures = departures_of(self.cluster, self.cluster.caretaker(record))
        brokers = self.cluster.stores.brokers.items.values()
        return departures.closed | departures.drained | {broker.name for broker in brokers if not broker.ready}

    async def _without_destination(self, request: UnloadRequest) -> UnloadResult:
        """Report an inactive destination. If the bundle's topics are closed, move the bundle away first."""
        now = self.cluster.stores.bundles.items.get(request.record.name)
        if now is not None and now.name in self._unanswered:
            request = replace(request, record=now)  # its state may be `Releasing` now
            if await self._stuck(request, owner := await (await self.ownership.reader()).owner(request)):
                request = await self._move_away(request, owner)
        return await self.report_inactive(request.record)

    async def _releasing(self, request: UnloadRequest, owner: str) -> UnloadRequest:
        name = broker_name(owner, self.cluster.link.ids or {}) or (request.record.status_owner if owner else "")
        state = BundleState.RELEASING if owner else BundleState.ASSIGNING
        return await self._write(request, {"owner": name, "state": str(state)})

    async def _confirm(self, request: UnloadRequest) -> None:
        self._unloads.pop(request.record.name, None)
        self._unanswered.pop(request.record.name, None)
        await self._write(request, self._served(request, request.record.owner))

    async def _elsewhere(self, request: UnloadRequest, owner: str) -> UnloadResult:
        """Report the actual owner: the policy loop adopts it, or plans again."""
        if not owner:
            return await self._give_up(request, UnloadResult.UNASSIGNED, "it was released, and no broker has taken it")
        name = broker_name(owner, self.cluster.link.ids or {})
        await self._write(request, self._served(request, name))
        text = f"unloaded to {request.record.owner} {counted(MOST_UNLOADS, 'time')}, and {name or owner} has it"
        return await self._give_up(request, UnloadResult.ELSEWHERE, text)

    def _served(self, request: UnloadRequest, owner: str) -> Mapping[str, Any]:
        state = BundleState.OWNED if owner else BundleState.FREE
        return {"owner": owner, "state": str(state), "observedGeneration": request.record.generation}

    async def _write(self, request: UnloadRequest, status: Mapping[str, Any]) -> UnloadRequest:
        """Write the status. Raises `_SupersededError` if the bundle has changed, `ApiError`."""
        record = request.record
        if (record.status_owner, record.state) != (status["owner"], status["state"]):
            status = {**status, "since": timestamp(self.cluster.now())}
        body = {"metadata": {"resourceVersion": record.resource_version}, "status": status}
        try:
            raw = await self.cluster.api.patch(BUNDLES, self.cluster.namespace, record.name, body, subresource="status")
        except (ConflictError, NotFoundError) as error:
            log.info("bundle %s: reading it again: %s", record.name, error)
            raise _SupersededError from None
        return replace(request, record=bundle_record(raw))

    def _report_landed(
        self, request: UnloadRequest, former: str, times: tuple[float, float, float], unloads: int
    ) -> None:
        """Report a completed move. former: id of the broker that had the bundle in Pulsar, empty for none; the object
        may name another. times: epoch seconds of the request, its answer, and the new owner.
        """
        record, ids, (asked, released, owned) = request.record, self.cluster.link.ids or {}, times
        source = broker_name(former, ids) or former
        landing = Landing(record.name, record.topic_namespace, request.full_name, source, record.owner, *times, unloads)
        log.info(
            "bundle %s: from %s to %s, released after %.0f ms, owned again after %.0f ms, %s",
            *(record.name, source or "(unowned)", record.owner, 1000 * (released - asked), 1000 * (owned - asked)),
            counted(unloads, "unload"),
        )
        self._count(UnloadResult.LANDED)
        self.cluster.metrics.pulsar_landing_seconds.observe(owned - asked)
        self.landed(landing)

    async def _give_up(self, request: UnloadRequest, result: UnloadResult, text: str) -> UnloadResult:
        self._count(result)
        reason = str(Reason.ELSEWHERE) if result is UnloadResult.ELSEWHERE else f"Unload{result}"
        await self._event(request.record, "Warning", reason, f"{request.record.name}: {text}")
        return result

    def _count(self, result: UnloadResult) -> None:
        self.cluster.metrics.pulsar_unloads.labels(str(result)).inc()

    async def _event(self, record: BundleRecord, kind: str, reason: str, text: str) -> None:
        log.warning("bundle %s: %s", record.name, text)
        await self.cluster.post("Bundle", record.name, (kind, reason, text), action="Unload")


def best_detour(others: Sequence[str], destination: str, unfit: Collection[str], served: Mapping[str, int]) -> str:
    """The broker of `others` that takes a bundle whose topics are closed: the one that serves the fewest bundles.

    `unfit` brokers come after all others. The destination comes last: it may be dead, although Pulsar still lists it.
    """
    return min(others, key=lambda name: (name == destination, name in unfit, served.get(name, 0), name))


def _withdrawn(record: BundleRecord) -> bool:
    """Whether the desired owner only repeats the last known owner, so that the bundle may stay where it is now."""
    return record.desired_for in _STAYS
