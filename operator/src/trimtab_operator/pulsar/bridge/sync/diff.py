"""What must be written so that TopicNamespace and Bundle objects agree with a Pulsar cluster. Pure.

TopicNamespaces agree both ways, and each object one way. One that is labelled ``trimtab.dev/discovered`` follows
Pulsar's namespace, and goes with it. All others belong to a person: the namespace is created for them. Nothing is ever
deleted in Pulsar.

Rules that keep a bundle from being lost by a read that came too early, too late, or not at all:

- A broker that did not answer changes nothing. A bundle counts as unowned only when `Owned` is sure: every active
  broker was asked twice in a row. Where bundles are asked for one by one, one answer is enough.
- Bundles are split and never merged. So boundaries that lack a known edge are old, or of a namespace that was made
  anew. They must be read twice before they count.
- A bundle is deleted only once all bundles that take its place exist.
- A pending desired owner belongs to the unload controller, a splitting bundle to the split. A desired owner that is
  pending for too long is overtaken by the truth. A bundle that is marked as leaving may be closed where it is seen;
  the unload controller sees to that first.
- An object that no controller of ours made is not deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trimtab_operator.kube.conditions import set_condition, timestamp
from trimtab_operator.kube.naming import bundle_manifest, bundle_name, topic_namespace_name
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.conditions import TopicNamespaceCondition
from trimtab_operator.resources.topic_namespace import MIRRORED, MOST_BUNDLES, Readiness
from trimtab_strategies.model import Isolation, Reason

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
    conditions = set_condition(
        record.conditions, TopicNamespaceCondition.READY, status, reason, message, record.generation, now
    )
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


Status = dict[str, Any]

Range = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Owned:
    """Who serves what, as the brokers said in one sweep.

    by_bundle: bundle in Pulsar's spelling -> name of the Broker object. before: what may be served all the same: by
    some broker in the sweep before, or, where bundles are asked for one by one, those of which this one says nothing.
    complete: whether what is in neither is nobody's.
    """

    by_bundle: Mapping[str, str] = field(default_factory=dict)
    before: Collection[str] = ()
    complete: bool = False

    def nobodys(self, bundle: str) -> bool:
        """Whether surely nobody serves `bundle`."""
        return self.complete and bundle not in self.by_bundle and bundle not in self.before


def reflect_owners(
    bundles: Iterable[BundleRecord],
    full_names: Mapping[str, str],
    owned: Owned,
    stuck: Collection[str],
    now: float,
) -> Iterator[tuple[BundleRecord, Status]]:
    """Each bundle whose status says something else than what was seen, and the status that it should have.

    full_names: object name of a TopicNamespace -> ``tenant/name``. stuck: names of bundles whose wish is open for too
    long. now: epoch seconds.
    """
    for bundle in bundles:
        space = full_names.get(bundle.topic_namespace)
        if space is None or bundle.split or bundle.parent:
            continue
        full = f"{space}/{bundle.lower}_{bundle.upper}"
        status = _owned_status(bundle, full, owned, bundle.name in stuck)
        if status:
            yield bundle, status if _same(bundle, status) else {**status, "since": timestamp(now)}


def _same(bundle: BundleRecord, status: Status) -> bool:
    """Whether neither owner nor state changes."""
    return (status["owner"], status["state"]) == (bundle.status_owner, bundle.state)


def _owned_status(bundle: BundleRecord, full: str, owned: Owned, stuck: bool) -> Status | None:  # noqa: FBT001  a fact
    seen = owned.by_bundle.get(full)
    if seen is None:
        unowned = owned.nobodys(full) and (stuck or not bundle.owner_pending)
        told = (bundle.status_owner, bundle.state) == ("", BundleState.FREE)
        return _status("", BundleState.FREE) if unowned and not told else None
    if not bundle.owner_pending:
        told = (bundle.status_owner, bundle.state) == (seen, BundleState.OWNED)
        return None if told else _status(seen, BundleState.OWNED, bundle.generation)
    # nobody asked for what was merely seen: such a wish moves nothing, and is over
    over = bundle.merely_seen or (bundle.owner == seen and (stuck or bundle.status_owner == seen))
    if over and (stuck or bundle.state != BundleState.RELEASING):
        return _status(seen, BundleState.OWNED, bundle.generation)
    told = (bundle.status_owner, bundle.state) == (seen, BundleState.OWNED)
    return _status(seen, BundleState.OWNED) if stuck and not told else None


def _status(owner: str, state: BundleState, generation: int | None = None) -> Status:
    status: Status = {"owner": owner, "state": str(state)}
    return status if generation is None else {**status, "observedGeneration": generation}


@dataclass(frozen=True, slots=True)
class Birth:
    """A Bundle object to create, and the status that it gets at once."""

    manifest: Mapping[str, Any]
    status: Status

    @property
    def name(self) -> str:
        """Of the object."""
        return str(self.manifest["metadata"]["name"])


@dataclass(slots=True)
class Ranges:
    """Bundle objects to create, and those to delete once all of them exist.

    doubtful: the boundaries lack an edge of a bundle that there is, so they must be read again first.
    """

    create: list[Birth] = field(default_factory=list)
    delete: list[BundleRecord] = field(default_factory=list)
    doubtful: bool = False


def reflect_ranges(
    boundaries: Sequence[int],
    space: TopicNamespaceRecord,
    bundles: Iterable[BundleRecord],
    owned: Mapping[str, str],
    now: float,
    *,
    sure: bool = False,
) -> Ranges:
    """What to create and delete so that there is a Bundle object for each range between `boundaries`.

    bundles: those of the namespace. owned: who serves what, by Pulsar's spelling. sure: whether the boundaries were
    read twice.
    """
    known = list(bundles)
    wanted = [(f"0x{lower:08x}", f"0x{upper:08x}") for lower, upper in pairwise(boundaries)]
    edges = {edge for found in wanted for edge in found}
    lacking = any(b.made and not b.parent and not {b.lower, b.upper} <= edges for b in known)
    if lacking and not sure:
        return Ranges(doubtful=True)
    have, locked = {(b.lower, b.upper) for b in known}, [b for b in known if b.split]
    missing = [found for found in wanted if found not in have and not _inside(found, locked)]
    old = [b for b in known if b.made and (b.lower, b.upper) not in set(wanted)]
    births = [_birth(space, found, owned, _pinned(found, old), now) for found in missing]
    return Ranges(births, [b for b in old if not b.split and not b.parent])


def _inside(found: Range, bundles: Iterable[BundleRecord]) -> bool:
    """Whether a range lies in one of `bundles`. Text of one length compares as the numbers do."""
    return any(b.lower <= found[0] and found[1] <= b.upper for b in bundles)


def _pinned(found: Range, old: Iterable[BundleRecord]) -> bool:
    """Whether a range is cut out of a bundle that is pinned."""
    return _inside(found, (b for b in old if b.pinned))


def _birth(
    space: TopicNamespaceRecord,
    found: Range,
    owned: Mapping[str, str],
    pinned: bool,  # noqa: FBT001  a fact
    now: float,
) -> Birth:
    (lower, upper), (tenant, name) = found, space.full_name.split("/")
    owner = owned.get(f"{space.full_name}/{lower}_{upper}", "")
    spec: dict[str, Any] = {}
    if owner:
        assignment = {"owner": owner, "reason": str(Reason.FOUND), "time": timestamp(now)}
        spec |= {"owner": owner, "assignment": assignment}
    if pinned:
        spec["pinned"] = True
    manifest = bundle_manifest(bundle_name(tenant, name, lower, upper), space.name, space.uid, lower, upper, spec)
    status = _status(owner, BundleState.OWNED if owner else BundleState.FREE, 1)
    return Birth(manifest, {**status, "since": timestamp(now)})
