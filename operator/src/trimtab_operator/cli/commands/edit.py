"""`trimtab pause`, `resume`, `drain`, `undrain` and `split`: write one object of the cluster."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from trimtab_operator.cli.cluster import add_cluster_verb, fetch
from trimtab_operator.cli.cluster_flags import add_dry_run_flag
from trimtab_operator.cli.common import FINDING, FINE, CommandError, add_output_option, say, spoken
from trimtab_operator.cli.dry_run import wrote
from trimtab_operator.kube import naming
from trimtab_operator.kube.client import BROKERS, BUNDLE_SPLITS, BUNDLES, POLICIES, Api, ConflictError
from trimtab_operator.resources.bundle_split import Algorithm
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.policy_status import PAUSE_ANNOTATION

BUNDLE = "name of the Bundle object, or tenant/namespace/0xLLLLLLLL_0xUUUUUUUU"
"""Help of an argument that names a bundle."""

_PAUSE_DESCRIPTION = """\
Pause a policy until `trimtab resume`: it plans nothing, splits nothing, and starts no further move of an approved
proposal. Bundles of lost brokers still get owners, and manual moves still happen. The command sets the annotation
trimtab.dev/paused. It does not change spec.paused, which Git may manage.

example:
  trimtab pause main -n messaging
"""

_RESUME_DESCRIPTION = """\
Resume a policy that `trimtab pause` paused: remove the annotation trimtab.dev/paused. If spec.paused is true as well,
the policy stays paused, and the exit code is 1.

example:
  trimtab resume main -n messaging
"""


def _register_pause(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _add_pause(subparsers, "pause", _PAUSE_DESCRIPTION, paused=True)


def _register_resume(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _add_pause(subparsers, "resume", _RESUME_DESCRIPTION, paused=False)


def _add_pause(subparsers: Any, verb: str, description: str, *, paused: bool) -> None:
    parser = add_cluster_verb(subparsers, verb, description, _run_pause)
    parser.set_defaults(paused=paused)
    _add_options(parser, "policy", "name of the BalancingPolicy")


def _add_options(parser: argparse.ArgumentParser, target: str, text: str) -> None:
    """Add the name of the object to edit, and the options of every edit. text: help for the name."""
    parser.add_argument(target, help=text)
    add_dry_run_flag(parser)
    add_output_option(parser)


def _run_pause(arguments: argparse.Namespace) -> int:
    return wrote(arguments, lambda api: _annotate(api, arguments), partial(_tell_pause, arguments))


async def _annotate(api: Api, arguments: argparse.Namespace) -> bool:
    """Set the pause annotation, or remove it. Returns whether spec.paused is true as well."""
    found = await fetch(api, POLICIES, arguments.namespace, arguments.policy)
    body = {"metadata": {"annotations": {PAUSE_ANNOTATION: "true" if arguments.paused else None}}}
    await api.patch(POLICIES, arguments.namespace, arguments.policy, body)
    return bool(found["spec"].get("paused"))


async def _tell_pause(arguments: argparse.Namespace, _api: Api, in_spec: bool) -> int:  # noqa: FBT001
    policy, paused, well = arguments.policy, arguments.paused or in_spec, arguments.paused or not in_spec
    if arguments.paused:
        text = spoken(f"{policy} is paused; continue with: trimtab resume {policy} -n {arguments.namespace}")
    elif in_spec:
        text = f"{policy} stays paused: spec.paused is true; set it to false in the policy's manifest"
    else:
        text = f"{policy} is resumed"
    say(arguments.output, text, {"policy": policy, "paused": paused}, well=well)
    return FINE if well else FINDING


_DRAIN_DESCRIPTION = """\
Drain a broker: set spec.schedulable of its Broker object to false. It gets no more bundles, and its policy moves its
bundles away: immediately in mode Auto, as a proposal in mode Approve. The condition Drained shows the progress, so
`kubectl wait --for=condition=Drained broker/NAME` works. `trimtab undrain` ends the drain.

examples:
  trimtab drain pulsar-broker-2 -n messaging
  trimtab drain pulsar-broker-2 -n messaging --dry-run
"""

_UNDRAIN_DESCRIPTION = """\
End the drain of a broker: set spec.schedulable of its Broker object to true. It may get bundles again, with the next
decisions of its policy. Those that left it do not come back by themselves.

example:
  trimtab undrain pulsar-broker-2 -n messaging
"""


def _register_drain(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _add_schedulable(subparsers, "drain", _DRAIN_DESCRIPTION, schedulable=False)


def _register_undrain(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _add_schedulable(subparsers, "undrain", _UNDRAIN_DESCRIPTION, schedulable=True)


def _add_schedulable(subparsers: Any, verb: str, description: str, *, schedulable: bool) -> None:
    parser = add_cluster_verb(subparsers, verb, description, _run_schedulable)
    parser.set_defaults(schedulable=schedulable)
    _add_options(parser, "broker", "name of the Broker object")


def _run_schedulable(arguments: argparse.Namespace) -> int:
    return wrote(arguments, lambda api: _set(api, arguments), partial(_tell_schedulable, arguments))


async def _tell_schedulable(arguments: argparse.Namespace, _api: Api, owned: int) -> int:
    name = arguments.broker
    text = f"{name} is schedulable again"
    if not arguments.schedulable:
        empty = f"kubectl wait broker/{name} -n {arguments.namespace} --for=condition=Drained --timeout=10m"
        text = f"{name} is not schedulable any more; it has {owned} bundles now; wait until it is empty: {empty}"
    say(arguments.output, text, {"broker": name, "schedulable": arguments.schedulable, "bundles": owned})
    return FINE


async def _set(api: Api, arguments: argparse.Namespace) -> int:
    """Set spec.schedulable. Returns how many bundles the broker has."""
    broker = await fetch(api, BROKERS, arguments.namespace, arguments.broker)
    body = {"spec": {"schedulable": arguments.schedulable}}
    await api.patch(BROKERS, arguments.namespace, arguments.broker, body)
    return int((broker.get("status") or {}).get("bundles") or 0)


def object_name(bundle: str) -> str:
    """Name of the Bundle object. bundle: this name, or the name in Pulsar. Raises `CommandError`."""
    try:
        return naming.object_name(bundle)
    except ValueError as error:
        raise CommandError(str(error)) from error


_SPLIT_DESCRIPTION = """\
Split a bundle: create a BundleSplit object, which the operator carries out. `kubectl get bspl -w` shows the progress.
The children exist and have an owner before the parent is deleted. A split can't be undone.

Without --at the bundle is cut in the middle of its range. --by chooses another of Pulsar's algorithms.

examples:
  trimtab split public-default-0x00000000-0x40000000 -n messaging
  trimtab split public/default/0x00000000_0x40000000 -n messaging --at 0x10000000 0x30000000
  trimtab split public/default/0x00000000_0x40000000 -n messaging --by topic_count_equally_divide
"""


def _register_split(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_cluster_verb(subparsers, "split", _SPLIT_DESCRIPTION, _run_split)
    parser.add_argument("bundle", help=BUNDLE)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--at", nargs="+", metavar="HASH", help="positions strictly inside its range, e.g. 0x20000000")
    names = [str(algorithm) for algorithm in Algorithm if algorithm is not Algorithm.POSITIONS]
    how.add_argument("--by", choices=names, default=str(Algorithm.RANGE), help="split algorithm (%(default)s)")
    add_dry_run_flag(parser)
    add_output_option(parser)


def _run_split(arguments: argparse.Namespace) -> int:
    return wrote(arguments, lambda api: _split(api, arguments), partial(_tell_split, arguments))


async def _tell_split(arguments: argparse.Namespace, _api: Api, made: Mapping[str, Any]) -> int:
    name = made["metadata"]["name"]
    text = f"BundleSplit {name} is created; see: kubectl get bspl {name} -n {arguments.namespace}"
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
    """The spec of the BundleSplit. within: the bundle's range. Raises `CommandError` for an invalid position."""
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
