"""Finds the verb, loads its module and runs it; errors that a person can mend become one line and exit code 2."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from trimtab_operator import __version__
from trimtab_operator.cli.failure import FINDING, USAGE, CommandError
from trimtab_operator.cluster.errors import ConnectionSettingsError
from trimtab_operator.telemetry import AddressInUseError

VERBS: Mapping[str, str] = {
    "run": "run the operator",
    "status": "show where policies, and their proposals, stand",
    "plan": "show what the next cycle would do",
    "explain": "say why something moved, or did not",
    "why-not": "say why a bundle did not move, or a broker got none",
    "approve": "carry out the proposal that a policy shows",
    "refresh": "replace a policy's proposal by a new one",
    "stop": "end what was approved, or withdraw what is proposed",
    "pause": "let a policy decide nothing for a while",
    "resume": "let a paused policy decide again",
    "move": "move a bundle to a broker",
    "drain": "let a broker take no bundles",
    "split": "divide a bundle",
    "observe": "show the load of a cluster",
    "history": "show, export or import the history of load",
    "migrate": "print the policy that balances as a Pulsar cluster does",
    "restore": "put back what was switched off in Pulsar, and release finalizers",
    "warm": "make Spark start faster on this machine",
    "crds": "print, write or check the custom resource definitions",
    "rbac": "print, write or check the Role of the operator",
    "conformance": "replay recordings of the reference implementations",
}
"""Verb -> one line of help; each has a module of its name here (``_`` for ``-``), with ``register(subparsers)``."""

PLUGINS = "trimtab.commands"
"""Entry-point group of verbs that other packages add: name -> the same kind of `register`."""

_HELP = {"demo": "watch it level a cluster on this machine"}
"""One line of help for verbs of other packages that we ship."""

_DESCRIPTION = """\
Trimtab keeps the brokers of a bundle-sharded messaging cluster evenly loaded.

`trimtab VERB --help` explains a verb, with examples.
"""

Subparsers = Any  # argparse keeps the type of what add_subparsers() returns to itself
Register = Callable[[Subparsers], None]


def main(argv: Sequence[str] | None = None, plugins: Iterable[EntryPoint] | None = None) -> int:
    """Run the command line `argv` (the process's own if left out); returns the exit code.

    plugins: verbs of other packages; those of the entry-point group `PLUGINS` if left out.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without umlauts still shows the rest
    try:
        added = entry_points(group=PLUGINS) if plugins is None else plugins
        arguments = _parser(words, {point.name: point for point in added}).parse_args(words)
        code = int(arguments.run(arguments))
        sys.stdout.flush()
    except SystemExit as end:  # argparse has printed help, the version, or what is wrong
        return end.code if isinstance(end.code, int) else FINDING
    except (CommandError, ConnectionSettingsError, AddressInUseError) as error:
        print(f"trimtab: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # the reader has gone (`trimtab crds | head`): what is still held must go somewhere, or Python complains on exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINDING
    except KeyboardInterrupt:
        return 130
    return code


def _parser(words: Sequence[str], plugins: Mapping[str, EntryPoint]) -> argparse.ArgumentParser:
    """A parser that knows all verbs by name, and in full only the one that `words` names."""
    added = {name: _HELP.get(name, f"added by {point.module.partition('.')[0]}") for name, point in plugins.items()}
    verbs = {**VERBS, **{name: text for name, text in added.items() if name not in VERBS}}
    parser = argparse.ArgumentParser(
        prog="trimtab",
        description=_DESCRIPTION,
        epilog="\n".join(["verbs:", *(f"  {verb:<13} {text}" for verb, text in verbs.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trimtab {__version__}")
    subparsers = parser.add_subparsers(metavar="VERB", required=True, help="what to do")
    named = next((word for word in words if not word.startswith("-")), "")
    for verb in verbs:
        if verb == named:
            _register(verb, plugins.get(verb))(subparsers)
        else:
            subparsers.add_parser(verb)
    return parser


def _register(verb: str, plugin: EntryPoint | None) -> Register:
    try:
        register: Register = (
            import_module(f"trimtab_operator.cli.{verb.replace('-', '_')}").register
            if verb in VERBS or plugin is None
            else plugin.load()
        )
    except ImportError as error:
        raise CommandError(_missing(verb, error)) from error
    return register


def _missing(verb: str, error: ImportError) -> str:
    where = "" if verb in VERBS else f"; install it with: pip install 'trimtab[{verb}]'"
    return f"{verb} needs {error.name or error}, which is not installed{where}"
