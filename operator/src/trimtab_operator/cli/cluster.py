"""Helpers of verbs on a live Kubernetes cluster: the connection, clear errors, and whether an operator runs."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import math
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import aiohttp

from trimtab_operator.cli.cluster_flags import add_cluster_flags
from trimtab_operator.cli.common import CommandError, Run, add_verb, ago
from trimtab_operator.cli.flags import settle_namespace
from trimtab_operator.kube.client import LEASES, Api, ApiError, ApiUnavailableError, NotFoundError, ResourceRef
from trimtab_operator.kube.conditions import epoch
from trimtab_operator.kube.kubeconfig import Impersonation
from trimtab_operator.kube.leader_election import LEASE
from trimtab_operator.resources.common import GROUP
from trimtab_operator.state.other_leaders import attended, last_cycle
from trimtab_strategies.model import some

T = TypeVar("T")


PATIENCE = 3.0
"""Seconds for which the client retries a failed request; short, because a user waits."""


_ALIKE, _NAMED = 3, 5
"""Maximum number of names that an error lists: of similar names, and of others if none is similar."""

_WITHOUT_KINDS = "this cluster has no {}; first: trimtab crds | kubectl apply --server-side -f -"


A = TypeVar("A", bound=Api)


def connected(
    arguments: argparse.Namespace, client: type[A], *, patience: float = PATIENCE
) -> AbstractAsyncContextManager[A]:
    """A connection with the flags of the command line. client: `Api` or a subclass. patience: as in `Api.connect`.

    Raises `CommandError`. Entering the context raises `ConnectionSettingsError`.
    """
    limit = arguments.request_timeout
    return client.connect(
        arguments.kubeconfig,
        arguments.context,
        patience=patience if limit is None else min(patience, limit),
        within=limit,
        acting_as=_acting_as(arguments),
    )


def _acting_as(arguments: argparse.Namespace) -> Impersonation | None:
    """The user to act as, by the command line. Raises `CommandError`."""
    if arguments.as_user:
        return Impersonation(arguments.as_user, tuple(arguments.as_group))
    if arguments.as_group:
        raise CommandError(f"--as-group {arguments.as_group[0]} needs a user: add --as USER")
    return None


def add_cluster_verb(
    subparsers: Any, verb: str, description: str, run: Run, *, everywhere: bool = False, several: bool = False
) -> argparse.ArgumentParser:
    """A parser for `verb` with the flags of the connection. everywhere, several: as in `add_cluster_flags`."""
    parser = add_verb(subparsers, verb, description, run)
    add_cluster_flags(parser, everywhere=everywhere, several=several)
    return parser


def asked(arguments: argparse.Namespace, work: Callable[[Api], Awaitable[T]]) -> T:
    """Run `work` with a connection, after setting `arguments.namespace`.

    Raises `CommandError` if the API server refuses a request, and `ConnectionSettingsError`.
    """
    return asked_by(Api, arguments, work)


def asked_by(client: type[A], arguments: argparse.Namespace, work: Callable[[A], Awaitable[T]]) -> T:
    """As `asked`, with `client` instead of `Api`."""
    settle_namespace(arguments)

    async def whole() -> T:
        async with connected(arguments, client) as api:
            return await work(api)

    try:
        return asyncio.run(whole())
    except ApiError as error:
        raise CommandError(said(error)) from error


def said(error: ApiError) -> str:
    """The message for a failed request, with advice if the API server does not answer or lacks the CRDs."""
    if isinstance(error, ApiUnavailableError) and not error.status:
        where = "is it the right cluster? --context and --kubeconfig name another"
        return f"the API server does not answer: {_silence(error)}; {where}"
    if isinstance(error, NotFoundError) and error.reason != "NotFound" and GROUP in str(error):
        return _WITHOUT_KINDS.format(f"kinds of {GROUP}")
    return str(error)


def _silence(error: ApiError) -> str:
    """Why there is no answer. For a failed connection, it names the address, not the request."""
    cause = error.__cause__
    if isinstance(cause, aiohttp.ClientSSLError) or not isinstance(cause, aiohttp.ClientConnectorError):
        return str(error)
    if (number := cause.os_error.errno or 0) > 0:
        return f"{cause.host}:{cause.port}: {os.strerror(number)}"
    return str(error)


async def fetch(api: Api, ref: ResourceRef, namespace: str, name: str) -> dict[str, Any]:
    """The object of that name. Raises `CommandError` with similar names, or some others."""
    try:
        return await api.get(ref, namespace, name)
    except NotFoundError as error:
        if error.reason != "NotFound":  # the server does not know the kind
            raise unknown_kind(ref) from error
        there = near(name, await names_of(api, ref, namespace))
        raise CommandError(f"no {ref.kind} {name} in namespace {namespace}; {there}") from error


async def names_of(api: Api, ref: ResourceRef, namespace: str) -> list[str]:
    """Names of all objects of a kind, sorted. Raises `ApiError`."""
    return sorted([o["metadata"]["name"] async for page in api.list(ref, namespace) for o in page.items])


def near(name: str, names: Sequence[str]) -> str:
    """A hint that lists those of `names` that are similar to `name`, or some others."""
    if not names:
        return "there are none"
    alike = difflib.get_close_matches(name, names, n=_ALIKE) or [found for found in names if name in found][:_ALIKE]
    return f"did you mean {', '.join(alike)}?" if alike else f"there are: {some(names, _NAMED)}"


def unknown_kind(ref: ResourceRef) -> CommandError:
    """The error for a cluster without the CRDs, with the command that installs them."""
    return CommandError(_WITHOUT_KINDS.format(ref.kind))


# -- is there an operator? --

Object = Mapping[str, Any]

_RENEWED_EVERY = 5.0
"""Maximum seconds between two renewals of a Lease, with the default settings. A release does not renew it."""
_TAKEN_WITHIN = 15.0
"""Seconds within which a standby takes a released Lease."""


async def leases(api: Api, policies: Iterable[Object]) -> dict[str, Object | None]:
    """The operator's Lease by namespace of `policies`: None if there is none, no entry if it can't be read."""
    found: dict[str, Object | None] = {}
    for namespace in sorted({policy["metadata"].get("namespace", "") for policy in policies}):
        try:
            listed = [lease async for page in api.list(LEASES, namespace) for lease in page.items]
        except ApiError:
            continue  # the user may lack the right to read Leases: then only the policy's status counts
        found[namespace] = next((lease for lease in listed if lease["metadata"]["name"] == LEASE), None)
    return found


def left_alone(policy: Object, lease: Object | None, now: float) -> str:
    """Why no operator seems to manage `policy`, and what to do; empty while one does. now: epoch seconds.

    Both the Lease and the status must show that none does: an operator may use a Lease with another name, and a standby
    needs a moment to take over. A Lease that was released after the last cycle is enough: its leader ran that cycle.
    """
    meta, status = policy["metadata"], policy.get("status") or {}
    seen, generation = status.get("observedGeneration") or 0, meta.get("generation", 0)
    cycle = last_cycle(policy)
    if not (problem := _problem(lease, now)) or (attended(policy, now) and not _released(lease, cycle, now)):
        return ""
    state = "it has had no cycle yet" if math.isnan(cycle) else f"its last cycle was {ago(cycle, now)}"
    if seen < generation:
        state += f", and generation {generation} of it has not been read (observedGeneration is {seen})"
    run = f"trimtab run --namespace {meta.get('namespace', '')}"
    return f"no operator manages this policy: {problem}, {state}; start one for this namespace: {run}"


def _released(lease: Object | None, cycle: float, now: float) -> bool:
    """Whether the leader that ran the last cycle released its Lease, and no standby has taken it."""
    spec = (lease or {}).get("spec") or {}
    renewed = epoch(spec.get("renewTime"))
    return not spec.get("holderIdentity") and cycle <= renewed + _RENEWED_EVERY and now - renewed > _TAKEN_WITHIN


def _problem(lease: Object | None, now: float) -> str:
    """Why the Lease shows no running operator; empty when one holds it."""
    if lease is None:
        return f"there is no Lease {LEASE}"
    spec = lease.get("spec") or {}
    if not (holder := spec.get("holderIdentity")):
        return f"no one holds the Lease {LEASE}"
    if leader(lease, now):
        return ""
    return f"{holder} has not renewed the Lease {LEASE} since {ago(epoch(spec.get('renewTime')), now)}"


def leader(lease: Object, now: float) -> str:
    """The process that holds the Lease and has renewed it in time; empty if none. now: epoch seconds."""
    spec = lease.get("spec") or {}
    lasts = now - epoch(spec.get("renewTime")) <= float(spec.get("leaseDurationSeconds") or 0)  # False for NaN
    return str(spec.get("holderIdentity") or "") if lasts else ""
