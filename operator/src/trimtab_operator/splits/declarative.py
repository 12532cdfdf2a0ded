"""Splits bundles with the `Declarative` actuator: the steps of `splits.steps`, on Bundle objects.

Every read goes to the API server itself. Every write to an object that others may change carries the resourceVersion
that was read. So a bundle that was moved, deleted or pinned meanwhile is read again before the next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.client import TOPIC_NAMESPACES, Api, ConflictError, NotFoundError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.naming import BundleObjects, bundle_manifest
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.splits.steps import (
    Child,
    SplitObservation,
    SplitOrder,
    SplitProgress,
    SplitStep,
    next_step,
    parent_of,
    to_move,
    unlocked_state,
)
from trimtab_strategies.model import Reason

MOST_STEPS = 32
"""Steps in one round, so that a bundle that changes all the time does not delay the other splits."""


@dataclass(frozen=True, slots=True)
class DeclarativeSplitExecutor:
    """Splits bundles of one Kubernetes namespace. now: epoch seconds."""

    api: Api
    namespace: str
    now: Callable[[], float]

    @property
    def _objects(self) -> BundleObjects:
        return BundleObjects(self.api, self.namespace, self.now)

    async def advance(self, order: SplitOrder, give_up: str = "") -> SplitProgress:
        """Do all steps that are possible now. Another call continues. Raises `ApiError`.

        give_up: why to go back if the parent still exists; empty: go on.
        """
        why = ""
        for _ in range(MOST_STEPS):
            seen = await self._look(order)
            step, why = next_step(order, seen, give_up)
            if step in {SplitStep.WAIT, SplitStep.DONE, SplitStep.UNDONE}:
                return SplitProgress(done=step is SplitStep.DONE, undone=step is SplitStep.UNDONE, text=why)
            try:
                await self._take(step, order, seen)
            except ConflictError as error:
                why = str(error)  # another client was faster: read again
            except NotFoundError as error:
                if step is SplitStep.CREATE:
                    return SplitProgress(undone=True, text=f"TopicNamespace {order.topic_namespace} is gone: {error}")
                why = str(error)
        return SplitProgress(text=why)

    async def _look(self, order: SplitOrder) -> SplitObservation:
        children = await asyncio.gather(*(self._objects.get(child.bundle) for child in order.children))
        return SplitObservation(
            await self._objects.get(order.bundle), children
        )  # after the children: if it exists now, it existed when they were read

    async def _take(self, step: SplitStep, order: SplitOrder, seen: SplitObservation) -> None:
        steps: dict[SplitStep, Callable[[SplitOrder, SplitObservation], Awaitable[None]]] = {
            SplitStep.LOCK: self._lock,
            SplitStep.CREATE: self._create,
            SplitStep.DELETE: self._delete,
            SplitStep.RELEASE: self._release,
            SplitStep.MOVE: self._move,
            SplitStep.REMOVE: self._remove,
            SplitStep.UNLOCK: self._unlock,
        }
        await steps[step](order, seen)

    async def _lock(self, order: SplitOrder, seen: SplitObservation) -> None:
        status = {"state": str(BundleState.SPLITTING), "split": order.split, "since": timestamp(self.now())}
        await self._objects.patch(seen.parent, {"status": status}, subresource="status")

    async def _unlock(self, order: SplitOrder, seen: SplitObservation) -> None:  # noqa: ARG002  the face of all steps
        assert seen.parent is not None
        status = {"state": unlocked_state(seen.parent), "split": None}
        await self._objects.patch(seen.parent, {"status": status}, subresource="status")

    async def _create(self, order: SplitOrder, seen: SplitObservation) -> None:
        space = await self.api.get(TOPIC_NAMESPACES, self.namespace, order.topic_namespace)
        pinned = seen.parent is not None and bool(seen.parent["spec"].get("pinned"))
        for child, found in zip(order.children, seen.children, strict=True):
            if found is None:
                manifest = self._manifest(child, order, space["metadata"]["uid"], pinned=pinned)
                await self._objects.create(manifest)

    def _manifest(self, child: Child, order: SplitOrder, uid: str, *, pinned: bool) -> dict[str, Any]:
        spec = {
            "owner": order.source,
            "pinned": pinned,
            "assignment": self._assignment(order, order.source, str(Reason.SPLITTING)),
        }
        return bundle_manifest(
            child.bundle, order.topic_namespace, uid, child.lower, child.upper, spec, parent=order.bundle
        )

    async def _delete(self, order: SplitOrder, seen: SplitObservation) -> None:  # noqa: ARG002  the face of all steps
        await self._objects.delete(seen.parent)

    async def _remove(self, order: SplitOrder, seen: SplitObservation) -> None:
        for child in seen.children:
            if child is not None and parent_of(child) == order.bundle:
                await self._objects.delete(child, as_seen=False)

    async def _release(self, order: SplitOrder, seen: SplitObservation) -> None:  # noqa: ARG002  the face of all steps
        for child in seen.children:
            if child is not None and parent_of(child):
                await self._objects.release(child)

    async def _move(self, order: SplitOrder, seen: SplitObservation) -> None:
        for child, raw in to_move(order, seen):
            assignment = self._assignment(order, child.destination, order.reason)
            await self._objects.patch(raw, {"spec": {"owner": child.destination, "assignment": assignment}})

    def _assignment(self, order: SplitOrder, owner: str, reason: str) -> dict[str, Any]:
        return self._objects.assignment(owner, order.policy, order.epoch, reason)
