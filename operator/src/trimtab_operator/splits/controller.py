"""Carries out the BundleSplits of policies and people: validates, executes, counts and deletes them.

All state of a split is in its status and in the Bundle objects, so a new leader can continue it after a crash. The
status, which names the children, is written before the bundle is changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.actuators import WRITERS, Actuator, WriteResult
from trimtab_operator.aio import at_most
from trimtab_operator.kube.client import (
    BUNDLE_SPLITS,
    BUNDLES,
    TOPIC_NAMESPACES,
    ApiError,
    ConflictError,
    NotFoundError,
)
from trimtab_operator.kube.conditions import set_condition, timestamp
from trimtab_operator.kube.naming import BundleObjects, owned_by
from trimtab_operator.kube.records import BundleRecord, SplitRecord, TopicNamespaceRecord, split_record
from trimtab_operator.observe.snapshot import Snapshot
from trimtab_operator.resources.bundle import PARENT
from trimtab_operator.resources.bundle_split import Phase
from trimtab_operator.resources.conditions import ConditionReason, SplitCondition
from trimtab_operator.splits.steps import Child, Raw, SplitExecutor, SplitOrder, SplitProgress, parent_of, split_of
from trimtab_operator.splits.validation import (
    InvalidSplitError,
    SplitMustWaitError,
    split_environment,
    split_order,
)
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.status.conditions import shortened
from trimtab_strategies.model import Decision, Memory, Reason, Split


@dataclass(slots=True)
class BundleCounts:
    """Keeps the number of bundles of each TopicNamespace. A change costs the same however many bundles there are."""

    cluster: ClusterState
    _counts: Counter[str] = field(init=False)
    _news: set[str] = field(init=False)

    def __post_init__(self) -> None:
        bundles = self.cluster.stores.bundles
        self._counts = Counter(bundle.topic_namespace for bundle in bundles.items.values())
        self._news = set(self._counts)
        bundles.subscribe(self._changed)

    def _changed(self, old: BundleRecord | None, new: BundleRecord | None) -> None:
        if old is not None and new is None:
            self._count(old.topic_namespace, -1)
        elif old is None and new is not None:
            self._count(new.topic_namespace, 1)

    def _count(self, space: str, change: int) -> None:
        self._counts[space] += change
        self._news.add(space)

    async def publish(self) -> None:
        """Write the numbers that have changed. Raises `ApiError`.

        The number of a namespace's first bundles is written by `reconcile.namespaces.cut`.
        """
        spaces, cluster = self.cluster.stores.topic_namespaces.items, self.cluster
        for name in [name for name in self._news if name not in spaces or spaces[name].has_bundles]:
            self._news.discard(name)
            if name in spaces and spaces[name].bundles != self._counts[name]:
                body = {"status": {"bundles": self._counts[name]}}
                try:
                    await cluster.api.patch(TOPIC_NAMESPACES, cluster.namespace, name, body, subresource="status")
                except NotFoundError:
                    continue


async def request(splits: Sequence[Split], seen: Snapshot, actuator: Actuator) -> list[WriteResult]:
    """Create a BundleSplit for each split of a plan. Returns the results in the same order."""
    return await at_most(WRITERS, lambda split: actuator.request_split(seen.records[split.bundle], split), splits)


def unspent(decision: Decision, before: Memory, asked: Sequence[WriteResult]) -> Memory:
    """The memory after `decision`, with the splitter's memory from `before` if splits were requested and none was made.

    Otherwise a policy in DryRun would use up hits and budgets on splits that are never made.
    """
    spent = not asked or any(answer.reason is None for answer in asked)
    return decision.memory if spent else replace(decision.memory, splitter=before.splitter)


log = logging.getLogger(__name__)


ROUND_EVERY = 2.0
"""Seconds between two rounds when nothing changed."""


SPLIT_WITHIN = 60.0
"""Seconds after which a split is rolled back, if no policy sets `limits.moveTimeout`."""


WAIT_FOR = 300.0
"""Seconds that a person's split waits for its bundle to have a confirmed owner."""


TELL_AFTER = 3.0
"""Seconds of waiting after which the status says what the split waits for."""


TELL_EVERY = 10.0
"""Least seconds between two writes of the text on what a split waits for. The text may change at every attempt."""


PAUSE = 0.1
"""Least seconds between two rounds. Without a pause, a round's own writes would start the next one immediately."""


AT_ONCE = 8
"""Maximum number of splits that are carried out at the same time."""


@dataclass(slots=True)
class SplitController:
    """Carries out the BundleSplits of one Kubernetes namespace."""

    cluster: ClusterState
    divider: SplitExecutor
    _since: dict[str, float] = field(default_factory=dict)
    _told: dict[str, float] = field(default_factory=dict)  # when the last text was written, by uid
    _counts: BundleCounts = field(init=False)

    def __post_init__(self) -> None:
        self._counts = BundleCounts(self.cluster)

    async def run(self) -> None:
        """Run rounds until cancelled, each as soon as something changes."""
        wake = self.cluster.splitting.wake
        while True:
            if not self.cluster.stores.stale():
                await self.round()
            await asyncio.sleep(PAUSE)
            try:
                async with asyncio.timeout(ROUND_EVERY):
                    await wake.wait()
            except TimeoutError:
                continue
            finally:
                wake.clear()

    async def round(self) -> None:
        """Handle every split once. An error in one is logged, and does not delay the others."""
        records = sorted(self.cluster.stores.splits.items.values(), key=lambda record: (record.created, record.name))
        there = {record.uid for record in records}
        self._since = {uid: since for uid, since in self._since.items() if uid in there}
        self._told = {uid: at for uid, at in self._told.items() if uid in there}
        await at_most(AT_ONCE, lambda record: _safely(f"split {record.name}", self._handle(record)), records)
        await self._tidy_up()
        await _safely("numbers of bundles", self._counts.publish())

    async def _handle(self, record: SplitRecord) -> None:
        if record.begun:  # a store may not show yet that the split has ended
            cluster = self.cluster
            record = split_record(await cluster.api.get(BUNDLE_SPLITS, cluster.namespace, record.name))
        if record.finished:
            await self._expire(record)
            return
        if not record.begun:
            accepted = await self._accept(record)
            if accepted is None:
                return
            record = accepted
        await self._advance(record)

    async def _expire(self, record: SplitRecord) -> None:
        if self.cluster.now() - record.finished_at >= record.spec.ttl_seconds_after_finished:
            await self.cluster.api.delete(BUNDLE_SPLITS, self.cluster.namespace, record.name, uid=record.uid)

    # -- from Pending to Splitting --

    async def _accept(self, record: SplitRecord) -> SplitRecord | None:
        """The record if the split is accepted; None if it has to wait or is refused."""
        parent = await self._bundle(record.spec.bundle)
        environment = split_environment(self.cluster, parent)
        try:
            order = split_order(record, parent, environment)
        except InvalidSplitError as error:
            await self._refuse(record, error.reason, str(error))
            return None
        except SplitMustWaitError as error:
            await self._wait(record, str(error))
            return None
        return await self._begin(await self._owned(record, environment.space), order)

    async def _wait(self, record: SplitRecord, why: str) -> None:
        age = self.cluster.now() - record.created
        if record.spec.request is not None or age > WAIT_FOR:
            await self._refuse(record, Reason.IN_FLIGHT, why)
        elif record.status.message != why:
            conditions = self._conditions(record, SplitCondition.ACCEPTED, "Unknown", Reason.IN_FLIGHT, why)
            word = str(Reason.IN_FLIGHT)
            await self._write(record, phase=Phase.PENDING, reason=word, message=why, conditions=conditions)

    async def _refuse(self, record: SplitRecord, reason: Reason, text: str) -> None:
        conditions = self._conditions(record, SplitCondition.ACCEPTED, "False", reason, text)
        await self._finish(replace(record, conditions=tuple(conditions)), Phase.FAILED, reason, text)

    async def _owned(self, record: SplitRecord, space: TopicNamespaceRecord | None) -> SplitRecord:
        """The record, owned by its TopicNamespace. The bundle can't own it, because the split deletes the bundle."""
        if record.owned or space is None or not space.uid:
            return record
        owner = owned_by(space.name, space.uid)
        meta = {"resourceVersion": record.resource_version, "ownerReferences": [owner]}
        cluster = self.cluster
        return split_record(await cluster.api.patch(BUNDLE_SPLITS, cluster.namespace, record.name, {"metadata": meta}))

    async def _begin(self, record: SplitRecord, order: SplitOrder) -> SplitRecord:
        children = [
            {"bundle": child.bundle, "lower": child.lower, "upper": child.upper, "destination": child.destination}
            for child in order.children
        ]
        text = f"into {len(children)} children, which {order.source} serves first"
        begun = await self._write(
            record,
            phase=Phase.SPLITTING,
            reason=asked_for(record),
            message="",
            source=order.source,
            topicNamespace=order.topic_namespace,
            children=children,
            startedAt=timestamp(self.cluster.now()),
            conditions=self._conditions(record, SplitCondition.ACCEPTED, "True", ConditionReason.ACCEPTED, text),
        )
        log.info("split %s: splitting %s %s", record.name, order.bundle, text)
        return begun

    # -- from Splitting to the end --

    async def _advance(self, record: SplitRecord) -> None:
        waited = self.cluster.clock() - self._since.setdefault(record.uid, self.cluster.clock())
        late = waited > self._within()
        missing = record.status.message or "brokers have not taken all children"
        give_up = f"not done within {self._within():g} s: {missing}" if late else ""
        progress = await self.divider.advance(self._order(record), give_up)
        if progress.done:
            names = ", ".join(child.bundle for child in record.status.children[:3])
            await self._finish(
                record, Phase.COMPLETED, ConditionReason.COMPLETED, f"{len(record.status.children)} children: {names}"
            )
        elif progress.undone:
            reason = progress.reason or (Reason.TIMED_OUT if late else Reason.SUPERSEDED)
            await self._finish(record, Phase.FAILED, reason, progress.text)
        elif waited > TELL_AFTER:
            await self._report_waiting(record, progress)

    def _order(self, record: SplitRecord) -> SplitOrder:
        """The order of an accepted split, from its status. A child whose destination is not ready stays where it is."""
        request, status = record.spec.request, record.status
        ready = {name for name, broker in self.cluster.stores.brokers.items.items() if broker.ready}
        return SplitOrder(
            split=record.name,
            bundle=record.spec.bundle,
            topic_namespace=status.topic_namespace,
            source=status.source,
            children=tuple(
                Child(c.bundle, c.lower, c.upper, c.destination if c.destination in ready else "")
                for c in status.children
            ),
            policy=request.policy if request else "",
            epoch=max(self.cluster.process.epoch, request.epoch if request else 0),
            reason=asked_for(record),
        )

    async def _report_waiting(self, record: SplitRecord, progress: SplitProgress) -> None:
        recently = self.cluster.clock() - self._told.get(record.uid, -TELL_EVERY) < TELL_EVERY
        if progress.text and shortened(progress.text) != record.status.message and not recently:
            self._told[record.uid] = self.cluster.clock()
            await self._write(record, message=shortened(progress.text))

    def _within(self) -> float:
        """Seconds until a split times out: the longest `limits.moveTimeout` of all policies."""
        return max(
            (settings.move_timeout for settings in self.cluster.policies.settings.values()), default=SPLIT_WITHIN
        )

    async def _finish(self, record: SplitRecord, phase: Phase, reason: str, text: str) -> None:
        completed = phase is Phase.COMPLETED
        text = shortened(text)
        conditions = self._conditions(record, SplitCondition.COMPLETE, "True" if completed else "False", reason, text)
        finished = timestamp(self.cluster.now())
        word = asked_for(record) if completed else str(reason)
        await self._write(record, phase=phase, reason=word, message=text, finishedAt=finished, conditions=conditions)
        self.cluster.metrics.splits.labels(str(phase), str(reason)).inc()
        log.info("split %s of %s: %s: %s", record.name, record.spec.bundle, phase, text)
        event = "Normal" if completed else "Warning", str(reason), f"{record.spec.bundle}: {text}"
        await self.cluster.post("BundleSplit", record.name, event, action="Split", uid=record.uid)

    def _conditions(
        self, record: SplitRecord, kind: SplitCondition, status: str, reason: str, text: str
    ) -> list[Mapping[str, Any]]:
        now = self.cluster.now()
        return [*set_condition(record.conditions, kind, status, str(reason), shortened(text), record.generation, now)]

    async def _write(self, record: SplitRecord, **status: Any) -> SplitRecord:
        """Merge `status` into the status of a split, and return its new record. Raises `ConflictError`."""
        cluster = self.cluster
        body = {
            "metadata": {"resourceVersion": record.resource_version},
            "status": {"observedGeneration": record.generation, **status},
        }
        return split_record(
            await cluster.api.patch(BUNDLE_SPLITS, cluster.namespace, record.name, body, subresource="status")
        )

    async def _bundle(self, name: str) -> Raw | None:
        try:
            return await self.cluster.api.get(BUNDLES, self.cluster.namespace, name)
        except NotFoundError:
            return None

    # -- leftovers --

    async def _tidy_up(self) -> None:
        """Roll back splits whose BundleSplit was deleted halfway, and release or remove children that are left."""
        divided, bundles = self.cluster.splitting, self.cluster.stores.bundles.items
        for bundle, split in list(divided.parents.items()):
            if bundle in bundles:
                await _safely(f"bundle {bundle} of a deleted split", self._go_back(bundle, split))
        busy = {record.spec.bundle for record in self.cluster.stores.splits.items.values() if not record.finished}
        for child, parent in list(divided.children.items()):
            if parent not in busy and not (parent in bundles and bundles[parent].split):
                await _safely(f"child {child} of an ended split", self._release(child, parent))

    async def _go_back(self, bundle: str, split: str) -> None:
        if await self._gone(split):
            await self.divider.advance(self._orphan(bundle, split), f"BundleSplit {split} is gone")

    async def _release(self, child: str, parent: str) -> None:
        if (whole := await self._bundle(parent)) is None:
            body = {"metadata": {"annotations": {PARENT: None}}}
            await self.cluster.api.patch(BUNDLES, self.cluster.namespace, child, body)
        elif not split_of(whole):
            await self._remove(child, parent)

    async def _remove(self, child: str, parent: str) -> None:
        """Delete a child that an ended split or a delayed request left behind."""
        raw = await self._bundle(child)
        if raw is not None and parent_of(raw) == parent:
            await BundleObjects(self.cluster.api, self.cluster.namespace, self.cluster.now).delete(raw)

    async def _gone(self, split: str) -> bool:
        """Whether a split does not exist or has ended. Asks the API server, because a store may be out of date."""
        found = self.cluster.stores.splits.items.get(split)
        if found is not None and not found.finished:
            return False
        try:
            raw = await self.cluster.api.get(BUNDLE_SPLITS, self.cluster.namespace, split)
        except NotFoundError:
            return True
        return split_record(raw).finished

    def _orphan(self, bundle: str, split: str) -> SplitOrder:
        bundles = self.cluster.stores.bundles.items
        record = bundles[bundle]
        cut = [bundles[name] for name, parent in self.cluster.splitting.children.items() if parent == bundle]
        children = tuple(Child(child.name, child.lower, child.upper) for child in cut)
        return SplitOrder(split, bundle, record.topic_namespace, record.status_owner, children)


def asked_for(record: SplitRecord) -> str:
    """The reason of a split: the policy's reason, or `Admin` if a person asked for it."""
    request = record.spec.request
    return request.reason if request else str(Reason.ADMIN)


async def _safely(what: str, work: Awaitable[object]) -> None:
    """Await `work`, and log an error. The next round tries again."""
    try:
        await work
    except (ConflictError, NotFoundError) as error:
        log.info("%s changed meanwhile: %s", what, error)
    except ApiError as error:
        log.warning("%s: %s", what, error)
    except Exception:
        log.exception("%s: this round failed, the next one tries again", what)
