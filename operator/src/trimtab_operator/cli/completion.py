"""`trimtab completion`: prints shell scripts that complete verbs, flags and names, with `argcomplete`.

The scripts run the program with ``_ARGCOMPLETE`` set, and it prints candidates instead of doing its work. Names of
objects come from the cluster. If they can't be read, there are no candidates, and no error is shown at the prompt.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

import argcomplete
from argcomplete.completers import FilesCompleter
from argcomplete.finders import CompletionFinder
from argcomplete.shell_integration import shellcode

from trimtab_operator.cli.cluster_flags import verb_first
from trimtab_operator.cli.common import FINE, CommandError, add_verb
from trimtab_operator.cli.parser import VERBS
from trimtab_operator.kube.connection import default_namespace
from trimtab_operator.kube.errors import ApiError, ConnectionSettingsError
from trimtab_operator.kube.kubeconfig import Kubeconfig
from trimtab_operator.kube.wire import ResourceRef
from trimtab_operator.resources.common import GROUP, VERSION

PATIENCE = 2.0
"""Maximum seconds to wait for an answer of the cluster."""

_MOST = 500
"""Maximum number of names to suggest."""

_KINDS: Mapping[str, str] = {
    "policy": "balancingpolicies",
    "bundle": "bundles",
    "broker": "brokers",
    "to": "brokers",
    "namespace": "namespaces",
}
"""Plural of the kind that an argument names, by the argument's destination in argparse."""

_PATHS = frozenset({"file", "filename", "files", "kubeconfig", "kustomize", "save", "save_rollback"})
"""Destinations in argparse of arguments that name files."""


def complete(
    parser_for: Callable[[Sequence[str]], argparse.ArgumentParser],
    finder: CompletionFinder = argcomplete.autocomplete,
    stream: TextIO | None = None,
) -> int:
    """Print the candidates for the word at the cursor in ``COMP_LINE``, and return the exit code.

    parser_for: makes the parser for the words before the one at the cursor. finder, stream: tests replace them.
    """
    words = _before_cursor()
    try:
        parser = parser_for(words)
    except CommandError:  # there is no such verb
        return FINE
    finder(
        parser,
        always_complete_options=False,
        exit_method=sys.exit,
        output_stream=stream,
        default_completer=_values,  # type: ignore[arg-type]  # any callable works
    )
    return FINE


def _before_cursor() -> list[str]:
    """The complete words before the cursor, the verb first, without the program. Reorders ``COMP_LINE``, too."""
    line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
    program, *words = line.split()
    word = "" if line[-1:].isspace() or not words else words.pop()
    if (ordered := verb_first(words)) != words:
        line = " ".join([program, *ordered, word])
        os.environ.update(COMP_LINE=line, COMP_POINT=str(len(line)))
    return ordered


def _values(
    prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: object
) -> Iterable[str] | Mapping[str, str]:
    """Candidates for an argument without choices, as a mapping if each has a description."""
    if action.dest in _PATHS:
        return FilesCompleter()(prefix)
    if action.dest == "verb":
        return {verb: known.help for verb, known in VERBS.items() if not known.hidden}
    try:
        if action.dest == "context":
            return Kubeconfig.found(parsed_args.kubeconfig).namespaces
        return {name: plural for plural in _plurals(action.dest, parsed_args) for name in _names(plural, parsed_args)}
    except (ApiError, CommandError, ConnectionSettingsError, TimeoutError):
        return ()


def _plurals(destination: str, given: argparse.Namespace) -> Sequence[str]:
    """The kinds of object that an argument may name.

    For the name in `explain`, it is the kind that is given before the name. For `why-not`, it is brokers and bundles.
    """
    if destination != "name":
        return [_KINDS[destination]] if destination in _KINDS else []
    kind = getattr(given, "kind", None)
    return [_KINDS[kind]] if kind else ["brokers", "bundles"]


def _names(plural: str, given: argparse.Namespace) -> list[str]:
    """Names of the objects of a kind. Raises `ApiError`, `ConnectionSettingsError` and `TimeoutError`."""
    from trimtab_operator.cli.cluster import connected  # noqa: PLC0415  (takes a while to load)
    from trimtab_operator.kube.client import Api  # noqa: PLC0415

    ours = plural != "namespaces"
    ref = ResourceRef(GROUP if ours else "", VERSION if ours else "v1", plural, "")
    namespace = (given.namespace or default_namespace(given.kubeconfig, given.context)) if ours else ""

    async def read() -> list[str]:
        async with asyncio.timeout(PATIENCE), connected(given, Api, patience=0.0) as api:
            async for page in api.list(ref, namespace, limit=_MOST):
                return [item["metadata"]["name"] for item in page.items]
        return []

    return asyncio.run(read())


_DESCRIPTION = """\
Print the script that makes a shell complete verbs, flags, and names of policies, bundles, brokers, namespaces and
contexts. Names come from the cluster. If it does not answer within two seconds, no names are suggested.

`trimtab completion kubectl` prints the script that kubectl runs to complete `kubectl trimtab`. Name the script
kubectl_complete-trimtab, make it executable, and put it on the PATH. kubectl's own completion must be set up (see
`kubectl completion --help`).

examples:
  source <(trimtab completion bash)                                   now; or put it into ~/.bashrc
  trimtab completion zsh > "${fpath[1]}/_trimtab"
  trimtab completion fish > ~/.config/fish/completions/trimtab.fish
  trimtab completion kubectl > ~/.local/bin/kubectl_complete-trimtab && chmod +x ~/.local/bin/kubectl_complete-trimtab
"""

_KUBECTL = """\
#!/bin/sh
# kubectl runs this to complete `kubectl trimtab`. Each line has a candidate and its description. The last line has a
# number: 4 means to offer no files, 2 to add no space (after a folder). _ARGCOMPLETE_SHELL=fish makes argcomplete print
# names without backslashes.
line="kubectl-trimtab $*"
found=$(COMP_LINE="$line" COMP_POINT=${#line} _ARGCOMPLETE=1 _ARGCOMPLETE_SHELL=fish _ARGCOMPLETE_SUPPRESS_SPACE=1 \\
    _ARGCOMPLETE_DFS="$(printf '\\t')" _ARGCOMPLETE_IFS='
' kubectl-trimtab 8>&1 9>/dev/null >/dev/null 2>&1)
case $found in
    '') echo :4 ;;
    */?) printf '%s\\n:6\\n' "$found" ;;
    *) printf '%s\\n:4\\n' "$found" ;;
esac
"""

SHELLS = ("bash", "zsh", "fish", "kubectl")


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(subparsers, "completion", _DESCRIPTION, _run)
    parser.add_argument("shell", choices=SHELLS, help="shell whose script to print")


def _run(arguments: argparse.Namespace) -> int:
    shell = arguments.shell
    text = _KUBECTL if shell == "kubectl" else shellcode(["trimtab"], use_defaults=False, shell=shell)
    print(text.strip())
    return FINE
