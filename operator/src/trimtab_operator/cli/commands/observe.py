"""`trimtab observe`: shows the snapshot of load that decisions are based on, live or from history."""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace

from trimtab_operator.app import new_cluster
from trimtab_operator.cli.cluster import connected, fetch, said
from trimtab_operator.cli.cluster_flags import add_cluster_flags
from trimtab_operator.cli.commands.history import only_history
from trimtab_operator.cli.commands.measured_policy import opened_sources, refusals_told
from trimtab_operator.cli.commands.observe_table import Shown, show
from trimtab_operator.cli.common import FINE, HELP, NO_SPARK, CommandError, add_output_option, add_verb, moment
from trimtab_operator.cli.flags import (
    add_prometheus_options,
    check_prometheus_options,
    prometheus_settings,
    settle_namespace,
)
from trimtab_operator.cli.tables import console
from trimtab_operator.cli.url_option import add_url_option, allowed_urls, check_url
from trimtab_operator.kube.client import POLICIES, Api, ApiError
from trimtab_operator.loop.preview import measured_load
from trimtab_operator.state.settings import Settings
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_operator.watched_namespaces import following
from trimtab_pipeline.api import ForeignFileError, SourceUnavailableError
from trimtab_pipeline.history.export import ExchangeError, readable
from trimtab_pipeline.history.reader import NoHistoryError
from trimtab_pipeline.prometheus.discovery import topology_from_metrics
from trimtab_strategies.model import ClusterLoad

_INSIDE = 3
"""With --url, topics are measured for this many bundles with the most messages, and as many with the most bytes."""

_NO_BUNDLES = (
    "brokers report no bundles, as under Pulsar's extensible load manager; with --policy, the load of a bundle is the "
    "sum of the topics in the range of its Bundle object"
)

_DESCRIPTION = """\
Show the load of a cluster as Trimtab measures it: how busy each broker is, whether its data is trusted, which bundles
(and topics, if known) are the hottest, and what is wrong with the data. It changes nothing in the cluster.

The load comes from one of three sources:
  --policy NAME -n NS    the live cluster of a BalancingPolicy, by kubeconfig
  --url URL -n NS        a Prometheus, without Kubernetes: metrics of the pods in namespace NS
  --history DIR          a history of an operator, or an exported FILE.tar: the last cycle, or the one at --at

Live load needs neither Spark nor Java, unless --spark is given; the result is the same.
Live averages start with the first measurement, so short-term and long-term averages are equal to it.
"""

_EPILOG = """\
examples:
  trimtab observe --url http://localhost:9090 -n messaging --resources pulsar
  trimtab observe --url https://mimir.example/prometheus -n messaging --tenant team-a --bearer-token-file ~/.token
  trimtab observe --policy cluster-a -n messaging --watch 10
  trimtab observe --history trimtab-history --at 2h -o json | jq '.brokers[] | select(.trusted | not)'
  trimtab observe --history report.tar
"""


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(subparsers, "observe", _DESCRIPTION, _run, _EPILOG)
    parser.add_argument(
        "--policy", help="name of the BalancingPolicy; with --history, the policy whose history to read"
    )
    parser.add_argument("--url", help="base URL of a Prometheus")
    parser.add_argument(
        "--history", metavar="DIR", help="history folder of `trimtab run --history`, or an exported FILE.tar"
    )
    _add_output_options(parser)
    live = parser.add_argument_group("live")
    add_cluster_flags(
        live, help_text="Kubernetes namespace of the brokers (default with --policy: the namespace of the context)"
    )
    live.add_argument("--spark", default=NO_SPARK, help="measure with Spark: local[*], or sc://host:port (%(default)s)")
    add_url_option(live, "with --policy, URLs that may receive its credentials")
    add_prometheus_options(parser)
    past = parser.add_argument_group("from history")
    past.add_argument("--at", type=moment, metavar="TIME", help=HELP)


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    add_output_option(parser)
    parser.add_argument(
        "--top", type=_count, default=10, metavar="N", help="number of hot bundles and topics (%(default)s)"
    )
    parser.add_argument("--watch", type=_positive, metavar="SECONDS", help="measure again every SECONDS until Ctrl-C")


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number, 0 or more")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds above 0")
    return value


def _run(arguments: argparse.Namespace) -> int:
    _check_options(arguments)
    try:
        with refusals_told():
            asyncio.run(_print_load(arguments))
    except ApiError as error:
        raise CommandError(said(error)) from error
    except (ExchangeError, ForeignFileError, NoHistoryError) as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{error.filename or arguments.history}: {error.strerror or error}") from error
    except KeyboardInterrupt:
        if not arguments.watch:
            raise
    return FINE


def _check_options(arguments: argparse.Namespace) -> None:
    """Check that there is one source, with the options it needs. Raises `CommandError`."""
    if not (arguments.url or arguments.history or arguments.policy):
        raise CommandError("observe needs --policy NAME, --url URL or --history DIR to measure")
    check_prometheus_options(arguments)
    if arguments.url and (arguments.history or arguments.policy):
        raise CommandError("--url excludes --history and --policy: leave them out")
    if arguments.url:
        check_url("--url", arguments.url, like="http://prometheus:9090")
    if arguments.url and not arguments.namespace:
        raise CommandError("--url needs --namespace, the Kubernetes namespace of the brokers")
    if arguments.at and not arguments.history:
        raise CommandError("--at needs --history DIR")
    if arguments.watch and arguments.at:
        raise CommandError("--watch shows new data: leave out --at")


async def _print_load(arguments: argparse.Namespace) -> None:
    screen = console(arguments.color)
    source = _from_history if arguments.history else _from_metrics if arguments.url else _from_policy
    async with aclosing(source(arguments)) as snapshots:
        async for shown in snapshots:
            if arguments.watch and arguments.output == "table":
                screen.clear()
            show(screen, shown, arguments.output, arguments.top, lines=bool(arguments.watch))
            if not arguments.watch:
                break
            await asyncio.sleep(arguments.watch)


async def _again_and_again(read: Callable[[], Awaitable[Shown]], pause: float | None) -> AsyncGenerator[Shown]:
    """Repeat `read`. Until it has succeeded once, a failure is raised. Later failures are printed and retried.

    pause: seconds before a retry; None raises every failure.
    """
    seen = False
    while True:
        try:
            shown = await read()
        except (ApiError, ForeignFileError, NoHistoryError, SourceUnavailableError) as error:
            if not seen or not pause:
                raise
            print(f"trimtab: {error}; trying again", file=sys.stderr)
            await asyncio.sleep(pause)
        else:
            seen = True
            yield shown


def _with_note(load: ClusterLoad) -> ClusterLoad:
    """`load`, with a note if it has no bundles."""
    if len(load.bundles):
        return load
    return replace(load, quality=replace(load.quality, notes=(*load.quality.notes, _NO_BUNDLES)))


async def _from_history(arguments: argparse.Namespace) -> AsyncGenerator[Shown]:
    with readable(arguments.history) as folder:

        async def read() -> Shown:
            past = only_history(folder, arguments.policy)
            until = float(arguments.at(past.summary().end)) if arguments.at else math.inf
            return Shown(past.policy, past.load(until), time.time())

        async for shown in _again_and_again(read, arguments.watch):
            yield shown


async def _from_metrics(arguments: argparse.Namespace) -> AsyncGenerator[Shown]:
    settings = prometheus_settings(arguments, hot_bundles=_INSIDE)
    await asyncio.to_thread(topology_from_metrics, settings, time.time())  # report a mistake before Spark starts
    async with opened_sources(arguments) as sources:
        source = sources.open("observe/metrics", settings)

        async def read() -> Shown:
            now = time.time()
            topology = await asyncio.to_thread(topology_from_metrics, settings, now)
            observation = await asyncio.wrap_future(source.observe(topology, now))
            return Shown(arguments.url, _with_note(observation.load), time.time())

        async for shown in _again_and_again(read, arguments.watch):
            yield shown


async def _from_policy(arguments: argparse.Namespace) -> AsyncGenerator[Shown]:
    urls = allowed_urls(arguments, strangers=True)
    settle_namespace(arguments)
    async with connected(arguments, Api) as api:
        Settings.of(await fetch(api, POLICIES, arguments.namespace, arguments.policy))  # report a mistake at once
        async with opened_sources(arguments) as sources:
            context = new_cluster(api, arguments.namespace, sources, Metrics(), urls=urls)
            async with following(context):

                async def read() -> Shown:
                    load = await measured_load(context, arguments.policy)
                    return Shown(f"{arguments.namespace}/{arguments.policy}", load, time.time())

                async for shown in _again_and_again(read, arguments.watch):
                    yield shown
