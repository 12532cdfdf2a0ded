"""Carries out an approved proposal: sees what landed, validates the next moves, and writes them.

At most `limits.maxMovesInFlight` moves are open at once. Each move is validated when it is written: a table of
questions, each a function that returns why not, or None. What is refused then is refused for good. The plan rests on a
load that is gone an hour later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from trimtab_operator.actuators import WRITERS, WriteResult
from trimtab_operator.aio import at_most
from trimtab_operator.kube.broker_records import BrokerRecord
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.proposals.progress import Execution
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.ownership_changes import EVACUATIONS
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.status.conditions import pulsar_balancer_active
from trimtab_strategies.filters.isolation import IsolationRules
from trimtab_strategies.guard import mass_failure
from trimtab_strategies.model import HeldBack, Move, Reason


@dataclass(frozen=True, slots=True)
class ValidationContext:
    """What a move is judged by.

    brokers: those that the policy looks after. quarantine: names of the bundles that it leaves alone.
    moved_last_hour: moves by the policy, those of this execution included.
    trusted: what the last measurement said of each broker it knew.
    closed: names of brokers that take nothing, whatever their spec says.
    """

    context: ClusterState
    settings: Settings
    brokers: Mapping[str, BrokerRecord]
    moved_last_hour: int
    trusted: Mapping[str, bool] = field(default_factory=dict)
    quarantine: Collection[str] = ()
    closed: Collection[str] = ()


Why = tuple[Reason, str]

Question = Callable[[Move, BundleRecord, ValidationContext], Why | None]


def obstacle(move: Move, name: str, scene: ValidationContext) -> HeldBack | None:
    """Why `move` of the Bundle object `name` must not be written now; None when it may."""
    record = scene.context.stores.bundles.items.get(name)
    if record is None:
        return HeldBack(name, Reason.CONFLICT, "the bundle was deleted")
    for question in QUESTIONS:
        if (why := question(move, record, scene)) is not None:
            return HeldBack(name, *why)
    return None


def _brake(_move: Move, _record: BundleRecord, scene: ValidationContext) -> Why | None:
    gone, total = sum(not broker.ready for broker in scene.brokers.values()), len(scene.brokers)
    if mass_failure(gone, total, scene.settings.limits):
        return Reason.MASS_FAILURE, f"{gone} of {total} brokers are not ready"
    return None


def _hand(move: Move, _record: BundleRecord, scene: ValidationContext) -> Why | None:
    why = "" if move.reason in EVACUATIONS else pulsar_balancer_active(scene.context.link)
    return (Reason.PULSAR_BALANCER_ACTIVE, why) if why else None


def _hour(_move: Move, _record: BundleRecord, scene: ValidationContext) -> Why | None:
    if scene.moved_last_hour >= (cap := scene.settings.limits.max_moves_per_hour):
        return Reason.HOUR_CAP, f"limits.maxMovesPerHour is {cap}, and so many were made"
    return None


def _owner(move: Move, record: BundleRecord, scene: ValidationContext) -> Why | None:
    if record.owner_pending and record.owner != record.status_owner:
        return Reason.IN_FLIGHT, f"it is on its way to {record.owner}"
    if move.source and move.source not in scene.brokers:
        return Reason.UNKNOWN_BROKER, f"broker {move.source} is gone, or not the policy's any more"
    if (owner := record.status_owner) != move.source or record.owner not in {"", owner}:
        return Reason.CONFLICT, f"it is on {owner or 'no broker'} now, and not on {move.source or 'none'} any more"
    return None


def _bundle(move: Move, record: BundleRecord, scene: ValidationContext) -> Why | None:
    if record.pinned:
        return Reason.PINNED, f"a person pinned it to {record.owner}"
    if record.state == BundleState.SPLITTING:
        return Reason.SPLITTING, "it is being divided"
    if record.name in scene.quarantine and move.reason not in EVACUATIONS:
        return Reason.QUARANTINED, "it came back from where it was moved to, and is left alone"
    return None


def _namespace(move: Move, record: BundleRecord, scene: ValidationContext) -> Why | None:
    space = scene.context.stores.topic_namespaces.items.get(record.topic_namespace)
    if space is None or move.destination == move.source:  # a split may do what a move may not: its children stay
        return None
    if not space.policy.unload:
        return Reason.EXCLUDED, f"TopicNamespace {space.name} has balanced: false"
    hosts = IsolationRules((move.destination,), {space.full_name: space.policy}).of(space.full_name)
    if hosts is not None and not (hosts.primary | hosts.secondary).any():
        return Reason.ISOLATION, f"the isolation of TopicNamespace {space.name} names other brokers"
    return None


def _destination(move: Move, _record: BundleRecord, scene: ValidationContext) -> Why | None:
    broker = scene.brokers.get(move.destination)
    if broker is None:
        return Reason.UNKNOWN_BROKER, f"broker {move.destination} is gone, or not the policy's any more"
    if not broker.ready:
        return Reason.NOT_READY, f"broker {move.destination} is not ready"
    if not broker.schedulable:
        return Reason.UNSCHEDULABLE, f"broker {move.destination} takes no bundles (spec.schedulable)"
    if broker.name in scene.closed:
        return Reason.UNSCHEDULABLE, f"the pod of broker {move.destination} is ending, or its node takes no pods"
    if not scene.trusted.get(move.destination, True):
        return Reason.UNTRUSTED, f"the metrics of broker {move.destination} can't be believed now"
    return None


QUESTIONS: tuple[Question, ...] = (_brake, _hand, _hour, _owner, _bundle, _namespace, _destination)
"""Asked in this order."""


TRIES = 3
"""Rounds in which a bundle may be changed by somebody at the very moment it is written; then its move is refused."""


@dataclass(slots=True)
class Executor:
    """Works off one execution. trusted: what the last measurement said of each broker it knew."""

    context: ClusterState
    execution: Execution
    conflicts: Counter[int] = field(default_factory=Counter)

    def follow(self) -> bool:
        """See which open moves have ended; whether any has."""
        return self.execution.follow(self.context.stores.bundles.items)

    async def advance(self, run: PolicyRun, trusted: Mapping[str, bool]) -> int:
        """Ask for the splits, then write as many moves as may be open; how many moves that is. Raises `ApiError`."""
        moved = run.state.moved_last_hour(self.context.now())
        brokers = self.context.brokers_of(run.settings.name)
        closed = self.context.departures(run.settings.name).closed
        scene = ValidationContext(self.context, run.settings, brokers, moved, trusted, run.state.quarantine, closed)
        written = await self._ask_for_splits(run, scene)
        while (free := run.settings.max_moves_in_flight - self.execution.in_flight) > 0:
            if not (rows := self.execution.waiting(free)):
                break
            possible = self._sift(rows, replace(scene, moved_last_hour=moved + written))
            self.follow()
            done = await self._write(possible, run)
            written += done
            if done < len(possible):
                break  # somebody is at work on these bundles: look again next time
            await asyncio.sleep(0)  # where all is refused nothing else waits, and there may be 10,000
        return written

    async def _ask_for_splits(self, run: PolicyRun, scene: ValidationContext) -> int:
        """How many children are to leave their parent's owner by what was asked: they count as moves."""
        leaving = 0
        for row in self.execution.waiting_splits():
            name, split = self.execution.name(row), self.execution.proposal.splits[row - len(self._moves)]
            stay = Move(split.bundle, split.source, split.source, split.reason)
            record, why = self._record(name), obstacle(stay, name, scene)
            if record is None or why is not None:
                self.execution.fail(row, why or HeldBack(name, Reason.CONFLICT, "the bundle was deleted"))
                continue
            asked = await run.actuator.request_split(record, split)
            if asked.reason in {None, Reason.CONFLICT}:  # by us before a restart, or by somebody else
                self.execution.land(row)
                leaving += sum(owner != split.source for owner in split.destinations)
            else:
                self.execution.fail(row, HeldBack(name, asked.reason or Reason.UNKNOWN, asked.detail))
        return leaving

    @property
    def _moves(self) -> tuple[Move, ...]:
        return self.execution.proposal.moves

    def _sift(self, rows: list[int], scene: ValidationContext) -> list[int]:
        """Of the moves `rows` those to be written; the others are marked as refused, or as under way already."""
        possible = list[int]()
        for row in rows:
            move, name = self._moves[row], self.execution.name(row)
            if self._under_way(move, name):
                self.execution.wrote(row)
                self.context.awaited.add(name)
                continue
            why = obstacle(move, name, replace(scene, moved_last_hour=scene.moved_last_hour + len(possible)))
            if why is None:
                possible.append(row)
            else:
                self.execution.fail(row, why)
        return possible

    def _under_way(self, move: Move, name: str) -> bool:
        """Whether the bundle is wished on the destination already: by us before a restart, or by somebody else."""
        record = self._record(name)
        return record is not None and record.owner == move.destination

    async def _write(self, rows: list[int], run: PolicyRun) -> int:
        """How many of the moves `rows` were written."""

        async def one(row: int) -> WriteResult:
            move, record = self._moves[row], self._record(self.execution.name(row))
            if record is None:
                return WriteResult(self.execution.name(row), Reason.CONFLICT, "the bundle was deleted")
            name = record.name
            self.context.awaited.add(name)
            written = await run.actuator.set_owner(record, move.destination, move.reason)
            if written.reason is None:
                self.execution.wrote(row, record.resource_version)
            else:
                self.context.awaited.discard(name)
                self._not_written(row, written, written.reason)
            return written

        return sum(written.reason is None for written in await at_most(WRITERS, one, rows))

    def _not_written(self, row: int, written: WriteResult, reason: Reason) -> None:
        self.conflicts[row] += 1
        if reason is not Reason.CONFLICT or self.conflicts[row] >= TRIES:
            self.execution.fail(row, HeldBack(written.bundle, reason, written.detail))

    def _record(self, name: str) -> BundleRecord | None:
        return self.context.stores.bundles.items.get(name)
