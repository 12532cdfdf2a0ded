"""`trimtab crds` and `trimtab rbac`: print, write or check the operator's manifests."""

from __future__ import annotations

import argparse
import difflib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from trimtab_operator.cli.common import FINDING, FINE, CommandError, add_verb
from trimtab_operator.resources.crd import rendered_crds
from trimtab_operator.resources.rbac import FILE, LEASE, NAMESPACE, rendered_rbac

_NAMESPACE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_CRDS_DESCRIPTION = """\
Print the custom resource definitions of this version of Trimtab (TopicNamespace, Bundle, Broker, BundleSplit and
BalancingPolicy), or write them to files, or compare them with files.

examples:
  trimtab crds | kubectl apply --server-side -f -   install or update them in a cluster
  trimtab crds --write crds              write one file per kind
  trimtab crds --check crds              exit with 1, and show the difference, if files are out of date
"""


def _register_crds(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(subparsers, "crds", _CRDS_DESCRIPTION, _run_crds)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", metavar="DIR", type=Path, help="write one file per kind to DIR")
    what.add_argument("--check", metavar="DIR", type=Path, help="compare with the files in DIR")


def _run_crds(arguments: argparse.Namespace) -> int:
    if arguments.write is not None:
        return _write_crds(arguments.write)
    if arguments.check is not None:
        return _check_crds(arguments.check)
    print("---\n".join(rendered_crds().values()), end="")
    return FINE


def _write_crds(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in rendered_crds().items():
            (folder / name).write_text(text, encoding="utf-8")
            print(folder / name)
    except OSError as error:
        raise CommandError(f"can't write to {folder}: {error.strerror}") from error
    return FINE


def _check_crds(folder: Path) -> int:
    if not folder.is_dir():
        raise CommandError(f"{folder} is not a folder; make it with: trimtab crds --write {folder}")
    expected = rendered_crds()
    differences = [line for name, text in expected.items() for line in _difference(folder / name, text)]
    extra = sorted(path for path in folder.glob("*.yaml") if path.name not in expected)
    differences += [f"{path} belongs to no kind: delete it" for path in extra]
    if not differences:
        return FINE
    print(*differences, sep="\n")
    print(f"\n{folder} is out of date; update it with: trimtab crds --write {folder}")
    return FINDING


def _difference(path: Path, text: str) -> list[str]:
    found = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = found.splitlines(), text.splitlines()
    return list(difflib.unified_diff(*lines, str(path), f"{path} (generated)", lineterm=""))


_RBAC_DESCRIPTION = """\
Print the operator's permissions: a ServiceAccount `trimtab`, a Role with a comment at each verb, and their binding, in
one Kubernetes namespace. Only --watch-nodes adds rights beyond that namespace: a ClusterRole to list and watch nodes,
for `trimtab run --watch-nodes`. --write and --check work with a file instead.

examples:
  trimtab rbac --namespace messaging | kubectl apply -f -   install or update it in a cluster
  trimtab rbac --write deploy              write deploy/rbac.yaml
  trimtab rbac --check deploy              exit with 1, and show the difference, if it is out of date
"""


def _register_rbac(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_verb(subparsers, "rbac", _RBAC_DESCRIPTION, _run_rbac)
    parser.add_argument("--namespace", "-n", default=NAMESPACE, help="Kubernetes namespace (%(default)s)")
    parser.add_argument("--watch-nodes", action="store_true", help="also the right to list and watch nodes")
    parser.add_argument(
        "--lease-name", default=LEASE, metavar="NAME", help="name of the operator's Lease (%(default)s)"
    )
    parser.add_argument(
        "--stop-deployment",
        default="",
        metavar="NAME",
        help="also the right to stop this Deployment, for trimtab restore before an uninstall",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", metavar="DIR", type=Path, help=f"write {FILE} to DIR")
    what.add_argument("--check", metavar="DIR", type=Path, help="compare with the file in DIR")


def _run_rbac(arguments: argparse.Namespace) -> int:
    if not _NAMESPACE_NAME.fullmatch(arguments.namespace):
        problem = "is not the name of a namespace: write up to 63 lower-case letters, digits and -"
        raise CommandError(f"--namespace {arguments.namespace!r} {problem}")
    stop = arguments.stop_deployment
    text = rendered_rbac(arguments.namespace, nodes=arguments.watch_nodes, lease=arguments.lease_name, stop=stop)
    try:
        if arguments.write is not None:
            return _write_rbac(arguments.write / FILE, text)
        if arguments.check is not None:
            return _check_rbac(arguments, text)
    except OSError as error:
        raise CommandError(f"{error.filename or arguments.write / FILE}: {error.strerror}") from error
    print(text, end="")
    return FINE


def _write_rbac(path: Path, text: str) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(path)
    return FINE


def _check_rbac(arguments: argparse.Namespace, text: str) -> int:
    path = arguments.check / FILE
    lines = path.read_text(encoding="utf-8").splitlines(), text.splitlines()
    differences = list(difflib.unified_diff(*lines, str(path), f"{path} (generated)", lineterm=""))
    if not differences:
        return FINE
    print(*differences, sep="\n")
    print(f"\n{path} is out of date; update it with: trimtab rbac {shlex.join(_options(arguments))}")
    return FINDING


def _options(arguments: argparse.Namespace) -> Iterator[str]:
    """The options with which `trimtab rbac` writes the file that this call checks."""
    given = (
        ("--namespace", arguments.namespace, NAMESPACE),
        ("--lease-name", arguments.lease_name, LEASE),
        ("--stop-deployment", arguments.stop_deployment, ""),
    )
    for option, value, default in given:
        if value != default:
            yield from (option, value)
    if arguments.watch_nodes:
        yield "--watch-nodes"
    yield from ("--write", str(arguments.check))
