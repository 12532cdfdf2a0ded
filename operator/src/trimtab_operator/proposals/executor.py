"""Carries out an approved proposal: notes which moves landed, validates the next ones, and writes them.

At most `limits.maxMovesInFlight` moves are pending at the same time. A move that a disruption budget does not allow
keeps its place until the budget has enough left. Later moves do not wait for it.

Each move is validated when it is written, by a table of checks. A check is a function that returns why the move must
not be written, or None. A move that is refused is never tried again, because the load that it was planned for changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from trimtab_operator.actuators import WRITERS, WriteResult
from trimtab_operator.aio import at_most
from trimtab_operator.budget.admission import MoveRequest, admit
from trimtab_operator.kube.broker_records import BrokerRecord
from trimtab_operator.kube.client import BUNDLE_SPLITS, BUNDLES, NotFoundError
from trimtab_operator.kube.conditions import epoch
from trimtab_operator.kube.naming import BundleObjects, split_name
from trimtab_operator.kube.records import BundleRecord, bundle_record, split_record
from trimtab_operator.observe.departures import departures_of
from trimtab_operator.proposals.progress import Execution
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.resources.bundle_split import Phase
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.status.conditions import pulsar_balancer_active
from trimtab_strategies.filters.isolation import IsolationRules
from trimtab_strategies.guard import mass_failure
from trimtab_strategies.model import HeldBack, Move, Reason, Split
from trimtab_strategies.planner.drain import EVACUATIONS


@dataclass(frozen=True, slots=True)
class ValidationContext:
    """What a move is validated against.

    brokers: those that the policy selects.
    moved_last_hour: moves by the policy, those of this execution included.
    trusted: whether the metrics of each broker were trusted in the last cycle.
    closed: names of brokers that take no bundles, whatever their spec says.
    """

    cluster: ClusterState
    settings: Settings
    brokers: Mapping[str, BrokerRecord]
    moved_last_hour: int
    trusted: Mapping[str, bool] = field(default_factory=dict)
    closed: Collection[str] = ()


Why = tuple[Reason, str]

Question = Callable[[Move, BundleRecord, ValidationContext], Why | None]


def obstacle(move: Move, name: str, context: ValidationContext) -> HeldBack | None:
    """Why `move` of the Bundle object `name` must not be written now; None when it may."""
    record = context.cluster.stores.bundles.items.get(name)
    if record is None:
        return HeldBack(name, Reason.CONFLICT, "the bundle was deleted")
    for question in QUESTIONS:
        if (why := question(move, record, context)) is not None:
            return HeldBack(name, *why)
    return None


def _brake(_move: Move, _record: BundleRecord, context: ValidationContext) -> Why | None:
    gone, total = sum(not broker.ready for broker in context.brokers.values()), len(context.brokers)
    if mass_failure(gone, total, context.settings.limits):
        return Reason.MASS_FAILURE, f"{gone} of {total} brokers are not ready"
    return None


def _hand(move: Move, _record: BundleRecord, context: ValidationContext) -> Why | None:
    why = "" if move.reason in EVACUATIONS else pulsar_balancer_active(context.cluster.link)
    return (Reason.PULSAR_BALANCER_ACTIVE, why) if why else None


def _hour(_move: Move, _record: BundleRecord, context: ValidationContext) -> Why | None:
    if context.moved_last_hour >= (cap := context.settings.limits.hour_cap(len(context.brokers))):
        return Reason.HOUR_CAP, f"limits.maxMovesPerHour is {cap}, and that many were made"
    return None


def _owner(move: Move, record: BundleRecord, context: ValidationContext) -> Why | None:
    if record.owner_pending and record.owner != record.status_owner:
        return Reason.IN_FLIGHT, f"it is on its way to {record.owner}"
    if move.source and move.source not in context.brokers:
        return Reason.UNKNOWN_BROKER, f"broker {move.source} is gone, or no longer selected by the policy"
    if (owner := record.status_owner) != move.source or record.owner not in {"", owner}:
        return Reason.CONFLICT, f"it is on {owner or 'no broker'} now, and not on {move.source or 'none'} any more"
    return None


def _bundle(_move: Move, record: BundleRecord, _context: ValidationContext) -> Why | None:
    if record.pinned:
        return Reason.PINNED, f"a person pinned it to {record.owner}"
    if record.state == BundleState.SPLITTING:
        return Reason.SPLITTING, "it is being split"
    return None


def _namespace(move: Move, record: BundleRecord, context: ValidationContext) -> Why | None:
    space = context.cluster.stores.topic_namespaces.items.get(record.topic_namespace)
    if space is None or move.destination == move.source:  # equal for a split whose children stay
        return None
    if not space.policy.unload:
        return Reason.EXCLUDED, f"TopicNamespace {space.name} has balanced: false"
    hosts = IsolationRules((move.destination,), {space.full_name: space.policy}).of(space.full_name)
    if hosts is not None and not (hosts.primary | hosts.secondary).any():
        return Reason.ISOLATION, f"the isolation of TopicNamespace {space.name} names other brokers"
    return None


def _destination(move: Move, _record: BundleRecord, context: ValidationContext) -> Why | None:
    broker = context.brokers.get(move.destination)
    if broker is None:
        return Reason.UNKNOWN_BROKER, f"broker {move.destination} is gone, or no longer selected by the policy"
    if not broker.ready:
        return Reason.NOT_READY, f"broker {move.destination} is not ready"
    if not broker.schedulable:
        return Reason.UNSCHEDULABLE, f"broker {move.destination} takes no bundles (spec.schedulable)"
    if broker.name in context.closed:
        return Reason.UNSCHEDULABLE, f"the pod of broker {move.destination} is terminating, or its node is cordoned"
    if not context.trusted.get(move.destination, True):
        return Reason.UNTRUSTED, f"the metrics of broker {move.destination} are not trusted now"
    return None


QUESTIONS: tuple[Question, ...] = (_brake, _hand, _hour, _owner, _bundle, _namespace, _destination)
"""All checks, in the order in which they run."""


MOST_WAITING = 500
"""If more moves than this wait for a budget, the round ends. The next round checks the others."""

TRIES = 3
"""Number of failed writes after which a move fails: conflicts with another client, and writes without an answer."""

_PERHAPS_LATER = frozenset({Reason.CONFLICT, Reason.INTERNAL_ERROR, Reason.DEPOSED})
"""Why a write failed that may succeed when it is tried again. A deposed leader's successor tries again."""


@dataclass(slots=True)
class Executor:
    """Carries out the execution of one proposal.

    failed: row -> number of failed writes. unsure: row -> the resourceVersion with which its write conflicted. The
    write may have conflicted with our own earlier write whose answer was lost. So the move keeps its place until the
    store shows the bundle as it is now. unanswered: rows whose write got no answer. The next `advance` begins with
    reading their bundles again.
    written: number of moves that the last `advance` wrote, also when it failed.
    """

    cluster: ClusterState
    execution: Execution
    failed: Counter[int] = field(default_factory=Counter)
    unsure: dict[int, str] = field(default_factory=dict)
    unanswered: set[int] = field(default_factory=set)
    written: int = 0

    async def resume(self) -> None:
        """Count as pending the moves that a former process wrote without storing its progress. Raises `ApiError`.

        It lists the bundles, because the store may be older than those writes.
        """
        waiting = {self.execution.name(row): row for row in self.execution.waiting(len(self._moves))}
        if not waiting:
            return
        async for page in self.cluster.api.list(BUNDLES, self.cluster.namespace):
            for raw in page.items:
                row = waiting.get(raw["metadata"]["name"])
                if row is not None and raw["spec"].get("owner") == self._moves[row].destination:
                    self.execution.wrote(row)

    async def _resolve(self) -> None:
        """Count as pending those of the unanswered writes that succeeded. Raises `ApiError`."""
        for row in sorted(self.unanswered):
            objects = BundleObjects(self.cluster.api, self.cluster.namespace, self.cluster.now)
            raw = await objects.get(self.execution.name(row))
            if raw is not None and raw["spec"].get("owner") == self._moves[row].destination:
                self.written += 1
                self.execution.wrote(row)
            self.unanswered.discard(row)

    async def follow(self) -> bool:
        """Mark the pending moves that have ended. Returns whether any has. Raises `ApiError`.

        The object in the API server decides whether a move failed: the store may be older than a former process's
        write.
        """
        seen = self.cluster.stores.bundles.items
        if not (names := self.execution.superseded(seen)):
            return self.execution.follow(seen)
        objects = BundleObjects(self.cluster.api, self.cluster.namespace, self.cluster.now)
        now = dict(seen)
        for name, raw in zip(names, await at_most(WRITERS, objects.get, names), strict=True):
            now.pop(name, None)
            if raw is not None:
                now[name] = bundle_record(raw)
        return self.execution.follow(now)

    async def advance(self, run: PolicyRun, trusted: Mapping[str, bool]) -> None:
        """Create the splits, then write as many moves as may be pending.

        trusted: whether the metrics of each broker were trusted in the last cycle. Raises `ApiError`.
        """
        self.written = 0
        await self._resolve()
        self.execution.held.clear()
        moved = run.state.moved_last_hour(self.cluster.now())
        brokers = self.cluster.brokers_of(run.settings.name)
        closed = departures_of(self.cluster, run.settings.name).closed
        context = ValidationContext(self.cluster, run.settings, brokers, moved, trusted, closed)
        await self._ask_for_splits(run, context)
        while (free := run.settings.max_moves_in_flight - self.execution.in_flight) > 0:
            if len(self.execution.held) > MOST_WAITING or not (rows := self.execution.waiting(free)):
                break
            possible = self._sift(rows, replace(context, moved_last_hour=moved + self.written))
            sifted = {row: record for row in possible if (record := self._record(self.execution.name(row)))}
            await self.follow()
            possible = await self._admitted(possible, run)
            done = await self._write(possible, sifted, run)
            if done < len(possible) or any(self._unseen(row) for row in rows):
                break  # other clients are changing these bundles: try again in the next round
            await asyncio.sleep(0)  # let other tasks run: 10,000 refused moves in a row would block them

    async def _ask_for_splits(self, run: PolicyRun, context: ValidationContext) -> None:
        """Create the splits. Their children that leave the parent's owner count as moves."""
        for row in self.execution.waiting_splits():
            name, split = self.execution.name(row), self.execution.proposal.splits[row - len(self._moves)]
            stay = Move(split.bundle, split.source, split.source, split.reason)
            record, why = self._record(name), obstacle(stay, name, context)
            if record is None or why is not None:
                self.execution.fail(row, why or HeldBack(name, Reason.CONFLICT, "the bundle was deleted"))
                continue
            request = MoveRequest(record, split.bundle, split.source, split.source, split.reason)
            (held,) = await admit(self.cluster, run.settings, [request])
            if held is not None:
                self.execution.held[row] = held
                continue
            asked = await run.actuator.request_split(record, split)
            why = None if asked.reason is None else HeldBack(name, asked.reason, asked.detail)
            if asked.reason is Reason.CONFLICT:
                why = await self._existing(name, split)
            if why is None:
                self.execution.land(row)
                self.written += sum(owner != split.source for owner in split.destinations)
            else:
                self.execution.fail(row, why)

    async def _existing(self, name: str, split: Split) -> HeldBack | None:
        """Why the BundleSplit that exists already is none of this execution, or has failed; None if it counts as made.

        This process created it and got no answer, or a former process did. Raises `ApiError`.
        """
        wanted = split_name(name, split.boundaries)
        try:
            found = split_record(await self.cluster.api.get(BUNDLE_SPLITS, self.cluster.namespace, wanted))
        except NotFoundError:
            return HeldBack(name, Reason.CONFLICT, f"BundleSplit {wanted} was deleted a moment ago")
        phase = found.status.phase
        if phase is Phase.FAILED:
            return HeldBack(name, Reason.CONFLICT, f"BundleSplit {wanted} failed: {found.status.message}")
        request = found.spec.request
        asked_at = found.created if request is None else epoch(request.time)
        if asked_at < int(self.execution.started):  # both are times of whole seconds
            return HeldBack(name, Reason.CONFLICT, f"an earlier BundleSplit {wanted} still exists: it is {phase}")
        return None

    @property
    def _moves(self) -> tuple[Move, ...]:
        return self.execution.proposal.moves

    def _sift(self, rows: list[int], context: ValidationContext) -> list[int]:
        """Return which of `rows` to write. Marks others as failed or already written, and skips those in doubt."""
        possible = list[int]()
        for row in rows:
            move, name = self._moves[row], self.execution.name(row)
            if self._unseen(row):
                continue
            if self._under_way(move, name):
                self.execution.wrote(row)
                self.cluster.awaited.add(name)
                continue
            why = obstacle(move, name, replace(context, moved_last_hour=context.moved_last_hour + len(possible)))
            if why is None:
                possible.append(row)
            else:
                self.execution.fail(row, why)
        return possible

    async def _admitted(self, rows: list[int], run: PolicyRun) -> list[int]:
        """Those of `rows` that the disruption budgets allow. The others are held until the next round."""
        requests = []
        for row in rows:
            move, record = self._moves[row], self._record(self.execution.name(row))
            if record is not None:
                requests.append((row, MoveRequest(record, move.bundle, move.source, move.destination, move.reason)))
        perhaps = {row for row in self.unsure if self._unseen(row)} | self.unanswered
        written = [self.execution.name(row) for row in perhaps.union(self.execution.written)]
        held = await admit(self.cluster, run.settings, [request for _, request in requests], written)
        waiting = {row: why for (row, _), why in zip(requests, held, strict=True) if why is not None}
        self.execution.held.update(waiting)
        return [row for row in rows if row not in waiting]

    def _unseen(self, row: int) -> bool:
        """Whether the store still shows the bundle as it was when our write of it conflicted."""
        record = self._record(self.execution.name(row))
        return record is not None and record.resource_version == self.unsure.get(row)

    def _under_way(self, move: Move, name: str) -> bool:
        """Whether the destination is the desired owner already. We wrote it before a restart, or another client did."""
        record = self._record(name)
        return record is not None and record.owner == move.destination

    async def _write(self, rows: list[int], sifted: Mapping[int, BundleRecord], run: PolicyRun) -> int:
        """Write the moves `rows`, and return how many were written.

        sifted: the bundles as they were checked. If a person has changed one since, its write conflicts.
        """

        async def one(row: int) -> WriteResult:
            move, record = self._moves[row], sifted.get(row)
            if record is None:
                return WriteResult(self.execution.name(row), Reason.CONFLICT, "the bundle was deleted")
            name = record.name
            self.cluster.awaited.add(name)
            written = await run.actuator.set_owner(record, move.destination, move.reason)
            if written.reason is None:
                self.written += 1
                self.execution.wrote(row, record.resource_version)
            else:
                self.cluster.awaited.discard(name)
                self._not_written(row, record, written)
            return written

        return sum(written.reason is None for written in await at_most(WRITERS, one, rows))

    def _not_written(self, row: int, record: BundleRecord, written: WriteResult) -> None:
        self.failed[row] += 1
        if written.reason is Reason.INTERNAL_ERROR:
            self.unanswered.add(row)
        if written.reason is Reason.CONFLICT:
            self.unsure[row] = record.resource_version
        if self.failed[row] >= TRIES or written.reason not in _PERHAPS_LATER:
            self.execution.fail(row, HeldBack(written.bundle, written.reason or Reason.UNKNOWN, written.detail))

    def _record(self, name: str) -> BundleRecord | None:
        return self.cluster.stores.bundles.items.get(name)
