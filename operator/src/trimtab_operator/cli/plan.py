"""`trimtab plan`: what the next cycle would do, from the live cluster."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from trimtab_operator.app import following, new_context
from trimtab_operator.cli.failure import FINE, CommandError
from trimtab_operator.cli.plan_output import show
from trimtab_operator.cli.run import add_cluster_options, add_url_option, allowed_urls, start_spark
from trimtab_operator.cluster.api import POLICIES, Api, ApiError, NotFoundError
from trimtab_operator.control.foresee import Foreseen, foresee
from trimtab_operator.control.memory import ForeignMemoryError
from trimtab_operator.control.settings import InvalidPolicyError, Settings
from trimtab_operator.resources.urls import SERVICES_ALONE, AllowedUrls
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.source import LoadSources, SourceUnavailableError

PATIENCE = 3.0
"""Seconds for which a request that fails is tried again: a person is waiting."""

_DESCRIPTION = """\
Show what the next cycle of a policy would do, and why it would do nothing else. Writes nothing to the cluster.

It measures the cluster as the operator does. Averages that need a past begin afresh, unless you point --history at a
copy of the operator's folder; what the strategies remember is read from the cluster.

example:
  trimtab plan cluster-a --namespace messaging
  trimtab plan cluster-a --namespace messaging -o json | jq .moves
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "plan",
        help="show what the next cycle would do",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("policy", help="name of the BalancingPolicy")
    add_cluster_options(parser, history=None)
    add_url_option(parser, "URLs that may be sent what a policy's Secrets hold")
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table", help="(%(default)s)")
    parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as -o json")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    try:
        foreseen = asyncio.run(_foresee(arguments))
    except (InvalidPolicyError, ForeignMemoryError, SourceUnavailableError, ApiError) as error:
        raise CommandError(str(error)) from error
    except TimeoutError as error:
        raise CommandError("the API server did not list the cluster in time; try again") from error
    show(arguments.policy, foreseen, arguments.output)
    return FINE


async def _foresee(arguments: argparse.Namespace) -> Foreseen:
    urls = allowed_urls(arguments, strangers=True)
    async with Api.connect(arguments.kubeconfig, arguments.context, patience=PATIENCE) as api:
        await check_policy(api, arguments.namespace, arguments.policy)
        with tempfile.TemporaryDirectory(prefix="trimtab-plan-") as folder:
            sources = start_spark(arguments.history or Path(folder), arguments.spark)
            try:
                await asyncio.wrap_future(sources.warm_up())  # or the deadline of a cycle would run while Spark starts
                return await foresee_with(sources, api, arguments.namespace, arguments.policy, urls)
            finally:
                await asyncio.to_thread(sources.close)


async def foresee_with(
    sources: LoadSources, api: Api, namespace: str, policy: str, urls: AllowedUrls = SERVICES_ALONE
) -> Foreseen:
    """What `policy` would do, measured by `sources` at one of `urls`."""
    context = new_context(api, namespace, sources, Metrics())
    context.urls = urls
    async with following(context):
        return await foresee(context, policy)


async def check_policy(api: Api, namespace: str, policy: str) -> None:
    """Before an engine is started: is there such a policy, and can it be run? Raises `CommandError`."""
    try:
        Settings.of(await api.get(POLICIES, namespace, policy))
    except NotFoundError as error:
        if error.reason != "NotFound":  # the server does not even know the kind
            raise CommandError(
                "this cluster has no BalancingPolicy; first: trimtab crds | kubectl apply --server-side -f -"
            ) from error
        names = sorted([p["metadata"]["name"] async for page in api.list(POLICIES, namespace) for p in page.items])
        there = f"there are: {', '.join(names)}" if names else "there is none at all"
        raise CommandError(f"no BalancingPolicy {policy} in namespace {namespace}; {there}") from error
