"""`trimtab approve`, `refresh` and `stop`: give a policy a command by annotation, and wait for the answer."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cli.cluster import add_verb, asked, fetch
from trimtab_operator.cli.common import FINDING, FINE, add_output_option, say
from trimtab_operator.kube.client import POLICIES, Api
from trimtab_operator.resources.policy_status import PROPOSAL_ANNOTATION, REBALANCE_ANNOTATION

POLL = 0.3
"""Seconds between two looks at the policy."""


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """What became of a command. taken: whether it was carried out; status: the policy's, as it is after it."""

    taken: bool
    text: str
    status: Mapping[str, Any]

    def as_data(self, policy: str) -> dict[str, Any]:
        """Plain data."""
        parts = {key: self.status.get(key) for key in ("proposal", "progress")}
        return {"policy": policy, "taken": self.taken, "message": self.text, **parts}


def add_command(subparsers: Any, verb: str, summary: str, description: str) -> argparse.ArgumentParser:
    """A parser for a verb that gives a policy a command."""
    parser = add_verb(subparsers, verb, summary, description)
    parser.add_argument("policy", help="name of the BalancingPolicy")
    parser.add_argument(
        "--timeout", type=float, default=15.0, metavar="SECONDS", help="how long to wait for the answer (%(default)g)"
    )
    add_output_option(parser)
    return parser


def carry_out(arguments: argparse.Namespace, work: Callable[[Api], Awaitable[CommandOutcome]]) -> int:
    """Run `work` and print what became of it; the exit code."""
    answer = asked(arguments, work)
    text = f"{arguments.policy}: {answer.text}"
    say(arguments.output, text, answer.as_data(arguments.policy), well=answer.taken)
    return FINE if answer.taken else FINDING


async def give(api: Api, arguments: argparse.Namespace, word: str, proposal: str | None = None) -> CommandOutcome:
    """Annotate the policy with `word` and wait until the operator has taken it. Raises `CommandError`, `ApiError`."""
    namespace, policy = arguments.namespace, arguments.policy
    await fetch(api, POLICIES, namespace, policy)
    annotations = {REBALANCE_ANNOTATION: word, PROPOSAL_ANNOTATION: proposal}
    await api.patch(POLICIES, namespace, policy, {"metadata": {"annotations": annotations}})
    deadline = time.monotonic() + arguments.timeout
    while True:
        found = await fetch(api, POLICIES, namespace, policy)
        status = found.get("status") or {}
        if (found["metadata"].get("annotations") or {}).get(REBALANCE_ANNOTATION) != word:
            taken, text = answered(status)
            return CommandOutcome(taken, text, status)
        if time.monotonic() > deadline:
            late = (
                f"no answer within {arguments.timeout:g} s: is the operator running? The annotation stays until it is"
            )
            return CommandOutcome(taken=False, text=late, status=status)
        await asyncio.sleep(POLL)


def answered(status: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the last command was carried out, and what the operator says of it."""
    found = next((c for c in status.get("conditions") or () if c["type"] == "CommandTaken"), None)
    return (found["status"] == "True", found["message"]) if found else (False, "the operator said nothing of it")


_APPROVE_DESCRIPTION = """\
Approve the proposal that a policy of mode Approve shows, and no other: its id is sent along, so that what is carried
out is what was on your screen when another one takes its place meanwhile. Without --proposal it is the one that waits
now. Every move is validated again at the moment it is written.

With --wait the progress is shown until all moves have ended. Exit code 1: refused, or some moves failed, or stopped.

examples:
  trimtab status main -n messaging
  trimtab approve main -n messaging --proposal 3f9c01d2 --wait
"""


def register_approve(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_command(subparsers, "approve", "carry out the proposal that a policy shows", _APPROVE_DESCRIPTION)
    parser.add_argument("--proposal", metavar="ID", help="the proposal that is meant (default: the one that waits now)")
    parser.add_argument("--wait", action="store_true", help="show the progress until all moves have ended")
    parser.set_defaults(run=run_approve)


def run_approve(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    return carry_out(arguments, lambda api: _approve(api, arguments))


async def _approve(api: Api, arguments: argparse.Namespace) -> CommandOutcome:
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


async def _until_ended(api: Api, arguments: argparse.Namespace, proposal: str) -> CommandOutcome:
    told = ""
    while True:
        policy = await fetch(api, POLICIES, arguments.namespace, arguments.policy)
        status = policy.get("status") or {}
        progress = _progress(status)
        if progress.get("proposal") != proposal:
            return CommandOutcome(taken=False, text=f"proposal {proposal} was replaced by another", status=status)
        if (line := in_words(progress)) != told:
            told = line
            print(line, file=sys.stderr, flush=True)
        if progress.get("finishedAt"):
            done = progress["landed"] == progress["total"]
            return CommandOutcome(done, line if done else f"{line}; {why(progress)}", status)
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


_REFRESH_DESCRIPTION = """\
Drop the proposal that a policy of mode Approve shows, measure at once, and offer what is planned then. It is also what
goes on after `trimtab stop`. Exit code 1: refused, as while a proposal is carried out.

example:
  trimtab refresh main -n messaging && trimtab status main -n messaging
"""


def register_refresh(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_command(subparsers, "refresh", "replace a policy's proposal by a new one", _REFRESH_DESCRIPTION)
    parser.set_defaults(run=run_refresh)


def run_refresh(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    return carry_out(arguments, lambda api: give(api, arguments, "refresh"))


_STOP_DESCRIPTION = """\
Write no further move of the proposal that is carried out; the open ones land or are withdrawn, so that every bundle
stays whole. A proposal that waits is withdrawn. Nothing is proposed again until `trimtab refresh`.
For modes Auto and DryRun there is `trimtab pause`.

example:
  trimtab stop main -n messaging
"""


def register_stop(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_command(subparsers, "stop", "end what was approved, or withdraw what is proposed", _STOP_DESCRIPTION)
    parser.set_defaults(run=run_stop)


def run_stop(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    return carry_out(arguments, lambda api: give(api, arguments, "stop"))
