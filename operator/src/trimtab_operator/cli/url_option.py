"""The option that says which URLs a verb may use, and the check of a URL that a user gives.

It is not in `flags`, because `flags` loads the Pulsar client, and not in `cluster_flags`, which every start loads.
"""

from __future__ import annotations

import argparse

from trimtab_operator.cli.common import CommandError
from trimtab_operator.cli.query_options import PARAMETER
from trimtab_operator.resources.urls import (
    FLAG,
    SERVICES,
    AllowedUrls,
    BadPatternError,
    RefusedUrlError,
    parse,
    safe_text,
)


def add_url_option(parser: argparse._ActionsContainer, what: str) -> None:
    """Add the option that `allowed_urls` reads. what: text that says what the URLs are."""
    parser.add_argument(
        FLAG,
        action="append",
        metavar="PATTERN",
        default=[],
        help=f"{what}: [scheme://]host[:port], * matches any part; repeatable "
        f"(default: Services of the cluster, {' and '.join(SERVICES)})".replace("%", "%%"),
    )


def allowed_urls(arguments: argparse.Namespace, *, strangers: bool = False) -> AllowedUrls:
    """The allow-list of the command line. strangers: see `AllowedUrls`. Raises `CommandError`."""
    try:
        return AllowedUrls.of(arguments.allow_url, strangers=strangers)
    except BadPatternError as error:
        raise CommandError(f"{FLAG} {error}") from error


def check_url(option: str, url: str, *, like: str = "http://127.0.0.1:8080") -> None:
    """Raise `CommandError` for a URL that no policy may name. like: an example for the message."""
    try:
        parse(url)
    except RefusedUrlError as error:
        told = str(error) if "write http" in str(error) else f"{error}; write it like {like}"
        more = f"; give its parameters with {PARAMETER}" if option == "--url" and "?" in url else ""
        raise CommandError(f"{option} {safe_text(url)}: {told}{more}") from error
