"""Runs the command line. An error that the user can fix becomes one line and exit code 2."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path

from trimtab_operator.cli.cluster_flags import verb_first
from trimtab_operator.cli.common import FINDING, USAGE, CommandError, extra_of, missing, spoken
from trimtab_operator.cli.parser import parser_for
from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_operator.telemetry import AddressInUseError

_UNWRITTEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
"""Errors of a file that is written, which do not name the file."""


class OutputError(Exception):
    """Standard output takes no more. Verbs handle each `OSError` as one of their own files, so this is none."""


class _Output(io.TextIOWrapper):
    """Standard output that raises `OutputError`."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise OutputError from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise OutputError from error


def main(argv: Sequence[str] | None = None, plugins: Iterable[EntryPoint] | None = None) -> int:
    """Run the command line `argv` (the process's own if left out), and return the exit code.

    plugins: verbs of other packages; those of the entry-point group `PLUGINS` if left out.
    """
    words = verb_first(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        code = _outcome(words, plugins)
        sys.stdout.flush()
    except OutputError as error:
        # without a place for buffered output, Python complains on exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(cause := error.__cause__, BrokenPipeError):
            return FINDING  # the reader has exited (`trimtab crds | head`)
        _tell(f"standard output can't be written: {getattr(cause, 'strerror', cause)}")
        return USAGE
    except OSError as error:
        if error.filename is None and error.errno not in _UNWRITTEN:
            raise
        where = f"{error.filename}: " if error.filename is not None else "a file can't be written: "
        _tell(f"{where}{error.strerror}")
        return USAGE
    return code


def _prepare_streams() -> None:
    """Set up standard output, and replace streams that the caller has closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  (as long as the process)
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        lines = sys.stdout.line_buffering
        # a terminal that can't show a character still shows the rest
        sys.stdout = _Output(sys.stdout.buffer, sys.stdout.encoding, "backslashreplace", line_buffering=lines)


def _tell(problem: str) -> None:
    """Print an error, unless standard error is closed."""
    with suppress(OSError):
        print(spoken(f"trimtab: {problem}"), file=sys.stderr)


def _outcome(words: Sequence[str], plugins: Iterable[EntryPoint] | None) -> int:
    """Run the command line and return the exit code. Raises `OutputError`, and `OSError` of files."""
    try:
        if "_ARGCOMPLETE" in os.environ:
            from trimtab_operator.cli.completion import complete  # noqa: PLC0415  (argcomplete takes a while to load)

            return complete(lambda words: parser_for(words, plugins))
        return _run(_parsed(words, plugins))
    except SystemExit as end:  # argparse has printed help, the version, or what is wrong
        return end.code if isinstance(end.code, int) else FINDING
    except (CommandError, ConnectionSettingsError, AddressInUseError) as error:
        _tell(str(error))
        return USAGE
    except KeyboardInterrupt:
        return 130


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
