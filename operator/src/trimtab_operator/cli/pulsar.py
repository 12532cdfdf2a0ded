"""How a Pulsar cluster is asked that no policy describes: options of a verb with ``--admin-url``.

Nothing secret is a word of the command line, where every user of the machine could read it: secrets come from files.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from trimtab_operator.cli.failure import CommandError
from trimtab_operator.pulsar.admin import Admin
from trimtab_operator.pulsar.errors import PulsarError
from trimtab_operator.pulsar.http import connected
from trimtab_operator.pulsar.identity import Bearer
from trimtab_pipeline.source import Credentials, CredentialsError

T = TypeVar("T")

_FILES = (
    ("--token-file", "holds the token (JWT); a line break at its end does not count"),
    ("--ca-file", "PEM of the only authorities to believe, instead of the usual ones"),
    ("--certificate-file", "PEM of the certificate to prove oneself by, with --key-file"),
    ("--key-file", "PEM of its key"),
)


def add_pulsar_options(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """``--admin-url`` and what goes with it."""
    url = "base URL of the admin REST of any broker, such as http://127.0.0.1:8080"
    parser.add_argument("--admin-url", metavar="URL", required=required, help=url)
    for name, told in _FILES:
        parser.add_argument(name, metavar="FILE", type=Path, help=told)
    parser.add_argument("--timeout", type=float, default=10.0, metavar="SECONDS", help="of one request (%(default)g)")


def identity(arguments: argparse.Namespace) -> Bearer:
    """Who asks. Raises `CommandError` naming the option that is wrong."""
    token, ca, certificate, key = (_text(arguments, name) for name, _ in _FILES)
    try:
        return Bearer(Credentials(token, certificate=certificate, key=key, ca=ca))
    except CredentialsError as error:
        raise CommandError(f"credentials of --admin-url: {error}") from error


def _text(arguments: argparse.Namespace, option: str) -> str:
    path: Path | None = vars(arguments)[option.strip("-").replace("-", "_")]
    if path is None:
        return ""
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{option} {path} can't be read: {error}") from error
    if not text:
        raise CommandError(f"{option} {path} is empty")
    return text


async def asked_pulsar(arguments: argparse.Namespace, work: Callable[[Admin], Awaitable[T]]) -> T:
    """What `work` returns, given a client for ``--admin-url``. Raises `CommandError` for what Pulsar refuses."""
    who = identity(arguments)
    opened = connected(arguments.admin_url, timeout=arguments.timeout, requests_per_second=100, identity=who)
    try:
        async with opened as admin:
            return await work(admin)
    except PulsarError as error:
        raise CommandError(f"Pulsar at {arguments.admin_url}: {error}") from error
