"""`trimtab plan`: what the next cycle would do, from the live cluster; of a policy in it, or of one in a file."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab_operator.app import following, new_context
from trimtab_operator.cli.asking import PATIENCE, fetch, names_of, said
from trimtab_operator.cli.cluster_flags import add_cluster_flags, settle_namespace
from trimtab_operator.cli.failure import FINDING, FINE, CommandError
from trimtab_operator.cli.output import add_output_option
from trimtab_operator.cli.plan_output import show
from trimtab_operator.cli.policy_file import Stand, policy_from, standing_in
from trimtab_operator.cli.run import add_url_option, allowed_urls, load_sources
from trimtab_operator.cli.unasked import unasked
from trimtab_operator.cluster.api import POLICIES, Api, ApiError
from trimtab_operator.control.foresee import Foreseen, foresee
from trimtab_operator.control.memory import ForeignMemoryError
from trimtab_operator.control.settings import InvalidPolicyError, Settings
from trimtab_operator.resources.urls import SERVICES_ALONE, AllowedUrls, RefusedUrlError, UrlPattern, parse
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.source import LoadSources, SourceUnavailableError
from trimtab_strategies.model import some

_NAMED = 10
"""Policies that an error lists."""

_ASKED = (
    "{policy} measures bundles by what brokers tell the operator (bundleMetrics: Statistics), which plan does not ask; "
    "see its own plan: trimtab status {policy} -n {namespace}"
)

_DESCRIPTION = """\
Show what the next cycle of a policy would do, and why it would do nothing else. Writes nothing to the cluster.

With -f the policy comes from a file (- for standard input), and stands in for the one of its name in the cluster, or
would be a new one: that is what a change would do before it is merged. All other policies are as the cluster has them.

It measures the cluster as the operator does; outside of the cluster, --prometheus says how the same server is reached
from here, such as by a `kubectl port-forward`. It needs neither Spark nor Java, unless --spark is given. Averages that
need a past begin afresh, unless you point --history at a copy of the operator's folder; what the strategies remember is
read from the cluster. Of a policy with actuator Pulsar it says what only the operator asks of the brokers.

Exit code 0, or, with --exit-code, 1 when something would be moved or split; 2: a mistake, or there is no data.

examples:
  trimtab plan cluster-a --namespace messaging
  trimtab plan cluster-a --namespace messaging -o json | jq .moves
  trimtab plan -f policy.yaml -n messaging --prometheus http://localhost:9090
  trimtab plan -f policy.yaml -n messaging --exit-code || echo "merging this moves bundles"
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "plan",
        help="show what the next cycle would do",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "policy",
        nargs="?",
        help="name of the BalancingPolicy, where there are several: in the cluster, or with -f in the file",
    )
    parser.add_argument("-f", "--filename", metavar="FILE", help="a file with the policy, or - for standard input")
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="base URL to measure by instead of the policy's own, and to be sent what its Secrets hold",
    )
    parser.add_argument("--exit-code", action="store_true", help="end with 1 when something would be moved or split")
    add_cluster_flags(parser)
    parser.add_argument("--history", type=Path, metavar="DIR", help="a copy of the operator's Parquet history (none)")
    parser.add_argument("--spark", default="", help="measure with Spark: local[*], or sc://host:port (without)")
    add_url_option(parser, "URLs that may be sent what a policy's Secrets hold")
    add_output_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    try:
        stand, foreseen = asyncio.run(_foresee(arguments))
    except ApiError as error:
        raise CommandError(said(error)) from error
    except (InvalidPolicyError, ForeignMemoryError, SourceUnavailableError) as error:
        raise CommandError(str(error)) from error
    except TimeoutError as error:
        raise CommandError("the API server did not list the cluster in time; try again") from error
    notes = unasked(foreseen.settings, stand.status, arguments.namespace)
    show(stand, foreseen, arguments.output, arguments.color, notes)
    moves = bool(foreseen.plan.moves or foreseen.plan.splits) and foreseen.refusal is None
    return FINDING if arguments.exit_code and moves else FINE


async def _foresee(arguments: argparse.Namespace) -> tuple[Stand, Foreseen]:
    urls = _urls(arguments)
    given = policy_from(arguments.filename, arguments.policy) if arguments.filename else None
    if given is not None:
        _one_namespace(arguments, given)
    settle_namespace(arguments)
    async with Api.connect(arguments.kubeconfig, arguments.context, patience=PATIENCE) as api:
        stand = await _stand(api, arguments, given)
        with tempfile.TemporaryDirectory(prefix="trimtab-plan-") as folder:
            sources = load_sources(arguments.history or Path(folder), arguments.spark)
            try:
                await asyncio.wrap_future(sources.warm_up())  # or the deadline of a cycle would run while Spark starts
                return stand, await foresee_with(sources, api, arguments.namespace, stand, urls)
            finally:
                await asyncio.to_thread(sources.close)


def _urls(arguments: argparse.Namespace) -> AllowedUrls:
    """What may be asked; the server of ``--prometheus`` as it is spelt, and trusted as the policy's own would be."""
    urls = allowed_urls(arguments, strangers=True)
    if not arguments.prometheus:
        return urls
    try:
        named = parse(arguments.prometheus)
    except RefusedUrlError as error:
        raise CommandError(f"--prometheus: {error}") from error
    return replace(urls, patterns=(*urls.patterns, UrlPattern(named.scheme, named.host, named.port)))


def _one_namespace(arguments: argparse.Namespace, given: Mapping[str, Any]) -> None:
    """A namespace that the file names counts. Raises `CommandError` where ``-n`` names another."""
    written = given["metadata"].get("namespace", "")
    if written and arguments.namespace and written != arguments.namespace:
        raise CommandError(f"the file is of namespace {written}, and -n says {arguments.namespace}: leave out one")
    arguments.namespace = written or arguments.namespace


async def _stand(api: Api, arguments: argparse.Namespace, given: Mapping[str, Any] | None) -> Stand:
    """The policy to plan for, checked before an engine is started.

    Raises `InvalidPolicyError`, `CommandError` and `ApiError`.
    """
    if given is None:
        stand = Stand(await _named(api, arguments))
    else:
        stand = await standing_in(api, given, arguments.namespace)
    if arguments.prometheus:
        stand = replace(stand, manifest=_measured_by(stand.manifest, arguments.prometheus))
    if Settings.of(stand.manifest).asks_brokers:
        raise CommandError(_ASKED.format(policy=stand.name, namespace=arguments.namespace))
    return stand


async def _named(api: Api, arguments: argparse.Namespace) -> dict[str, Any]:
    """The policy of that name; without a name the only one. Raises `CommandError` and `ApiError`."""
    namespace, name = arguments.namespace, arguments.policy
    if not name:
        names = await names_of(api, POLICIES, namespace)
        if not names:
            raise CommandError(
                f"there is no BalancingPolicy in namespace {namespace}: name another with -n, or -f FILE"
            )
        if len(names) > 1:
            raise CommandError(f"namespace {namespace} has {len(names)} policies: name one of {some(names, _NAMED)}")
        [name] = names
    return await fetch(api, POLICIES, namespace, name)


def _measured_by(policy: Mapping[str, Any], url: str) -> dict[str, Any]:
    """The same policy, asking another server."""
    spec = policy["spec"]
    source = {**spec["source"], "prometheus": {**spec["source"]["prometheus"], "url": url}}
    return {**policy, "spec": {**spec, "source": source}}


async def foresee_with(
    sources: LoadSources, api: Api, namespace: str, stand: Stand, urls: AllowedUrls = SERVICES_ALONE
) -> Foreseen:
    """What the policy would do, measured by `sources` at one of `urls`."""
    context = new_context(api, namespace, sources, Metrics())
    context.urls = urls
    async with following(context):
        return await foresee(context, stand.name, stand.manifest)


async def check_policy(api: Api, namespace: str, policy: str) -> None:
    """Before an engine is started: is there such a policy, and can it be run?

    Raises `CommandError`, `InvalidPolicyError` and `ApiError`.
    """
    Settings.of(await fetch(api, POLICIES, namespace, policy))
