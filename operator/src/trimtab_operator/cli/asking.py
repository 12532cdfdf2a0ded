"""What verbs share that read or change objects of a live cluster: options, the connection, and clear errors."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import yaml

from trimtab_operator.cli.failure import CommandError
from trimtab_operator.cluster.api import Api, ApiError, NotFoundError, ResourceRef
from trimtab_strategies.model import some

T = TypeVar("T")

PATIENCE = 3.0
"""Seconds for which a request that fails is tried again: a person is waiting."""

_NAMED = 20
"""Names that an error lists."""


def add_verb(
    subparsers: Any, verb: str, summary: str, description: str, *, live: bool = True
) -> argparse.ArgumentParser:
    """A parser for `verb` whose help shows `description` as it is written, with the options of the connection.

    live: whether it needs a cluster in any case, and so the namespace of one.
    """
    parser: argparse.ArgumentParser = subparsers.add_parser(
        verb, help=summary, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--namespace", "-n", required=live, help="Kubernetes namespace of the messaging cluster")
    parser.add_argument("--kubeconfig", help="kubeconfig file (default: in-cluster, $KUBECONFIG, then ~/.kube/config)")
    parser.add_argument("--context", help="context of the kubeconfig")
    return parser


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """``-o table|json|yaml``."""
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table", help="(%(default)s)")
    parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as -o json")


def asked(arguments: argparse.Namespace, work: Callable[[Api], Awaitable[T]]) -> T:
    """What `work` returns, given a connection. Raises `CommandError` for whatever the API server refuses."""

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
            how = "trimtab crds | kubectl apply --server-side -f -"
            raise CommandError(f"this cluster has no {ref.kind}; first: {how}") from error
        names = sorted([o["metadata"]["name"] async for page in api.list(ref, namespace) for o in page.items])
        there = f"there are: {some(names, _NAMED)}" if names else "there is none at all"
        raise CommandError(f"no {ref.kind} {name} in namespace {namespace}; {there}") from error


def print_data(value: Any, output: str) -> None:
    """Print plain data; output: ``json`` or ``yaml``."""
    text = json.dumps(value, indent=2) + "\n" if output == "json" else yaml.safe_dump(value, sort_keys=False)
    print(text, end="")
