"""Ends an operator that still runs: its Deployment is scaled to none, and its Lease waited for."""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from collections.abc import Callable

from trimtab_operator.cluster.api import LEASES, Api, NotFoundError, ResourceRef
from trimtab_operator.cluster.lease import LEASE

DEPLOYMENTS = ResourceRef("apps", "v1", "deployments", "Deployment")

_LOOK_EVERY = 0.5
_TERMS = 4
"""Lease durations within which an operator that was told to end has ended: a minute, where a pod has half of one."""


def add_stop_options(parser: argparse.ArgumentParser) -> None:
    """The options of `stop_operator`."""
    parser.add_argument(
        "--stop-deployment",
        metavar="NAME",
        help="scale this Deployment of the operator to none before finalizers are taken off, "
        "as an operator that runs puts them back",
    )
    parser.add_argument("--lease-name", default=LEASE, metavar="NAME", help="the Lease of that operator (%(default)s)")


async def stop_operator(api: Api, namespace: str, deployment: str, lease: str, say: Callable[[str], None]) -> bool:
    """Scale `deployment` to none and wait until no operator leads any more; False: one goes on. Raises `ApiError`.

    A leader that ends in good order gives its Lease back; one that doesn't has lost it when the Lease ran out.
    """
    try:
        await api.patch(DEPLOYMENTS, namespace, deployment, {"spec": {"replicas": 0}}, subresource="scale")
    except NotFoundError:
        say(f"Deployment {deployment}: there is none of this name (any more)")
    else:
        say(f"Deployment {deployment}: scaled to none")
    if leader := await _who_goes_on(api, namespace, lease):
        say(f"{leader} still holds Lease {lease}: is the Deployment called otherwise, or was it scaled up again?")
        return False
    say("no operator leads any more")
    return True


async def _who_goes_on(api: Api, namespace: str, name: str) -> str:
    """Wait until nobody holds the Lease; not empty: who renewed it after longer than it takes to end."""
    seen, runs_out, patience = "", 0.0, math.inf
    while True:
        try:
            lease = await api.get(LEASES, namespace, name)
        except NotFoundError:
            return ""
        holder, now = str(lease["spec"].get("holderIdentity") or ""), time.monotonic()
        if lease["metadata"]["resourceVersion"] != seen:  # renewed: by our own clock, as the operator does
            if now > patience:
                return holder
            seen = lease["metadata"]["resourceVersion"]
            lasts = lease["spec"].get("leaseDurationSeconds") or 0
            runs_out, patience = now + lasts, min(patience, now + _TERMS * lasts)
        if not holder or now >= runs_out:
            return ""
        await asyncio.sleep(_LOOK_EVERY)
