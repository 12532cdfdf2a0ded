"""`trimtab stop`: end what was approved, or withdraw what is proposed."""

from __future__ import annotations

import argparse

from trimtab_operator.cli.commanding import add_command, carry_out, give

_DESCRIPTION = """\
Write no further move of the proposal that is carried out; the open ones land or are withdrawn, so that every bundle
stays whole. A proposal that waits is withdrawn. Nothing is proposed again until `trimtab refresh`.
For modes Auto and DryRun there is `trimtab pause`.

example:
  trimtab stop main -n messaging
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_command(subparsers, "stop", "end what was approved, or withdraw what is proposed", _DESCRIPTION)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    return carry_out(arguments, lambda api: give(api, arguments, "stop"))
