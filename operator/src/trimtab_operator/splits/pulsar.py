"""Splits bundles through the admin REST API of a Pulsar cluster, by the steps of `splits.pulsar_steps`.

Each round reads Pulsar and the API server, and skips steps that are already done. Each write carries the
resourceVersion that was read. So a split can resume after a crash, and the sync with Pulsar may write the same objects
meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trimtab_operator.kube.client import TOPIC_NAMESPACES, ConflictError, NotFoundError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.naming import BundleObjects, bundle_manifest, bundle_name, pulsar_bundle
from trimtab_operator.pulsar.bridge.ownership import ownership_reader
from trimtab_operator.pulsar.bridge.sync.namespaces import listed
from trimtab_operator.pulsar.client.errors import PulsarError, SplitRefusedError, StaleBundleError, UnknownError
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.splits.objects import SplitObjects
from trimtab_operator.splits.pulsar_steps import (
    FEW,
    PulsarSplitObservation,
    PulsarSplitStep,
    cuts,
    gone,
    next_step,
    one_of,
    ordered,
    to_move,
    untold,
    within,
)
from trimtab_operator.splits.steps import Raw, SplitExecutor, SplitOrder, SplitProgress
from trimtab_operator.state.cluster import ClusterState
from trimtab_strategies.model import Reason, counted

log = logging.getLogger(__name__)

MOST_STEPS = 32
"""Maximum number of steps in one round."""
READ_AGAIN = (0.1, 0.2, 0.4, 0.8, 1.5)
"""Seconds before each read of boundaries or owners after a cut. Measured: both are correct after about 100 ms."""


class _CannotSplitError(Exception):
    """Pulsar refuses to cut the bundle, and would refuse again."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Space:
    """The namespace of the bundle: name and uid of its object, and its tenant and name in Pulsar."""

    name: str
    uid: str
    tenant: str
    namespace: str

    @property
    def full(self) -> str:
        return f"{self.tenant}/{self.namespace}"

    def bundle(self, lower: int, upper: int) -> str:
        """Name of the bundle of a range, in Pulsar's spelling."""
        return pulsar_bundle(self.tenant, self.namespace, f"0x{lower:08x}", f"0x{upper:08x}")

    def object(self, lower: int, upper: int) -> str:
        """Name of the Bundle object of a range."""
        return bundle_name(self.tenant, self.namespace, f"0x{lower:08x}", f"0x{upper:08x}")


@dataclass(frozen=True, slots=True)
class PulsarSplitExecutor:
    """Splits bundles of the cluster behind `admin`."""

    cluster: ClusterState
    admin: Admin

    @property
    def _objects(self) -> BundleObjects:
        return BundleObjects(self.cluster.api, self.cluster.namespace, self.cluster.now)

    async def advance(self, order: SplitOrder, give_up: str = "") -> SplitProgress:
        """Do all steps that are possible now. The next call continues. Raises `ApiError`.

        give_up: why to go back if Pulsar has not cut the bundle yet; empty to go forwards.
        """
        reason, why = None, ""
        try:
            space = await self._space(order)
        except NotFoundError as error:
            return SplitProgress(undone=True, text=f"TopicNamespace {order.topic_namespace} is gone: {error}")
        for _ in range(MOST_STEPS):
            try:
                seen = await self._look(order, space)
                step, why = next_step(order, seen, give_up)
                if step in {PulsarSplitStep.WAIT, PulsarSplitStep.DONE, PulsarSplitStep.UNDONE}:
                    return SplitProgress(
                        done=step is PulsarSplitStep.DONE,
                        undone=step is PulsarSplitStep.UNDONE,
                        text=why,
                        reason=reason,
                    )
                await self._take(step, order, space, seen)
            except _CannotSplitError as error:
                reason, give_up = error.reason, str(error)
            except (ConflictError, NotFoundError) as error:
                why = str(error)  # another client was faster: read again
            except StaleBundleError as error:
                why = str(error)
                await asyncio.sleep(READ_AGAIN[1])  # the boundaries that were read are out of date
            except PulsarError as error:
                return SplitProgress(text=str(error))
        return SplitProgress(text=why)

    # -- reading --

    async def _space(self, order: SplitOrder) -> _Space:
        raw = await self.cluster.api.get(TOPIC_NAMESPACES, self.cluster.namespace, order.topic_namespace)
        meta, spec = raw["metadata"], raw["spec"]
        return _Space(meta["name"], meta["uid"], spec["tenant"], spec["name"])

    def _whole(self, order: SplitOrder) -> tuple[int, int]:
        """The range of the parent; computed from its children once it is gone."""
        record = self.cluster.stores.bundles.items.get(order.bundle)
        ends = (order.children[0].lower, order.children[-1].upper) if record is None else (record.lower, record.upper)
        return int(ends[0], 16), int(ends[1], 16)

    async def _look(self, order: SplitOrder, space: _Space) -> PulsarSplitObservation:
        whole = self._whole(order)
        try:
            edges = within(await self.admin.boundaries(space.full), *whole)
        except UnknownError:
            if await listed(self.admin, space.full):
                raise
            edges = ()
        ranges = list(pairwise(edges)) if len(edges) > 2 else []  # noqa: PLR2004  whole: no children
        children = await self._children(space, ranges)
        parent = await self._objects.get(order.bundle)  # last: if it exists now, it existed when the children were read
        if not ranges and gone(parent):
            children = await self._children(space, ordered(order))
        return PulsarSplitObservation(whole, parent, edges, children)

    async def _children(self, space: _Space, ranges: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Raw]:
        """The existing objects of bundles with these ranges."""
        found = await asyncio.gather(*(self._objects.get(space.object(*part)) for part in ranges))
        return {part: raw for part, raw in zip(ranges, found, strict=True) if raw is not None}

    async def _owners(
        self, order: SplitOrder, space: _Space, seen: PulsarSplitObservation
    ) -> Mapping[tuple[int, int], str]:
        """Name of the Broker that serves each child, where one is found. The owner of the parent is asked first."""
        ids = self.cluster.link.ids or {}
        names = {broker: name for name, broker in ids.items()}
        asked = [ids[name] for name in sorted(ids, key=lambda name: name != order.source)]
        parts = {space.bundle(*part): part for part in seen.ranges}
        found = await (await ownership_reader(self.admin)).owners_of(parts, asked)
        return {parts[bundle]: names[owner] for bundle, owner in found.items() if owner in names}

    # -- steps --

    async def _take(
        self, step: PulsarSplitStep, order: SplitOrder, space: _Space, seen: PulsarSplitObservation
    ) -> None:
        writes = SplitObjects(self._objects, order)
        steps: dict[PulsarSplitStep, Callable[[], Awaitable[None]]] = {
            PulsarSplitStep.LOCK: lambda: self._lock(writes, space, seen),
            PulsarSplitStep.CUT: lambda: self._cut(order, space, seen),
            PulsarSplitStep.CREATE: lambda: self._create(writes, space, seen),
            PulsarSplitStep.DELETE: lambda: self._objects.delete(seen.parent),
            PulsarSplitStep.RELEASE: lambda: writes.release(seen.children.values()),
            PulsarSplitStep.MOVE: lambda: writes.move(to_move(order, seen)),
            PulsarSplitStep.UNLOCK: lambda: writes.unlock(seen.parent),
        }
        await steps[step]()

    async def _lock(self, writes: SplitObjects, space: _Space, seen: PulsarSplitObservation) -> None:
        await self._topics(space.bundle(*seen.whole))
        await writes.lock(seen.parent)

    async def _topics(self, bundle: str) -> list[int]:
        """Positions of the bundle's loaded topics. Raises `_CannotSplitError` if Pulsar needs more topics to split."""
        positions = list((await self.admin.topic_positions(bundle)).values())
        if len(positions) < FEW:
            text = (
                f"{bundle} has {counted(len(positions), 'loaded topic')}; Pulsar splits no bundle with fewer than {FEW}"
            )
            raise _CannotSplitError(Reason.TOO_FEW_TOPICS, f"{text}: add partitions, or topics")
        return positions

    async def _cut(self, order: SplitOrder, space: _Space, seen: PulsarSplitObservation) -> None:
        """Cut the first part that is not as ordered: at all positions, or at one if Pulsar refuses several."""
        (lower, upper), positions = next(iter(cuts(order, seen).items()))
        bundle = space.bundle(lower, upper)
        topics = await self._topics(bundle)
        log.info("split %s: has Pulsar split %s at %s", order.split, bundle, ", ".join(map(hex, positions)))
        try:
            await self._ask(space, seen, bundle, positions)
        except SplitRefusedError as error:
            if len(positions) == 1:
                await self._refused(space, seen, error)
                return
            one = one_of(positions, lower, upper, topics)  # the extensible load manager accepts one at a time
            try:
                await self._ask(space, seen, bundle, [one])
            except SplitRefusedError as second:
                await self._refused(space, seen, second)

    async def _ask(self, space: _Space, seen: PulsarSplitObservation, bundle: str, positions: list[int]) -> None:
        """Request the split. Raises `_CannotSplitError` if Pulsar accepts it but does not change the boundaries."""
        await self.admin.split(bundle, positions)
        if not await self._boundaries_change(space, seen):
            text = f"Pulsar accepted the split of {bundle}, but did not change its boundaries: it may have lost topics"
            raise _CannotSplitError(Reason.INVALID_SPLIT, text)

    async def _refused(self, space: _Space, seen: PulsarSplitObservation, error: SplitRefusedError) -> None:
        """Raise `_CannotSplitError`, unless Pulsar refused because it still carries out a former leader's request."""
        if not await self._boundaries_change(space, seen):
            raise _CannotSplitError(Reason.INVALID_SPLIT, str(error)) from error

    async def _boundaries_change(self, space: _Space, seen: PulsarSplitObservation) -> bool:
        """Whether Pulsar's boundaries change within the next seconds."""
        for pause in READ_AGAIN:
            await asyncio.sleep(pause)
            if within(await self.admin.boundaries(space.full), *seen.whole) != seen.edges:
                return True
        return False

    async def _create(self, writes: SplitObjects, space: _Space, seen: PulsarSplitObservation) -> None:
        """Create an object for each bundle that Pulsar has, with its owner in Pulsar."""
        order = writes.order
        owners = await self._owners(order, space, seen)
        for pause in READ_AGAIN:
            if len(owners) == len(seen.ranges):
                break
            await asyncio.sleep(pause)
            owners = await self._owners(order, space, seen)
        pinned = seen.parent is not None and bool(seen.parent["spec"].get("pinned"))
        cut_out_of = order.bundle if seen.parent is not None else ""
        for part in seen.ranges:
            owner, child = owners.get(part, ""), seen.children.get(part)
            if child is None:
                child = await self._create_child(writes, space, part, owner, pinned=pinned, parent=cut_out_of)
            if untold(child):
                await self._confirm(child, owner)

    async def _create_child(
        self, writes: SplitObjects, space: _Space, part: tuple[int, int], owner: str, *, pinned: bool, parent: str
    ) -> Raw:
        assignment = writes.assignment(owner, str(Reason.SPLITTING))
        spec = {"owner": owner, "pinned": pinned, "assignment": assignment}
        lower, upper = (f"0x{edge:08x}" for edge in part)
        manifest = bundle_manifest(space.object(*part), space.name, space.uid, lower, upper, spec, parent=parent)
        return await self._objects.create(manifest)

    async def _confirm(self, child: Raw, owner: str) -> None:
        """Write the owner of a child, as Pulsar has it."""
        status = {
            "owner": owner,
            "state": str(BundleState.OWNED if owner else BundleState.FREE),
            "since": timestamp(self.cluster.now()),
            "observedGeneration": child["metadata"]["generation"],
        }
        await self._objects.patch(child, {"status": status}, subresource="status")


@dataclass(slots=True)
class ChosenSplitExecutor:
    """Chooses the executor: the one for Pulsar if Pulsar is linked, else the one for brokers that watch the objects.

    admin: the open client, None if there is none. A new leader waits until it is known whether Pulsar is linked. The
    wrong executor would undo a split that Pulsar has carried out.
    """

    cluster: ClusterState
    admin: Callable[[], Admin | None]
    otherwise: SplitExecutor
    _settled: bool = False

    async def advance(self, order: SplitOrder, give_up: str = "") -> SplitProgress:
        """Call `advance` of the chosen executor."""
        self._settled = self._settled or await self.cluster.link_settled()
        if not self._settled:
            return SplitProgress(text="a policy with spec.pulsar does not run yet: Pulsar may have to carry it out")
        if not self.cluster.link.linked:
            return await self.otherwise.advance(order, give_up)
        if (admin := self.admin()) is None or self.cluster.link.ids is None:
            problem = self.cluster.link.problem or "no request was sent to it yet"
            return SplitProgress(text=f"Pulsar can't be asked: {problem}")
        return await PulsarSplitExecutor(self.cluster, admin.without_budget()).advance(order, give_up)
