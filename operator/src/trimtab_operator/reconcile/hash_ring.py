"""Reports Bundles that do not cover the hash ring of their TopicNamespace: condition `Ready`, and Events.

It reports only faults that have lasted for `SETTLES`. Of the TopicNamespaces that exist, it reports only those that the
operator has cut into bundles, and none that is being cut or deleted. It reports nothing at all while a Pulsar cluster
is linked: Pulsar itself keeps the ring complete.

| found | reported |
|---|---|
| no bundle covers a range of hashes | `Ready=False`, reason `Gap`, and the range |
| bundles overlap | `Ready=False`, reason `Overlap`, and the bundles that get no owner |
| bundles of a TopicNamespace that does not exist | an Event on one of them: there is no condition to write |
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trimtab_operator.kube.conditions import condition_of
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord
from trimtab_operator.reconcile.namespaces import write_ready
from trimtab_operator.resources.conditions import TopicNamespaceCondition
from trimtab_operator.resources.topic_namespace import BROKEN_RING, Readiness
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.hash_rings import NO_BUNDLES, Ring
from trimtab_operator.status.conditions import shortened
from trimtab_strategies.model import counted, some

log = logging.getLogger(__name__)

SETTLES = 5.0
"""Seconds that a fault must last. When a split ends, hashes may have no bundle for a moment."""

_SHOWN = 3
_WATCHED = BROKEN_RING | {Readiness.CUT}


class Fault(StrEnum):
    """Faults of a hash ring: values of the label `kind` of the metric `trimtab_hash_ring_faults`."""

    GAP = "Gap"
    OVERLAP = "Overlap"
    UNKNOWN = "Unknown"


@dataclass(slots=True)
class RingStatus:
    """Compares the rings of one Kubernetes namespace with their reported conditions."""

    cluster: ClusterState
    _since: dict[str, float] = field(default_factory=dict)
    _broken: set[str] = field(init=False)  # TopicNamespaces reported as broken
    _strays: frozenset[str] = frozenset()  # reported names of unknown TopicNamespaces

    def __post_init__(self) -> None:
        spaces = self.cluster.stores.topic_namespaces
        self._broken = {name for name, record in spaces.items.items() if record.ready[1] in BROKEN_RING}
        spaces.subscribe(self._space_changed)

    def _space_changed(self, old: TopicNamespaceRecord | None, new: TopicNamespaceRecord | None) -> None:
        if new is not None and new.ready[1] in BROKEN_RING:
            self._broken.add(new.name)
        elif (gone := new or old) is not None:
            self._broken.discard(gone.name)

    async def check(self) -> None:
        """Check all rings once, and write what has changed. Raises `ApiUnavailableError`."""
        if self.cluster.link.linked:
            self._since.clear()
            self._count({}, {})
            return
        await self.cluster.rings.examined()
        rings, strays = self._faulty(), self._stray()
        lasting = self._lasting({*rings, *strays})
        rings = {name: ring for name, ring in rings.items() if name in lasting}
        strays = {name: found for name, found in strays.items() if name in lasting}
        self._count(rings, strays)
        await self._report_rings(rings)
        await self._report_strays(strays)

    def _faulty(self) -> dict[str, Ring]:
        """The rings with faults, of watched namespaces."""
        spaces, rings = self.cluster.stores.topic_namespaces.items, self.cluster.rings
        found = {**dict.fromkeys(spaces.keys() - rings.spaces, NO_BUNDLES), **rings.faulty}
        return {name: ring for name, ring in found.items() if name in spaces and _watched(spaces[name])}

    def _stray(self) -> dict[str, list[BundleRecord]]:
        """For each TopicNamespace that does not exist: the Bundles that name it and have no controller."""
        rings, spaces = self.cluster.rings, self.cluster.stores.topic_namespaces.items
        unknown = {
            name: [b for b in rings.members(name).values() if not b.made] for name in rings.spaces - spaces.keys()
        }
        return {name: sorted(found, key=lambda b: b.name) for name, found in unknown.items() if found}

    def _lasting(self, found: Collection[str]) -> frozenset[str]:
        now = self.cluster.clock()
        self._since = {name: self._since.get(name, now) for name in found}
        return frozenset(name for name, since in self._since.items() if now - since >= SETTLES)

    def _count(self, rings: Mapping[str, Ring], strays: Mapping[str, list[BundleRecord]]) -> None:
        gauge = self.cluster.metrics.ring_faults
        gauge.labels(str(Fault.GAP)).set(sum(bool(ring.gaps) for ring in rings.values()))
        gauge.labels(str(Fault.OVERLAP)).set(sum(len(ring.overlaps) for ring in rings.values()))
        gauge.labels(str(Fault.UNKNOWN)).set(sum(map(len, strays.values())))

    async def _report_rings(self, rings: Mapping[str, Ring]) -> None:
        spaces = self.cluster.stores.topic_namespaces.items
        whole = self._broken - self._since.keys()
        found = [spaces[name] for name in sorted({*rings, *whole}) if name in spaces]
        for record in filter(_watched, found):
            ring = rings.get(record.name, Ring(len(self.cluster.rings.members(record.name))))
            values = _ready(ring)
            if values != condition_of(record.conditions, TopicNamespaceCondition.READY)[:3]:
                await self._report(record, values)

    async def _report(self, record: TopicNamespaceRecord, values: tuple[str, str, str]) -> None:
        status, reason, message = values
        if await write_ready(self.cluster, record, values) and record.ready != (status, reason):
            kind = "Normal" if status == "True" else "Warning"
            log.warning("topic namespace %s: %s", record.name, message)
            event = kind, reason, message
            await self.cluster.post("TopicNamespace", record.name, event, action="Watch", uid=record.uid)

    async def _report_strays(self, strays: Mapping[str, list[BundleRecord]]) -> None:
        """Post one Event for each unknown TopicNamespace, however many bundles name it."""
        for space in sorted(strays.keys() - self._strays):
            names = [bundle.name for bundle in strays[space]]
            which = f"{counted(len(names), 'bundle')} ({some(names, _SHOWN)}) get no owner from Trimtab"
            text = f"spec.topicNamespace {space} names no TopicNamespace: {which}. Create it, or delete them"
            log.warning("%s", text)
            await self.cluster.post("Bundle", names[0], ("Warning", "UnknownTopicNamespace", text), action="Watch")
        self._strays = frozenset(strays)


def _watched(record: TopicNamespaceRecord) -> bool:
    return record.ready[1] in _WATCHED and not record.going


def _ready(ring: Ring) -> tuple[str, str, str]:
    """Status, reason and message of `Ready`."""
    if ring.whole:
        return "True", str(Readiness.CUT), "the bundles cover the hash ring"
    texts = [_gaps(ring)] if ring.gaps else []
    texts += [_overlaps(ring)] if ring.overlaps else []
    return "False", str(Readiness.GAP if ring.gaps else Readiness.OVERLAP), shortened("; ".join(texts))


def _gaps(ring: Ring) -> str:
    ranges = some(ring.gaps, _SHOWN, words=lambda gap: f"{gap[0]} to {gap[1]}")
    return f"no bundle has the hashes {ranges}, whose topics have no owner: create a Bundle for each range"


def _overlaps(ring: Ring) -> str:
    def told(pair: tuple[str, str]) -> str:
        return f"{pair[0]} overlaps {pair[1]}" + (" (brokers serve both)" if pair[0] in ring.served else "")

    first = sorted(ring.overlaps.items(), key=lambda pair: (pair[0] not in ring.served, pair))
    return f"{some(first, _SHOWN, words=told)}: delete the first bundle of each pair, it gets no owner"
