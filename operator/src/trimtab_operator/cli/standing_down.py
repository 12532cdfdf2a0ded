"""Ends an operator that still runs: its Deployment is scaled to none, and its Lease waited for."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable

from trimtab_operator.cluster.api import LEASES, Api, NotFoundError, ResourceRef
from trimtab_operator.cluster.lease import LEASE

DEPLOYMENTS = ResourceRef("apps", "v1", "deployments", "Deployment")

_LOOK_EVERY = 0.5


def add_stop_options(parser: argparse.ArgumentParser) -> None:
    """The options of `stop_operator`."""
    parser.add_argument(
        "--stop-deployment",
        metavar="NAME",
        help="scale this Deployment of the operator to none before finalizers are taken off, "
        "as an operator that runs puts them back",
    )
    parser.add_argument("--lease-name", default=LEASE, metavar="NAME", help="the Lease of that operator (%(default)s)")


async def stop_operator(api: Api, namespace: str, deployment: str, lease: str, say: Callable[[str], None]) -> None:
    """Scale `deployment` to none and return once no operator leads any more; raises `ApiError`.

    A leader that ends in good order gives its Lease back; one that doesn't has lost it when the Lease ran out.
    """
    try:
        await api.patch(DEPLOYMENTS, namespace, deployment, {"spec": {"replicas": 0}}, subresource="scale")
    except NotFoundError:
        say(f"Deployment {deployment}: it is gone already")
    else:
        say(f"Deployment {deployment}: scaled to none")
    await _until_nobody_leads(api, namespace, lease)
    say("no operator leads any more")


async def _until_nobody_leads(api: Api, namespace: str, name: str) -> None:
    seen, runs_out = "", 0.0
    while True:
        try:
            lease = await api.get(LEASES, namespace, name)
        except NotFoundError:
            return
        if lease["metadata"]["resourceVersion"] != seen:  # renewed: by our own clock, as the operator does
            seen = lease["metadata"]["resourceVersion"]
            runs_out = time.monotonic() + (lease["spec"].get("leaseDurationSeconds") or 0)
        if not lease["spec"].get("holderIdentity") or time.monotonic() >= runs_out:
            return
        await asyncio.sleep(_LOOK_EVERY)
