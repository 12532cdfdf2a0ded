"""What verbs share that read or change objects of a live cluster: the parser, the connection, and clear errors."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from trimtab_operator.cli.cluster_flags import add_cluster_flags, settle_namespace
from trimtab_operator.cli.failure import CommandError
from trimtab_operator.cluster.api import Api, ApiError, NotFoundError, ResourceRef
from trimtab_strategies.model import some

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds for which a request that fails is tried again: a person is waiting."""

_NAMED = 20
"""Names that an error lists."""


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
        raise CommandError(str(error)) from error


async def fetch(api: Api, ref: ResourceRef, namespace: str, name: str) -> dict[str, Any]:
    """The object of that name; `CommandError` says which there are instead."""
    try:
        return await api.get(ref, namespace, name)
    except NotFoundError as error:
        if error.reason != "NotFound":  # the server does not even know the kind
            raise unknown_kind(ref) from error
        names = sorted([o["metadata"]["name"] async for page in api.list(ref, namespace) for o in page.items])
        there = f"there are: {some(names, _NAMED)}" if names else "there is none at all"
        raise CommandError(f"no {ref.kind} {name} in namespace {namespace}; {there}") from error


def unknown_kind(ref: ResourceRef) -> CommandError:
    """For a cluster without our kinds: how it gets them."""
    return CommandError(f"this cluster has no {ref.kind}; first: trimtab crds | kubectl apply --server-side -f -")
