"""Splits bundles whose brokers watch the Bundle objects, by the steps of `splits.steps`.

Every read goes to the API server itself. Every write to an object that others may change carries the resourceVersion
that was read. If a bundle was moved, deleted or pinned meanwhile, the write fails, and the bundle is read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trimtab_operator.kube.client import TOPIC_NAMESPACES, Api, ConflictError, NotFoundError
from trimtab_operator.kube.naming import BundleObjects, bundle_manifest
from trimtab_operator.splits.objects import SplitObjects
from trimtab_operator.splits.steps import (
    SplitObservation,
    SplitOrder,
    SplitProgress,
    SplitStep,
    next_step,
    parent_of,
    to_move,
)
from trimtab_strategies.model import Reason

MOST_STEPS = 32
"""Maximum number of steps in one round, so that a bundle that changes all the time does not delay other splits."""


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
        """Do all steps that are possible now. The next call continues. Raises `ApiError`.

        give_up: why to go back if the parent still exists; empty to go forwards.
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
        )  # the parent is read after the children: if it exists now, it existed when they were read

    async def _take(self, step: SplitStep, order: SplitOrder, seen: SplitObservation) -> None:
        writes = SplitObjects(self._objects, order)
        steps: dict[SplitStep, Callable[[], Awaitable[None]]] = {
            SplitStep.LOCK: lambda: writes.lock(seen.parent),
            SplitStep.CREATE: lambda: self._create(writes, seen),
            SplitStep.DELETE: lambda: self._objects.delete(seen.parent),
            SplitStep.RELEASE: lambda: writes.release(seen.children),
            SplitStep.MOVE: lambda: writes.move(to_move(order, seen)),
            SplitStep.REMOVE: lambda: self._remove(order, seen),
            SplitStep.UNLOCK: lambda: writes.unlock(seen.parent),
        }
        await steps[step]()

    async def _create(self, writes: SplitObjects, seen: SplitObservation) -> None:
        order = writes.order
        space = await self.api.get(TOPIC_NAMESPACES, self.namespace, order.topic_namespace)
        pinned = seen.parent is not None and bool(seen.parent["spec"].get("pinned"))
        assignment = writes.assignment(order.source, str(Reason.SPLITTING))
        spec = {"owner": order.source, "pinned": pinned, "assignment": assignment}
        uid = space["metadata"]["uid"]
        for child, found in zip(order.children, seen.children, strict=True):
            if found is None:
                edges = (child.lower, child.upper)
                await self._objects.create(
                    bundle_manifest(child.bundle, order.topic_namespace, uid, *edges, spec, parent=order.bundle)
                )

    async def _remove(self, order: SplitOrder, seen: SplitObservation) -> None:
        for child in seen.children:
            if child is not None and parent_of(child) == order.bundle:
                await self._objects.delete(child, as_seen=False)
