"""Moves that bundles tell of and the policy's memory does not: the leader died between moving and remembering. Pure.

Without them a new leader would allow itself more moves than the caps of the hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.cluster.status import epoch
from trimtab_operator.control.ruling import EVACUATIONS
from trimtab_operator.control.turnovers import BALANCING, HOUR

CAPPED = BALANCING | EVACUATIONS
"""Why a policy moves a bundle, where the caps count it."""


def moved_lately(bundles: Iterable[BundleRecord], policy: Mapping[str, Any], now: float) -> list[float]:
    """When (epoch seconds) each bundle that `policy` (as JSON) moved within the hour before `now` was moved last."""
    meta = policy["metadata"]
    born = epoch(meta.get("creationTimestamp"))  # one of that name may have been there before
    moved = (b.assigned_at for b in bundles if b.policy == meta["name"] and b.reason in CAPPED)
    return [at for at in moved if now - at < HOUR and not at < born]
