"""`trimtab help` and `trimtab version`."""

from __future__ import annotations

import argparse
import platform

from trimtab_operator import __version__
from trimtab_operator.cli.cluster_flags import add_cluster_flags
from trimtab_operator.cli.common import FINE, VersionPart, add_output_option, add_verb, is_data, print_data
from trimtab_operator.cli.parser import parser_for

_HELP_DESCRIPTION = """\
Explain a verb, with examples, as `trimtab VERB --help` does. Without a verb, list all verbs.

examples:
  trimtab help
  trimtab help approve
"""


def _register_help(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(subparsers, "help", _HELP_DESCRIPTION, _run_help)
    parser.add_argument("verb", nargs="?", metavar="VERB", help="the verb to explain (default: all, in one line each)")


def _run_help(arguments: argparse.Namespace) -> int:
    words = [arguments.verb] if arguments.verb else []
    parser_for(words).parse_args([*words, "--help"])
    return FINE


_VERSION_DESCRIPTION = """\
Show the versions of this program, of the operator that leads in a namespace, and of the cluster's API: which versions
of Trimtab's kinds it serves. If a version can't be read, its line says why. The exit code is 0 even then.

The operator's version is the label app.kubernetes.io/version of its pod, which Trimtab's chart sets.

examples:
  trimtab version -n messaging
  trimtab version --client
  trimtab version -o json | jq -r .client.version
"""


def _register_version(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(subparsers, "version", _VERSION_DESCRIPTION, _run_version)
    parser.add_argument("--client", action="store_true", help="only this program, without access to a cluster")
    add_cluster_flags(parser)
    add_output_option(parser)


def _run_version(arguments: argparse.Namespace) -> int:
    python = platform.python_version()
    found = {
        "client": VersionPart(f"trimtab {__version__} (Python {python})", {"version": __version__, "python": python})
    }
    if not arguments.client:
        from trimtab_operator.cli.commands.cluster_version import of_the_cluster  # noqa: PLC0415  (takes a while)

        found |= of_the_cluster(arguments)
    if is_data(arguments.output):
        print_data({name: dict(part.data) for name, part in found.items()}, arguments.output)
        return FINE
    for name, part in found.items():
        print(f"{name + ':':<12}{part.text}")
    return FINE
