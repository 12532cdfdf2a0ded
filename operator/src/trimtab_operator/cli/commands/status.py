"""`trimtab status`: shows the state of policies and their proposals; with `--watch`, as it changes."""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trimtab_operator.cli.cluster import add_cluster_verb, asked, fetch, leases, left_alone, near, unknown_kind
from trimtab_operator.cli.commands.proposal import progress_text
from trimtab_operator.cli.commands.status_table import (
    Data,
    as_data,
    condition,
    edited,
    policy_grid,
    print_all,
    print_one,
    ready,
    unready,
)
from trimtab_operator.cli.common import (
    FINDING,
    FINE,
    TABLE,
    CommandError,
    add_output_option,
    is_data,
    length,
    print_data,
)
from trimtab_operator.cli.tables import Grid, console, fitted
from trimtab_operator.kube.client import BUNDLES, POLICIES, Api, ApiError, NotFoundError
from trimtab_operator.kube.records import BundleRecord, bundle_record
from trimtab_operator.kube.store import Store
from trimtab_strategies.model import counted

PAUSE = 1.0
"""Seconds between two reads of the policies; bundles are watched."""

READ_WITHIN = 5.0
"""Seconds to wait for all bundles before the first output, which would otherwise show no pending moves."""

_SHOWN = 15
"""Maximum number of pending moves in a table."""


@dataclass(frozen=True, slots=True)
class PendingMoveRow:
    """A pending move of a bundle. since: epoch seconds at which it was assigned, NaN if unknown."""

    bundle: str
    source: str
    destination: str
    reason: str
    since: float


async def watch(api: Api, arguments: argparse.Namespace) -> int:
    """Show the policies until the task is cancelled. Raises `CommandError` and `ApiError` of the first read."""
    found = await _attended(api, arguments)
    store = Store(api, BUNDLES, bundle_record, namespace=arguments.namespace)
    following = asyncio.create_task(store.run())
    view = view_for(arguments)
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(store.synced.wait(), READ_WITHIN)
        while True:
            view.show(found, in_flight(store.items.values()), time.time())
            await asyncio.sleep(PAUSE)
            try:
                found = await _attended(api, arguments)
            except ApiError as error:
                print(f"trimtab: {error}; trying again", file=sys.stderr)
    finally:
        view.close()
        following.cancel()
        with suppress(asyncio.CancelledError, ApiError):
            await following


def view_for(arguments: argparse.Namespace) -> InPlace | LineByLine:
    """On a terminal, a table that is updated in place. Otherwise, a line for each change."""
    if arguments.output in {TABLE, "wide"} and sys.stdout.isatty():
        return InPlace(arguments.color, everywhere=not arguments.namespace, wide=arguments.output == "wide")
    return LineByLine(arguments.output)


def in_flight(bundles: Iterable[BundleRecord]) -> list[PendingMoveRow]:
    """Bundles that are not on their desired owner, the latest assignment first."""
    pending_moves = [
        PendingMoveRow(b.name, b.status_owner, b.owner, b.reason if b.assigned_owner == b.owner else "", b.assigned_at)
        for b in bundles
        if b.owner and b.owner != b.status_owner
    ]
    return sorted(
        pending_moves, key=lambda pending: (0.0 if math.isnan(pending.since) else -pending.since, pending.bundle)
    )


class InPlace:
    """A table that is updated in place."""

    def __init__(self, color: str, *, everywhere: bool, wide: bool) -> None:
        self._screen, self._everywhere, self._wide = console(color), everywhere, wide
        self._live = Live(console=self._screen, auto_refresh=False)
        self._live.start()

    def show(self, policies: Sequence[Data], pending_moves: Sequence[PendingMoveRow], now: float) -> None:
        """Update the table in place. now: epoch seconds."""
        table, _ = fitted(self._screen, policy_grid(policies, everywhere=self._everywhere, wide=self._wide))
        parts: list[Any] = [table if policies else Text("there is no BalancingPolicy")]
        parts += [self._bar(policy) for policy in policies if _running(policy)]
        parts += unready(policies, everywhere=self._everywhere)
        if pending_moves:
            parts.append(fitted(self._screen, _flight_grid(pending_moves, now))[0])
        line = f"{time.strftime('%H:%M:%S', time.localtime(now))}  {_on_their_way(pending_moves)}; Ctrl-C ends"
        self._live.update(Group(*parts, Text(line, style="dim")), refresh=True)

    def close(self) -> None:
        """Stop updating; the last table stays."""
        self._live.stop()

    @staticmethod
    def _bar(policy: Data) -> Table:
        progress, row = policy["progress"], Table.grid(padding=(0, 1))
        bar = ProgressBar(total=100, completed=progress["percent"], width=30)
        row.add_row(Text(policy["policy"]), bar, Text(progress_text(progress)))
        return row


class LineByLine:
    """For each change, a line that begins with the time; with JSON or YAML, an object."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._policies: dict[str, str] = {}
        self._flights: dict[str, PendingMoveRow] | None = None
        self._told = ""

    def show(self, policies: Sequence[Data], pending_moves: Sequence[PendingMoveRow], now: float) -> None:
        """Print what changed."""
        if is_data(self._output):
            self._as_data(policies, pending_moves)
            return
        clock = time.strftime("%H:%M:%S", time.localtime(now))
        for text in (*self._of_policies(policies), *self._of_flights(pending_moves)):
            print(f"{clock}  {text}", flush=True)

    def close(self) -> None:
        """Do nothing: there is nothing to stop."""

    def _as_data(self, policies: Sequence[Data], pending_moves: Sequence[PendingMoveRow]) -> None:
        moves = [{"bundle": f.bundle, "source": f.source, "destination": f.destination} for f in pending_moves]
        text = json.dumps({"policies": list(policies), "inFlight": moves}, ensure_ascii=False)
        # the text of leftAlone contains an age, which is different in each round
        known = [{**policy, "leftAlone": bool(policy["leftAlone"])} for policy in policies]
        if (now := json.dumps([known, moves])) != self._told:
            self._told = now
            print(text if self._output == "json" else f"---\n{text}", flush=True)  # JSON is YAML

    def _of_policies(self, policies: Sequence[Data]) -> list[str]:
        now = {f"{policy['namespace']}/{policy['policy']}": _line(policy) for policy in policies}
        before, self._policies = self._policies, now
        gone = [f"{name}  is gone" for name in before if name not in now]
        return [f"{name}  {text}" for name, text in now.items() if before.get(name) != text] + gone

    def _of_flights(self, pending_moves: Sequence[PendingMoveRow]) -> list[str]:
        now = {pending.bundle: pending for pending in pending_moves}
        before, self._flights = self._flights or {}, now
        begun = [f for f in pending_moves if f.bundle not in before or before[f.bundle].destination != f.destination]
        ended = [pending for name, pending in before.items() if name not in now]
        return [
            *(f"{f.bundle}  {_way(f)}{f' ({f.reason})' if f.reason else ''}" for f in begun),
            *(f"{f.bundle}  is no longer moving to {f.destination}" for f in ended),
        ]


def _line(policy: Data) -> str:
    """The state of a policy in one line."""
    status, reason, message = condition(policy, "Ready")
    outcome = (policy["lastCycle"] or {}).get("outcome", "no cycle yet")
    proposal = policy["proposal"] or {}
    parts = [policy["mode"] + (" (paused)" if policy["paused"] else ""), f"Ready={ready(policy)}", outcome]
    parts.append(f"proposed {proposal.get('total', 0)}, in flight {policy['inFlight'] or 0}")
    if proposal.get("state"):
        parts.append(f"{proposal['state']} {proposal.get('id') or ''}".rstrip())
    if _running(policy):
        parts.append(progress_text({**policy["progress"], "timeLeft": None}))
    if policy["leftAlone"]:
        parts.append("no operator manages it")
    elif status == "False":
        parts.append(f"{reason}: {message}")
    if edited(policy):
        parts.append(edited(policy))
    return "  ".join(parts)


def _running(policy: Data) -> bool:
    """Whether an approved proposal is being executed."""
    progress = policy["progress"]
    return bool(progress) and not progress.get("finishedAt")


def _on_their_way(pending_moves: Sequence[PendingMoveRow]) -> str:
    return "no pending moves" if not pending_moves else counted(len(pending_moves), "pending move")


def _way(pending: PendingMoveRow) -> str:
    return f"{pending.source or '(no owner)'} -> {pending.destination}"


def _flight_grid(pending_moves: Sequence[PendingMoveRow], now: float) -> Grid:
    rows = [(f.bundle, _way(f), f.reason, _since(f, now)) for f in pending_moves[:_SHOWN]]
    more = f" (the first {_SHOWN} of {len(pending_moves)})" if len(pending_moves) > _SHOWN else ""
    return Grid(
        f"Pending moves{more}",
        ("Bundle", "Source -> destination", "Reason", "Since"),
        rows,
        ("Since",),
        spare=("Reason",),
    )


def _since(pending: PendingMoveRow, now: float) -> str:
    return "" if math.isnan(pending.since) else length(max(0.0, now - pending.since))


_DESCRIPTION = """\
Show the state of the policies in a namespace. For one policy, also show its proposal: the moves, CPU before and after,
the cost for clients, and the progress once approved. The command reads what the operator wrote and measures nothing
(`trimtab plan` does). Exit code 1: a policy is not Ready, or no operator manages it; the table says why.

-w shows changes until Ctrl-C: on a terminal, a table with the pending moves that is updated in place; elsewhere, a line
for each change (with -o json a JSON object on each line).

examples:
  trimtab status -n messaging
  trimtab status -A -o wide
  trimtab status main -n messaging
  trimtab status main -n messaging --watch
  trimtab status main -n messaging -o json | jq -r .proposal.id
"""


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_cluster_verb(subparsers, "status", _DESCRIPTION, _run, everywhere=True)
    parser.add_argument("policy", nargs="?", help="name of the BalancingPolicy (default: all in the namespace)")
    parser.add_argument("-w", "--watch", action="store_true", help="update until Ctrl-C")
    add_output_option(parser, wide=True)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.watch:
        with suppress(KeyboardInterrupt):
            return asked(arguments, lambda api: watch(api, arguments))
        return FINE
    data = asked(arguments, lambda api: _attended(api, arguments))
    one = bool(arguments.policy) and bool(arguments.namespace)
    if is_data(arguments.output):
        print_data(data[0] if one else data, arguments.output)
    elif one:
        print_one(data[0], arguments.color)
    else:
        print_all(data, arguments.namespace, arguments.color, wide=arguments.output == "wide")
    return FINDING if any(condition(policy, "Ready")[0] == "False" or policy["leftAlone"] for policy in data) else FINE


async def _attended(api: Api, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The policies as data, each with the reason if no operator manages it. Raises `CommandError`, `ApiError`."""
    found = await policies(api, arguments)
    there, now = await leases(api, found), time.time()
    spaces = [policy["metadata"].get("namespace", "") for policy in found]
    return [
        as_data(policy, left_alone(policy, there[space], now) if space in there else "")
        for policy, space in zip(found, spaces, strict=True)
    ]


async def policies(api: Api, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The requested BalancingPolicy objects, sorted by namespace and name. Raises `CommandError`, `ApiError`."""
    if arguments.policy and arguments.namespace:
        return [await fetch(api, POLICIES, arguments.namespace, arguments.policy)]
    try:
        found = [policy async for page in api.list(POLICIES, arguments.namespace) for policy in page.items]
    except NotFoundError as error:
        raise unknown_kind(POLICIES) from error
    named = [policy for policy in found if arguments.policy in {None, policy["metadata"]["name"]}]
    if arguments.policy and not named:
        there = near(arguments.policy, sorted({policy["metadata"]["name"] for policy in found}))
        raise CommandError(f"no BalancingPolicy {arguments.policy} in any namespace; {there}")
    return sorted(named, key=lambda policy: (policy["metadata"]["namespace"], policy["metadata"]["name"]))
