"""`trimtab status`: where policies stand, and what they propose."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

from trimtab_operator.cli.asking import add_verb, asked, fetch, near, unknown_kind
from trimtab_operator.cli.failure import FINDING, FINE, CommandError
from trimtab_operator.cli.output import add_output_option, is_data, print_data
from trimtab_operator.cli.status_output import as_data, condition, print_all, print_one
from trimtab_operator.cli.watching import watch
from trimtab_operator.cluster.api import POLICIES, Api, NotFoundError

_DESCRIPTION = """\
Show where the policies of a namespace stand; of one policy also what it proposes: the moves, CPU before and after, what
they interrupt, and how far an approved proposal has come. It reads what the operator wrote, and measures nothing:
`trimtab plan` does. Exit code 1: a policy is not Ready; the table says why.

With -w it goes on until Ctrl-C: a table that is drawn anew in its place on a terminal, with the bundles that are on
their way; elsewhere a line for each change (with -o json an object a line).

examples:
  trimtab status -n messaging
  trimtab status -A -o wide
  trimtab status main -n messaging
  trimtab status main -n messaging --watch
  trimtab status main -n messaging -o json | jq -r .proposal.id
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_verb(
        subparsers, "status", "show where policies, and their proposals, stand", _DESCRIPTION, everywhere=True
    )
    parser.add_argument("policy", nargs="?", help="name of the BalancingPolicy (default: all of the namespace)")
    parser.add_argument("-w", "--watch", action="store_true", help="go on showing it until Ctrl-C")
    add_output_option(parser, wide=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    if arguments.watch:
        with suppress(KeyboardInterrupt):
            return asked(arguments, lambda api: watch(api, arguments, policies))
        return FINE
    found = asked(arguments, lambda api: policies(api, arguments))
    data = [as_data(policy) for policy in found]
    one = bool(arguments.policy) and bool(arguments.namespace)
    if is_data(arguments.output):
        print_data(data[0] if one else data, arguments.output)
    elif one:
        print_one(data[0], arguments.color)
    else:
        print_all(data, arguments.namespace, arguments.color, wide=arguments.output == "wide")
    return FINDING if any(condition(policy, "Ready")[0] == "False" for policy in data) else FINE


async def policies(api: Api, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The BalancingPolicy objects that are asked for, by namespace and name. Raises `CommandError`, `ApiError`."""
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
