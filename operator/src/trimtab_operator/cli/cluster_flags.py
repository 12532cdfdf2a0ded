"""Flags that several verbs share, and the order of a command line. Every start loads this module, so it imports little.

argparse wants the verb first. People also type ``trimtab -n messaging status``, as with kubectl: `verb_first` moves the
verb to the front.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from trimtab_operator.cli.common import CommandError

_NAMESPACE = "Kubernetes namespace of the messaging cluster"

_OF_THE_CONTEXT = f"{_NAMESPACE} (default: the namespace of the kubeconfig's context)"

_KUBECONFIG = "kubeconfig file (default: $KUBECONFIG, in a pod its service account, ~/.kube/config)"

_CONTEXT = "context of the kubeconfig (default: the current context)"

_AS = "user to act as, such as jane or system:serviceaccount:NAMESPACE:NAME; you need the right to impersonate"

_AS_GROUP = "group to act as, with --as; repeatable"

_REQUEST_TIMEOUT = "time limit of one request to the API server, such as 5s; 0: none (default: 30s)"

_VALUED = frozenset(
    {"-n", "--namespace", "--kubeconfig", "--context", "--as", "--as-group", "--request-timeout"}
    | {"-o", "--output", "--color"}
)
"""Shared flags that take a value."""

DRY_RUN = "--dry-run"


def verb_first(words: Sequence[str]) -> list[str]:
    """`words` with the verb at the front, and a value for a bare ``--dry-run``. Unchanged without a verb."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _VALUED else 1
    if at >= len(words) or "--version" in words[:at]:
        return list(words)
    return [words[at], *map(_with_value, (*words[:at], *words[at + 1 :]))]


def _with_value(word: str) -> str:
    """As in kubectl: a bare ``--dry-run`` means client. Other values need an equals sign."""
    return f"{DRY_RUN}=client" if word == DRY_RUN else word


class _OneNamespaceAlone(argparse.Action):
    """Rejects ``-A``, with the reason, for verbs that work on a single messaging cluster."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002  (argparse's signature)
        values: str | Sequence[Any] | None,  # noqa: ARG002
        option_string: str | None = None,
    ) -> None:
        verb = parser.prog.rpartition(" ")[2]
        parser.error(f"{verb} works on one messaging cluster: name its namespace with -n instead of {option_string}")


def add_cluster_flags(
    parser: argparse._ActionsContainer,
    *,
    person: bool = True,
    several: bool = False,
    everywhere: bool = False,
    help_text: str = "",
) -> None:
    """Add ``-n``, ``-A``, ``--kubeconfig`` and ``--context``, and for a person ``--as`` and ``--request-timeout``.

    person: False for the operator, which acts as itself. several: whether ``-n`` may be repeated; that also allows
    ``-A``. everywhere: whether ``-A`` is allowed. help_text: replaces the usual help of ``-n``.
    """
    if several:
        text = f"{_NAMESPACE}; repeatable"
        parser.add_argument("--namespace", "-n", metavar="NAMESPACE", action="append", help=text)
    else:
        parser.add_argument("--namespace", "-n", metavar="NAMESPACE", help=help_text or _OF_THE_CONTEXT)
    if everywhere or several:
        parser.add_argument("--all-namespaces", "-A", action="store_true", help="all namespaces")
    else:
        parser.add_argument(
            "--all-namespaces", "-A", action=_OneNamespaceAlone, nargs=0, default=False, help=argparse.SUPPRESS
        )
    parser.add_argument("--kubeconfig", metavar="FILE", help=_KUBECONFIG)
    parser.add_argument("--context", metavar="NAME", help=_CONTEXT)
    if person:
        _add_person_flags(parser)


def _add_person_flags(parser: argparse._ActionsContainer) -> None:
    parser.add_argument("--as", dest="as_user", metavar="USER", help=_AS)
    parser.add_argument("--as-group", dest="as_group", metavar="GROUP", action="append", default=[], help=_AS_GROUP)
    parser.add_argument("--request-timeout", metavar="TIME", type=_limit, help=_REQUEST_TIMEOUT)


def _limit(text: str) -> float:
    """Parse a time limit to seconds, infinite for 0. Raises `argparse.ArgumentTypeError`."""
    from trimtab_strategies.params import seconds  # noqa: PLC0415  (loads the strategies)

    try:
        length = float(text) if text.isdecimal() else seconds(text)
    except ValueError as error:
        problem = f"{text!r} is not a time: write seconds, or a duration such as 5s or 1m; 0 means no limit"
        raise argparse.ArgumentTypeError(problem) from error
    return length or float("inf")


def add_dry_run_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--dry-run`` as kubectl has it."""
    text = "write nothing and show what would be written; server: the API server also checks it, with your rights"
    parser.add_argument(DRY_RUN, choices=("none", "client", "server"), default="none", help=f"{text} (%(default)s)")


def refuse_empty_namespace(arguments: argparse.Namespace) -> None:
    """Raise `CommandError` if ``-n`` is given with an empty name, such as an unset shell variable."""
    given = arguments.namespace
    if given == "" or (isinstance(given, list) and "" in given):
        raise CommandError("-n is given without a name: name a namespace, or leave it out")
