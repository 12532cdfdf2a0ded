"""What must be written so that TopicNamespace objects agree with the namespaces of a Pulsar cluster. Pure.

Both ways, and each object only one: one that is labelled ``trimtab.dev/discovered`` was made for a namespace that
Pulsar had, follows it, and goes with it. All others are a person's: the namespace is created for them, and they are
told when it is not as they say. Nothing is ever deleted in Pulsar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.cluster.naming import topic_namespace_name
from trimtab_operator.cluster.status import set_condition
from trimtab_operator.cluster.topic_namespaces import TopicNamespaceRecord
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.topic_namespace import MIRRORED, MOST_BUNDLES, Readiness
from trimtab_strategies.model import Isolation

SYSTEM_TENANTS = frozenset({"pulsar", "sla-monitor"})
"""Tenants whose namespaces are Pulsar's own: heartbeats, its system topics, the monitor of agreed service levels."""

Ready = tuple[str, Readiness, str]
"""Status, reason and message of the condition `Ready`."""

_STICKY = frozenset({Readiness.FOUND, Readiness.OTHER_BUNDLES, Readiness.CREATED})


@dataclass(frozen=True, slots=True)
class Space:
    """A namespace (``tenant/name``) as Pulsar has it.

    boundaries: the n + 1 edges of its bundles. group: of anti-affinity, empty none. asked: whether group and isolation
    were read; if not, nothing is known of them.
    """

    name: str
    boundaries: tuple[int, ...]
    group: str = ""
    isolation: Isolation | None = None
    asked: bool = True

    @property
    def bundles(self) -> int:
        """How many it is cut into."""
        return len(self.boundaries) - 1


@dataclass(slots=True)
class SpaceChanges:
    """What to do about one namespace.

    held: the object that has its bundles. create: the manifest of a discovered TopicNamespace. spec: what of the
    holder's spec changes. status: of which objects. delete: objects to delete. found: the object for which Pulsar is to
    create the namespace. group: the anti-affinity group that Pulsar is to put it into, empty none.
    """

    held: TopicNamespaceRecord | None = None
    create: dict[str, Any] | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    status: list[tuple[TopicNamespaceRecord, dict[str, Any]]] = field(default_factory=list)
    delete: list[TopicNamespaceRecord] = field(default_factory=list)
    found: TopicNamespaceRecord | None = None
    group: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.create or self.spec or self.status or self.delete or self.found or self.group)


def systems_own(namespace: str) -> bool:
    """Whether a namespace (``tenant/name``, or of Pulsar 1 ``tenant/cluster/name``) is none that people use."""
    return namespace.partition("/")[0] in SYSTEM_TENANTS


def holder(records: Iterable[TopicNamespaceRecord]) -> TopicNamespaceRecord | None:
    """Of several objects that speak of one namespace, the one that has its bundles, else a person's, else the first."""
    return min(records, key=lambda r: (not r.bundles, r.discovered, r.name), default=None)


def reflect_space(
    space: Space, records: Sequence[TopicNamespaceRecord], taken: Iterable[str], now: float
) -> SpaceChanges:
    """What to do about a namespace that Pulsar has. records: the objects that speak of it. taken: names of all objects.

    now: epoch seconds.
    """
    held = holder(records)
    changes = SpaceChanges(held=held)
    if held is None:
        changes.create = _manifest(space, taken)
        return changes
    if held.discovered and space.asked:
        changes.spec = _followed(space, held)
    elif space.asked and held.policy.anti_affinity_group not in {"", space.group}:
        changes.group = held.policy.anti_affinity_group
    _tell(changes, held, _ready(space, held), space.bundles, now)
    for other in records:
        if other is held:
            continue
        if other.discovered:
            changes.delete.append(other)
        else:
            text = f"its bundles belong to the TopicNamespace {held.name}: delete one"
            _tell(changes, other, ("False", Readiness.ALREADY_CUT, text), 0, now)
    return changes


def reflect_absent(records: Iterable[TopicNamespaceRecord], now: float) -> SpaceChanges:
    """What to do about a namespace that Pulsar does not have. now: epoch seconds."""
    changes = SpaceChanges()
    changes.delete = [r for r in records if r.discovered]
    mine = [r for r in records if not r.discovered]
    gone = [r for r in mine if _readiness(r)[1] in MIRRORED]
    for record in gone:
        text = "it was deleted in Pulsar, and is not created again by itself: delete this object, and apply it anew"
        _tell(changes, record, ("False", Readiness.GONE, text), 0, now)
    if not gone:
        changes.found = holder(mine)
    return changes


def told(record: TopicNamespaceRecord, ready: Ready, bundles: int, now: float) -> dict[str, Any]:
    """The status of an object with that condition `Ready`. now: epoch seconds."""
    status, reason, message = ready
    conditions = set_condition(record.conditions, "Ready", status, str(reason), message, record.generation, now)
    return {"bundles": bundles, "observedGeneration": record.generation, "conditions": conditions}


def _readiness(record: TopicNamespaceRecord) -> tuple[str, str, str, int]:
    """Status, reason, message and generation of the condition `Ready`."""
    found: Mapping[str, Any] = next((c for c in record.conditions if c["type"] == "Ready"), {})
    words = (found.get(key, "") for key in ("status", "reason", "message"))
    status, reason, message = words
    return status, reason, message, found.get("observedGeneration", 0)


def _tell(changes: SpaceChanges, record: TopicNamespaceRecord, ready: Ready, bundles: int, now: float) -> None:
    if (*_readiness(record), record.bundles) != (*ready, record.generation, bundles):
        changes.status.append((record, told(record, ready, bundles, now)))


def _ready(space: Space, record: TopicNamespaceRecord) -> Ready:
    status, reason, message, _ = _readiness(record)
    if status == "True" and reason in _STICKY:
        return "True", Readiness(reason), message
    if record.discovered or record.asked == space.bundles:
        return "True", Readiness.FOUND, "Pulsar has it"
    text = f"Pulsar had it already, with {space.bundles} bundles, and that stands; spec.bundles says {record.asked}"
    return "True", Readiness.OTHER_BUNDLES, text


def _followed(space: Space, record: TopicNamespaceRecord) -> dict[str, Any]:
    """What of a discovered object's spec differs from what Pulsar has."""
    spec: dict[str, Any] = {}
    if space.group != record.policy.anti_affinity_group:
        spec["antiAffinityGroup"] = space.group
    if space.isolation != record.policy.isolation:
        spec["isolation"] = _isolation(space.isolation)
    return spec


def _isolation(asked: Isolation | None) -> dict[str, Any] | None:
    if asked is None:
        return None
    lists = {"primary": list(asked.primary), "secondary": list(asked.secondary)}
    return {**lists, "minAvailable": asked.min_available}


def _manifest(space: Space, taken: Iterable[str]) -> dict[str, Any]:
    tenant, name = space.name.split("/")
    plain = topic_namespace_name(tenant, name)
    free = topic_namespace_name(tenant, name, hashed=True) if plain in taken else plain
    spec: dict[str, Any] = {"tenant": tenant, "name": name, "bundles": min(space.bundles, MOST_BUNDLES)}
    if space.group:
        spec["antiAffinityGroup"] = space.group
    if space.isolation is not None:
        spec["isolation"] = _isolation(space.isolation)
    meta = {"name": free, "labels": {DISCOVERED: "true"}}
    return {"apiVersion": API_VERSION, "kind": "TopicNamespace", "metadata": meta, "spec": spec}
