"""One round of carrying out an approved proposal: see what has landed, validate what comes next, and write it.

Never more than `limits.maxMovesInFlight` moves are open at once. What can't be done at its turn is refused for good,
with its reason: the plan rests on a load that an hour later is no longer there, so nothing is put off.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trimtab_operator.actuators import Written
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.control.context import Context
from trimtab_operator.control.cycle import WRITERS, at_most
from trimtab_operator.control.progress import Execution
from trimtab_operator.control.turn import Turn
from trimtab_operator.control.validating import Scene, obstacle
from trimtab_strategies.model import HeldBack, Move, Reason

TRIES = 3
"""Rounds in which a bundle may be changed by somebody at the very moment it is written; then its move is refused."""


@dataclass(slots=True)
class Executor:
    """Works off one execution. trusted: what the last measurement said of each broker it knew."""

    context: Context
    execution: Execution
    conflicts: Counter[int] = field(default_factory=Counter)

    def follow(self) -> bool:
        """See which open moves have ended; whether any has."""
        return self.execution.follow(self.context.stores.bundles.items)

    async def advance(self, turn: Turn, trusted: Mapping[str, bool]) -> int:
        """Ask for the splits, then write as many moves as may be open; how many moves that is. Raises `ApiError`."""
        moved = turn.remembered.moved_last_hour(self.context.now())
        brokers = self.context.brokers_of(turn.settings.name)
        closed = self.context.departures(turn.settings.name).closed
        scene = Scene(self.context, turn.settings, brokers, moved, trusted, turn.remembered.quarantine, closed)
        written = await self._ask_for_splits(turn, scene)
        while (free := turn.settings.max_moves_in_flight - self.execution.in_flight) > 0:
            if not (rows := self.execution.waiting(free)):
                break
            possible = self._sift(rows, replace(scene, moved_last_hour=moved + written))
            self.follow()
            done = await self._write(possible, turn)
            written += done
            if done < len(possible):
                break  # somebody is at work on these bundles: look again next time
            await asyncio.sleep(0)  # where all is refused nothing else waits, and there may be 10,000
        return written

    async def _ask_for_splits(self, turn: Turn, scene: Scene) -> int:
        """How many children are to leave their parent's owner by what was asked: they count as moves."""
        leaving = 0
        for row in self.execution.waiting_splits():
            name, split = self.execution.name(row), self.execution.proposal.splits[row - len(self._moves)]
            stay = Move(split.bundle, split.source, split.source, split.reason)
            record, why = self._record(name), obstacle(stay, name, scene)
            if record is None or why is not None:
                self.execution.fail(row, why or HeldBack(name, Reason.CONFLICT, "the bundle was deleted"))
                continue
            asked = await turn.actuator.request_split(record, split)
            if asked.reason in {None, Reason.CONFLICT}:  # by us before a restart, or by somebody else
                self.execution.land(row)
                leaving += sum(owner != split.source for owner in split.destinations)
            else:
                self.execution.fail(row, HeldBack(name, asked.reason or Reason.UNKNOWN, asked.detail))
        return leaving

    @property
    def _moves(self) -> tuple[Move, ...]:
        return self.execution.proposal.moves

    def _sift(self, rows: list[int], scene: Scene) -> list[int]:
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

    async def _write(self, rows: list[int], turn: Turn) -> int:
        """How many of the moves `rows` were written."""

        async def one(row: int) -> Written:
            move, record = self._moves[row], self._record(self.execution.name(row))
            if record is None:
                return Written(self.execution.name(row), Reason.CONFLICT, "the bundle was deleted")
            name = record.name
            self.context.awaited.add(name)
            written = await turn.actuator.wish(record, move.destination, move.reason)
            if written.reason is None:
                self.execution.wrote(row, record.resource_version)
            else:
                self.context.awaited.discard(name)
                self._not_written(row, written, written.reason)
            return written

        return sum(written.reason is None for written in await at_most(WRITERS, one, rows))

    def _not_written(self, row: int, written: Written, reason: Reason) -> None:
        self.conflicts[row] += 1
        if reason is not Reason.CONFLICT or self.conflicts[row] >= TRIES:
            self.execution.fail(row, HeldBack(written.bundle, reason, written.detail))

    def _record(self, name: str) -> BundleRecord | None:
        return self.context.stores.bundles.items.get(name)
