"""`trimtab explain` (why a bundle moved or stays, why a broker gives or gets bundles) and `trimtab why-not`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from trimtab_operator.cli.cluster import add_cluster_verb, asked, fetch
from trimtab_operator.cli.common import FINDING, FINE, HELP, CommandError, add_output_option, moment, print_data, spoken
from trimtab_operator.cli.why.answers import Answer
from trimtab_operator.cli.why.broker import BrokerExplanation
from trimtab_operator.cli.why.bundle import BundleExplanation
from trimtab_operator.cli.why.records import RecordsFound, about_broker, about_bundle, is_broker
from trimtab_operator.kube.client import BROKERS, Api

KINDS = ("bundle", "broker")

_EXPLAIN_DESCRIPTION = """\
Explain why a bundle moved or stays, or why a broker gives bundles away, keeps them, or gets some. The first line is the
answer. Then come the figures that were compared, and steps to change the outcome.

The answer comes from the last decisions of the policy, which the operator keeps in the ConfigMap
trimtab-decisions-POLICY, and from the current objects. With --history it comes only from the operator's history, which
holds every decision. Exit code 1: nothing was decided yet.

examples:
  trimtab explain broker pulsar-broker-3 -n messaging
  trimtab explain bundle public/default/0x00000000_0x40000000 -n messaging
  trimtab explain bundle public-default-0x00000000-0x40000000 -n messaging -o json
  trimtab explain broker pulsar-broker-3 --history trimtab-history --at 2026-11-21T03:00:00Z
"""


def _register_explain(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_cluster_verb(subparsers, "explain", _EXPLAIN_DESCRIPTION, _run_explain)
    parser.add_argument("kind", type=_kind_of_explain, choices=KINDS, metavar="bundle|broker", help="kind of NAME")
    parser.add_argument("name", metavar="NAME", help="name of the object; for a bundle also the name in Pulsar")
    add_history_options(parser)
    add_output_option(parser, shapes=("text", "json", "yaml"))


def _kind_of_explain(text: str) -> str:
    """A kind. Raises `ArgumentTypeError` for another word, such as a name or kubectl's ``bundle/NAME``."""
    if text in KINDS:
        return text
    word, _, name = text.partition("/")
    if (kind := word.lower().removesuffix("s")) in KINDS:
        name = name or "NAME"
    else:
        kind, name = ("bundle" if "0x" in text else "|".join(KINDS)), text
    raise argparse.ArgumentTypeError(f"{text} is neither {' nor '.join(KINDS)}; write: trimtab explain {kind} {name}")


def _run_explain(arguments: argparse.Namespace) -> int:
    found = _found(arguments)
    return print_answer(explanation_of(found).explain(), found, arguments.output)


def _found(arguments: argparse.Namespace, to: str = "") -> RecordsFound:
    """What the history or the cluster says about a bundle or broker. to: a broker that must exist in the cluster."""
    if arguments.history is not None:
        from trimtab_operator.cli.why.history_records import recalled  # noqa: PLC0415  (needs pyarrow)

        return recalled(arguments.history, arguments.policy, arguments.kind or "", arguments.name, arguments.at)
    if arguments.at is not None or arguments.policy is not None:
        raise CommandError("--at and --policy need --history DIR")
    return asked(arguments, lambda api: _found_live(api, arguments, to))


async def _found_live(api: Api, arguments: argparse.Namespace, to: str) -> RecordsFound:
    namespace, name = arguments.namespace, arguments.name
    broker = arguments.kind == "broker" if arguments.kind else await is_broker(api, namespace, name)
    if to:
        await fetch(api, BROKERS, namespace, to)
    return await about_broker(api, namespace, name) if broker else await about_bundle(api, namespace, name)


def explanation_of(found: RecordsFound) -> BundleExplanation | BrokerExplanation:
    """The explanation for the bundle or broker in `found`."""
    if found.of_bundle:
        return BundleExplanation(found.name, found.broker, found.facts, found.records)
    return BrokerExplanation(found.name, found.facts, found.records)


def add_history_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--history``, ``--at`` and ``--policy``."""
    past = parser.add_argument_group("from history")
    past.add_argument("--history", metavar="DIR", help="history folder of `trimtab run --history`")
    past.add_argument("--at", type=moment, metavar="TIME", help=HELP)
    past.add_argument("--policy", help="policy whose history to read, if there are several")


def print_text(text: str) -> None:
    """Print lines, folded on a terminal that is too narrow for them."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.text import Text  # noqa: PLC0415  (takes a while to load)

    from trimtab_operator.cli.tables import console  # noqa: PLC0415  (loads rich)

    console().print(Text(text))


def print_answer(answer: Answer | None, found: RecordsFound, output: str) -> int:
    """Print an answer, and return the exit code."""
    if answer is None:
        print(spoken(f"trimtab: nothing was decided about {found.name} yet: {found.next_cycle}"), file=sys.stderr)
        return FINDING
    if output == "text":
        print_text(spoken(answer.text()))
    else:
        print_data(answer.as_data(), output)
    return FINE


_WHY_NOT_DESCRIPTION = """\
Explain why a bundle did not move, why it did not move to a certain broker, or why a broker gets no bundles. What holds
the bundle or broker now (a pause, a pin, a cool-down, a cap) comes first, with the time when that ends.
Then come the figures that were compared.

With --history the answer comes only from the operator's history. Exit code 1: nothing was decided yet.

examples:
  trimtab why-not public-default-0x00000000-0x40000000 -n messaging
  trimtab why-not public/default/0x00000000_0x40000000 --to pulsar-broker-2 -n messaging
  trimtab why-not pulsar-broker-2 -n messaging
  trimtab why-not broker pulsar-broker-2 -n messaging     with the kind of the name, as for explain
"""


def _kind(text: str) -> str:
    """A kind. The second of two other words probably is the broker of ``--to``. Raises `ArgumentTypeError`."""
    if text not in KINDS:
        hint = f"name the broker of a move with --to: trimtab why-not {text} --to BROKER"
        raise argparse.ArgumentTypeError(f"{text} is neither {' nor '.join(KINDS)}; {hint}")
    return text


class _Name(argparse.Action):
    """Stores the name. Rejects a kind that no name follows: argparse takes that word for the name."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,  # noqa: ARG002  (argparse's signature)
    ) -> None:
        if values in KINDS and not namespace.kind:
            parser.error(f"the name of the {values} must follow directly: {parser.prog} {values} NAME")
        setattr(namespace, self.dest, values)


def _register_why_not(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_cluster_verb(subparsers, "why-not", _WHY_NOT_DESCRIPTION, _run_why_not)
    kinds = "|".join(KINDS)
    parser.add_argument(
        "kind", nargs="?", type=_kind, choices=KINDS, metavar=kinds, help="kind of NAME (default: either)"
    )
    parser.add_argument(
        "name", action=_Name, metavar="NAME", help="name of the object; for a bundle also the name in Pulsar"
    )
    parser.add_argument("--to", metavar="BROKER", default="", help="broker to which the bundle did not move")
    add_history_options(parser)
    add_output_option(parser, shapes=("text", "json", "yaml"))


def _run_why_not(arguments: argparse.Namespace) -> int:
    found = _found(arguments, arguments.to)
    return print_answer(explanation_of(found).why_not(arguments.to), found, arguments.output)
