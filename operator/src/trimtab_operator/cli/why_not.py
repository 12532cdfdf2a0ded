"""`trimtab why-not`: why a bundle did not move, or a broker got none."""

from __future__ import annotations

import argparse

from trimtab_operator.cli.asking import add_verb, asked, fetch
from trimtab_operator.cli.explain import add_history_options, check_live, story, tell
from trimtab_operator.cli.finding_records import Found, about_broker, about_bundle, is_broker
from trimtab_operator.cli.output import add_output_option
from trimtab_operator.cli.recalled_records import recalled
from trimtab_operator.cluster.api import BROKERS, Api

_DESCRIPTION = """\
Say why a bundle did not move, or did not go to some broker; or why a broker gets no bundles. What holds it now (a
pause, a pin, a cool-down, a quarantine, a cap) comes first, with the time until when; then what was compared.

With --history the answer comes from the operator's disk alone. Exit code 1: nothing was decided yet.

examples:
  trimtab why-not public-default-0x00000000-0x40000000 -n messaging
  trimtab why-not public/default/0x00000000_0x40000000 --to pulsar-broker-2 -n messaging
  trimtab why-not pulsar-broker-2 -n messaging
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "why-not", "say why a bundle did not move, or a broker got none", _DESCRIPTION)
    parser.add_argument("name", metavar="BUNDLE|BROKER", help="of the object; of a bundle also as Pulsar spells it")
    parser.add_argument("--to", metavar="BROKER", default="", help="the broker it might have gone to")
    add_history_options(parser)
    add_output_option(parser, shapes=("text", "json", "yaml"))
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    if arguments.history is not None:
        found = recalled(arguments.history, arguments.policy, "", arguments.name, arguments.at)
    else:
        check_live(arguments)
        found = asked(arguments, lambda api: _found(api, arguments))
    return tell(story(found).why_not(arguments.to), found, arguments.output)


async def _found(api: Api, arguments: argparse.Namespace) -> Found:
    namespace, name = arguments.namespace, arguments.name
    broker = await is_broker(api, namespace, name)
    if arguments.to:
        await fetch(api, BROKERS, namespace, arguments.to)
    return await about_broker(api, namespace, name) if broker else await about_bundle(api, namespace, name)
