"""Gives a policy a command by annotation, and waits for the operator's answer: behind approve, refresh and stop."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cli.asking import add_verb, asked, fetch
from trimtab_operator.cli.failure import FINDING, FINE
from trimtab_operator.cli.output import add_output_option, say
from trimtab_operator.cluster.api import POLICIES, Api
from trimtab_operator.resources.proposal import PROPOSAL_ANNOTATION, REBALANCE_ANNOTATION

POLL = 0.3
"""Seconds between two looks at the policy."""


@dataclass(frozen=True, slots=True)
class Answer:
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


def carry_out(arguments: argparse.Namespace, work: Callable[[Api], Awaitable[Answer]]) -> int:
    """Run `work` and print what became of it; the exit code."""
    answer = asked(arguments, work)
    text = f"{arguments.policy}: {answer.text}"
    say(arguments.output, text, answer.as_data(arguments.policy), well=answer.taken)
    return FINE if answer.taken else FINDING


async def give(api: Api, arguments: argparse.Namespace, word: str, proposal: str | None = None) -> Answer:
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
            return Answer(taken, text, status)
        if time.monotonic() > deadline:
            late = (
                f"no answer within {arguments.timeout:g} s: is the operator running? The annotation stays until it is"
            )
            return Answer(taken=False, text=late, status=status)
        await asyncio.sleep(POLL)


def answered(status: Mapping[str, Any]) -> tuple[bool, str]:
    """Whether the last command was carried out, and what the operator says of it."""
    found = next((c for c in status.get("conditions") or () if c["type"] == "CommandTaken"), None)
    return (found["status"] == "True", found["message"]) if found else (False, "the operator said nothing of it")
