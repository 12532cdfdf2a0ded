"""`trimtab rbac`: print, write or check the ServiceAccount and the Role that the operator needs."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path

from trimtab_operator.cli.failure import FINDING, FINE, CommandError
from trimtab_operator.resources.permissions import FILE, NAMESPACE, rendered

_DESCRIPTION = """\
What the operator may do, and why: a ServiceAccount `trimtab`, a Role with a comment at each verb, and the binding of
both, in one Kubernetes namespace. Nothing of it reaches beyond that namespace, but for the ClusterRole that
--watch-nodes adds: to list and watch nodes, for `trimtab run --watch-nodes`. Without an option it is printed.

examples:
  trimtab rbac --namespace messaging | kubectl apply -f -   install or update it in a cluster
  trimtab rbac --write deploy              write deploy/rbac.yaml
  trimtab rbac --check deploy              exit with 1, and show the difference, if that is out of date
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "rbac",
        help="print, write or check the Role of the operator",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--namespace", "-n", default=NAMESPACE, help="Kubernetes namespace (%(default)s)")
    parser.add_argument("--watch-nodes", action="store_true", help="with the right to see which nodes are cordoned")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", metavar="DIR", type=Path, help=f"write {FILE} to DIR")
    what.add_argument("--check", metavar="DIR", type=Path, help="compare with the file in DIR")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code. Raises `CommandError`."""
    text = rendered(arguments.namespace, nodes=arguments.watch_nodes)
    try:
        if arguments.write is not None:
            return _write(arguments.write / FILE, text)
        if arguments.check is not None:
            return _check(arguments.check / FILE, text)
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from error
    print(text, end="")
    return FINE


def _write(path: Path, text: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path)
    return FINE


def _check(path: Path, text: str) -> int:
    lines = path.read_text(encoding="utf-8").splitlines(), text.splitlines()
    differences = list(difflib.unified_diff(*lines, str(path), f"{path} (as permissions have it)", lineterm=""))
    if not differences:
        return FINE
    print(*differences, sep="\n")
    print(f"\n{path} is out of date; update it with: trimtab rbac --write {path.parent}")
    return FINDING
