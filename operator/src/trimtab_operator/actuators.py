"""Actuators write the desired owner of a bundle. A dry run has an actuator of its own, which writes nothing.

`DeclarativeActuator` writes `Bundle.spec.owner`. Brokers (or a sidecar, or the Pulsar bridge) watch it, and take,
release and confirm bundles. Every write carries the resourceVersion of the Bundle that the decision was based on. A 409
drops the move, and the next cycle sees the new state. The operator writes a bundle's status in one case only: its owner
is gone and can't release it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab_operator.aio import at_most
from trimtab_operator.kube.client import AT_ONCE, BUNDLE_SPLITS, BUNDLES, Api, ApiError, ConflictError, NotFoundError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.naming import BundleObjects, split_name
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.resources.bundle import EPOCH_DECREASED
from trimtab_operator.resources.common import API_VERSION
from trimtab_strategies.model import Move, Reason, Split

WRITERS = AT_ONCE
"""Maximum number of concurrent writes of one step. `Api` lets no more through, so more would only wait."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of one write. reason: None if it succeeded, else why it failed (`CONFLICT`, ...)."""

    bundle: str
    reason: Reason | None
    detail: str = ""


class Actuator(Protocol):
    """Writes the desired owners of bundles, as decided for one policy."""

    async def set_owner(self, bundle: BundleRecord, owner: str, reason: Reason) -> WriteResult:
        """Make `owner` the desired owner of `bundle`, unless the bundle has changed since it was read."""

    async def free(self, bundle: BundleRecord) -> WriteResult:
        """Clear `status.owner` of `bundle`, whose owner is gone, unless the bundle has changed since it was read."""

    async def request_split(self, bundle: BundleRecord, split: Split) -> WriteResult:
        """Request the planned split of `bundle`; a `SplitExecutor` carries it out."""


@dataclass(frozen=True, slots=True)
class DeclarativeActuator:
    """Writes to the Bundle objects of one Kubernetes namespace in the name of one policy.

    epoch: the leader's number; the API server refuses a number below the bundle's. now: the clock, in epoch seconds.
    """

    api: Api
    namespace: str
    policy: str
    epoch: int
    now: Callable[[], float]

    async def set_owner(self, bundle: BundleRecord, owner: str, reason: Reason) -> WriteResult:
        """Write `owner`, and who decided it: the policy, or a person if `reason` is `ADMIN`."""
        objects = BundleObjects(self.api, self.namespace, self.now)
        decided = "" if reason is Reason.ADMIN else self.policy
        assignment = objects.assignment(owner, decided, self.epoch, str(reason))
        return await self._write(bundle, {"spec": {"owner": owner, "assignment": assignment}})

    async def free(self, bundle: BundleRecord) -> WriteResult:
        """Write that the bundle has no owner."""
        status = {"owner": "", "state": "Free", "since": timestamp(self.now())}
        return await self._write(bundle, {"status": status}, subresource="status")

    async def request_split(self, bundle: BundleRecord, split: Split) -> WriteResult:
        """Create the BundleSplit for `split`, unless one for the same bundle and boundaries exists."""
        try:
            await self.api.create(BUNDLE_SPLITS, self.namespace, self._split_manifest(bundle, split))
        except ConflictError:
            text = "an earlier BundleSplit for this bundle and these boundaries still exists"
            return WriteResult(bundle.name, Reason.CONFLICT, text)
        except ApiError as error:
            return WriteResult(bundle.name, Reason.INTERNAL_ERROR, str(error))
        return WriteResult(bundle.name, None)

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

    async def _write(self, bundle: BundleRecord, body: dict[str, Any], subresource: str = "") -> WriteResult:
        body = {"metadata": {"resourceVersion": bundle.resource_version}, **body}
        try:
            await self.api.patch(BUNDLES, self.namespace, bundle.name, body, subresource=subresource)
        except (ConflictError, NotFoundError) as error:
            return WriteResult(bundle.name, Reason.CONFLICT, str(error))
        except ApiError as error:
            if EPOCH_DECREASED in str(error):
                text = f"a leader of a higher epoch than {self.epoch} has already decided where it goes"
                return WriteResult(bundle.name, Reason.DEPOSED, text)
            return WriteResult(bundle.name, Reason.INTERNAL_ERROR, str(error))
        return WriteResult(bundle.name, None)


@dataclass(frozen=True, slots=True)
class DryRunActuator:
    """Writes nothing, and gives `reason` as the result. It is for plans that are only shown."""

    reason: Reason = Reason.DRY_RUN

    async def set_owner(self, bundle: BundleRecord, owner: str, reason: Reason) -> WriteResult:  # noqa: ARG002  (as `Actuator`)
        """Write nothing."""
        return WriteResult(bundle.name, self.reason)

    async def free(self, bundle: BundleRecord) -> WriteResult:
        """Write nothing."""
        return WriteResult(bundle.name, self.reason)

    async def request_split(self, bundle: BundleRecord, split: Split) -> WriteResult:  # noqa: ARG002  (as `Actuator`)
        """Write nothing."""
        return WriteResult(bundle.name, self.reason)


async def apply_moves(
    moves: Sequence[Move], records: Mapping[str, BundleRecord], actuator: Actuator
) -> list[WriteResult]:
    """Write the desired owner of every move, with at most `WRITERS` concurrent writes.

    records: each bundle as it was when the plan was made, by its name in Pulsar's spelling. If it has changed since,
    its write is a conflict.
    """

    async def write(move: Move) -> WriteResult:
        return await actuator.set_owner(records[move.bundle], move.destination, move.reason)

    return await at_most(WRITERS, write, moves)
