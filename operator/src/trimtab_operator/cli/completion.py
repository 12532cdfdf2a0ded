"""`trimtab completion`, and ``trimtab __complete WORD...`` that shells ask for candidates.

One candidate a line, with a tab and a description. The last line is a number for kubectl: 4 keeps it from offering
files. An error prints nothing.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence

from trimtab_operator.cli.common import FINE

WORD = "__complete"
"""The hidden verb."""

PATIENCE = 2.0
"""Seconds that the cluster has to tell names."""

_FILES, _NO_FILES = ":0", ":4"

_MOST = 500
"""Names that are offered at most."""


_KINDS: Mapping[str, str] = {
    "policy": "balancingpolicies",
    "bundle": "bundles",
    "broker": "brokers",
    "to": "brokers",
    "namespace": "namespaces",
}
"""Kind of object that an argument names, by where argparse keeps it."""

_PATHS = frozenset({"filename", "kubeconfig", "files"})


def complete(words: Sequence[str]) -> int:
    """Print the candidates for the last of `words`; the exit code, which is always 0."""
    begun = words[-1] if words else ""
    try:
        found = dict(_candidates(list(words[:-1]), begun))
    except (Exception, SystemExit):  # noqa: BLE001  (nobody wants a traceback at a prompt)
        found = {"": ""}
    for name, about in sorted(found.items()):
        if name and name.startswith(begun):
            print(f"{name}\t{about}" if about else name)
    print(_FILES if not found else _NO_FILES)
    return FINE


def _candidates(words: Sequence[str], begun: str) -> Iterator[tuple[str, str]]:
    """Pairs of a candidate and a word about it; none at all where a file is meant."""
    from trimtab_operator.cli.parser import VERBS, parser_for  # noqa: PLC0415  (it imports this module)

    verb = next((word for word in words if not word.startswith("-")), "")
    if not verb:
        yield from ((name, found.help) for name, found in VERBS.items())
        return
    parser = _of_verb(parser_for([verb]), verb)
    options = {name: action for action in parser._actions for name in action.option_strings}  # noqa: SLF001  (argparse has no other way)
    before = options.get(words[-1]) if words else None
    after = words[list(words).index(verb) + 1 :]
    if before is not None and before.nargs != 0:
        yield from _values(before, _settings(options, after))
    elif begun.startswith("-"):
        yield from ((name, _first(action.help)) for name, action in options.items() if action.help != argparse.SUPPRESS)
    else:
        asked = [action for action in parser._actions if not action.option_strings]  # noqa: SLF001
        place = len(list(_plain(options, after)))
        if asked and (place < len(asked) or asked[-1].nargs in {"+", "*"}):
            yield from _values(asked[min(place, len(asked) - 1)], _settings(options, after))
        else:
            yield "", ""


def _of_verb(parser: argparse.ArgumentParser, verb: str) -> argparse.ArgumentParser:
    [verbs] = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001
    found: argparse.ArgumentParser = verbs.choices[verb]
    return found


def _first(text: str | None) -> str:
    return (text or "").partition(";")[0].partition(" (")[0].replace("%%", "%")


def _plain(options: Mapping[str, argparse.Action], words: Sequence[str]) -> Iterator[str]:
    """The words that are neither a flag nor the value of one."""
    value = False
    for word in words:
        action = options.get(word)
        if not value and action is None and not word.startswith("-"):
            yield word
        value = not value and action is not None and action.nargs != 0


def _settings(options: Mapping[str, argparse.Action], words: Sequence[str]) -> dict[str, str]:
    """The flags of the connection that were given, by where argparse keeps them, and the words besides."""
    found = {"words": " ".join(_plain(options, words))}
    for k, word in enumerate(words[:-1]):
        if word in options:
            found[options[word].dest] = words[k + 1]
    return found


def _values(action: argparse.Action, given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if action.choices is not None:
        yield from ((str(choice), "") for choice in action.choices)
    elif action.dest == "context":
        from trimtab_operator.kube.connection import contexts  # noqa: PLC0415  (loads the client)

        yield from ((name, space) for name, space in contexts(given.get("kubeconfig"))[0].items())
    elif action.dest in _PATHS:
        return
    elif kinds := _kinds(action.dest, given):
        yield "", ""
        for kind in kinds:
            yield from ((name, kind if len(kinds) > 1 else "") for name in _names(kind, given))
    else:
        yield "", ""


def _kinds(place: str, given: Mapping[str, str]) -> list[str]:
    """Plurals of the kinds that an argument may name."""
    if place == "name":  # of explain and why-not
        kind = given["words"].partition(" ")[0]
        return [_KINDS[kind]] if kind in {"bundle", "broker"} else ["brokers", "bundles"]
    return [_KINDS[place]] if place in _KINDS else []


def _names(plural: str, given: Mapping[str, str]) -> list[str]:
    from trimtab_operator.kube.client import Api  # noqa: PLC0415  (loads the client)
    from trimtab_operator.kube.connection import default_namespace  # noqa: PLC0415
    from trimtab_operator.kube.wire import ResourceRef  # noqa: PLC0415
    from trimtab_operator.resources.common import GROUP, VERSION  # noqa: PLC0415

    ours = plural != "namespaces"
    ref = ResourceRef(GROUP, VERSION, plural, "") if ours else ResourceRef("", "v1", plural, "")
    kubeconfig, context = given.get("kubeconfig"), given.get("context")
    namespace = given.get("namespace") or default_namespace(kubeconfig, context) if ours else ""

    async def read() -> list[str]:
        async with asyncio.timeout(PATIENCE), Api.connect(kubeconfig, context, patience=0.0) as api:
            async for page in api.list(ref, namespace, limit=_MOST):
                return [item["metadata"]["name"] for item in page.items]
        return []

    return asyncio.run(read())


_DESCRIPTION = """\
Print what makes a shell complete verbs, flags, and the names of policies, bundles, brokers, namespaces and contexts.
Names come from the cluster; while it does not answer within two seconds there are none, and nothing is said.

`kubectl` prints the script that kubectl asks to complete `kubectl trimtab`: it must be named kubectl_complete-trimtab,
be executable, and lie on the PATH (kubectl's own completion must be set up, see `kubectl completion --help`).

examples:
  source <(trimtab completion bash)                                   now; or put it into ~/.bashrc
  trimtab completion zsh > "${fpath[1]}/_trimtab"
  trimtab completion fish > ~/.config/fish/completions/trimtab.fish
  trimtab completion kubectl > ~/.local/bin/kubectl_complete-trimtab && chmod +x ~/.local/bin/kubectl_complete-trimtab
"""


_BASH = """\
# bash completion of trimtab
_trimtab() {
    local candidate
    COMPREPLY=()
    while IFS=$'\\t' read -r candidate _; do
        case $candidate in
            :0) compopt -o default ;;
            :*) ;;
            *) COMPREPLY+=("$candidate") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _trimtab trimtab
"""

_ZSH = """\
#compdef trimtab
# zsh completion of trimtab
_trimtab() {
    local line
    local -a found
    while IFS= read -r line; do
        case $line in
            :0) _files; return ;;
            :*) ;;
            *) found+=("${${line//:/\\\\:}/$'\\t'/:}") ;;
        esac
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    _describe trimtab found
}
if [[ ${funcstack[1]} == _trimtab ]]; then _trimtab; else compdef _trimtab trimtab; fi
"""

_FISH = """\
# fish completion of trimtab
function __trimtab_candidates
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program $words[1]
    set -e words[1]
    set -l found ($program __complete $words "$current" 2>/dev/null)
    if test "$found[-1]" = :0
        __fish_complete_path "$current"
    else
        string match -v ':*' -- $found
    end
end
complete -c trimtab -f -a '(__trimtab_candidates)'
"""

_KUBECTL = """\
#!/bin/sh
# kubectl asks this for the completion of `kubectl trimtab`
exec kubectl-trimtab __complete "$@"
"""

SCRIPTS: Mapping[str, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "kubectl": _KUBECTL}


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "completion",
        help="print what makes a shell complete verbs, flags and names",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="whose script to print")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code."""
    print(SCRIPTS[arguments.shell], end="")
    return FINE
