"""`trimtab refresh`: replace a policy's proposal by a new one."""

from __future__ import annotations

import argparse

from trimtab_operator.cli.commanding import add_command, carry_out, give

_DESCRIPTION = """\
Drop the proposal that a policy of mode Approve shows, measure at once, and offer what is planned then. It is also what
goes on after `trimtab stop`. Exit code 1: refused, as while a proposal is carried out.

example:
  trimtab refresh main -n messaging && trimtab status main -n messaging
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = add_command(subparsers, "refresh", "replace a policy's proposal by a new one", _DESCRIPTION)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    return carry_out(arguments, lambda api: give(api, arguments, "refresh"))
