"""Writes the Bundle objects of a split, for both executors (with and without Pulsar)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.naming import BundleObjects
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.splits.steps import Child, Raw, SplitOrder, parent_of, unlocked_state


@dataclass(frozen=True, slots=True)
class SplitObjects:
    """Writes the Bundle objects of `order`. Methods raise `ApiError`, or `ConflictError` if the object has changed."""

    bundles: BundleObjects
    order: SplitOrder

    async def lock(self, parent: Raw | None) -> None:
        """Reserve the bundle for this split."""
        since = timestamp(self.bundles.now())
        status = {"state": str(BundleState.SPLITTING), "split": self.order.split, "since": since}
        await self.bundles.patch(parent, {"status": status}, subresource="status")

    async def unlock(self, parent: Raw | None) -> None:
        """Undo `lock`."""
        assert parent is not None
        status = {"state": unlocked_state(parent), "split": None, "since": timestamp(self.bundles.now())}
        await self.bundles.patch(parent, {"status": status}, subresource="status")

    async def release(self, children: Iterable[Raw | None]) -> None:
        """Make the children ordinary bundles."""
        for child in children:
            if child is not None and parent_of(child) == self.order.bundle:
                await self.bundles.release(child)

    async def move(self, children: Iterable[tuple[Child, Raw]]) -> None:
        """Write the desired owner of each child that moves to another broker."""
        for child, raw in children:
            assignment = self.assignment(child.destination, self.order.reason)
            await self.bundles.patch(raw, {"spec": {"owner": child.destination, "assignment": assignment}})

    def assignment(self, owner: str, reason: str) -> dict[str, Any]:
        """The `spec.assignment` of a child."""
        return self.bundles.assignment(owner, self.order.policy, self.order.epoch, reason)
