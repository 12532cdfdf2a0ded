"""`trimtab move`: move one bundle to a broker that a person names, or that the placement chooses."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from trimtab_operator.cli.cluster import add_cluster_verb, fetch
from trimtab_operator.cli.cluster_flags import add_dry_run_flag
from trimtab_operator.cli.commands.edit import BUNDLE, object_name
from trimtab_operator.cli.commands.measured_policy import add_measuring_options
from trimtab_operator.cli.common import FINDING, FINE, CommandError, add_output_option, say
from trimtab_operator.cli.dry_run import wrote
from trimtab_operator.kube.client import (
    BROKERS,
    BUNDLES,
    Api,
    ApiError,
    ApiUnavailableError,
    ConflictError,
    NotFoundError,
)

POLL = 0.3
"""Seconds between two reads of a bundle that moves."""

_DESCRIPTION = """\
Move a bundle to a broker: write spec.owner of its Bundle object, as `kubectl patch` would. This works in every mode of
a policy. BUNDLE is the name of the object, or the name in Pulsar.

Without BROKER the policy's placement chooses one, by the load measured now and within the policy's limits. Outside the
cluster, --prometheus names a URL at which you reach the policy's Prometheus.

A broker that is not ready or not schedulable is refused without --force. --wait waits until the broker confirms the
move, for at most --timeout seconds (then the exit code is 1).

examples:
  trimtab move public-default-0x00000000-0x40000000 pulsar-broker-2 -n messaging --wait
  trimtab move public/default/0x00000000_0x40000000 pulsar-broker-2 -n messaging --dry-run=server
  trimtab move public/default/0x00000000_0x40000000 -n messaging --prometheus http://localhost:9090
"""


@dataclass(frozen=True, slots=True)
class HandMove:
    """A move of the Bundle object `name` between Brokers; source is empty for a bundle without an owner."""

    name: str
    source: str
    destination: str


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_cluster_verb(subparsers, "move", _DESCRIPTION, _run)
    parser.add_argument("bundle", help=BUNDLE)
    parser.add_argument("broker", nargs="?", help="name of the Broker object (default: the placement chooses)")
    parser.add_argument("--force", action="store_true", help="move even if the broker is not ready or not schedulable")
    parser.add_argument("--wait", action="store_true", help="wait until the broker confirms the move")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="longest wait, in seconds (%(default)g)"
    )
    add_dry_run_flag(parser)
    add_output_option(parser)
    add_measuring_options(parser.add_argument_group("without BROKER"), policy=True)


def _run(arguments: argparse.Namespace) -> int:
    return wrote(arguments, lambda api: _write(api, arguments), partial(_tell, arguments))


async def _write(api: Api, arguments: argparse.Namespace) -> tuple[HandMove, bool]:
    """Write the desired owner, unless the broker already is the owner and the desired owner.

    Returns the move, and whether a write was needed. Raises `CommandError`, `ApiError`.
    """
    name = object_name(arguments.bundle)
    bundle = await fetch(api, BUNDLES, arguments.namespace, name)
    broker = arguments.broker or await _placed(api, arguments, bundle)
    _check(await fetch(api, BROKERS, arguments.namespace, broker), force=arguments.force)
    move = HandMove(name, _owner_of(bundle), broker)
    if move.source == broker == bundle["spec"].get("owner"):
        return move, False
    meta = {"resourceVersion": bundle["metadata"]["resourceVersion"]}
    body = {"metadata": meta, "spec": {"owner": broker, "assignment": None}}
    try:
        await api.patch(BUNDLES, arguments.namespace, name, body)
    except ConflictError as error:
        raise CommandError(f"bundle {name} was changed by another client just now; try again") from error
    return move, True


async def _why_not_landed(api: Api, arguments: argparse.Namespace, move: HandMove) -> str:
    """Wait until the broker confirms a move, for ``--timeout`` seconds. Returns why it did not; empty if it did."""
    deadline = time.monotonic() + arguments.timeout
    while True:
        await asyncio.sleep(POLL)
        late = time.monotonic() > deadline
        try:
            bundle = await api.get(BUNDLES, arguments.namespace, move.name)
        except NotFoundError:
            return "it was written, and the bundle was deleted meanwhile"
        except ApiError as error:
            if late or not isinstance(error, ApiUnavailableError):
                return f"it was written, and its owner can't be read: {error}"
            continue
        wish = bundle["spec"].get("owner", "")
        if _owner_of(bundle) == move.destination:
            return ""
        if wish != move.destination:
            return f"another client set its owner to {wish or '(none)'} meanwhile"
        if late:
            return f"{move.destination} did not confirm it within {arguments.timeout:g} s"


def _owner_of(bundle: Mapping[str, Any]) -> str:
    """The broker that confirmed the bundle; empty for none."""
    return str((bundle.get("status") or {}).get("owner") or "")


async def _placed(api: Api, arguments: argparse.Namespace, bundle: dict[str, Any]) -> str:
    """The broker that the policy's placement chooses. Raises `CommandError` and `ApiError`."""
    from trimtab_operator.cli.commands.relief_plan import placed  # noqa: PLC0415  (takes a while to load)

    if not (source := _owner_of(bundle)):
        raise CommandError(f"bundle {bundle['metadata']['name']} has no owner to leave; name a broker")
    return await placed(api, arguments, bundle, source)


async def _tell(arguments: argparse.Namespace, api: Api, requested: tuple[HandMove, bool]) -> int:
    """Wait if ``--wait`` is given, print the outcome, and return the exit code."""
    move, written = requested
    landed, text = not written, f"{move.name} is on {move.destination} already"
    if written:
        text = f"{move.name}: move {move.source or '(no owner)'} -> {move.destination} requested"
        if arguments.wait:
            why = await _why_not_landed(api, arguments, move)
            landed = not why
            text = f"{move.name} is on {move.destination}" if landed else f"{move.name}: {why}"
    well = landed or not arguments.wait
    ends = {"source": move.source, "destination": move.destination}
    say(arguments.output, text, {"bundle": move.name, **ends, "landed": landed, "message": text}, well=well)
    return FINE if well else FINDING


def _check(broker: dict[str, Any], *, force: bool) -> None:
    name, ready = broker["metadata"]["name"], (broker.get("status") or {}).get("ready", False)
    takes = broker["spec"].get("schedulable", True)
    if not force and not (ready and takes):
        why = "takes no bundles (spec.schedulable is false)" if ready else "is not ready"
        raise CommandError(f"broker {name} {why}; name another one, or add --force")
