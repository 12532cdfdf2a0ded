"""The table of verbs, and the argument parser, which loads only the module of the named verb."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from trimtab_operator import __version__
from trimtab_operator.cli.cluster_flags import add_cluster_flags
from trimtab_operator.cli.common import CommandError, HelpText, extra_of, missing, program, spoken

Subparsers = Any  # the type that add_subparsers() returns is private to argparse
Register = Callable[[Subparsers], None]


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb. place: its module below `trimtab_operator.cli`, and ``:function`` unless that is ``_register``.

    hidden: whether no list of verbs has it, because a machine runs it.
    """

    place: str
    help: str
    hidden: bool = False

    def register(self) -> Register:
        """The function that adds the verb's arguments. Raises `ImportError`."""
        module, _, function = self.place.partition(":")
        found: Register = getattr(import_module(f"trimtab_operator.cli.{module}"), function or "_register")
        return found


VERBS: Mapping[str, Verb] = {
    "run": Verb("commands.run", "run the operator"),
    "status": Verb("commands.status", "show the state of policies and their proposals"),
    "plan": Verb("commands.plan", "show what the next cycle would do"),
    "explain": Verb("why.command:_register_explain", "explain the last decision on a bundle or a broker"),
    "why-not": Verb("why.command:_register_why_not", "explain why a bundle did not move, or a broker got no bundles"),
    "approve": Verb("commands.proposal:_register_approve", "approve the proposal that a policy shows, or a saved plan"),
    "refresh": Verb("commands.proposal:_register_refresh", "replace a policy's proposal with a new one"),
    "stop": Verb("commands.proposal:_register_stop", "stop an approved proposal, or withdraw a waiting one"),
    "pause": Verb("commands.edit:_register_pause", "pause a policy"),
    "resume": Verb("commands.edit:_register_resume", "resume a paused policy"),
    "move": Verb("commands.move", "move a bundle to a broker"),
    "drain": Verb("commands.edit:_register_drain", "drain a broker"),
    "undrain": Verb("commands.edit:_register_undrain", "end the drain of a broker"),
    "split": Verb("commands.edit:_register_split", "split a bundle"),
    "apply": Verb("commands.apply", "apply policies server-side, as the chart does", hidden=True),
    "observe": Verb("commands.observe", "show the load of a cluster"),
    "lint": Verb("lint.command", "check manifests before they are merged"),
    "history": Verb("commands.history", "show, export or import the history of load"),
    "migrate": Verb("commands.migrate", "print the policy that matches a Pulsar cluster's configuration"),
    "restore": Verb("commands.restore", "turn Pulsar's own balancer back on, and remove finalizers"),
    "crds": Verb("commands.manifests:_register_crds", "print, write or check the custom resource definitions"),
    "rbac": Verb("commands.manifests:_register_rbac", "print, write or check the Role of the operator"),
    "version": Verb("commands.about:_register_version", "show the versions of program, operator and CRDs"),
    "help": Verb("commands.about:_register_help", "explain a verb"),
    "completion": Verb("completion", "print the completion script of a shell"),
}
"""The verbs of this package."""

PLUGINS = "trimtab.commands"
"""Entry-point group of verbs that other packages add: name -> a `register` function."""


_HELP = {
    "backtest": "replay policies over recorded load",
    "demo": "balance a simulated cluster on this machine",
    "simulate": "run strategies in a simulated cluster",
}
"""One line of help for the verbs of the lab and the testbed."""


_DESCRIPTION = """\
Trimtab keeps the brokers of a bundle-sharded messaging cluster evenly loaded.

`trimtab help VERB` and `trimtab VERB --help` explain a verb, with examples. The flags below may stand before or after
a verb that talks to a cluster.
"""


class _Overview(HelpText):
    """Leaves the list of verbs out: the epilog has it as an aligned table."""

    def _iter_indented_subactions(self, action: argparse.Action) -> Generator[argparse.Action]:  # noqa: ARG002
        yield from ()


def verb_help(plugins: Mapping[str, EntryPoint]) -> dict[str, str]:
    """One line of help for each verb that is not hidden, by its name; also for those of the entry points `plugins`."""
    verbs = {name: verb.help for name, verb in VERBS.items() if not verb.hidden}
    for name, point in plugins.items():
        verbs.setdefault(name, _HELP.get(name, f"added by {point.module.partition('.')[0]}"))
    return verbs


def parser_for(words: Sequence[str], plugins: Iterable[EntryPoint] | None = None) -> argparse.ArgumentParser:
    """A parser that knows the names of all verbs, and the arguments of the verb that `words` begin with.

    Raises `CommandError` for an unknown verb.
    """
    found = {point.name: point for point in (entry_points(group=PLUGINS) if plugins is None else plugins)}
    verbs = verb_help(found)
    parser = argparse.ArgumentParser(
        prog=program(),
        description=spoken(_DESCRIPTION),
        epilog="\n".join(["verbs:", *(f"  {verb:<13} {text}" for verb, text in verbs.items())]),
        formatter_class=_Overview,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"trimtab {__version__}")
    subparsers = parser.add_subparsers(metavar="VERB", dest="verb", required=True, help="what to do")
    named = next((word for word in words[:1] if not word.startswith("-")), "")
    if named in VERBS:
        verbs.setdefault(named, VERBS[named].help)
    elif named and named not in verbs:
        raise CommandError(_no_verb(named, verbs))
    if not named:
        add_cluster_flags(parser, everywhere=True)
    for verb, text in verbs.items():
        if verb == named:
            _register(verb, found.get(verb))(subparsers)
            _spoken(subparsers.choices[verb])
        else:
            subparsers.add_parser(verb, help=text)
    return parser


def _no_verb(word: str, verbs: Iterable[str]) -> str:
    alike = difflib.get_close_matches(word, list(verbs), n=3)
    meant = f"did you mean {', '.join(alike)}? " if alike else ""
    return f"there is no verb {word}; {meant}`trimtab --help` lists all"


def _spoken(parser: argparse.ArgumentParser) -> None:
    """Set the program name in a verb's help to the name that the user typed."""
    parser.description, parser.epilog = spoken(parser.description or ""), spoken(parser.epilog or "")


def _register(verb: str, plugin: EntryPoint | None) -> Register:
    try:
        register: Register = VERBS[verb].register() if verb in VERBS or plugin is None else plugin.load()
    except ImportError as error:
        raise CommandError(_missing(verb, error)) from error
    return register


def _missing(verb: str, error: ImportError) -> str:
    extra = extra_of(error) or (None if verb in VERBS else verb)
    package = error.name or str(error)
    return missing(verb, package, extra) if extra else f"{verb} needs {package}, which is not installed"
