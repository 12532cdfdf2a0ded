"""Makes moves that a person requests, a few at a time. Each is checked just before it is written, and then followed.

As with `trimtab move`, each write sets the desired owner and removes the assignment.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trimtab_operator.cli.cluster import fetch
from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.tables import Grid
from trimtab_operator.kube.client import BUNDLES, Api, ApiError, ApiUnavailableError, ConflictError, NotFoundError

POLL = 0.3
"""Seconds between two reads of the pending bundles."""


class MoveState(StrEnum):
    """How a move ended, or why it was not made."""

    LANDED = "landed"
    ALREADY_THERE = "already there"
    FAILED = "failed"
    REFUSED = "refused"
    NOT_STARTED = "not started"


@dataclass(frozen=True, slots=True)
class HandMove:
    """A move of the Bundle object `name` between Brokers; source is empty for a bundle without an owner."""

    name: str
    source: str
    destination: str


@dataclass(frozen=True, slots=True)
class MoveReport:
    """The outcome of a move. text: why, if it did not land."""

    move: HandMove
    state: MoveState
    text: str = ""

    @property
    def well(self) -> bool:
        """Whether the bundle is at its destination."""
        return self.state in {MoveState.LANDED, MoveState.ALREADY_THERE}

    @property
    def line(self) -> str:
        """A line that says why the move would not be made."""
        return f"would not move {self.move.name} to {self.move.destination or 'no broker'}: {self.state}: {self.text}"

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        ends = {"source": self.move.source, "destination": self.move.destination}
        return {"bundle": self.move.name, **ends, "state": str(self.state), "message": self.text}


def reports_grid(title: str, reports: Iterable[MoveReport]) -> Grid:
    """The reports as a table."""
    rows = [
        (r.move.name, f"{r.move.source or '(no owner)'} -> {r.move.destination or '(none)'}", str(r.state), r.text)
        for r in reports
    ]
    return Grid(title, ("Bundle", "Source -> destination", "State", "Why"), rows).without_empty("Why")


async def write_owner(api: Api, namespace: str, name: str, broker: str, resource_version: str) -> None:
    """Write the desired owner of a Bundle as a person does, unless the Bundle has changed since `resource_version`.

    Raises `CommandError` if it has changed, and `ApiError`.
    """
    body = {"metadata": {"resourceVersion": resource_version}, "spec": {"owner": broker, "assignment": None}}
    try:
        await api.patch(BUNDLES, namespace, name, body)
    except ConflictError as error:
        raise CommandError(f"bundle {name} was changed by another client just now; try again") from error


@dataclass
class HandMoves:
    """Makes `moves` in their order, at most `at_once` pending at a time. If one does not land, no further one starts.

    arguments: with the namespace, and the seconds that a move may take (``--timeout``).
    """

    arguments: argparse.Namespace
    moves: Sequence[HandMove]
    at_once: int
    reports: dict[HandMove, MoveReport] = field(default_factory=dict)
    _pending: dict[HandMove, float] = field(default_factory=dict, init=False)
    _begun: int = field(default=0, init=False)

    async def start(self, api: Api) -> None:
        """Write as many of the next moves as may be pending, none after a failed one.

        Raises `ApiError` if the first write is refused. A later refusal fails its move.
        """
        while self._begun < len(self.moves) and len(self._pending) < self.at_once and not self._late:
            move = self.moves[self._begun]
            self._begun += 1
            try:
                await self._write(api, move)
            except CommandError as error:
                self._end(move, MoveState.FAILED, str(error))
            except ApiUnavailableError as error:
                self._end(move, MoveState.FAILED, f"no answer came, so it may have been written: {error}")
            except ApiError as error:
                if not self._pending and not self.reports:
                    raise
                self._end(move, MoveState.FAILED, str(error))

    def follow(self, move: HandMove) -> None:
        """Have `finish` follow a move that was written just now."""
        self._pending[move] = time.monotonic() + self.arguments.timeout

    async def finish(self, api: Api) -> list[MoveReport]:
        """Follow the pending moves, write the others, and return the outcome of each."""
        while self._pending:
            await asyncio.sleep(POLL)
            for move in list(self._pending):
                await self._follow(api, move)
            await self.start(api)
        return [self._report(move) for move in self.moves]

    def refused(self) -> list[MoveReport]:
        """The moves that could not be written, and those after them, which were not started."""
        return [self._report(move) for move in self.moves if move not in self._pending]

    def _report(self, move: HandMove) -> MoveReport:
        rest = "an earlier move did not land: see why before you go on"
        return self.reports.get(move, MoveReport(move, MoveState.NOT_STARTED, rest))

    @property
    def _late(self) -> bool:
        return any(report.state is MoveState.FAILED for report in self.reports.values())

    async def _write(self, api: Api, move: HandMove) -> None:
        """Write a move. Raises `CommandError` if the bundle no longer allows it, and `ApiError`."""
        namespace = self.arguments.namespace
        bundle = await fetch(api, BUNDLES, namespace, move.name)
        owner, wish = owner_of(bundle), bundle["spec"].get("owner", "")
        if bundle["spec"].get("pinned"):
            raise CommandError(f"it was pinned to {wish or owner} just now")
        if wish != move.destination:
            if owner != move.source or wish not in {"", owner}:
                raise CommandError(f"it is on {owner or 'no broker'} now, with {wish or 'no'} desired owner")
            await write_owner(api, namespace, move.name, move.destination, bundle["metadata"]["resourceVersion"])
        self.follow(move)

    async def _follow(self, api: Api, move: HandMove) -> None:
        try:
            bundle = await api.get(BUNDLES, self.arguments.namespace, move.name)
        except NotFoundError:
            self._end(move, MoveState.FAILED, "it was written, and the bundle was deleted meanwhile")
        except ApiError as error:
            again = isinstance(error, ApiUnavailableError)  # the API server may answer before the move is late
            if not again or time.monotonic() > self._pending[move]:
                self._end(move, MoveState.FAILED, f"it was written, and its owner can't be read: {error}")
        else:
            self._compare(move, bundle)

    def _compare(self, move: HandMove, bundle: Mapping[str, Any]) -> None:
        """End a pending move if its bundle shows that it landed, was replaced, or is late."""
        wish = bundle["spec"].get("owner", "")
        if owner_of(bundle) == move.destination:
            self._end(move, MoveState.LANDED)
        elif wish != move.destination:
            self._end(move, MoveState.FAILED, f"another client set its owner to {wish or '(none)'} meanwhile")
        elif time.monotonic() > self._pending[move]:
            late = f"{move.destination} did not confirm it within {self.arguments.timeout:g} s"
            self._end(move, MoveState.FAILED, late)

    def _end(self, move: HandMove, state: MoveState, text: str = "") -> None:
        self._pending.pop(move, None)
        self.reports[move] = MoveReport(move, state, text)


async def ended(api: Api, arguments: argparse.Namespace, move: HandMove) -> MoveReport:
    """Follow a move that was written just now, and return its outcome."""
    moves = HandMoves(arguments, (), at_once=1)
    moves.follow(move)
    await moves.finish(api)
    return moves.reports[move]


def owner_of(bundle: Mapping[str, Any]) -> str:
    """The broker that confirmed the bundle; empty for none."""
    return str((bundle.get("status") or {}).get("owner") or "")
