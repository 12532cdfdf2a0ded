"""Helpers of verbs that measure the cluster and plan: options, the policy, the load sources, and clear errors."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from trimtab_operator.cli.cluster import fetch, names_of
from trimtab_operator.cli.commands.run import load_sources
from trimtab_operator.cli.common import NO_SPARK, CommandError
from trimtab_operator.cli.query_options import add_query_options, added
from trimtab_operator.cli.url_option import add_url_option, allowed_urls
from trimtab_operator.kube.client import POLICIES, Api
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.resources.urls import AllowedUrls, RefusedUrlError, UrlPattern, parse
from trimtab_operator.state.settings import InvalidPolicyError, Settings
from trimtab_pipeline.api import LoadSources, SourceUnavailableError
from trimtab_strategies.model import some

_NAMED = 10
"""Maximum number of policies that an error lists."""

_ASKED = (
    "{policy} measures bundles by brokers' statistics (bundleMetrics: Statistics), which only the operator reads; "
    "see its plan: trimtab status {policy} -n {namespace}"
)


def add_measuring_options(parser: argparse._ActionsContainer, *, policy: bool = False) -> None:
    """Add the options that say how to measure. policy: whether to add ``--policy``, too."""
    if policy:
        parser.add_argument("--policy", help="name of the BalancingPolicy (default: the only one in the namespace)")
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        help="Prometheus URL to use instead of the policy's; it receives the policy's credentials",
    )
    add_query_options(parser)
    parser.add_argument("--history", metavar="DIR", help="copy of the operator's history folder (default: none)")
    parser.add_argument(
        "--spark", default=NO_SPARK, help="measure with Spark: local[*], or sc://host:port (%(default)s)"
    )
    add_url_option(parser, "URLs that may receive a policy's credentials")


def measuring_urls(arguments: argparse.Namespace) -> AllowedUrls:
    """The allowed URLs, and the URL of ``--prometheus``, which is trusted like the policy's own."""
    urls = allowed_urls(arguments, strangers=True)
    if not arguments.prometheus:
        return urls
    try:
        named = parse(arguments.prometheus)
    except RefusedUrlError as error:
        raise CommandError(f"--prometheus: {error}") from error
    return replace(urls, patterns=(*urls.patterns, UrlPattern(named.scheme, named.host, named.port)))


def measurable(arguments: argparse.Namespace, policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """`policy` with the Prometheus and its options from the command line, checked before a measurement starts.

    Raises `InvalidPolicyError`, and `CommandError` if only the operator can measure for it.
    """
    given = arguments.prometheus or arguments.matcher or arguments.parameter
    measured = _measured_by(policy, arguments) if given else policy
    if Settings.of(measured).asks_brokers:
        raise CommandError(_ASKED.format(policy=policy["metadata"]["name"], namespace=arguments.namespace))
    return measured


def _measured_by(policy: Mapping[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """`policy` with the Prometheus URL, the matchers and the parameters of the command line."""
    spec = policy["spec"]
    source = added(spec["source"]["prometheus"], arguments)
    if arguments.prometheus:
        source["url"] = arguments.prometheus
    return {**policy, "spec": {**spec, "source": {**spec["source"], "prometheus": source}}}


async def named_policy(api: Api, namespace: str, name: str | None) -> dict[str, Any]:
    """The policy with that name; without a name, the only one. Raises `CommandError` and `ApiError`."""
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


@asynccontextmanager
async def opened_sources(arguments: argparse.Namespace) -> AsyncIterator[LoadSources]:
    """The load sources of the command line, warmed up. Raises `CommandError`."""
    with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
        sources = load_sources(arguments.history or folder, arguments.spark)
        try:
            await asyncio.wrap_future(sources.warm_up())  # the deadline of a cycle must not run while Spark starts
            yield sources
        finally:
            await asyncio.to_thread(sources.close)


@contextmanager
def refusals_told() -> Iterator[None]:
    """Turn errors of a policy or its source into a `CommandError`."""
    try:
        yield
    except (InvalidPolicyError, UnreadableContentError, SourceUnavailableError) as error:
        raise CommandError(str(error)) from error
    except TimeoutError as error:
        raise CommandError("the API server did not list the cluster in time; try again") from error
