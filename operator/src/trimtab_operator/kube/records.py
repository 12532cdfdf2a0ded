"""What the operator keeps of Bundle, BundleSplit and TopicNamespace objects. Cheap: there may be 60,000 bundles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

from trimtab_operator.kube.conditions import epoch
from trimtab_operator.kube.move_costs import NOT_MEASURED, MoveCosts
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.bundle import PARENT, RELEASE
from trimtab_operator.resources.bundle_split import BundleSplitSpec, BundleSplitStatus, Phase
from trimtab_operator.resources.topic_namespace import BROKEN_RING, DEFAULT_BUNDLES
from trimtab_strategies.model import Isolation, NamespacePolicy, Reason

SEEN = frozenset({Reason.ADOPTED, Reason.FOUND})
"""Why a wish only follows an owner that nobody had wished: it moves nothing."""


WITHDRAWN = frozenset({Reason.TIMED_OUT, Reason.BROKER_LOST, Reason.UNKNOWN_BROKER})
"""Why a wish was taken back: it asks for the broker that serves the bundle."""


_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class BundleRecord:
    """One Bundle at one resourceVersion.

    name:                of the object; topic_namespace: name of the TopicNamespace object.
    lower, upper:        ``0x%08x``.
    owner:               the wish (spec); status_owner: who serves it (status); each a Broker's name or empty.
    state:               Free, Assigning, Owned, Releasing or Splitting.
    since:               epoch seconds at which status_owner or state last changed, NaN never.
    assigned_owner, reason, assigned_at: what the operator last chose, why, and when (epoch seconds); empty, empty, NaN
                         when a person wrote the first wish. One that a person wrote over another is noted (`ADMIN`).
    assigned_epoch:      which leader chose or noted it, counted; 0 when a person wrote the first wish.
    policy:              in whose name it was chosen, empty when a person wrote the wish.
    released:            whether a person asks to end its quarantine.
    made:                whether it belongs to its TopicNamespace, as those do that no person has made.
    split:               the BundleSplit that divides it now, empty none.
    parent:              the Bundle it is being cut out of, empty none.
    created:             when the object was created, as Kubernetes writes it (RFC 3339, UTC); compares as text.
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
    released: bool = False
    made: bool = False
    created: str = ""

    @property
    def owner_pending(self) -> bool:
        """Whether somebody asked for an owner and the request has not been carried out yet."""
        return bool(self.owner) and self.generation > self.observed_generation

    @property
    def desired_for(self) -> str:
        """Why the wish stands as it does; empty if somebody else changed the owner, and left the assignment behind."""
        return self.reason if self.assigned_owner == self.owner else ""

    @property
    def merely_seen(self) -> bool:
        """Whether the wish stands as it does for what is in `SEEN`."""
        return self.desired_for in SEEN

    def __eq__(self, other: object) -> bool:
        """Equal at the same resourceVersion (NaN would make even the same record differ from itself)."""
        if not isinstance(other, BundleRecord):
            return NotImplemented
        return (self.name, self.resource_version) == (other.name, other.resource_version)

    def __hash__(self) -> int:
        return hash((self.name, self.resource_version))


def bundle_record(raw: Mapping[str, Any]) -> BundleRecord:
    """The record of a Bundle object as the API server returns it.

    Names that many bundles share are interned: they are the bulk of what a record would cost.
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
        released=(meta.get("annotations") or _NOTHING).get(RELEASE) == "true",
        created=intern(meta.get("creationTimestamp") or ""),
        made=any(owner.get("controller") for owner in meta.get("ownerReferences") or ()),
    )


FINISHED = frozenset({Phase.COMPLETED, Phase.FAILED})
"""Phases after which nothing happens any more."""


@dataclass(frozen=True, slots=True)
class SplitRecord:
    """One BundleSplit at one resourceVersion.

    created, finished_at: epoch seconds, NaN never. conditions: as its status has them.
    owned: whether another object owns it, so that it goes when that goes.
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

    name:       of the object; full_name: ``tenant/name`` as Pulsar spells it.
    policy:     what is asked for its bundles.
    bundles:    how many it was cut into, 0 while it was not.
    conditions: as its status has them.
    asked:      how many bundles it is to begin with.
    discovered: whether it was made because Pulsar has such a namespace, and follows that.
    going:      whether it is being deleted.
    move_costs: what the latest moves of its bundles cost.
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

    @property
    def ready(self) -> tuple[str, str]:
        """Status and reason of its condition `Ready`; empty if it has none."""
        found = next((c for c in self.conditions if c["type"] == "Ready"), _NOTHING)
        return found.get("status", ""), found.get("reason", "")

    @property
    def has_bundles(self) -> bool:
        """Whether it got the bundles it began with, wherever it was cut."""
        status, reason = self.ready
        return status == "True" or reason in BROKEN_RING


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
    )


def _policy(spec: Mapping[str, Any]) -> NamespacePolicy:
    return NamespacePolicy(
        isolation=_isolation(spec.get("isolation")),
        anti_affinity_group=spec.get("antiAffinityGroup") or "",
        unload=spec.get("balanced", True),
    )


def _isolation(found: Mapping[str, Any] | None) -> Isolation | None:
    if found is None:
        return None
    primary, secondary = (tuple(found.get(key) or ()) for key in ("primary", "secondary"))
    return Isolation(primary, secondary, found.get("minAvailable", 1))
