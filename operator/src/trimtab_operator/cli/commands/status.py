"""`trimtab status --watch`: policies and moves as they go, in one place of a terminal, or a line for each change."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trimtab_operator.cli.approve import in_words
from trimtab_operator.cli.grid import Grid, console, fitted
from trimtab_operator.cli.moments import length
from trimtab_operator.cli.output import TABLE, is_data
from trimtab_operator.cli.status_output import Data, as_data, condition, policy_grid, unready
from trimtab_operator.cluster.api import BUNDLES, Api, ApiError
from trimtab_operator.cluster.bundles import BundleRecord, bundle_record
from trimtab_operator.cluster.store import Store

PAUSE = 1.0
"""Seconds between two looks at the policies; bundles are followed."""
_SHOWN = 15
"""Bundles on their way that a table has room for."""

Read = Callable[[Api, argparse.Namespace], Awaitable[list[dict[str, Any]]]]


@dataclass(frozen=True, slots=True)
class Flight:
    """A bundle on its way. since: epoch seconds at which it was wished there, NaN unknown."""

    bundle: str
    source: str
    destination: str
    reason: str
    since: float


class View(Protocol):
    """Shows how things stand, again and again."""

    def show(self, policies: Sequence[Data], flights: Sequence[Flight], now: float) -> None:
        """How they stand at `now` (epoch seconds)."""

    def close(self) -> None:
        """No more of it."""


async def watch(api: Api, arguments: argparse.Namespace, read: Read) -> int:
    """Show the policies that `read` finds until the task is cancelled. Raises what `read` raises at first."""
    found = await read(api, arguments)
    store = Store(api, BUNDLES, bundle_record, namespace=arguments.namespace)
    following = asyncio.create_task(store.run())
    view = view_for(arguments)
    try:
        while True:
            view.show([as_data(policy) for policy in found], in_flight(store.items.values()), time.time())
            await asyncio.sleep(PAUSE)
            try:
                found = await read(api, arguments)
            except ApiError as error:
                print(f"trimtab: {error}; trying again", file=sys.stderr)
    finally:
        view.close()
        following.cancel()
        with suppress(asyncio.CancelledError, ApiError):
            await following


def view_for(arguments: argparse.Namespace) -> View:
    """In place on a terminal; line by line where it goes to a file, a pipe or a program."""
    if arguments.output in {TABLE, "wide"} and sys.stdout.isatty():
        return InPlace(arguments.color, everywhere=not arguments.namespace, wide=arguments.output == "wide")
    return Lines(arguments.output)


def in_flight(bundles: Iterable[BundleRecord]) -> list[Flight]:
    """Bundles that are not where they are wished, the latest wish first."""
    flights = [
        Flight(b.name, b.status_owner, b.owner, b.reason if b.assigned_owner == b.owner else "", b.assigned_at)
        for b in bundles
        if b.owner and b.owner != b.status_owner
    ]
    return sorted(flights, key=lambda flight: (0.0 if math.isnan(flight.since) else -flight.since, flight.bundle))


class InPlace:
    """A table that is drawn anew where it stands."""

    def __init__(self, color: str, *, everywhere: bool, wide: bool) -> None:
        self._screen, self._everywhere, self._wide = console(color), everywhere, wide
        self._live = Live(console=self._screen, auto_refresh=False)
        self._live.start()

    def show(self, policies: Sequence[Data], flights: Sequence[Flight], now: float) -> None:
        """Draw it."""
        table, _ = fitted(self._screen, policy_grid(policies, everywhere=self._everywhere, wide=self._wide))
        parts: list[Any] = [table if policies else Text("there is no BalancingPolicy")]
        parts += [self._bar(policy) for policy in policies if _running(policy)]
        parts += unready(policies, everywhere=self._everywhere)
        if flights:
            parts.append(fitted(self._screen, _flight_grid(flights, now))[0])
        told = f"{time.strftime('%H:%M:%S', time.localtime(now))}  {_on_their_way(flights)}; Ctrl-C ends"
        self._live.update(Group(*parts, Text(told, style="dim")), refresh=True)

    def close(self) -> None:
        """Leave the last picture."""
        self._live.stop()

    @staticmethod
    def _bar(policy: Data) -> Table:
        progress, row = policy["progress"], Table.grid(padding=(0, 1))
        bar = ProgressBar(total=100, completed=progress["percent"], width=30)
        row.add_row(Text(policy["policy"]), bar, Text(in_words(progress)))
        return row


class Lines:
    """A line for each change, with the time; or, as JSON or YAML, an object for each."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._policies: dict[str, str] = {}
        self._flights: dict[str, Flight] | None = None
        self._told = ""

    def show(self, policies: Sequence[Data], flights: Sequence[Flight], now: float) -> None:
        """Print what is new."""
        if is_data(self._output):
            self._as_data(policies, flights)
            return
        clock = time.strftime("%H:%M:%S", time.localtime(now))
        for text in (*self._of_policies(policies), *self._of_flights(flights)):
            print(f"{clock}  {text}", flush=True)

    def close(self) -> None:
        """There is nothing to be ended."""

    def _as_data(self, policies: Sequence[Data], flights: Sequence[Flight]) -> None:
        moves = [{"bundle": f.bundle, "source": f.source, "destination": f.destination} for f in flights]
        text = json.dumps({"policies": list(policies), "inFlight": moves}, ensure_ascii=False)
        if text != self._told:
            self._told = text
            print(text if self._output == "json" else f"---\n{text}", flush=True)  # JSON is YAML

    def _of_policies(self, policies: Sequence[Data]) -> list[str]:
        now = {f"{policy['namespace']}/{policy['policy']}": _line(policy) for policy in policies}
        before, self._policies = self._policies, now
        gone = [f"{name}  is gone" for name in before if name not in now]
        return [f"{name}  {text}" for name, text in now.items() if before.get(name) != text] + gone

    def _of_flights(self, flights: Sequence[Flight]) -> list[str]:
        now = {flight.bundle: flight for flight in flights}
        before, self._flights = self._flights or {}, now
        begun = [f for f in flights if f.bundle not in before or before[f.bundle].destination != f.destination]
        ended = [flight for name, flight in before.items() if name not in now]
        return [
            *(f"{f.bundle}  {_way(f)}{f' ({f.reason})' if f.reason else ''}" for f in begun),
            *(f"{f.bundle}  is no longer on its way to {f.destination}" for f in ended),
        ]


def _line(policy: Data) -> str:
    """How a policy stands, in one line."""
    status, reason, message = condition(policy, "Ready")
    outcome = (policy["lastCycle"] or {}).get("outcome", "no cycle yet")
    proposal = policy["proposal"] or {}
    parts = [policy["mode"] + (" (paused)" if policy["paused"] else ""), f"Ready={status or 'Unknown'}", outcome]
    parts.append(f"proposed {proposal.get('total', 0)}, in flight {policy['inFlight'] or 0}")
    if proposal.get("state"):
        parts.append(f"{proposal['state']} {proposal.get('id') or ''}".rstrip())
    if _running(policy):
        parts.append(in_words({**policy["progress"], "timeLeft": None}))
    if status == "False":
        parts.append(f"{reason}: {message}")
    return "  ".join(parts)


def _running(policy: Data) -> bool:
    """Whether an approved proposal is being carried out."""
    progress = policy["progress"]
    return bool(progress) and not progress.get("finishedAt")


def _on_their_way(flights: Sequence[Flight]) -> str:
    return "no bundle is on its way" if not flights else f"{len(flights)} on their way"


def _way(flight: Flight) -> str:
    return f"{flight.source or '(nobody)'} -> {flight.destination}"


def _flight_grid(flights: Sequence[Flight], now: float) -> Grid:
    rows = [(f.bundle, _way(f), f.reason, _since(f, now)) for f in flights[:_SHOWN]]
    more = f" (the first {_SHOWN} of {len(flights)})" if len(flights) > _SHOWN else ""
    return Grid(f"On their way{more}", ("Bundle", "Way", "Reason"), ("Since",), rows, spare=("Reason",))


def _since(flight: Flight, now: float) -> str:
    return "" if math.isnan(flight.since) else length(max(0.0, now - flight.since))
