"""`trimtab status`: where policies stand, and what they propose, from what the operator wrote."""

from __future__ import annotations

import argparse
from typing import Any

from trimtab_operator.cli.asking import add_output_option, add_verb, asked, fetch, print_data
from trimtab_operator.cli.failure import FINDING, FINE
from trimtab_operator.cli.status_output import as_data, condition, print_all, print_one
from trimtab_operator.cluster.api import POLICIES, Api

_DESCRIPTION = """\
Show where the policies of a namespace stand; of one policy also what it proposes: the moves, CPU before and after, what
they interrupt, and how far an approved proposal has come. It reads what the operator wrote, and measures nothing:
`trimtab plan` does. Exit code 1: a policy is not Ready; the table says why.

examples:
  trimtab status -n messaging
  trimtab status main -n messaging
  trimtab status main -n messaging -o json | jq -r .proposal.id
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "status", "show where policies, and their proposals, stand", _DESCRIPTION)
    parser.add_argument("policy", nargs="?", help="name of the BalancingPolicy (default: all of the namespace)")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    policies = asked(arguments, lambda api: _policies(api, arguments))
    data = [as_data(policy) for policy in policies]
    if arguments.output != "table":
        print_data(data[0] if arguments.policy else data, arguments.output)
    elif arguments.policy:
        print_one(data[0])
    else:
        print_all(data, arguments.namespace)
    return FINDING if any(condition(policy, "Ready")[0] == "False" for policy in data) else FINE


async def _policies(api: Api, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    if arguments.policy:
        return [await fetch(api, POLICIES, arguments.namespace, arguments.policy)]
    found = [policy async for page in api.list(POLICIES, arguments.namespace) for policy in page.items]
    return sorted(found, key=lambda policy: str(policy["metadata"]["name"]))
