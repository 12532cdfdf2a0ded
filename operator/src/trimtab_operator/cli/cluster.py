"""Verbs on a live cluster: kubectl's flags, the connection, the namespace, and clear errors."""

from __future__ import annotations

import argparse
import asyncio
import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from trimtab_operator.cli.common import CommandError
from trimtab_operator.kube.client import Api, ApiError, ApiUnavailableError, NotFoundError, ResourceRef
from trimtab_operator.kube.connection import default_namespace
from trimtab_strategies.model import some

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


T = TypeVar("T")


PATIENCE = 3.0
"""Seconds for which a request that fails is tried again: a person is waiting."""


_ALIKE, _NAMED = 3, 5
"""Names that an error lists: those that are spelt alike, and others where none is."""


def add_verb(
    subparsers: Any, verb: str, summary: str, description: str, *, everywhere: bool = False
) -> argparse.ArgumentParser:
    """A parser for `verb` whose help shows `description` as it is written, with the flags of the connection.

    everywhere: whether the verb may look at all namespaces.
    """
    parser: argparse.ArgumentParser = subparsers.add_parser(
        verb, help=summary, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_cluster_flags(parser, everywhere=everywhere)
    return parser


def asked(arguments: argparse.Namespace, work: Callable[[Api], Awaitable[T]]) -> T:
    """What `work` returns, given a connection, in the namespace that `arguments` has then.

    Raises `CommandError` for whatever the API server refuses, and `ConnectionSettingsError`.
    """
    settle_namespace(arguments)

    async def connected() -> T:
        async with Api.connect(arguments.kubeconfig, arguments.context, patience=PATIENCE) as api:
            return await work(api)

    try:
        return asyncio.run(connected())
    except ApiError as error:
        raise CommandError(said(error)) from error


def said(error: ApiError) -> str:
    """What to tell of a request that failed; where nobody answered, how to name another server."""
    silent = isinstance(error, ApiUnavailableError) and not error.status
    where = "; is it the right cluster? --context and --kubeconfig name another"
    return f"the API server does not answer: {error}{where}" if silent else str(error)


async def fetch(api: Api, ref: ResourceRef, namespace: str, name: str) -> dict[str, Any]:
    """The object of that name; `CommandError` names those that are spelt alike, or some that there are."""
    try:
        return await api.get(ref, namespace, name)
    except NotFoundError as error:
        if error.reason != "NotFound":  # the server does not even know the kind
            raise unknown_kind(ref) from error
        there = near(name, await names_of(api, ref, namespace))
        raise CommandError(f"no {ref.kind} {name} in namespace {namespace}; {there}") from error


async def names_of(api: Api, ref: ResourceRef, namespace: str) -> list[str]:
    """Names of all objects of a kind, sorted. Raises `ApiError`."""
    return sorted([o["metadata"]["name"] async for page in api.list(ref, namespace) for o in page.items])


def near(name: str, names: Sequence[str]) -> str:
    """Which of `names` may have been meant, in words."""
    if not names:
        return "there is none at all"
    alike = difflib.get_close_matches(name, names, n=_ALIKE) or [found for found in names if name in found][:_ALIKE]
    return f"did you mean {', '.join(alike)}?" if alike else f"there are: {some(names, _NAMED)}"


def unknown_kind(ref: ResourceRef) -> CommandError:
    """For a cluster without our kinds: how it gets them."""
    return CommandError(f"this cluster has no {ref.kind}; first: trimtab crds | kubectl apply --server-side -f -")
