"""`BundleRecord`: what the operator keeps of a Bundle object. Cheap, as there may be 60,000 of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any

from trimtab_operator.cluster.status import epoch
from trimtab_operator.resources.bundle import PARENT, RELEASE
from trimtab_strategies.model import Reason

SEEN = frozenset({Reason.ADOPTED, Reason.FOUND})
"""Why a wish only follows an owner that nobody had wished: it moves nothing."""

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
                         when a person wrote the wish.
    assigned_epoch:      which leader chose it, counted; 0 when a person wrote the wish.
    policy:              in whose name it was chosen, empty when a person wrote the wish.
    released:            whether a person asks to end its quarantine.
    made:                whether it belongs to its TopicNamespace, as those do that no person has made.
    split:               the BundleSplit that divides it now, empty none.
    parent:              the Bundle it is being cut out of, empty none.
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

    @property
    def open_wish(self) -> bool:
        """Whether somebody asked for an owner and the request has not been carried out yet."""
        return bool(self.owner) and self.generation > self.observed_generation

    @property
    def wished_for(self) -> str:
        """Why the wish stands as it does; empty if somebody else changed the owner, and left the assignment behind."""
        return self.reason if self.assigned_owner == self.owner else ""

    @property
    def merely_seen(self) -> bool:
        """Whether the wish stands as it does for what is in `SEEN`."""
        return self.wished_for in SEEN

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
        made=any(owner.get("controller") for owner in meta.get("ownerReferences") or ()),
    )
