"""`trimtab pause`: let a policy decide nothing for a while."""

from __future__ import annotations

import argparse

from trimtab_operator.cli.asking import add_verb, asked, fetch
from trimtab_operator.cli.failure import FINE
from trimtab_operator.cli.output import add_output_option, say
from trimtab_operator.cli.program import spoken
from trimtab_operator.cluster.api import POLICIES, Api
from trimtab_operator.resources.proposal import PAUSE_ANNOTATION

_DESCRIPTION = """\
Let a policy decide nothing until `trimtab resume`: no plan, no split, and no further move of what was approved. Lost
brokers and what people wish are looked after all the same. It sets the annotation trimtab.dev/paused, and leaves
spec.paused (which may belong to Git) alone.

example:
  trimtab pause main -n messaging
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "pause", "let a policy decide nothing for a while", _DESCRIPTION)
    parser.add_argument("policy", help="name of the BalancingPolicy")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    asked(arguments, lambda api: annotate(api, arguments, "true"))
    policy, namespace = arguments.policy, arguments.namespace
    text = f"{policy} is paused; go on with: trimtab resume {policy} -n {namespace}"
    say(arguments.output, spoken(text), {"policy": policy, "paused": True})
    return FINE


async def annotate(api: Api, arguments: argparse.Namespace, value: str | None) -> bool:
    """Set the annotation, None: remove it; whether spec.paused pauses the policy besides."""
    found = await fetch(api, POLICIES, arguments.namespace, arguments.policy)
    body = {"metadata": {"annotations": {PAUSE_ANNOTATION: value}}}
    await api.patch(POLICIES, arguments.namespace, arguments.policy, body)
    return bool(found["spec"].get("paused"))
