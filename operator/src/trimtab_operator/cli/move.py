"""`trimtab move`: wish a bundle on another broker."""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

from trimtab_operator.cli.asking import add_verb, asked, fetch
from trimtab_operator.cli.failure import FINDING, FINE, CommandError
from trimtab_operator.cli.output import add_output_option, say
from trimtab_operator.cluster.api import BROKERS, BUNDLES, Api, ConflictError
from trimtab_operator.cluster.naming import bundle_name, parse_pulsar_bundle

_POLL = 0.3

_DESCRIPTION = """\
Move a bundle to a broker: its Bundle object's spec.owner is written, as `kubectl patch` would. Brokers carry it out in
every mode of every policy. The bundle is named as its object is, or as Pulsar spells it.

A broker that is not ready, or takes no bundles, is refused unless --force says so. With --wait: until the broker has
confirmed it, or --timeout is over (exit code 1).

examples:
  trimtab move public-default-0x00000000-0x40000000 pulsar-broker-2 -n messaging --wait
  trimtab move public/default/0x00000000_0x40000000 pulsar-broker-2 -n messaging
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "move", "move a bundle to a broker", _DESCRIPTION)
    parser.add_argument("bundle", help="name of the Bundle object, or tenant/namespace/0xLLLLLLLL_0xUUUUUUUU")
    parser.add_argument("broker", help="name of the Broker object")
    parser.add_argument("--force", action="store_true", help="even if the broker is not ready, or takes no bundles")
    parser.add_argument("--wait", action="store_true", help="wait until the broker has confirmed it")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait for that (%(default)g)"
    )
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    return asked(arguments, lambda api: _move(api, arguments))


def object_name(bundle: str) -> str:
    """Name of the Bundle object of a bundle as a person names it. Raises `CommandError`."""
    if "/" not in bundle:
        return bundle
    try:
        return bundle_name(*parse_pulsar_bundle(bundle))
    except ValueError as error:
        raise CommandError(str(error)) from error


async def _move(api: Api, arguments: argparse.Namespace) -> int:
    name, broker = object_name(arguments.bundle), arguments.broker
    bundle = await fetch(api, BUNDLES, arguments.namespace, name)
    _check(await fetch(api, BROKERS, arguments.namespace, broker), force=arguments.force)
    source = _owner(bundle)
    if source == broker == bundle["spec"].get("owner"):
        return _told(arguments, name, source, f"{name} is on {broker} already", landed=True)
    meta = {"resourceVersion": bundle["metadata"]["resourceVersion"]}
    wish = {"metadata": meta, "spec": {"owner": broker, "assignment": None}}
    try:
        await api.patch(BUNDLES, arguments.namespace, name, wish)
    except ConflictError as error:
        raise CommandError(f"bundle {name} was changed by somebody else just now; try again") from error
    text = f"{name}: {source or '(nobody)'} -> {broker} is wished"
    landed = False
    if arguments.wait:
        landed, text = await _landed(api, arguments, name)
    return _told(arguments, name, source, text, landed=landed)


def _told(arguments: argparse.Namespace, name: str, source: str, text: str, *, landed: bool) -> int:
    """Print what became of it; the exit code."""
    well = landed or not arguments.wait
    data = {"bundle": name, "source": source, "destination": arguments.broker, "landed": landed, "message": text}
    say(arguments.output, text, data, well=well)
    return FINE if well else FINDING


async def _landed(api: Api, arguments: argparse.Namespace, name: str) -> tuple[bool, str]:
    """Whether the broker has confirmed it, and what to tell."""
    deadline = time.monotonic() + arguments.timeout
    while True:
        bundle = await fetch(api, BUNDLES, arguments.namespace, name)
        if _owner(bundle) == arguments.broker:
            return True, f"{name} is on {arguments.broker}"
        if bundle["spec"].get("owner") != arguments.broker:
            return False, f"{name}: somebody wished it on {bundle['spec'].get('owner') or 'nobody'} meanwhile"
        if time.monotonic() > deadline:
            return False, f"{name}: {arguments.broker} did not confirm it within {arguments.timeout:g} s"
        await asyncio.sleep(_POLL)


def _owner(bundle: dict[str, Any]) -> str:
    return str((bundle.get("status") or {}).get("owner") or "")


def _check(broker: dict[str, Any], *, force: bool) -> None:
    name, ready = broker["metadata"]["name"], (broker.get("status") or {}).get("ready", False)
    takes = broker["spec"].get("schedulable", True)
    if not force and not (ready and takes):
        why = "takes no bundles (spec.schedulable is false)" if ready else "is not ready"
        raise CommandError(f"broker {name} {why}; name another one, or add --force")
