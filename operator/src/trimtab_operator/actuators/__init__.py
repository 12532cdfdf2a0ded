"""Actuators make intent real: they write wishes and help them along. Dry run is an actuator too, never an ``if``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_strategies.model import Reason


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one write. `reason` is None when it was written, else why it was not (`CONFLICT`, ...)."""

    bundle: str
    reason: Reason | None
    detail: str = ""


class Actuator(Protocol):
    """Writes who is to own a bundle, as decided for one policy."""

    async def wish(self, bundle: BundleRecord, owner: str, reason: Reason) -> Written:
        """Wish that `owner` has `bundle`, provided nobody changed the bundle since it was read."""

    async def free(self, bundle: BundleRecord) -> Written:
        """Say that the owner in the bundle's status is gone, provided nobody changed the bundle since it was read."""
