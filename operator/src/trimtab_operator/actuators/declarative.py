"""`Declarative`: the wish is written to `Bundle.spec.owner`; brokers (or a sidecar) watch, take, release and confirm.

Every write carries the resourceVersion that was decided upon, so a bundle that somebody else changed meanwhile is left
alone (409 drops the move; the next cycle sees the new state). The operator writes a bundle's status in one case only:
its owner is gone and can't release it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trimtab_operator.actuators import Written
from trimtab_operator.cluster.api import BUNDLES, Api, ApiError, ConflictError, NotFoundError
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.cluster.status import timestamp
from trimtab_strategies.model import Reason


@dataclass(frozen=True, slots=True)
class DeclarativeActuator:
    """Writes to the Bundle objects of one Kubernetes namespace in the name of one policy.

    epoch: counts the operator's starts; now: epoch seconds.
    """

    api: Api
    namespace: str
    policy: str
    epoch: int
    now: Callable[[], float]

    async def wish(self, bundle: BundleRecord, owner: str, reason: Reason) -> Written:
        """Write `owner` and who decided on it."""
        assignment = {
            "owner": owner,
            "policy": self.policy,
            "epoch": self.epoch,
            "reason": str(reason),
            "time": timestamp(self.now()),
        }
        return await self._write(bundle, {"spec": {"owner": owner, "assignment": assignment}})

    async def free(self, bundle: BundleRecord) -> Written:
        """Write that nobody serves the bundle."""
        status = {"owner": "", "state": "Free", "since": timestamp(self.now())}
        return await self._write(bundle, {"status": status}, subresource="status")

    async def _write(self, bundle: BundleRecord, body: dict[str, Any], subresource: str = "") -> Written:
        body = {"metadata": {"resourceVersion": bundle.resource_version}, **body}
        try:
            await self.api.patch(BUNDLES, self.namespace, bundle.name, body, subresource=subresource)
        except (ConflictError, NotFoundError) as error:
            return Written(bundle.name, Reason.CONFLICT, str(error))
        except ApiError as error:
            return Written(bundle.name, Reason.INTERNAL_ERROR, str(error))
        return Written(bundle.name, None)


@dataclass(frozen=True, slots=True)
class DryRunActuator:
    """Writes nothing and says why: what a plan that is only shown goes through."""

    reason: Reason = Reason.DRY_RUN

    async def wish(self, bundle: BundleRecord, owner: str, reason: Reason) -> Written:  # noqa: ARG002  the port's face
        """Hold the wish back."""
        return Written(bundle.name, self.reason)

    async def free(self, bundle: BundleRecord) -> Written:
        """Hold the write back."""
        return Written(bundle.name, self.reason)
