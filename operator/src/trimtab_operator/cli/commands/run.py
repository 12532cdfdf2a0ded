"""`trimtab run`: runs the operator."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import re
from datetime import UTC, datetime

from trimtab_operator.aio import collect_seldom
from trimtab_operator.app import OperatorOptions, run_operator
from trimtab_operator.cli.cluster_flags import add_cluster_flags, refuse_empty_namespace
from trimtab_operator.cli.common import EMBEDDED, FINDING, FINE, NO_SPARK, CommandError, add_verb
from trimtab_operator.cli.url_option import add_url_option, allowed_urls
from trimtab_operator.kube.connection import default_namespace
from trimtab_operator.kube.leader_election import (
    DEADLINE,
    DURATION,
    LEASE,
    RETRY,
    Candidacy,
    LeaseLostError,
    candidate,
    own_identity,
)
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.api import KEEP_A_DAY, LoadSources, Retention, SourceUnavailableError
from trimtab_pipeline.factory import direct_sources, spark_sources
from trimtab_strategies.params import seconds

log = logging.getLogger(__name__)

_HISTORY = "trimtab-history"

LAST_PORT = 65535
"""The largest TCP port."""

_DESCRIPTION = """\
Run the operator until SIGTERM or Ctrl-C: for the messaging cluster in one Kubernetes namespace, for one in each of
several (-n a -n b), or for all namespaces with a BalancingPolicy (-A).

It needs the CRDs (`trimtab crds | kubectl apply --server-side -f -`), a BalancingPolicy in the namespace, and Java 17
or newer for Spark. --spark sc:// and --spark none need no Java.

A new policy is in mode DryRun: it shows its plan and balances nothing. Without spec.pulsar, bundles without an owner,
and those of a lost broker, get an owner in every mode.

example:
  trimtab run --namespace messaging --history /var/lib/trimtab
"""


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(subparsers, "run", _DESCRIPTION, _run)
    add_cluster_flags(parser, person=False, several=True)
    parser.add_argument(
        "--history",
        default=_HISTORY,
        metavar="DIR",
        help="folder of the Parquet history, or a URI such as s3a://bucket/folder (%(default)s)",
    )
    parser.add_argument(
        "--spark",
        default=EMBEDDED,
        help="where Spark measures: local[N] in a JVM of this process, spark://host:port of a cluster, or "
        "sc://host:port of a Connect server; none: threads of this process measure, without Spark (%(default)s)",
    )
    add_url_option(parser, "URLs that policies may use")
    parser.add_argument(
        "--http-host", default="127.0.0.1", help="listen address for /metrics, /healthz and /readyz (%(default)s)"
    )
    parser.add_argument(
        "--http-port",
        type=_port,
        default=8080,
        help="port for /metrics, /healthz and /readyz; 0: any free port (%(default)s)",
    )
    parser.add_argument(
        "--keep", default="24h", metavar="TIME", help="retention time of load history, such as 36h (%(default)s)"
    )
    parser.add_argument(
        "--keep-size",
        default="8Gi",
        metavar="SIZE",
        help="retention size of load history for each policy, such as 500Mi (%(default)s)",
    )
    parser.add_argument(
        "--spark-memory",
        default="700m",
        metavar="SIZE",
        help="heap size of the operator's JVM, at least 480m (%(default)s)",
    )
    parser.add_argument(
        "--watch-nodes",
        action="store_true",
        help="drain brokers on cordoned nodes; needs the ClusterRole of `trimtab rbac --watch-nodes`",
    )
    add_lease_options(parser)
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="lowest level of messages to log (%(default)s)"
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="text, or one JSON object for each message (%(default)s)",
    )
    parser.add_argument("--verbose", action="store_true", help="also log what Kopf and the API client do")


def _port(text: str) -> int:
    """A TCP port to listen on. Raises `argparse.ArgumentTypeError`."""
    if not (text.isdecimal() and int(text) <= LAST_PORT):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: write 0 (any free port) to {LAST_PORT}")
    return int(text)


def add_lease_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of leader election."""
    group = parser.add_argument_group("replicas", "The replica that holds the Lease leads. The others stand by.")
    group.add_argument(
        "--lease-namespace",
        metavar="NAMESPACE",
        help="namespace of the Lease (default: that of -n; with several, that of the pod or of the context)",
    )
    group.add_argument("--lease-name", default=LEASE, metavar="NAME", help="name of the Lease (%(default)s)")
    group.add_argument(
        "--identity", metavar="NAME", help="unique identity of this replica (default: host name and a random word)"
    )
    for flag, default, text in (
        ("--lease-duration", DURATION, "seconds after the last renewal until another replica takes over"),
        ("--renew-deadline", DEADLINE, "seconds after which a leader that can't renew its Lease exits"),
        ("--retry-period", RETRY, "maximum seconds between two attempts to renew or take the Lease"),
    ):
        group.add_argument(flag, type=float, default=default, metavar="SECONDS", help=f"{text} (%(default)g)")


def _run(arguments: argparse.Namespace) -> int:
    log_to_stderr(arguments.log_level, arguments.log_format, verbose=arguments.verbose)
    try:
        asyncio.run(_operate(arguments, _retention(arguments)))
    except LeaseLostError as error:
        log.critical("%s: ending, to restart as a standby", error)
        return FINDING
    return FINE


def _candidacy(arguments: argparse.Namespace) -> Candidacy:
    """The settings of leader election. Raises `CommandError`."""
    times = (arguments.lease_duration, arguments.renew_deadline, arguments.retry_period)
    try:
        return Candidacy(arguments.lease_name, arguments.identity or own_identity(), *times)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _retention(arguments: argparse.Namespace) -> Retention:
    """The retention of history. Raises `CommandError`."""
    try:
        return Retention(seconds=seconds(arguments.keep), bytes=_bytes(arguments.keep_size))
    except ValueError as error:
        raise CommandError(str(error)) from error


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([0-9]+)([KMGT]i)", text)
    if found is None:
        raise ValueError(f"size {text!r} must look like 500Mi or 8Gi")
    return int(found[1]) << 10 * (1 + "KMGT".index(found[2][0]))


async def _operate(arguments: argparse.Namespace, retention: Retention) -> None:
    page = (arguments.http_host, arguments.http_port)
    namespaces, lease = watched(arguments)
    options = OperatorOptions(namespaces, *page, allowed_urls(arguments), nodes=arguments.watch_nodes)
    metrics = Metrics()
    collect_seldom()
    reach = (arguments.kubeconfig, arguments.context, lease)
    async with candidate(*reach, _candidacy(arguments), metrics.observe_request) as (api, elector):
        sources = load_sources(arguments.history, arguments.spark, retention, arguments.spark_memory)
        try:
            await run_operator(api, options, sources, metrics, elector)
        finally:
            await asyncio.to_thread(sources.close)


def watched(arguments: argparse.Namespace) -> tuple[tuple[str, ...], str]:
    """The namespaces to watch (none: all), and the namespace of the Lease.

    Raises `CommandError`, `ConnectionSettingsError`.
    """
    refuse_empty_namespace(arguments)
    found = tuple(dict.fromkeys(arguments.namespace or ()))
    if bool(found) == arguments.all_namespaces:
        raise CommandError("name the namespace of each messaging cluster with -n, or all with -A, and not both")
    if arguments.lease_namespace or len(found) == 1:
        return found, arguments.lease_namespace or found[0]
    return found, default_namespace(arguments.kubeconfig, arguments.context)


def load_sources(history: str, spark: str, retention: Retention = KEEP_A_DAY, memory: str = "700m") -> LoadSources:
    """Sources of load with their history below `history`. spark: as in ``--spark``. memory: heap of Spark's JVM.

    Raises `CommandError` if Java or the client for a Connect server is missing, or if a setting is wrong.
    """
    try:
        if spark == NO_SPARK:
            return direct_sources(history, retention=retention)
        return spark_sources(history, master=spark, memory=memory, retention=retention)
    except (SourceUnavailableError, ValueError) as error:
        raise CommandError(str(error)) from error


# -- messages on stderr --

LEVELS = ("debug", "info", "warning", "error")

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"

_QUIET = ("kopf", "py4j", "kubernetes", "aiohttp.access")
"""Loggers of libraries. Unless `verbose` is set, only their warnings and errors are shown."""


class JsonFormatter(logging.Formatter):
    """One line per record: an object with time (RFC 3339), level, logger and message; error: the traceback, if any."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of `record`."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        said = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def log_to_stderr(level: str, form: str, *, verbose: bool) -> None:
    """Log messages of `level` and above. form: text or json.

    verbose: the loggers in `_QUIET` log all these messages, not only warnings and errors.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if not verbose:
        for name in _QUIET:
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
