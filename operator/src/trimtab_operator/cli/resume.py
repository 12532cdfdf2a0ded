"""`trimtab resume`: let a paused policy decide again."""

from __future__ import annotations

import argparse

from trimtab_operator.cli.asking import add_verb, asked
from trimtab_operator.cli.failure import FINDING, FINE
from trimtab_operator.cli.output import add_output_option, say
from trimtab_operator.cli.pause import annotate

_DESCRIPTION = """\
Let a policy that was paused by `trimtab pause` decide again: it removes the annotation trimtab.dev/paused. Where
spec.paused is true as well the policy stays paused: that is told, and the exit code is 1.

example:
  trimtab resume main -n messaging
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "resume", "let a paused policy decide again", _DESCRIPTION)
    parser.add_argument("policy", help="name of the BalancingPolicy")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    policy = arguments.policy
    stays = asked(arguments, lambda api: annotate(api, arguments, None))
    why = f"{policy} stays paused: spec.paused is true, set it to false where that policy is written"
    text = why if stays else f"{policy} goes on"
    say(arguments.output, text, {"policy": policy, "paused": stays}, well=not stays)
    return FINDING if stays else FINE
