"""`trimtab drain`: let a broker take no more bundles."""

from __future__ import annotations

import argparse

from trimtab_operator.cli.asking import add_verb, asked, fetch
from trimtab_operator.cli.failure import FINE
from trimtab_operator.cli.output import add_output_option, say
from trimtab_operator.cluster.api import BROKERS, Api

_DESCRIPTION = """\
Empty a broker: its Broker object's spec.schedulable becomes false. It gets no bundles any more, and a policy moves off
what it has: at once in mode Auto, as a proposal in mode Approve. Its condition Drained says how far that is, so
kubectl wait --for=condition=Drained broker/NAME works. --undo opens it again.

examples:
  trimtab drain pulsar-broker-2 -n messaging
  trimtab drain pulsar-broker-2 -n messaging --undo
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "drain", "let a broker take no bundles", _DESCRIPTION)
    parser.add_argument("broker", help="name of the Broker object")
    parser.add_argument("--undo", action="store_true", help="let it take bundles again")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    owned = asked(arguments, lambda api: _set(api, arguments))
    name = arguments.broker
    text = f"{name} takes bundles again"
    if not arguments.undo:
        empty = f"kubectl wait broker/{name} -n {arguments.namespace} --for=condition=Drained --timeout=10m"
        text = f"{name} takes no bundles any more; it has {owned} now; until it is empty: {empty}"
    say(arguments.output, text, {"broker": name, "schedulable": arguments.undo, "bundles": owned})
    return FINE


async def _set(api: Api, arguments: argparse.Namespace) -> int:
    """How many bundles the broker has."""
    broker = await fetch(api, BROKERS, arguments.namespace, arguments.broker)
    await api.patch(BROKERS, arguments.namespace, arguments.broker, {"spec": {"schedulable": arguments.undo}})
    return int((broker.get("status") or {}).get("bundles") or 0)
