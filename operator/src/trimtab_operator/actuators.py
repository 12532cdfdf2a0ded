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
from trimtab_operator.cluster.api import BUNDLE_SPLITS, BUNDLES, Api, ApiError, ConflictError, NotFoundError
from trimtab_operator.cluster.bundle_objects import BundleObjects
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.cluster.naming import split_name
from trimtab_operator.cluster.status import timestamp
from trimtab_operator.resources.common import API_VERSION
from trimtab_strategies.model import Reason, Split


@dataclass(frozen=True, slots=True)
class DeclarativeActuator:
    """Writes to the Bundle objects of one Kubernetes namespace in the name of one policy.

    epoch: counts the operator's leaders (the API server refuses one that is below the bundle's); now: epoch seconds.
    """

    api: Api
    namespace: str
    policy: str
    epoch: int
    now: Callable[[], float]

    async def wish(self, bundle: BundleRecord, owner: str, reason: Reason) -> Written:
        """Write `owner` and who decided on it."""
        objects = BundleObjects(self.api, self.namespace, self.now)
        assignment = objects.assignment(owner, self.policy, self.epoch, str(reason))
        return await self._write(bundle, {"spec": {"owner": owner, "assignment": assignment}})

    async def free(self, bundle: BundleRecord) -> Written:
        """Write that nobody serves the bundle."""
        status = {"owner": "", "state": "Free", "since": timestamp(self.now())}
        return await self._write(bundle, {"status": status}, subresource="status")

    async def request_split(self, bundle: BundleRecord, split: Split) -> Written:
        """Create the BundleSplit of that bundle and those boundaries, unless there is one already."""
        try:
            await self.api.create(BUNDLE_SPLITS, self.namespace, self._split_manifest(bundle, split))
        except ConflictError:
            text = "a BundleSplit for that was made before, and is not gone yet"
            return Written(bundle.name, Reason.CONFLICT, text)
        except ApiError as error:
            return Written(bundle.name, Reason.INTERNAL_ERROR, str(error))
        return Written(bundle.name, None)

    def _split_manifest(self, bundle: BundleRecord, split: Split) -> dict[str, Any]:
        request = {
            "policy": self.policy,
            "epoch": self.epoch,
            "reason": str(split.reason),
            "time": timestamp(self.now()),
            "source": split.source,
        }
        spec: dict[str, Any] = {
            "bundle": bundle.name,
            "boundaries": [f"0x{boundary:08x}" for boundary in split.boundaries],
            "request": request,
        }
        if split.destinations:
            spec["destinations"] = list(split.destinations)
        name = split_name(bundle.name, split.boundaries)
        return {"apiVersion": API_VERSION, "kind": "BundleSplit", "metadata": {"name": name}, "spec": spec}

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

    async def request_split(self, bundle: BundleRecord, split: Split) -> Written:  # noqa: ARG002  the port's face
        """Hold the split back."""
        return Written(bundle.name, self.reason)
