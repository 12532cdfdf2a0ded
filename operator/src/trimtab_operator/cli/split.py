"""`trimtab split`: ask for a bundle to be divided."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from trimtab_operator.cli.asking import add_verb, asked, fetch
from trimtab_operator.cli.failure import FINE, CommandError
from trimtab_operator.cli.move import object_name
from trimtab_operator.cli.output import add_output_option, say
from trimtab_operator.cluster.api import BUNDLE_SPLITS, BUNDLES, Api, ConflictError
from trimtab_operator.resources.bundle_split import Algorithm
from trimtab_operator.resources.common import API_VERSION

_DESCRIPTION = """\
Divide a bundle: a BundleSplit object is made, which the operator carries out; `kubectl get bspl -w` shows how. The
children exist and are owned before the parent goes. A split can't be undone.

Without --at the bundle is cut in the middle of its range; --by names another of Pulsar's algorithms.

examples:
  trimtab split public-default-0x00000000-0x40000000 -n messaging
  trimtab split public/default/0x00000000_0x40000000 -n messaging --at 0x10000000 0x30000000
  trimtab split public/default/0x00000000_0x40000000 -n messaging --by topic_count_equally_divide
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "split", "divide a bundle", _DESCRIPTION)
    parser.add_argument("bundle", help="name of the Bundle object, or tenant/namespace/0xLLLLLLLL_0xUUUUUUUU")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--at", nargs="+", metavar="HASH", help="positions strictly inside its range, e.g. 0x20000000")
    names = [str(algorithm) for algorithm in Algorithm if algorithm is not Algorithm.POSITIONS]
    how.add_argument("--by", choices=names, default=str(Algorithm.RANGE), help="what finds the positions (%(default)s)")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    made = asked(arguments, lambda api: _split(api, arguments))
    name = made["metadata"]["name"]
    text = f"BundleSplit {name} is made; see: kubectl get bspl {name} -n {arguments.namespace}"
    say(arguments.output, text, {"split": name, **made["spec"]})
    return FINE


async def _split(api: Api, arguments: argparse.Namespace) -> dict[str, Any]:
    bundle = object_name(arguments.bundle)
    found = await fetch(api, BUNDLES, arguments.namespace, bundle)
    body = {
        "apiVersion": API_VERSION,
        "kind": "BundleSplit",
        "metadata": {"name": bundle},
        "spec": spec(arguments, bundle, found["spec"]["range"]),
    }
    try:
        return await api.create(BUNDLE_SPLITS, arguments.namespace, body)
    except ConflictError as error:
        raise CommandError(f"there is a BundleSplit {bundle} already: wait until it is done, or delete it") from error


def spec(arguments: argparse.Namespace, bundle: str, within: Mapping[str, str]) -> dict[str, Any]:
    """The spec of the BundleSplit. within: the bundle's range. Raises `CommandError` for a position that is none."""
    if not arguments.at:
        return {"bundle": bundle, "algorithm": arguments.by}
    positions = sorted({_position(text, within) for text in arguments.at})
    return {"bundle": bundle, "boundaries": [f"0x{position:08x}" for position in positions]}


def _position(text: str, within: Mapping[str, str]) -> int:
    lower, upper = within["lower"], within["upper"]
    try:
        position = int(text, 16)
    except ValueError:
        position = -1
    if not int(lower, 16) < position < int(upper, 16):
        middle = (int(lower, 16) + int(upper, 16) + 1) // 2
        within_it = f"strictly between {lower} and {upper}, the bundle's range, such as 0x{middle:08x}"
        raise CommandError(f"--at {text} must be a hash {within_it}")
    return position
