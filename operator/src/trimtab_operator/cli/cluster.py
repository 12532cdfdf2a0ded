"""What verbs share that read or change objects of a live cluster: the parser, the connection, and clear errors."""

from __future__ import annotations

import argparse
import asyncio
import difflib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from trimtab_operator.cli.cluster_flags import add_cluster_flags, settle_namespace
from trimtab_operator.cli.failure import CommandError
from trimtab_operator.cluster.api import Api, ApiError, ApiUnavailableError, NotFoundError, ResourceRef
from trimtab_strategies.model import some

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
