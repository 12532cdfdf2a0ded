"""`trimtab approve`, `refresh` and `stop`: send a policy a command by annotation, and wait for the answer."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from trimtab_operator.cli.cluster import add_cluster_verb, fetch, leases, left_alone
from trimtab_operator.cli.cluster_flags import add_dry_run_flag
from trimtab_operator.cli.commands.plan_file import read_plan
from trimtab_operator.cli.common import FINDING, FINE, CommandError, add_output_option, say
from trimtab_operator.cli.dry_run import wrote
from trimtab_operator.kube.client import POLICIES, Api, ApiUnavailableError, ConflictError
from trimtab_operator.proposals.saved_plan import InvalidPlanError
from trimtab_operator.resources.policy_status import (
    APPROVER_ANNOTATION,
    PLAN_ANNOTATION,
    PROPOSAL_ANNOTATION,
    REBALANCE_ANNOTATION,
)

_APPROVE, _STOP = "approve", "stop"
_TRIES = 5

POLL = 0.3
"""Seconds between two reads of the policy."""

CHECK = 5.0
"""Seconds without progress after which a waiting `approve` checks whether an operator still runs."""


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The outcome of a command. taken: whether the operator accepted it; status: the policy's status afterwards."""

    taken: bool
    text: str
    status: Mapping[str, Any]

    def as_data(self, policy: str) -> dict[str, Any]:
        """Plain data."""
        parts = {key: self.status.get(key) for key in ("proposal", "progress")}
        return {"policy": policy, "taken": self.taken, "message": self.text, **parts}


def _add_command(subparsers: Any, word: str, description: str) -> argparse.ArgumentParser:
    """A parser for the verb that sends a policy the command `word`."""
    parser = add_cluster_verb(subparsers, word, description, _run)
    parser.set_defaults(word=word, proposal=None, wait=False, filename=None, undo=False, plan=None)
    parser.add_argument("policy", nargs="?" if word == _APPROVE else None, help="name of the BalancingPolicy")
    parser.add_argument(
        "--timeout",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="longest wait for the answer, in seconds (%(default)g)",
    )
    add_dry_run_flag(parser)
    add_output_option(parser)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.filename:
        _take_plan(arguments)
    elif arguments.undo or not arguments.policy:
        raise CommandError("name the policy whose proposal to approve, or a saved plan with -f FILE")
    return wrote(arguments, lambda api: _send(api, arguments), partial(_tell, arguments))


def _take_plan(arguments: argparse.Namespace) -> None:
    """Read the plan of ``-f``, which names its policy and namespace. Raises `CommandError`."""
    plan = read_plan(arguments.filename)
    for name, given, of in (
        ("policy", arguments.policy, plan.policy),
        ("namespace", arguments.namespace, plan.namespace),
    ):
        if given and given != of:
            raise CommandError(f"the plan is for {name} {of}, and you named {given}: leave it out")
    arguments.policy, arguments.namespace = plan.policy, plan.namespace
    try:
        arguments.plan = (plan.undone if arguments.undo else plan).sent
    except InvalidPlanError as error:
        raise CommandError(f"the plan {error}") from error


async def _send(api: Api, arguments: argparse.Namespace) -> str | None:
    """Annotate the policy with the command. Raises `CommandError`, `ApiError`.

    Returns the id of the proposal to approve, if any.

    Only `stop` replaces another command that the operator has not read yet.
    """
    namespace, policy, proposal = arguments.namespace, arguments.policy, arguments.proposal
    by = await api.user_name() if arguments.word == _APPROVE else None
    for _ in range(_TRIES):
        found = await fetch(api, POLICIES, namespace, policy)
        _require_read(arguments, found)
        if arguments.word == _APPROVE and not proposal and not arguments.plan:
            proposal = ((found.get("status") or {}).get("proposal") or {}).get("id")
        metadata: dict[str, Any] = {
            "annotations": {
                REBALANCE_ANNOTATION: arguments.word,
                PROPOSAL_ANNOTATION: proposal,
                APPROVER_ANNOTATION: by,
                PLAN_ANNOTATION: arguments.plan,
            }
        }
        if arguments.word != _STOP:
            metadata["resourceVersion"] = found["metadata"]["resourceVersion"]
        try:
            await api.patch(POLICIES, namespace, policy, {"metadata": metadata})
        except ConflictError:  # the operator writes the status often
            continue
        return str(proposal) if proposal else None
    raise CommandError(f"policy {policy} was changed {_TRIES} times meanwhile; try again")


def _require_read(arguments: argparse.Namespace, policy: Mapping[str, Any]) -> None:
    """Raise `CommandError` if the policy has another command that the operator has not read."""
    other = _command(policy)
    if other and arguments.word not in {_STOP, other}:
        raise CommandError(
            f"the operator has not yet read the command {other} for {arguments.policy}: "
            f"wait, or send `trimtab stop {arguments.policy}`"
        )


def _command(policy: Mapping[str, Any]) -> str:
    """The command that the operator has not read yet; empty if there is none."""
    return str((policy["metadata"].get("annotations") or {}).get(REBALANCE_ANNOTATION) or "")


async def _tell(arguments: argparse.Namespace, api: Api, proposal: str | None) -> int:
    """Wait for the answer, print it, and return the exit code. Raises `CommandError`, `ApiError`."""
    outcome = await _answer(api, arguments)
    if outcome.taken and arguments.wait:
        print(f"{arguments.policy}: {outcome.text}", file=sys.stderr)
        outcome = await until_ended(api, arguments, proposal or _progress(outcome.status).get("proposal", ""))
    text = f"{arguments.policy}: {outcome.text}"
    say(arguments.output, text, outcome.as_data(arguments.policy), well=outcome.taken)
    return FINE if outcome.taken else FINDING


async def _answer(api: Api, arguments: argparse.Namespace) -> CommandOutcome:
    """Wait until the operator has removed the annotation, or `stop` replaces it. Raises `CommandError`, `ApiError`."""
    deadline = time.monotonic() + arguments.timeout
    while True:
        found = await fetch(api, POLICIES, arguments.namespace, arguments.policy)
        status = found.get("status") or {}
        if not (waiting := _command(found)):
            return _outcome(status)
        if waiting != arguments.word:
            replaced = f"`trimtab {waiting}` replaced the command before the operator read it"
            return CommandOutcome(taken=False, text=replaced, status=status)
        if time.monotonic() > deadline:
            late = (
                f"no answer within {arguments.timeout:g} s: is the operator running? The annotation stays until it runs"
            )
            return CommandOutcome(taken=False, text=late, status=status)
        await asyncio.sleep(POLL)


def _outcome(status: Mapping[str, Any]) -> CommandOutcome:
    """Whether the operator accepted the last command, and its message."""
    found = next((c for c in status.get("conditions") or () if c["type"] == "CommandTaken"), None)
    if found is None:
        return CommandOutcome(taken=False, text="the operator gave no answer", status=status)
    return CommandOutcome(found["status"] == "True", found["message"], status)


_APPROVE_DESCRIPTION = """\
Approve the proposal that a policy in mode Approve shows. With --proposal, the operator refuses the approval if another
proposal has replaced the one you saw. Without it, you approve the proposal that is shown when the command runs. The
operator validates every move again just before it writes it. Your name is recorded with the approval, and is shown in
the policy's status and Events. Where the chart restricts approvals, you need the verb `approve` on balancingpolicies.

-f approves the moves of a plan that `trimtab plan --save` wrote and you may have edited. The operator carries them out
like a proposal, in modes Approve and Auto; in mode DryRun it refuses. A proposal that waits is dropped. The plan is
refused if it is older than approval.expiresAfter, or names bundles or brokers that do not exist. In mode Auto, cycles
only apply drains until it has ended. `trimtab stop` stops it. --undo moves the bundles back, the last one first.

--wait shows the progress until all moves have ended. Exit code 1: the command was refused, moves failed, the proposal
was stopped, or no operator manages the policy any more.

examples:
  trimtab status main -n messaging
  trimtab approve main -n messaging --proposal 3f9c01d2 --wait
  trimtab plan main -n messaging --save plan.yaml && trimtab approve -f plan.yaml --wait
  trimtab approve -f plan.yaml --undo --wait
"""


def _register_approve(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _add_command(subparsers, _APPROVE, _APPROVE_DESCRIPTION)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--proposal", metavar="ID", help="id of the proposal (default: the current one)")
    what.add_argument("-f", "--filename", metavar="FILE", help="file of `trimtab plan --save`, or - for standard input")
    parser.add_argument("--undo", action="store_true", help="undo the moves of FILE")
    parser.add_argument("--wait", action="store_true", help="show the progress until all moves have ended")


async def until_ended(api: Api, arguments: argparse.Namespace, proposal: str) -> CommandOutcome:
    """Show the progress of an approved proposal until it has ended, or no operator manages the policy.

    Raises `CommandError`, and `ApiError` other than `ApiUnavailableError`.
    """
    shown, since = "", time.monotonic()
    while True:
        policy = await _awaited(api, arguments)
        if (outcome := _end(policy, proposal)) is not None:
            return outcome
        progress = _progress(policy["status"])
        line = "; ".join(filter(None, (progress_text(progress), progress.get("waits"))))
        if line != shown:
            shown, since = line, time.monotonic()
            print(line, file=sys.stderr, flush=True)
        elif time.monotonic() - since > CHECK:
            since = time.monotonic()
            if alone := await _left_alone(api, policy):
                return CommandOutcome(taken=False, text=alone, status=policy["status"])
        await asyncio.sleep(POLL)


async def _awaited(api: Api, arguments: argparse.Namespace) -> Mapping[str, Any]:
    """The policy, once the API server answers. Raises `CommandError` and `ApiError`."""
    told = False
    while True:
        try:
            return await fetch(api, POLICIES, arguments.namespace, arguments.policy)
        except ApiUnavailableError as error:
            if not told:
                print(f"the API server does not answer, trying again: {error}", file=sys.stderr, flush=True)
            told = True
        await asyncio.sleep(POLL)


def _end(policy: Mapping[str, Any], proposal: str) -> CommandOutcome | None:
    """How `proposal` ended; None while its moves are made."""
    status = policy.get("status") or {}
    progress = _progress(status)
    if progress.get("proposal") != proposal:
        return CommandOutcome(taken=False, text=f"proposal {proposal} was replaced by another", status=status)
    if not progress.get("finishedAt"):
        return None
    line, done = progress_text(progress), progress["landed"] == progress["total"]
    return CommandOutcome(done, line if done else f"{line}; {_why_not_all(progress)}", status)


async def _left_alone(api: Api, policy: Mapping[str, Any]) -> str:
    """Why no operator manages the policy; empty while one does, or if the Lease can't be read."""
    there = await leases(api, [policy])
    return "".join(left_alone(policy, lease, time.time()) for lease in there.values())


def _progress(status: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = status.get("progress") or {}
    return found


def progress_text(progress: Mapping[str, Any]) -> str:
    """The progress in one line, without what it waits for."""
    known = progress.get("timeLeft") and not progress.get("waits")
    left = f", about {progress['timeLeft']} left" if known else ""
    failed = f", {progress['failed']} failed" if progress.get("failed") else ""
    count = f"{progress['landed']} of {progress['total']} landed"
    return f"{progress['percent']} %: {count}{failed}, {progress['inFlight']} in flight{left}"


def _why_not_all(progress: Mapping[str, Any]) -> str:
    """Why not all moves landed."""
    failures = progress.get("failures") or []
    if not failures:
        return "stopped before all moves had started"
    first = failures[0]
    return f"first failure: {first['bundle']}: {first['reason']}: {first.get('detail', '')}"


_REFRESH_DESCRIPTION = """\
Drop the proposal of a policy in mode Approve, measure immediately, and make a new proposal. After `trimtab stop`, this
makes the policy propose again. Exit code 1: refused, for example while a proposal is being executed.

example:
  trimtab refresh main -n messaging && trimtab status main -n messaging
"""


def _register_refresh(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _add_command(subparsers, "refresh", _REFRESH_DESCRIPTION)


_STOP_DESCRIPTION = """\
Stop a proposal that is being executed: no further move starts, and pending moves land or are withdrawn, so every
bundle keeps an owner. A proposal that waits for approval is withdrawn. There is no new proposal until
`trimtab refresh`. In mode Auto this stops a plan of `trimtab approve -f`; to stop the policy, use `trimtab pause`.

example:
  trimtab stop main -n messaging
"""


def _register_stop(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _add_command(subparsers, "stop", _STOP_DESCRIPTION)
