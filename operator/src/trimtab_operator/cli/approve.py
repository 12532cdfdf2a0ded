"""`trimtab approve`: carry out the proposal that a policy shows."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from trimtab_operator.cli.asking import fetch
from trimtab_operator.cli.commanding import POLL, Answer, add_command, carry_out, give
from trimtab_operator.cluster.api import POLICIES, Api

_DESCRIPTION = """\
Approve the proposal that a policy of mode Approve shows, and no other: its id is sent along, so that what is carried
out is what was on your screen when another one takes its place meanwhile. Without --proposal it is the one that waits
now. Every move is validated again at the moment it is written.

With --wait the progress is shown until all moves have ended. Exit code 1: refused, or some moves failed, or stopped.

examples:
  trimtab status main -n messaging
  trimtab approve main -n messaging --proposal 3f9c01d2 --wait
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_command(subparsers, "approve", "carry out the proposal that a policy shows", _DESCRIPTION)
    parser.add_argument("--proposal", metavar="ID", help="the proposal that is meant (default: the one that waits now)")
    parser.add_argument("--wait", action="store_true", help="show the progress until all moves have ended")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    return carry_out(arguments, lambda api: _approve(api, arguments))


async def _approve(api: Api, arguments: argparse.Namespace) -> Answer:
    proposal = arguments.proposal or await _waiting(api, arguments)
    answer = await give(api, arguments, "approve", proposal)
    if not answer.taken or not arguments.wait:
        return answer
    print(f"{arguments.policy}: {answer.text}", file=sys.stderr)
    return await _until_ended(api, arguments, proposal or _progress(answer.status).get("proposal", ""))


async def _waiting(api: Api, arguments: argparse.Namespace) -> str | None:
    """Id of the proposal that is shown."""
    policy = await fetch(api, POLICIES, arguments.namespace, arguments.policy)
    found: str | None = ((policy.get("status") or {}).get("proposal") or {}).get("id")
    return found


async def _until_ended(api: Api, arguments: argparse.Namespace, proposal: str) -> Answer:
    told = ""
    while True:
        policy = await fetch(api, POLICIES, arguments.namespace, arguments.policy)
        status = policy.get("status") or {}
        progress = _progress(status)
        if progress.get("proposal") != proposal:
            return Answer(taken=False, text=f"proposal {proposal} was replaced by another", status=status)
        if (line := in_words(progress)) != told:
            told = line
            print(line, file=sys.stderr, flush=True)
        if progress.get("finishedAt"):
            done = progress["landed"] == progress["total"]
            return Answer(done, line if done else f"{line}; {why(progress)}", status)
        await asyncio.sleep(POLL)


def _progress(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = status.get("progress") or {}
    return found


def in_words(progress: Mapping[str, Any]) -> str:
    """How far it has come, in one line."""
    left = f", about {progress['timeLeft']} left" if progress.get("timeLeft") else ""
    failed = f", {progress['failed']} failed" if progress.get("failed") else ""
    count = f"{progress['landed']} of {progress['total']} landed"
    return f"{progress['percent']} %: {count}{failed}, {progress['inFlight']} in flight{left}"


def why(progress: Mapping[str, Any]) -> str:
    """Why not all of it landed."""
    failures = progress.get("failures") or []
    if not failures:
        return "stopped before all moves were begun"
    first = failures[0]
    return f"the first that failed: {first['bundle']}: {first['reason']}: {first.get('detail', '')}"
