"""Finds the verb, loads its module and runs it; errors that a person can mend become one line and exit code 2."""

from __future__ import annotations

import argparse
import difflib
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from trimtab_operator import __version__
from trimtab_operator.cli.candidates import WORD, complete
from trimtab_operator.cli.failure import FINDING, USAGE, CommandError
from trimtab_operator.cli.program import program, spoken
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
    "lint": "check manifests before they are merged",
    "history": "show, export or import the history of load",
    "migrate": "print the policy that balances as a Pulsar cluster does",
    "restore": "put back what was switched off in Pulsar, and release finalizers",
    "warm": "make Spark start faster on this machine",
    "crds": "print, write or check the custom resource definitions",
    "rbac": "print, write or check the Role of the operator",
    "conformance": "replay recordings of the reference implementations",
    "completion": "print what makes a shell complete verbs, flags and names",
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
    if words[:1] == [WORD]:
        return complete(words[1:])
    try:
        arguments = _parsed(words, plugins)
        code = int(arguments.run(arguments))
        sys.stdout.flush()
    except SystemExit as end:  # argparse has printed help, the version, or what is wrong
        return end.code if isinstance(end.code, int) else FINDING
    except (CommandError, ConnectionSettingsError, AddressInUseError) as error:
        print(spoken(f"trimtab: {error}"), file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        # the reader has gone (`trimtab crds | head`): what is still held must go somewhere, or Python complains on exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINDING
    except KeyboardInterrupt:
        return 130
    return code


def _parsed(words: Sequence[str], plugins: Iterable[EntryPoint] | None) -> argparse.Namespace:
    """The arguments; exits as argparse does, without a verb after a list of them. Raises `CommandError`."""
    parser = parser_for(words, plugins)
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(USAGE)
    return parser.parse_args(words)


def verbs_of(plugins: Mapping[str, EntryPoint]) -> Mapping[str, str]:
    """All verbs, with one line of help each."""
    added = {name: _HELP.get(name, f"added by {point.module.partition('.')[0]}") for name, point in plugins.items()}
    return {**VERBS, **{name: text for name, text in added.items() if name not in VERBS}}


def parser_for(words: Sequence[str], plugins: Iterable[EntryPoint] | None = None) -> argparse.ArgumentParser:
    """A parser that knows all verbs by name, and in full only the one that `words` names.

    Raises `CommandError` for a verb that there is not.
    """
    found = {point.name: point for point in (entry_points(group=PLUGINS) if plugins is None else plugins)}
    verbs = verbs_of(found)
    parser = argparse.ArgumentParser(
        prog=program(),
        description=spoken(_DESCRIPTION),
        epilog="\n".join(["verbs:", *(f"  {verb:<13} {text}" for verb, text in verbs.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trimtab {__version__}")
    subparsers = parser.add_subparsers(metavar="VERB", required=True, help="what to do")
    named = next((word for word in words if not word.startswith("-")), "")
    if named and named not in verbs:
        raise CommandError(_no_verb(named, verbs))
    for verb in verbs:
        if verb == named:
            _register(verb, found.get(verb))(subparsers)
            _spoken(subparsers.choices[verb])
        else:
            subparsers.add_parser(verb)
    return parser


def _no_verb(word: str, verbs: Iterable[str]) -> str:
    alike = difflib.get_close_matches(word, list(verbs), n=3)
    meant = f"did you mean {', '.join(alike)}? " if alike else ""
    return f"there is no verb {word}; {meant}`trimtab --help` lists all"


def _spoken(parser: argparse.ArgumentParser) -> None:
    """Have the help of a verb name the program as it was called."""
    parser.description, parser.epilog = spoken(parser.description or ""), spoken(parser.epilog or "")


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
