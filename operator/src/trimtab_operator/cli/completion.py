"""`trimtab completion`: what makes a shell complete verbs, flags and names. The shells ask `candidates` each time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from trimtab_operator.cli.failure import FINE

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
