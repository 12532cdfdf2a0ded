"""A verb that another package adds: it returns exit code 1, or raises an error on request."""

from __future__ import annotations

import argparse

from trimtab_operator.cli.common import CommandError
from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_operator.telemetry import AddressInUseError

_FAILURES = {"usage": CommandError, "connection": ConnectionSettingsError, "address": AddressInUseError}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser("extra")
    parser.add_argument("--fail")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if arguments.fail in _FAILURES:
        raise _FAILURES[arguments.fail](f"the {arguments.fail} is wrong")
    return 1
