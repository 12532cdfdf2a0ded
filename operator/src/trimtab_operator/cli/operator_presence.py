"""Whether an operator looks at a policy, by its Lease and by what the policy's status says of the last cycle."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from trimtab_operator.cli.why.answers import ago
from trimtab_operator.kube.client import LEASES, Api, ApiError
from trimtab_operator.kube.conditions import epoch
from trimtab_operator.kube.lease import LEASE
from trimtab_operator.resources.common import seconds

Object = Mapping[str, Any]

_CYCLES = 3
"""Intervals without a cycle after which a policy counts as left alone."""
_AT_LEAST = 60.0
"""Seconds that a policy gets in any case: an operator that starts needs some until its first cycle."""


async def leases(api: Api, policies: Iterable[Object]) -> dict[str, Object | None]:
    """By namespace of `policies` the operator's Lease, None where there is none; without those that can't be read."""
    found: dict[str, Object | None] = {}
    for namespace in sorted({policy["metadata"].get("namespace", "") for policy in policies}):
        try:
            listed = [lease async for page in api.list(LEASES, namespace) for lease in page.items]
        except ApiError:
            continue  # a person may lack the right to see Leases; the status of the policy then has to do
        found[namespace] = next((lease for lease in listed if lease["metadata"]["name"] == LEASE), None)
    return found


def left_alone(policy: Object, lease: Object | None, now: float) -> str:
    """Why no operator seems to look at `policy`, and what to do; empty while one does. now: epoch seconds.

    Both must say so: an operator may use a Lease of another name, and a standby that takes over needs a moment.
    """
    meta, status = policy["metadata"], policy.get("status") or {}
    seen, generation = status.get("observedGeneration") or 0, meta.get("generation", 0)
    cycle = epoch((status.get("lastCycle") or {}).get("time"))
    if _recent(cycle, policy, now) or not (problem := _problem(lease, now)):
        return ""
    told = "it has had no cycle yet" if math.isnan(cycle) else f"its last cycle was {ago(cycle, now)}"
    if seen < generation:
        told += f", and generation {generation} of it has not been read (observedGeneration is {seen})"
    run = f"trimtab run --namespace {meta.get('namespace', '')}"
    return f"no operator looks at this policy: {problem}, {told}; start one for this namespace: {run}"


def _recent(cycle: float, policy: Object, now: float) -> bool:
    patience = max(_AT_LEAST, _CYCLES * seconds(policy["spec"].get("interval") or "60s"))
    return now - cycle < patience  # False for NaN


def _problem(lease: Object | None, now: float) -> str:
    """What a Lease says against a running operator; empty when one holds it."""
    if lease is None:
        return f"there is no Lease {LEASE}"
    spec = lease.get("spec") or {}
    if not (holder := spec.get("holderIdentity")):
        return f"nobody holds the Lease {LEASE}"
    renewed = epoch(spec.get("renewTime"))
    if now - renewed <= float(spec.get("leaseDurationSeconds") or 0):
        return ""
    return f"{holder} has not renewed the Lease {LEASE} since {ago(renewed, now)}"
