"""The flags by which a verb finds a cluster, spelt as kubectl has them, and the namespace that counts without them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from trimtab_operator.cluster.connection import default_namespace

_NAMESPACE = "Kubernetes namespace of the messaging cluster"
_OF_THE_CONTEXT = f"{_NAMESPACE} (default: that of the kubeconfig's context)"


class _OneNamespaceAlone(argparse.Action):
    """Refuses ``-A`` where a verb speaks of one messaging cluster, in words instead of `unrecognized arguments`."""

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
    parser: argparse._ActionsContainer, *, required: bool = False, everywhere: bool = False, told: str = ""
) -> None:
    """``-n``, ``-A``, ``--kubeconfig`` and ``--context``.

    required: ``-n`` must be given, as nobody's context should decide. everywhere: whether ``-A`` makes sense.
    told: what ``-n`` is, where that is more than the namespace of a messaging cluster.
    """
    usual = _NAMESPACE if required else _OF_THE_CONTEXT
    parser.add_argument("--namespace", "-n", metavar="NAMESPACE", required=required, help=told or usual)
    if everywhere:
        parser.add_argument("--all-namespaces", "-A", action="store_true", help="look at all namespaces")
    else:
        parser.add_argument(
            "--all-namespaces", "-A", action=_OneNamespaceAlone, nargs=0, default=False, help=argparse.SUPPRESS
        )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="kubeconfig file (default: in-cluster, $KUBECONFIG, then ~/.kube/config)"
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")


def settle_namespace(arguments: argparse.Namespace) -> str:
    """The namespace that counts; kept in `arguments`, and empty for all. Raises `ConnectionSettingsError`."""
    if arguments.all_namespaces:
        arguments.namespace = ""
    elif not arguments.namespace:
        arguments.namespace = default_namespace(arguments.kubeconfig, arguments.context)
    return str(arguments.namespace)
