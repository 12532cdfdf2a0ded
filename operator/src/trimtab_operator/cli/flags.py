"""Flags of verbs that query Prometheus or Pulsar without a policy, and the namespace that a verb works on.

Secrets come from files, because any user of the machine can read command lines.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from trimtab_operator.cli.cluster_flags import refuse_empty_namespace
from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.query_options import MATCHER, PARAMETER, add_query_options, matchers, parameters
from trimtab_operator.kube.connection import default_namespace
from trimtab_operator.pulsar.client.auth import Bearer
from trimtab_operator.pulsar.client.errors import Access, PulsarError, advice
from trimtab_operator.pulsar.client.http import Admin, connected
from trimtab_pipeline.api import Credentials, CredentialsError, PrometheusSettings
from trimtab_pipeline.tls_faults import TlsFields
from trimtab_strategies.params import seconds


def settle_namespace(arguments: argparse.Namespace) -> str:
    """Set and return `arguments.namespace`; empty means all. Raises `ConnectionSettingsError`.

    Raises `CommandError` if a user gives an empty name, such as an unset shell variable, because it would select all
    namespaces.
    """
    if arguments.all_namespaces:
        arguments.namespace = ""
        return ""
    refuse_empty_namespace(arguments)
    if not arguments.namespace:
        arguments.namespace = default_namespace(arguments.kubeconfig, arguments.context)
    return str(arguments.namespace)


_TENANT = "X-Scope-OrgID"

_REMOTE = "sc://"

_PEM = "-----BEGIN "

_LABEL = r"[a-zA-Z_]\w*"

_OPTIONS = (
    ("--resources", "kubernetes|pulsar", "source of the brokers' resource usage, as in a policy (kubernetes)"),
    ("--container", "NAME", "name of the brokers' container in their pods (found by the metrics)"),
    ("--namespace-label", "LABEL", "label that holds the Kubernetes namespace in the brokers' metrics (namespace)"),
    ("--method", "POST|GET", "HTTP method; GET for a server that refuses POST (POST)"),
    ("--bearer-token-file", "FILE", "file with the bearer token; read for every query, as tokens rotate"),
    ("--username", "NAME", "user for HTTP Basic, with --password-file"),
    ("--password-file", "FILE", "file with the password; a line break at its end is ignored"),
    ("--ca-file", "FILE", "PEM file with the certificate authorities to trust, instead of the system's"),
    ("--certificate-file", "FILE", "PEM file with the client certificate, with --key-file"),
    ("--key-file", "FILE", "PEM file with the key of the client certificate"),
    ("--tenant", "ID", f"tenant for Mimir and similar servers, sent as {_TENANT}"),
)

_CHOICES = {"--resources": ("kubernetes", "pulsar"), "--method": ("POST", "GET")}


def add_prometheus_options(parser: argparse.ArgumentParser) -> None:
    """Add options that need ``--url``."""
    group = parser.add_argument_group("with --url")
    for name, value, help_text in _OPTIONS:
        metavar = None if name in _CHOICES else value
        group.add_argument(name, metavar=metavar, choices=_CHOICES.get(name), help=help_text)
    window = "window of rates, such as 5m; at least two scrape intervals (60s)"
    group.add_argument("--window", metavar="LENGTH", type=length, help=window)
    add_query_options(group)


def check_prometheus_options(arguments: argparse.Namespace) -> None:
    """Refuse options that need ``--url`` if it is missing, because they would have no effect. Raises `CommandError`."""
    names = ("--window", *(name for name, *_ in _OPTIONS), MATCHER, PARAMETER)
    given = [name for name in names if _value(arguments, name) is not None]
    if given and not arguments.url:
        raise CommandError(f"{given[0]} works only with --url; a policy has its own settings in spec.source")


def prometheus_settings(arguments: argparse.Namespace, *, hot_bundles: int) -> PrometheusSettings:
    """Settings for queries to ``--url``. Raises `CommandError` that names the wrong option."""
    label = arguments.namespace_label or "namespace"
    if not re.fullmatch(_LABEL, label, re.ASCII):
        raise CommandError(f"--namespace-label {label!r} is not a label name: use letters, digits and underscores")
    try:
        return PrometheusSettings(
            arguments.url,
            arguments.namespace,
            arguments.resources or "kubernetes",
            window=arguments.window or 60.0,
            container=arguments.container or "",
            namespace_label=label,
            hot_bundles=hot_bundles,
            credentials=_credentials(arguments),
            method=arguments.method or "POST",
            matchers=tuple(matchers(arguments).items()),
            parameters=tuple(parameters(arguments).items()),
        )
    except CredentialsError as error:
        raise CommandError(f"credentials of --url: {error}") from error
    except ValueError as error:
        raise CommandError(f"--url: {error}") from error


def length(text: str) -> float:
    """Seconds of a duration such as 90s: the type of an argument. Raises `argparse.ArgumentTypeError`."""
    try:
        found = seconds(text)
    except ValueError:
        found = 0.0
    if found <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; write 90s, 5m or 1h30m")
    return found


def _credentials(arguments: argparse.Namespace) -> Credentials:
    """The credentials for ``--url``. Raises `CredentialsError`, and `CommandError` for a file that can't be read."""
    if bool(arguments.username) != bool(arguments.password_file):
        raise CommandError("--username goes with --password-file: give both, or neither")
    return Credentials(
        **_token(arguments),
        username=arguments.username or "",
        password=_text(arguments, "--password-file").rstrip("\r\n"),
        ca=_pem(arguments, "--ca-file"),
        certificate=_pem(arguments, "--certificate-file"),
        key=_pem(arguments, "--key-file"),
        headers=((_TENANT, arguments.tenant),) if arguments.tenant else (),
    )


def _token(arguments: argparse.Namespace) -> dict[str, Any]:
    """The token's file, or its content for a Spark Connect server, which can't read our files."""
    if not arguments.bearer_token_file:
        return {}
    if arguments.spark.startswith(_REMOTE):
        return {"bearer_token": _text(arguments, "--bearer-token-file").strip()}
    return {"bearer_token_file": str(Path(arguments.bearer_token_file).absolute())}


def _text(arguments: argparse.Namespace, option: str) -> str:
    """Content of the file of `option`; empty if it is not given. Raises `CommandError`."""
    if not (path := _value(arguments, option)):
        return ""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CommandError(f"{option} {path} can't be read: {why}") from error
    if not text.strip():
        raise CommandError(f"{option} {path} is empty")
    return text


def _pem(arguments: argparse.Namespace, option: str) -> str:
    """As `_text`, for a PEM file. Refuses other text: it would be taken for a file name, and appear in messages."""
    text = _text(arguments, option)
    if text and _PEM not in text:
        raise CommandError(f"{option} {_value(arguments, option)} holds no PEM text (there is no {_PEM})")
    return text


def _value(arguments: argparse.Namespace, option: str) -> str | None:
    value: str | None = getattr(arguments, option.lstrip("-").replace("-", "_"))
    return value


T = TypeVar("T")


_FILES = (
    ("--token-file", "file with the token (JWT); a line break at its end is ignored"),
    ("--ca-file", "PEM file with the certificate authorities to trust, instead of the system's"),
    ("--certificate-file", "PEM file with the client certificate, with --key-file"),
    ("--key-file", "PEM file with the key of the client certificate"),
)


def add_pulsar_options(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add ``--admin-url`` and its credentials."""
    url = "base URL of any broker's admin API, such as http://127.0.0.1:8080"
    parser.add_argument("--admin-url", metavar="URL", required=required, help=url)
    for name, help_text in _FILES:
        parser.add_argument(name, metavar="FILE", help=help_text)
    timeout = "timeout of one request, in seconds (%(default)g)"
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help=timeout)


def identity(arguments: argparse.Namespace) -> Bearer:
    """Credentials for ``--admin-url``. Raises `CommandError` that names the wrong option."""
    token, ca, certificate, key = (_text(arguments, name).strip() for name, _ in _FILES)
    try:
        return Bearer(Credentials(token, certificate=certificate, key=key, ca=ca))
    except CredentialsError as error:
        raise CommandError(f"credentials of --admin-url: {error}") from error


async def asked_pulsar(arguments: argparse.Namespace, work: Callable[[Admin], Awaitable[T]]) -> T:
    """Run `work` with a client for ``--admin-url``. Raises `CommandError` if Pulsar refuses a request."""
    who = identity(arguments)
    scheme = arguments.admin_url.partition(":")[0]
    opened = connected(arguments.admin_url, timeout=arguments.timeout, requests_per_second=100, identity=who)
    try:
        async with opened as admin:
            return await work(admin)
    except PulsarError as error:
        told = "; ".join(filter(None, (str(error), advice(str(error), _access(arguments), scheme))))
        raise CommandError(f"Pulsar at {arguments.admin_url}: {told}") from error


def _access(arguments: argparse.Namespace) -> Access:
    """Where the access of ``--admin-url`` is set up."""
    given = {name: f"{name} {path}" for name, _ in _FILES if (path := _value(arguments, name))}
    fields = TlsFields(
        ca=given.get("--ca-file", ""),
        give_ca="give the right one with --ca-file",
        certificate=given.get("--certificate-file", ""),
        give_certificate="give one with --certificate-file and --key-file",
        url="--admin-url",
    )
    give = "give --token-file, or --certificate-file with --key-file"
    return Access(fields, given.get("--token-file", ""), give, "put a valid one there")
