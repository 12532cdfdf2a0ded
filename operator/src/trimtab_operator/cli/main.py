"""Runs the command line. An error that the user can fix becomes one line and exit code 2."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint

from trimtab_operator.cli.cluster_flags import verb_first
from trimtab_operator.cli.common import FINDING, USAGE, CommandError, extra_of, missing, spoken
from trimtab_operator.cli.parser import parser_for
from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_operator.telemetry import AddressInUseError


def main(argv: Sequence[str] | None = None, plugins: Iterable[EntryPoint] | None = None) -> int:
    """Run the command line `argv` (the process's own if left out), and return the exit code.

    plugins: verbs of other packages; those of the entry-point group `PLUGINS` if left out.
    """
    words = verb_first(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that can't show a character still shows the rest
    try:
        if "_ARGCOMPLETE" in os.environ:
            from trimtab_operator.cli.completion import complete  # noqa: PLC0415  (argcomplete takes a while to load)

            return complete(lambda words: parser_for(words, plugins))
        arguments = _parsed(words, plugins)
        code = _run(arguments)
        sys.stdout.flush()
    except SystemExit as end:  # argparse has printed help, the version, or what is wrong
        return end.code if isinstance(end.code, int) else FINDING
    except (CommandError, ConnectionSettingsError, AddressInUseError) as error:
        print(spoken(f"trimtab: {error}"), file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # the reader has exited (`trimtab crds | head`): without a place for buffered output, Python complains on exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINDING
    except KeyboardInterrupt:
        return 130
    return code


def _parsed(words: Sequence[str], plugins: Iterable[EntryPoint] | None) -> argparse.Namespace:
    """The parsed arguments. Exits on an error as argparse does; without a verb, prints help. Raises `CommandError`."""
    parser = parser_for(words, plugins)
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(USAGE)
    return parser.parse_args(words)


def _run(arguments: argparse.Namespace) -> int:
    """Run the verb and return the exit code. Raises `CommandError`, also if a package of an extra is missing."""
    try:
        return int(arguments.run(arguments))
    except ModuleNotFoundError as error:
        if (extra := extra_of(error)) is None:
            raise
        raise CommandError(missing(arguments.verb, str(error.name), extra)) from error
