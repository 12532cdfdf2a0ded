"""`trimtab plan`: shows what the next cycle would do, for a policy in the cluster or one in a file.

A policy from a file is checked as `trimtab lint` does. The plan is made with it instead of with the live policy, which
stays as it is. The output names the checks that only the operator makes against a real Pulsar cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from trimtab_operator.cli.cluster import asked, fetch
from trimtab_operator.cli.cluster_flags import add_cluster_flags
from trimtab_operator.cli.commands.edit import object_name
from trimtab_operator.cli.commands.measured_policy import (
    add_measuring_options,
    measurable,
    measuring_urls,
    named_policy,
    refusals_told,
)
from trimtab_operator.cli.commands.plan_file import write_plan
from trimtab_operator.cli.commands.plan_manifest import given_policy, standing_in
from trimtab_operator.cli.commands.plan_table import Stand, show
from trimtab_operator.cli.commands.relief_plan import previewed, relieving
from trimtab_operator.cli.common import FINDING, FINE, CommandError, add_output_option, add_verb, iso
from trimtab_operator.kube.client import BROKERS, Api
from trimtab_operator.loop.preview import Preview
from trimtab_operator.proposals.saved_plan import KIND, MOST_MOVES, MovePlan, SavedMove
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_operator.state.settings import Settings
from trimtab_strategies.model import counted
from trimtab_strategies.planner.relief import BrokerRelief

_FOUND = ("Linked", "PulsarBalancerDisabled", "DataTrusted")
"""Conditions that only the operator checks, in the order in which a user should fix them."""


def unasked(settings: Settings, status: Mapping[str, Any], namespace: str) -> list[str]:
    """Notes on checks that the plan lacks; none without a Pulsar cluster.

    status: the policy's status in the cluster, empty if there is none yet.
    """
    if settings.pulsar is None:
        return []
    found = list(_refused(status))
    alone = "only the operator checks whether Prometheus shows these brokers, and whether Pulsar's own balancer is off"
    where = "" if found else f": trimtab status {settings.name} -n {namespace}"
    return [f"Pulsar was not checked: {alone}{where}", *found]


def _refused(status: Mapping[str, Any]) -> Iterator[str]:
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    for kind in _FOUND:
        found = conditions.get(kind)
        if found is not None and found["status"] == "False":
            yield f"the operator found {kind} False: {found['reason']}: {found.get('message', '')}"


_DESCRIPTION = """\
Show what the next cycle of a policy would do, and why it would not do more. The command writes nothing.

-f reads the policy from a file, a folder of manifests or standard input (-), and -k from a kustomization. The plan is
made as if this policy were in the cluster, in place of the one of that name if there is one. So you see the effect of a
change before you merge it. All other policies are read from the cluster.

--from plans the relief of one broker instead: moves away from it until it carries the average. The policy's placement
chooses the destinations. Its limits, isolation, pins and cool-downs apply. To empty a broker, use `trimtab drain`.

--save writes the moves to a file that you can edit and carry out with `trimtab approve -f`.

The command measures the cluster as the operator does. Outside the cluster, --prometheus names a URL at which you reach
the same server, for example by `kubectl port-forward`. Neither Spark nor Java is needed, unless --spark is given. The
state of the strategies is read from the cluster. Long-term averages and the samples of the last minutes are read from
the copy of the operator's history that --history names. Without --history, there are no such samples, and the averages
begin with this measurement. For a policy with `spec.pulsar`, notes name the checks that only the operator makes.

Exit code: 2 for wrong usage, or if there is no data, else 0. With --exit-code, 1 if something would be moved or split.

examples:
  trimtab plan cluster-a --namespace messaging
  trimtab plan cluster-a --namespace messaging -o json | jq .moves
  trimtab plan -f policy.yaml -n messaging --prometheus http://localhost:9090
  trimtab plan -k overlays/production main -n messaging --prometheus http://localhost:9090
  trimtab plan cluster-a -n messaging --save plan.yaml
  trimtab plan cluster-a -n messaging --from pulsar-broker-3 --save plan.yaml
  trimtab plan -f policy.yaml -n messaging --exit-code || echo "merging this moves bundles"
"""


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(subparsers, "plan", _DESCRIPTION, _run)
    parser.add_argument(
        "policy",
        nargs="?",
        help="name of the BalancingPolicy (default: the only one in the cluster, or in FILE)",
    )
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument(
        "-f", "--filename", metavar="FILE", help="file or folder with the policy, or - for standard input"
    )
    origin.add_argument("-k", "--kustomize", metavar="DIR", help="kustomization with the policy; needs kubectl")
    parser.add_argument("--save", metavar="FILE", help="file to save the moves to, for `trimtab approve -f`")
    parser.add_argument("--from", dest="broker", metavar="BROKER", help="name of the Broker to relieve")
    parser.add_argument("--exit-code", action="store_true", help="exit with 1 if something would be moved or split")
    add_cluster_flags(parser)
    add_measuring_options(parser)
    add_output_option(parser)


def _run(arguments: argparse.Namespace) -> int:
    urls, given = measuring_urls(arguments), given_policy(arguments)
    stand, foreseen = asked(arguments, lambda api: _foresee(api, arguments, given, urls))
    notes = unasked(foreseen.settings, stand.status, arguments.namespace)
    if arguments.save:
        notes = [*notes, *_saved(arguments, foreseen)]
    show(stand, foreseen, arguments.output, arguments.color, notes)
    moves = bool(foreseen.plan.moves or foreseen.plan.splits) and foreseen.refusal is None
    return FINDING if arguments.exit_code and moves else FINE


async def _foresee(
    api: Api, arguments: argparse.Namespace, given: Mapping[str, Any] | None, urls: AllowedUrls
) -> tuple[Stand, Preview]:
    with refusals_told():
        stand, relief = await _stand(api, arguments, given), None
        if arguments.broker:
            await fetch(api, BROKERS, arguments.namespace, arguments.broker)
            relief = relieving(stand.manifest, BrokerRelief(arguments.broker))
        return stand, await previewed(api, arguments, stand.manifest, urls, relief)


async def _stand(api: Api, arguments: argparse.Namespace, given: Mapping[str, Any] | None) -> Stand:
    """The policy to plan for. Raises `InvalidPolicyError`, `CommandError` and `ApiError`."""
    if given is None:
        stand = Stand(await named_policy(api, arguments.namespace, arguments.policy))
    else:
        stand = await standing_in(api, given, arguments.namespace)
    return replace(stand, manifest=measurable(arguments, stand.manifest))


def _saved(arguments: argparse.Namespace, foreseen: Preview) -> list[str]:
    """Save the plan to the file of ``--save``, and return notes about it. Raises `CommandError`."""
    plan = foreseen.plan
    if len(plan.moves) > MOST_MOVES:
        raise CommandError(f"the plan has {len(plan.moves)} moves, and a file may have {MOST_MOVES}: lower spec.limits")
    made_at = datetime.fromisoformat(iso(foreseen.snapshot.load.now))
    found = MovePlan(
        kind=KIND,
        namespace=arguments.namespace,
        policy=foreseen.settings.name,
        made_at=made_at,
        moves=_moves(foreseen),
    )
    write_plan(found, arguments.save)
    notes = [f"saved {counted(len(plan.moves), 'move')}; carry them out with: trimtab approve -f {arguments.save}"]
    if plan.splits:
        notes.append(f"not saved: {counted(len(plan.splits), 'split')}; a split can't be undone (trimtab split)")
    return notes


def _moves(foreseen: Preview) -> tuple[SavedMove, ...]:
    records = foreseen.snapshot.records
    return tuple(
        SavedMove(
            bundle=_spelt(move.bundle, records[move.bundle].name),
            source=move.source,
            destination=move.destination,
            reason=str(move.reason),
        )
        for move in foreseen.plan.moves
    )


def _spelt(full: str, name: str) -> str:
    """The bundle's name in Pulsar if the object's name follows from it, else the object's name."""
    return full if object_name(full) == name else name
