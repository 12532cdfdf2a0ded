"""Records of Bundle, BundleSplit and TopicNamespace objects. They are small, because there may be 60,000 bundles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

from trimtab_operator.kube.conditions import CLOCKS_DIFFER, condition_of, epoch
from trimtab_operator.kube.move_costs import NOT_MEASURED, MoveCosts
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.budget import NamespaceBudget, Priority
from trimtab_operator.resources.bundle import PARENT
from trimtab_operator.resources.bundle_split import BundleSplitSpec, BundleSplitStatus, Phase
from trimtab_operator.resources.conditions import TopicNamespaceCondition
from trimtab_operator.resources.topic_namespace import BROKEN_RING, DEFAULT_BUNDLES, Readiness
from trimtab_strategies.budget import NO_BUDGET, DisruptionBudget
from trimtab_strategies.model import Isolation, NamespacePolicy, Reason

SEEN = frozenset({Reason.ADOPTED, Reason.FAILED_OVER, Reason.FOUND})
"""Reasons of a desired owner that only follows the observed owner: it moves nothing."""


WITHDRAWN = frozenset({Reason.TIMED_OUT, Reason.BROKER_LOST, Reason.UNKNOWN_BROKER, Reason.OVERLAP})
"""Reasons after a withdrawal: the desired owner is set back to the broker that serves the bundle, or to none."""


_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class BundleRecord:
    """One Bundle at one resourceVersion.

    name:                name of the object. topic_namespace: name of the TopicNamespace object.
    lower, upper:        ``0x%08x``.
    owner:               desired owner (spec); status_owner: observed owner (status). Names of Brokers, or empty.
    state:               Free, Assigning, Owned, Releasing or Splitting.
    since:               epoch seconds at which status_owner or state last changed, NaN if never.
    assigned_owner, reason, assigned_at: the owner that the operator last chose, why, and when (epoch seconds). Empty,
                         empty and NaN when a person wrote the first desired owner. When a person overwrites a desired
                         owner, the operator sets the reason `ADMIN` as soon as it sees that.
    assigned_epoch:      epoch of the leader that wrote the reason; 0 when a person wrote the first desired owner.
    policy:              the policy that chose assigned_owner; empty when a person did.
    controller:          uid of the TopicNamespace that controls it; empty when a person created it.
    split:               the BundleSplit that splits it now; empty if none.
    parent:              the Bundle that is being split into this one; empty if none.
    created:             creation time of the object, as Kubernetes writes it (RFC 3339, UTC); comparable as text.
    """

    name: str
    topic_namespace: str
    lower: str
    upper: str
    owner: str
    pinned: bool
    generation: int
    resource_version: str
    status_owner: str
    state: str
    observed_generation: int
    since: float
    assigned_owner: str
    assigned_at: float
    reason: str
    split: str = ""
    parent: str = ""
    assigned_epoch: int = 0
    policy: str = ""
    controller: str = ""
    created: str = ""

    @property
    def made(self) -> bool:
        """Whether a TopicNamespace controls it. A Bundle that a person created has no controller."""
        return bool(self.controller)

    @property
    def owner_pending(self) -> bool:
        """Whether the bundle has a desired owner that is not confirmed yet."""
        return bool(self.owner) and self.generation > self.observed_generation

    @property
    def desired_for(self) -> str:
        """Reason of the desired owner; empty if another client changed the owner but not the assignment."""
        return self.reason if self.assigned_owner == self.owner else ""

    @property
    def overruled(self) -> bool:
        """Whether a person changed the desired owner, and the assignment does not say so yet.

        The assignment is that of an older desired owner, or the person removed it with the change.
        """
        if self.split or self.parent or self.assigned_owner == self.owner:
            return False
        if not self.assigned_owner:
            return self.owner_pending and self.status_owner not in {"", self.owner}
        return self.owner_pending or self.owner == self.status_owner

    @property
    def asked_by_person(self) -> bool:
        """Whether a client other than the operator wrote the desired owner."""
        return self.assigned_owner != self.owner or self.reason == Reason.ADMIN

    @property
    def copied(self) -> bool:
        """Whether the object was created as a copy of an older one: its first assignment is older than the object."""
        return self.generation == 1 and self.assigned_at < epoch(self.created) - CLOCKS_DIFFER

    @property
    def needs_repair(self) -> bool:
        """Whether the bundle may need a repair, judging by this record alone."""
        return self.owner_pending or self.owner != self.status_owner or not self.owner or self.overruled

    @property
    def merely_seen(self) -> bool:
        """Whether the reason of the desired owner is one of `SEEN`."""
        return self.desired_for in SEEN

    def __eq__(self, other: object) -> bool:
        """Equal at the same resourceVersion. Compared field by field, a record with NaN would differ from itself."""
        if not isinstance(other, BundleRecord):
            return NotImplemented
        return (self.name, self.resource_version) == (other.name, other.resource_version)

    def __hash__(self) -> int:
        return hash((self.name, self.resource_version))


def bundle_record(raw: Mapping[str, Any]) -> BundleRecord:
    """The record of a Bundle object as the API server returns it.

    Strings that many bundles share are interned, because they would take most of a record's memory.
    """
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or _NOTHING
    assignment = spec.get("assignment") or _NOTHING
    return BundleRecord(
        name=meta["name"],
        topic_namespace=intern(spec["topicNamespace"]),
        lower=intern(spec["range"]["lower"]),
        upper=intern(spec["range"]["upper"]),
        owner=intern(spec.get("owner") or ""),
        pinned=bool(spec.get("pinned")),
        generation=meta["generation"],
        resource_version=meta["resourceVersion"],
        status_owner=intern(status.get("owner") or ""),
        state=intern(status.get("state") or "Free"),
        observed_generation=status.get("observedGeneration") or 0,
        since=epoch(status.get("since")),
        assigned_owner=intern(assignment.get("owner") or ""),
        assigned_at=epoch(assignment.get("time")),
        reason=intern(assignment.get("reason") or ""),
        split=intern(status.get("split") or ""),
        parent=intern((meta.get("annotations") or _NOTHING).get(PARENT) or ""),
        assigned_epoch=assignment.get("epoch") or 0,
        policy=intern(assignment.get("policy") or ""),
        created=intern(meta.get("creationTimestamp") or ""),
        controller=intern(_controller(meta)),
    )


def _controller(meta: Mapping[str, Any]) -> str:
    owners = meta.get("ownerReferences") or ()
    return next((o["uid"] for o in owners if o.get("controller") and o["kind"] == "TopicNamespace"), "")


FINISHED = frozenset({Phase.COMPLETED, Phase.FAILED})
"""Phases in which a split has ended."""


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """One BundleSplit at one resourceVersion.

    created, finished_at: epoch seconds, NaN if never. conditions: those of its status.
    owned: whether another object owns it, and it is deleted with that object.
    """

    name: str
    uid: str
    generation: int
    resource_version: str
    created: float
    finished_at: float
    owned: bool
    spec: BundleSplitSpec
    status: BundleSplitStatus
    conditions: tuple[Mapping[str, Any], ...]

    @property
    def finished(self) -> bool:
        """Whether it is Completed or Failed."""
        return self.status.phase in FINISHED

    @property
    def begun(self) -> bool:
        """Whether it was accepted, and has not ended."""
        return self.status.phase is Phase.SPLITTING


def split_record(raw: Mapping[str, Any]) -> SplitRecord:
    """The record of a BundleSplit object as the API server returns it."""
    meta, status = raw["metadata"], raw.get("status") or {}
    return SplitRecord(
        name=meta["name"],
        uid=meta["uid"],
        generation=meta["generation"],
        resource_version=meta["resourceVersion"],
        created=epoch(meta.get("creationTimestamp")),
        finished_at=epoch(status.get("finishedAt")),
        owned=bool(meta.get("ownerReferences")),
        spec=BundleSplitSpec.model_validate(raw["spec"]),
        status=BundleSplitStatus.model_validate(status),
        conditions=tuple(status.get("conditions") or ()),
    )


@dataclass(frozen=True, slots=True)
class TopicNamespaceRecord:
    """One TopicNamespace at one resourceVersion.

    name:       name of the object. full_name: ``tenant/name`` as Pulsar spells it.
    policy:     settings for its bundles.
    bundles:    number of bundles created for it at first; 0 before that.
    conditions: those of its status.
    asked:      number of bundles that it should start with.
    discovered: whether Trimtab created it for a namespace that exists in Pulsar.
    going:      whether it is being deleted.
    move_costs: how long the latest moves of its bundles interrupted clients.
    budget:     limits on the interruptions by moves of its bundles. spends: whether its status shows a budget.
    """

    name: str
    full_name: str
    policy: NamespacePolicy
    bundles: int
    generation: int
    resource_version: str
    conditions: tuple[Mapping[str, Any], ...]
    uid: str = ""
    asked: int = 1
    discovered: bool = False
    move_costs: MoveCosts = NOT_MEASURED
    going: bool = False
    budget: DisruptionBudget = NO_BUDGET
    spends: bool = False

    @property
    def ready(self) -> tuple[str, str]:
        """Status and reason of its condition `Ready`; empty if it has none."""
        status, reason, *_ = condition_of(self.conditions, TopicNamespaceCondition.READY)
        return status, reason

    @property
    def has_bundles(self) -> bool:
        """Whether its first bundles were created, by the operator or by Pulsar."""
        status, reason = self.ready
        return status == "True" or reason in BROKEN_RING

    @property
    def superfluous(self) -> bool:
        """Whether another object names the same namespace and has its bundles."""
        return self.ready[1] == Readiness.ALREADY_CUT


def topic_namespace_record(raw: Mapping[str, Any]) -> TopicNamespaceRecord:
    """The record of a TopicNamespace object as the API server returns it."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or _NOTHING
    return TopicNamespaceRecord(
        name=meta["name"],
        full_name=f"{spec['tenant']}/{spec['name']}",
        policy=_policy(spec),
        bundles=status.get("bundles") or 0,
        generation=meta["generation"],
        resource_version=meta["resourceVersion"],
        conditions=tuple(status.get("conditions") or ()),
        uid=meta["uid"],
        asked=spec.get("bundles", DEFAULT_BUNDLES),
        discovered=(meta.get("labels") or _NOTHING).get(DISCOVERED) == "true",
        move_costs=MoveCosts.of(status),
        going="deletionTimestamp" in meta,
        budget=_budget(spec.get("budget")),
        spends=bool(status.get("budget")),
    )


def _policy(spec: Mapping[str, Any]) -> NamespacePolicy:
    return NamespacePolicy(
        isolation=_isolation(spec.get("isolation")),
        anti_affinity_group=spec.get("antiAffinityGroup") or "",
        unload=spec.get("balanced", True),
        last=spec.get("priority") == Priority.LAST,
        spread=spec.get("spread", False),
        zone=spec.get("zone") or "",
    )


def _budget(found: Mapping[str, Any] | None) -> DisruptionBudget:
    return NO_BUDGET if found is None else NamespaceBudget.model_validate(found).bounds


def _isolation(found: Mapping[str, Any] | None) -> Isolation | None:
    if found is None:
        return None
    primary, secondary = (tuple(found.get(key) or ()) for key in ("primary", "secondary"))
    return Isolation(primary, secondary, found.get("minAvailable", 1))
