"""The writes that make TopicNamespace and Bundle objects agree with a Pulsar cluster. Pure functions.

Each TopicNamespace is synchronized in one direction. An object with the label ``trimtab.dev/discovered`` follows
Pulsar's namespace, and is deleted with it. All other objects belong to users, and the operator creates Pulsar's
namespace for them. Nothing is ever deleted in Pulsar.

With these rules, an early, late or failed read never loses a bundle:

- A broker that did not answer changes nothing. A bundle counts as unowned only when `ObservedOwners` is complete: every
  active broker answered twice in a row. If bundles are read one by one, one answer is enough.
- Bundles are split and never merged. So boundaries that lack a known edge are old, or the namespace was created again.
  Such boundaries count only after they were read twice.
- A bundle is deleted only after all bundles that replace it exist.
- The unload controller writes the status of a bundle with a pending desired owner. The split controller writes the
  status of a splitting bundle. If a desired owner is pending for too long, the observed owner is written nevertheless.
  A bundle in state `Releasing` may have closed topics. So only the unload controller confirms its owner, unless the
  desired owner is pending for too long.
- An object that Trimtab did not create is not deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trimtab_operator.kube.conditions import condition_of, set_condition, timestamp
from trimtab_operator.kube.naming import bundle_manifest, bundle_name, topic_namespace_name
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.bundle import BundleState
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.conditions import TopicNamespaceCondition
from trimtab_operator.resources.topic_namespace import MIRRORED, MOST_BUNDLES, Readiness
from trimtab_strategies.model import Isolation, Reason

Ready = tuple[str, Readiness, str]
"""Status, reason and message of the condition `Ready`."""


_STICKY = frozenset({Readiness.FOUND, Readiness.OTHER_BUNDLES, Readiness.CREATED})


@dataclass(frozen=True, slots=True)
class PulsarNamespace:
    """A namespace (``tenant/name``) as Pulsar has it.

    boundaries: the n + 1 edges of its n bundles. group: anti-affinity group, empty for none. complete: whether group
    and isolation were read.
    """

    name: str
    boundaries: tuple[int, ...]
    group: str = ""
    isolation: Isolation | None = None
    complete: bool = True

    @property
    def bundles(self) -> int:
        """Number of bundles."""
        return len(self.boundaries) - 1


@dataclass(slots=True)
class NamespaceChanges:
    """Changes for one namespace.

    primary: the TopicNamespace that the bundles belong to. create: manifest of a discovered TopicNamespace. spec:
    changes of the primary object's spec. status: new status by object. delete: objects to delete. create_in_pulsar: the
    object whose namespace Pulsar lacks. group: anti-affinity group to set in Pulsar, empty for none.
    """

    primary: TopicNamespaceRecord | None = None
    create: dict[str, Any] | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    status: list[tuple[TopicNamespaceRecord, dict[str, Any]]] = field(default_factory=list)
    delete: list[TopicNamespaceRecord] = field(default_factory=list)
    create_in_pulsar: TopicNamespaceRecord | None = None
    group: str = ""

    @property
    def empty(self) -> bool:
        """Whether there are no changes."""
        return not (self.create or self.spec or self.status or self.delete or self.create_in_pulsar or self.group)


def primary_record(records: Iterable[TopicNamespaceRecord]) -> TopicNamespaceRecord | None:
    """Choose among several objects for one namespace: the one with bundles, else a user's, else the first by name."""
    return min(records, key=lambda r: (not r.bundles, r.discovered, r.name), default=None)


def namespace_changes(
    namespace: PulsarNamespace, records: Sequence[TopicNamespaceRecord], taken: Iterable[str], now: float
) -> NamespaceChanges:
    """The changes for a namespace that Pulsar has. records: its TopicNamespaces. taken: names of all TopicNamespaces.

    now: epoch seconds.
    """
    primary = primary_record(records)
    changes = NamespaceChanges(primary=primary)
    if primary is None:
        changes.create = _manifest(namespace, taken)
        return changes
    if primary.discovered and namespace.complete:
        changes.spec = _spec_changes(namespace, primary)
    elif namespace.complete and primary.policy.anti_affinity_group not in {"", namespace.group}:
        changes.group = primary.policy.anti_affinity_group
    _set_ready(changes, primary, _ready(namespace, primary), namespace.bundles, now)
    for other in records:
        if other is primary:
            continue
        if other.discovered:
            changes.delete.append(other)
        else:
            text = f"its bundles belong to the TopicNamespace {primary.name}: delete one"
            _set_ready(changes, other, ("False", Readiness.ALREADY_CUT, text), 0, now)
    return changes


def absent_namespace_changes(records: Iterable[TopicNamespaceRecord], now: float) -> NamespaceChanges:
    """The changes for a namespace that Pulsar does not have. now: epoch seconds."""
    changes = NamespaceChanges()
    changes.delete = [r for r in records if r.discovered]
    mine = [r for r in records if not r.discovered]
    gone = [r for r in mine if _readiness(r)[1] in MIRRORED]
    for record in gone:
        text = "it was deleted in Pulsar. To create it again, delete this object and apply it again"
        _set_ready(changes, record, ("False", Readiness.GONE, text), 0, now)
    if not gone:
        changes.create_in_pulsar = primary_record(mine)
    return changes


def ready_status(record: TopicNamespaceRecord, ready: Ready, bundles: int, now: float) -> dict[str, Any]:
    """The status of an object with this condition `Ready`. now: epoch seconds."""
    status, reason, message = ready
    conditions = set_condition(
        record.conditions, TopicNamespaceCondition.READY, status, reason, message, record.generation, now
    )
    return {"bundles": bundles, "observedGeneration": record.generation, "conditions": conditions}


def _readiness(record: TopicNamespaceRecord) -> tuple[str, str, str, int]:
    """Status, reason, message and generation of the condition `Ready`."""
    return condition_of(record.conditions, TopicNamespaceCondition.READY)


def _set_ready(changes: NamespaceChanges, record: TopicNamespaceRecord, ready: Ready, bundles: int, now: float) -> None:
    if (*_readiness(record), record.bundles) != (*ready, record.generation, bundles):
        changes.status.append((record, ready_status(record, ready, bundles, now)))


def _ready(namespace: PulsarNamespace, record: TopicNamespaceRecord) -> Ready:
    status, reason, message, _ = _readiness(record)
    if status == "True" and reason in _STICKY:
        return "True", Readiness(reason), message
    if record.discovered or record.asked == namespace.bundles:
        return "True", Readiness.FOUND, "Pulsar has it"
    text = f"Pulsar already had it, with {namespace.bundles} bundles, which stay; spec.bundles says {record.asked}"
    return "True", Readiness.OTHER_BUNDLES, text


def _spec_changes(namespace: PulsarNamespace, record: TopicNamespaceRecord) -> dict[str, Any]:
    """The fields of a discovered object's spec that differ from Pulsar."""
    spec: dict[str, Any] = {}
    if namespace.group != record.policy.anti_affinity_group:
        spec["antiAffinityGroup"] = namespace.group
    if namespace.isolation != record.policy.isolation:
        spec["isolation"] = _isolation(namespace.isolation)
    return spec


def _isolation(asked: Isolation | None) -> dict[str, Any] | None:
    if asked is None:
        return None
    lists = {"primary": list(asked.primary), "secondary": list(asked.secondary)}
    return {**lists, "minAvailable": asked.min_available}


def _manifest(namespace: PulsarNamespace, taken: Iterable[str]) -> dict[str, Any]:
    tenant, name = namespace.name.split("/")
    plain = topic_namespace_name(tenant, name)
    free = topic_namespace_name(tenant, name, hashed=True) if plain in taken else plain
    spec: dict[str, Any] = {"tenant": tenant, "name": name, "bundles": min(namespace.bundles, MOST_BUNDLES)}
    if namespace.group:
        spec["antiAffinityGroup"] = namespace.group
    if namespace.isolation is not None:
        spec["isolation"] = _isolation(namespace.isolation)
    meta = {"name": free, "labels": {DISCOVERED: "true"}}
    return {"apiVersion": API_VERSION, "kind": "TopicNamespace", "metadata": meta, "spec": spec}


Status = dict[str, Any]

Range = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ObservedOwners:
    """The owners that one round of requests to the brokers found.

    by_bundle: bundle as Pulsar names it -> name of the Broker object. before: bundles that may be owned although they
    are not in `by_bundle`: owned in the round before, or not read in this one. complete: whether all others are
    unowned.
    """

    by_bundle: Mapping[str, str] = field(default_factory=dict)
    before: Collection[str] = ()
    complete: bool = False

    def is_unowned(self, bundle: str) -> bool:
        """Whether it is certain that no broker serves `bundle`."""
        return self.complete and bundle not in self.by_bundle and bundle not in self.before


def owner_changes(
    bundles: Iterable[BundleRecord],
    full_names: Mapping[str, str],
    owned: ObservedOwners,
    stuck: Collection[str],
    now: float,
) -> Iterator[tuple[BundleRecord, Status]]:
    """Each bundle whose status differs from the observed owner, with its new status.

    full_names: object name of a TopicNamespace -> ``tenant/name``. stuck: names of bundles whose desired owner is
    pending for too long. now: epoch seconds.
    """
    for bundle in bundles:
        full_name = full_names.get(bundle.topic_namespace)
        if full_name is None or bundle.split or bundle.parent:
            continue
        full = f"{full_name}/{bundle.lower}_{bundle.upper}"
        status = _owned_status(bundle, full, owned, bundle.name in stuck)
        if status:
            yield bundle, status if _same(bundle, status) else {**status, "since": timestamp(now)}


def _same(bundle: BundleRecord, status: Status) -> bool:
    """Whether owner and state stay the same."""
    return (status["owner"], status["state"]) == (bundle.status_owner, bundle.state)


def _owned_status(bundle: BundleRecord, full: str, owned: ObservedOwners, stuck: bool) -> Status | None:  # noqa: FBT001  a fact
    observed = owned.by_bundle.get(full)
    if observed is None:
        unowned = owned.is_unowned(full) and (stuck or not bundle.owner_pending)
        known = (bundle.status_owner, bundle.state) == ("", BundleState.FREE)
        return _status("", BundleState.FREE) if unowned and not known else None
    if not bundle.owner_pending:
        known = (bundle.status_owner, bundle.state) == (observed, BundleState.OWNED)
        return None if known else _status(observed, BundleState.OWNED, bundle.generation)
    # a desired owner that only repeats the observed owner moves nothing, and is confirmed
    confirmed = bundle.merely_seen or (bundle.owner == observed and (stuck or bundle.status_owner == observed))
    if confirmed and (stuck or bundle.state != BundleState.RELEASING):
        return _status(observed, BundleState.OWNED, bundle.generation)
    known = (bundle.status_owner, bundle.state) == (observed, BundleState.OWNED)
    return _status(observed, BundleState.OWNED) if stuck and not known else None


def _status(owner: str, state: BundleState, generation: int | None = None) -> Status:
    status: Status = {"owner": owner, "state": str(state)}
    return status if generation is None else {**status, "observedGeneration": generation}


@dataclass(frozen=True, slots=True)
class NewBundle:
    """A Bundle object to create, with its first status."""

    manifest: Mapping[str, Any]
    status: Status

    @property
    def name(self) -> str:
        """Name of the object."""
        return str(self.manifest["metadata"]["name"])


@dataclass(slots=True)
class BundleChanges:
    """Bundle objects to create, and Bundle objects to delete once all created ones exist.

    doubtful: the boundaries lack an edge of an existing bundle, so they must be read again first.
    """

    create: list[NewBundle] = field(default_factory=list)
    delete: list[BundleRecord] = field(default_factory=list)
    doubtful: bool = False


def bundle_changes(
    boundaries: Sequence[int],
    record: TopicNamespaceRecord,
    bundles: Iterable[BundleRecord],
    owned: Mapping[str, str],
    now: float,
    *,
    sure: bool = False,
) -> BundleChanges:
    """The changes after which there is one Bundle object for each range between `boundaries`.

    bundles: those of the namespace. owned: Broker object by bundle as Pulsar names it. sure: whether the boundaries
    were read twice. now: epoch seconds.
    """
    known = list(bundles)
    wanted = [(f"0x{lower:08x}", f"0x{upper:08x}") for lower, upper in pairwise(boundaries)]
    edges = {edge for found in wanted for edge in found}
    lacking = any(b.made and not b.parent and not {b.lower, b.upper} <= edges for b in known)
    if lacking and not sure:
        return BundleChanges(doubtful=True)
    have, locked = {(b.lower, b.upper) for b in known}, [b for b in known if b.split]
    missing = [found for found in wanted if found not in have and not _inside(found, locked)]
    old = [b for b in known if b.made and (b.lower, b.upper) not in set(wanted)]
    new = [_new_bundle(record, found, owned, _pinned(found, old), now) for found in missing]
    return BundleChanges(new, [b for b in old if not b.split and not b.parent])


def _inside(found: Range, bundles: Iterable[BundleRecord]) -> bool:
    """Whether a range lies in one of `bundles`. Hexadecimal texts of equal length compare like numbers."""
    return any(b.lower <= found[0] and found[1] <= b.upper for b in bundles)


def _pinned(found: Range, old: Iterable[BundleRecord]) -> bool:
    """Whether a range is part of a pinned bundle."""
    return _inside(found, (b for b in old if b.pinned))


def _new_bundle(
    record: TopicNamespaceRecord,
    found: Range,
    owned: Mapping[str, str],
    pinned: bool,  # noqa: FBT001  a fact
    now: float,
) -> NewBundle:
    (lower, upper), (tenant, name) = found, record.full_name.split("/")
    owner = owned.get(f"{record.full_name}/{lower}_{upper}", "")
    spec: dict[str, Any] = {}
    if owner:
        assignment = {"owner": owner, "reason": str(Reason.FOUND), "time": timestamp(now)}
        spec |= {"owner": owner, "assignment": assignment}
    if pinned:
        spec["pinned"] = True
    manifest = bundle_manifest(bundle_name(tenant, name, lower, upper), record.name, record.uid, lower, upper, spec)
    status = _status(owner, BundleState.OWNED if owner else BundleState.FREE, 1)
    return NewBundle(manifest, {**status, "since": timestamp(now)})
