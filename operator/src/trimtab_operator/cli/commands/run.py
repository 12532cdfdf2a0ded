"""`trimtab run`: the operator."""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
from pathlib import Path

from trimtab_operator.aio import collect_seldom
from trimtab_operator.app import Where, run_operator
from trimtab_operator.cli.cluster import add_cluster_flags
from trimtab_operator.cli.common import FINDING, FINE, CommandError
from trimtab_operator.kube.lease import (
    DEADLINE,
    DURATION,
    LEASE,
    RETRY,
    Candidacy,
    EpochsUsedUpError,
    LeaseLostError,
    candidate,
    own_identity,
)
from trimtab_operator.resources.common import seconds
from trimtab_operator.resources.urls import FLAG, SERVICES, AllowedUrls, BadPatternError
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.api import KEEP_A_DAY, LoadSources, Retention, SourceUnavailableError
from trimtab_pipeline.factory import direct_sources, spark_sources

log = logging.getLogger(__name__)

_HISTORY = Path("trimtab-history")

LAST_PORT = 65535
"""The largest port there is."""

_DESCRIPTION = """\
Run the operator for the messaging cluster in one Kubernetes namespace, until SIGTERM or Ctrl-C.

It needs the CRDs (`trimtab crds | kubectl apply --server-side -f -`), Java 17 or newer for the embedded Spark, and a
BalancingPolicy in the namespace. A new policy is in mode DryRun: it shows what it would move and balances nothing.
Bundles without an owner, and those of a lost broker, get one in every mode.

example:
  trimtab run --namespace messaging --history /var/lib/trimtab
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "run",
        help="run the operator",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_cluster_flags(parser, required=True)
    parser.add_argument(
        "--history", type=Path, default=_HISTORY, metavar="DIR", help="folder of the Parquet history (%(default)s)"
    )
    parser.add_argument(
        "--spark", default="local[*]", help="Spark master, or sc://host:port of a Spark Connect server (%(default)s)"
    )
    add_url_option(parser, "URLs that policies may name")
    parser.add_argument(
        "--http-host", default="127.0.0.1", help="address of /metrics, /healthz and /readyz (%(default)s)"
    )
    parser.add_argument(
        "--http-port", type=_port, default=8080, help="port of the same; 0 takes any free one (%(default)s)"
    )
    parser.add_argument(
        "--keep", default="24h", metavar="TIME", help="how long load history is kept, e.g. 36h (%(default)s)"
    )
    parser.add_argument(
        "--keep-size",
        default="8Gi",
        metavar="SIZE",
        help="how much of it is kept for each policy, e.g. 500Mi; the oldest goes first (%(default)s)",
    )
    parser.add_argument(
        "--spark-memory", default="700m", metavar="SIZE", help="heap of the embedded JVM, at least 480m (%(default)s)"
    )
    parser.add_argument(
        "--watch-nodes",
        action="store_true",
        help="drain brokers on cordoned nodes; needs the ClusterRole of `trimtab rbac --watch-nodes`",
    )
    add_lease_options(parser)
    parser.add_argument("--verbose", action="store_true", help="log what Kopf and the API client do, too")
    parser.set_defaults(run=run)


def _port(text: str) -> int:
    """The type of a port to listen on. Raises `argparse.ArgumentTypeError`."""
    if not (text.isdecimal() and int(text) <= LAST_PORT):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: write 0 (any free one) to {LAST_PORT}")
    return int(text)


def add_lease_options(parser: argparse.ArgumentParser) -> None:
    """Options of the election of a leader among replicas."""
    group = parser.add_argument_group("replicas", "Of several replicas one leads, by a Lease; the others stand by.")
    group.add_argument("--lease-name", default=LEASE, metavar="NAME", help="name of the Lease (%(default)s)")
    group.add_argument(
        "--identity", metavar="NAME", help="who this replica is; no two may share it (default: host name, random word)"
    )
    for flag, default, text in (
        ("--lease-duration", DURATION, "after which others take over from a leader that is not heard of"),
        ("--renew-deadline", DEADLINE, "after which a leader that could not renew its Lease ends"),
        ("--retry-period", RETRY, "between two attempts to renew or take the Lease, at most"),
    ):
        group.add_argument(flag, type=float, default=default, metavar="SECONDS", help=f"{text} (%(default)g)")


def add_url_option(parser: argparse._ActionsContainer, what: str) -> None:
    """The option of `allowed_urls`."""
    parser.add_argument(
        FLAG,
        action="append",
        metavar="PATTERN",
        default=[],
        help=f"{what}: [scheme://]host[:port], * for any part of a host, or any port; may be repeated "
        f"(default: Services of the cluster, {' and '.join(SERVICES)})".replace("%", "%%"),
    )


def allowed_urls(arguments: argparse.Namespace, *, strangers: bool = False) -> AllowedUrls:
    """The list that was given. Raises `CommandError`. strangers: see `AllowedUrls`."""
    try:
        return AllowedUrls.of(arguments.allow_url, strangers=strangers)
    except BadPatternError as error:
        raise CommandError(f"{FLAG} {error}") from error


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    _log_to_stderr(verbose=arguments.verbose)
    try:
        asyncio.run(_run(arguments, _retention(arguments)))
    except (LeaseLostError, EpochsUsedUpError) as error:
        log.critical("%s: ending, to begin anew as a standby", error)
        return FINDING
    return FINE


def _candidacy(arguments: argparse.Namespace) -> Candidacy:
    """How to take part in the election of a leader. Raises `CommandError`."""
    times = (arguments.lease_duration, arguments.renew_deadline, arguments.retry_period)
    try:
        return Candidacy(arguments.lease_name, arguments.identity or own_identity(), *times)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _retention(arguments: argparse.Namespace) -> Retention:
    """How much history is kept. Raises `CommandError`."""
    try:
        return Retention(seconds=seconds(arguments.keep), bytes=_bytes(arguments.keep_size))
    except ValueError as error:
        raise CommandError(str(error)) from error


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([0-9]+)([KMGT]i)", text)
    if found is None:
        raise ValueError(f"size {text!r} must look like 500Mi or 8Gi")
    return int(found[1]) << 10 * (1 + "KMGT".index(found[2][0]))


async def _run(arguments: argparse.Namespace, retention: Retention) -> None:
    page = (arguments.http_host, arguments.http_port)
    where = Where(arguments.namespace, *page, allowed_urls(arguments), nodes=arguments.watch_nodes)
    metrics = Metrics()
    collect_seldom()
    reach = (arguments.kubeconfig, arguments.context, arguments.namespace)
    async with candidate(*reach, _candidacy(arguments), metrics.observe_request) as (api, elector):
        sources = start_spark(arguments.history, arguments.spark, retention, arguments.spark_memory)
        try:
            await run_operator(api, where, sources, metrics, elector)
        finally:
            await asyncio.to_thread(sources.close)


def start_spark(history: Path, master: str, retention: Retention = KEEP_A_DAY, memory: str = "700m") -> LoadSources:
    """Sources of load with their history below `history`.

    Raises `CommandError` when there is no Java to start, no client for a Connect server, or a setting that is none.
    """
    logging.getLogger().addFilter(_not_of_the_gateway)
    try:
        return spark_sources(history, master=master, memory=memory, retention=retention)
    except (SourceUnavailableError, ValueError) as error:
        raise CommandError(str(error)) from error


def load_sources(history: Path, master: str) -> LoadSources:
    """Sources for a look now and then: on Spark if a `master` is named. Raises `CommandError` as `start_spark` does."""
    return start_spark(history, master) if master else direct_sources(history)


def _not_of_the_gateway(record: logging.LogRecord) -> bool:
    """Py4J logs a traceback for each call that a JVM leaves unanswered; what happened to it is told in one line."""
    return "py4j" not in record.pathname


def _log_to_stderr(*, verbose: bool) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    if not verbose:
        for name in ("kopf", "py4j", "kubernetes", "aiohttp.access"):
            logging.getLogger(name).setLevel(logging.WARNING)
