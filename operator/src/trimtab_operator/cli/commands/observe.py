"""`trimtab observe`: the picture of load that decisions are made from, live or from history."""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from trimtab_operator.app import following, new_cluster
from trimtab_operator.cli.cluster import PATIENCE, add_cluster_flags, said, settle_namespace
from trimtab_operator.cli.commands.observe_table import Shown, show
from trimtab_operator.cli.commands.plan import check_policy
from trimtab_operator.cli.commands.run import add_url_option, allowed_urls, load_sources
from trimtab_operator.cli.common import FINE, CommandError
from trimtab_operator.cli.flags import add_prometheus_options, check_prometheus_options, prometheus_settings
from trimtab_operator.cli.output import HELP, add_output_option, moment, written
from trimtab_operator.cli.plot import draw
from trimtab_operator.cli.tables import console
from trimtab_operator.kube.client import Api, ApiError
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.loop.preview import measured_load
from trimtab_operator.state.settings import InvalidPolicyError
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.api import LoadSources, SourceUnavailableError
from trimtab_pipeline.metrics_topology import topology_from_metrics
from trimtab_pipeline.past import DamagedError, NoHistoryError, Past, policies
from trimtab_strategies.model import ClusterLoad, counted

_POINTS = 600
"""Points of a picture over time: about one for each of its pixels."""

_INSIDE = 3
"""Bundles with the most messages, and with the most bytes, whose topics are looked at with --url."""

_NO_BUNDLES = (
    "no bundle reports itself, as under Pulsar's extensible load manager; only a policy's resources know the ranges "
    "that topics are summed up to (--policy)"
)

_DESCRIPTION = """\
Show the load of a cluster as Trimtab sees it: how busy each broker is, whether its data can be believed, which bundles
(and topics, where they are known) are the hottest, and what was wrong with the data. Writes nothing.

It looks in one of three places:
  --policy NAME -n NS    the live cluster of a BalancingPolicy, by kubeconfig
  --url URL -n NS        a Prometheus, without Kubernetes: what reports itself from the pods of namespace NS
  --history DIR          what an operator, or `trimtab history import`, kept: its last cycle, or the one --at a time

A live look needs neither Spark nor Java, unless --spark is given, and shows the same.
Live averages begin afresh with the first look, so short and long ones are what is measured now.
"""

_EPILOG = """\
examples:
  trimtab observe --url http://localhost:9090 -n messaging --resources pulsar
  trimtab observe --url https://mimir.example/prometheus -n messaging --tenant team-a --bearer-token-file ~/.token
  trimtab observe --policy cluster-a -n messaging --watch 10
  trimtab observe --history trimtab-history --at 2h -o json | jq '.brokers[] | select(.trusted | not)'
  trimtab observe --history trimtab-history --from 6h --plot load.svg
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "observe",
        help="show the load of a cluster",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--policy", help="name of the BalancingPolicy; with --history, of those that have one")
    parser.add_argument("--url", help="base URL of a Prometheus")
    parser.add_argument("--history", type=Path, metavar="DIR", help="folder that `trimtab run --history` writes to")
    _add_output_options(parser)
    live = parser.add_argument_group("live")
    add_cluster_flags(
        live, told="Kubernetes namespace of the brokers (with --policy: that of the kubeconfig's context)"
    )
    live.add_argument("--spark", default="", help="look with Spark: local[*], or sc://host:port (without)")
    add_url_option(live, "with --policy: URLs that may be sent what its Secrets hold")
    add_prometheus_options(parser)
    past = parser.add_argument_group("from history")
    past.add_argument("--at", type=moment, metavar="TIME", help=HELP)
    past.add_argument("--plot", type=Path, metavar="FILE.svg", help="draw load over time, up to --at")
    past.add_argument("--from", dest="begin", type=moment, metavar="TIME", help="where the drawing begins")
    parser.set_defaults(run=run)


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    add_output_option(parser)
    parser.add_argument(
        "--top", type=_count, default=10, metavar="N", help="how many hot bundles and topics (%(default)s)"
    )
    parser.add_argument("--watch", type=_positive, metavar="SECONDS", help="look again and again until Ctrl-C")


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


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    _check_options(arguments)
    try:
        if arguments.plot:
            return _plot(arguments)
        asyncio.run(_look(arguments))
    except ApiError as error:
        raise CommandError(said(error)) from error
    except (
        DamagedError,
        UnreadableContentError,
        InvalidPolicyError,
        NoHistoryError,
        SourceUnavailableError,
    ) as error:
        raise CommandError(str(error)) from error
    except TimeoutError as error:
        raise CommandError("the API server did not list the cluster in time; try again") from error
    except OSError as error:
        raise CommandError(f"{error.filename or arguments.history}: {error.strerror or error}") from error
    except KeyboardInterrupt:
        if not arguments.watch:
            raise
    return FINE


def _check_options(arguments: argparse.Namespace) -> None:
    """One place to look at, and what it needs. Raises `CommandError`."""
    if not (arguments.url or arguments.history or arguments.policy):
        raise CommandError("observe needs --policy NAME, --url URL or --history DIR to look at")
    check_prometheus_options(arguments)
    if arguments.url and (arguments.history or arguments.policy):
        raise CommandError("--url stands alone: leave out --history and --policy")
    if arguments.url and not arguments.namespace:
        raise CommandError("--url needs --namespace, the Kubernetes namespace of the brokers")
    for name, value in {"--at": arguments.at, "--plot": arguments.plot, "--from": arguments.begin}.items():
        if value and not arguments.history:
            raise CommandError(f"{name} needs --history DIR: only what was kept can be looked back on")
    if arguments.begin and not arguments.plot:
        raise CommandError("--from goes with --plot; the picture of one moment is --at")
    if arguments.watch and (arguments.at or arguments.plot):
        raise CommandError("--watch looks at what is new: leave out --at and --plot")
    if arguments.plot and arguments.plot.suffix != ".svg":
        raise CommandError(f"{arguments.plot} must end in .svg")


async def _look(arguments: argparse.Namespace) -> None:
    screen = console(arguments.color)
    source = _from_history if arguments.history else _from_metrics if arguments.url else _from_policy
    async with aclosing(source(arguments)) as looks:
        async for shown in looks:
            if arguments.watch and arguments.output == "table":
                screen.clear()
            show(screen, shown, arguments.output, arguments.top, lines=bool(arguments.watch))
            if not arguments.watch:
                break
            await asyncio.sleep(arguments.watch)


async def _again_and_again(look: Callable[[], Awaitable[Shown]], pause: float | None) -> AsyncGenerator[Shown]:
    """Look after look. What fails the first is raised; later ones are told, and `pause` seconds later tried again."""
    seen = False
    while True:
        try:
            shown = await look()
        except (ApiError, DamagedError, NoHistoryError, SourceUnavailableError) as error:
            if not seen or not pause:
                raise
            print(f"trimtab: {error}; trying again", file=sys.stderr)
            await asyncio.sleep(pause)
        else:
            seen = True
            yield shown


def _with_note(load: ClusterLoad) -> ClusterLoad:
    """The same, saying why there is no bundle if there is none."""
    if len(load.bundles):
        return load
    return replace(load, quality=replace(load.quality, notes=(*load.quality.notes, _NO_BUNDLES)))


def _past(arguments: argparse.Namespace) -> Past:
    """The history to look at; of the only policy, unless one is named. Raises `CommandError`."""
    names = [arguments.policy] if arguments.policy else policies(arguments.history)
    if len(names) > 1:
        raise CommandError(f"{arguments.history} holds several policies; choose one with --policy: {', '.join(names)}")
    return Past(arguments.history, names[0])


def _until(arguments: argparse.Namespace, past: Past) -> float:
    """The latest moment to look at, epoch s."""
    return float(arguments.at(past.summary().end)) if arguments.at else math.inf


async def _from_history(arguments: argparse.Namespace) -> AsyncGenerator[Shown]:
    async def look() -> Shown:
        past = _past(arguments)
        return Shown(past.policy, past.load(_until(arguments, past)), time.time())

    async for shown in _again_and_again(look, arguments.watch):
        yield shown


async def _from_metrics(arguments: argparse.Namespace) -> AsyncGenerator[Shown]:
    settings = prometheus_settings(arguments, hot_bundles=_INSIDE)
    await asyncio.to_thread(topology_from_metrics, settings, time.time())  # a mistake is told before Spark is started
    async with _engine(arguments) as sources:
        source = sources.open("observe/metrics", settings)

        async def look() -> Shown:
            now = time.time()
            topology = await asyncio.to_thread(topology_from_metrics, settings, now)
            observation = await asyncio.wrap_future(source.observe(topology, now))
            return Shown(arguments.url, _with_note(observation.load), time.time())

        async for shown in _again_and_again(look, arguments.watch):
            yield shown


async def _from_policy(arguments: argparse.Namespace) -> AsyncGenerator[Shown]:
    urls = allowed_urls(arguments, strangers=True)
    settle_namespace(arguments)
    async with Api.connect(arguments.kubeconfig, arguments.context, patience=PATIENCE) as api:
        await check_policy(api, arguments.namespace, arguments.policy)
        async with _engine(arguments) as sources:
            context = new_cluster(api, arguments.namespace, sources, Metrics(), urls=urls)
            async with following(context):

                async def look() -> Shown:
                    load = await measured_load(context, arguments.policy)
                    return Shown(f"{arguments.namespace}/{arguments.policy}", load, time.time())

                async for shown in _again_and_again(look, arguments.watch):
                    yield shown


@asynccontextmanager
async def _engine(arguments: argparse.Namespace) -> AsyncIterator[LoadSources]:
    """Sources whose history is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="trimtab-observe-") as folder:
        sources = load_sources(Path(folder), arguments.spark)
        try:
            await asyncio.wrap_future(sources.warm_up())  # the look is to be of now, not of before Spark's start
            yield sources
        finally:
            await asyncio.to_thread(sources.close)


def _plot(arguments: argparse.Namespace) -> int:
    past = _past(arguments)
    until = _until(arguments, past)
    begin = arguments.begin(min(until, past.summary().end)) if arguments.begin else -math.inf
    course = past.course(begin, until, _POINTS)
    try:
        arguments.plot.write_text(draw(past.policy, course), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"can't write {arguments.plot}: {error.strerror}") from error
    span = f"{written(course.times[0])} to {written(course.times[-1])} UTC"
    print(f"wrote {arguments.plot}: {counted(len(course.times), 'cycle')} of {past.policy}, {span}")
    for told in course.damaged:
        print(f"left out: {told}")
    return FINE
