"""`Bundle`: one hash range of a topic namespace, and which broker owns it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.common import Name, NameOrEmpty, Resource, Status, Timestamp, cel

Hash32 = Annotated[str, Field(pattern=r"^0x[0-9a-f]{8}$", max_length=10)]
"""A position on the 32-bit hash ring, as Pulsar writes it: ``0x`` and eight lower-case hexadecimal digits."""


PARENT = "trimtab.dev/parent"
"""Annotation of a child bundle during a split: the parent's name. While the parent exists, its owner serves the topics
of the child."""


class BundleState(StrEnum):
    """Ownership state of a bundle, in the words of Pulsar's `ServiceUnitState`."""

    FREE = "Free"
    ASSIGNING = "Assigning"
    OWNED = "Owned"
    RELEASING = "Releasing"
    SPLITTING = "Splitting"


class BundleRange(Resource):
    """Half-open range of hashes. The last range of a namespace includes its upper end."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.lower < self.upper",
                "range.lower must be below range.upper",
                "'range.lower ' + self.lower + ' must be below range.upper ' + self.upper",
            ),
        ),
    )

    lower: Hash32
    """First hash in the bundle."""
    upper: Hash32
    """First hash after the bundle. 0xffffffff is the end of the ring: the last bundle includes this hash."""

    @model_validator(mode="after")
    def _right_way_up(self) -> Self:
        if self.lower >= self.upper:
            raise ValueError(f"range.lower {self.lower} must be below range.upper {self.upper}")
        return self


class Assignment(Resource):
    """Who chose the desired owner, and why. Written together with `spec.owner`. If a user changes `spec.owner`, the
    operator writes the assignment when it sees the change, with the reason `Admin` and without a policy."""

    owner: Annotated[str, Field(max_length=253)]
    """Name of the chosen Broker. If a user changes `spec.owner`, this differs from it until the operator has seen the
    change."""
    policy: Annotated[str, Field(max_length=253)] = ""
    """Name of the BalancingPolicy that decided. Empty if a user did."""
    epoch: Annotated[int, Field(ge=0, le=2147483647)] = 0
    """Epoch of the operator's leader: higher with each new leader. It never decreases for a bundle, so that a former
    leader can't overwrite the decision of the current one."""
    reason: Annotated[str, Field(max_length=64)]
    """Reason of the decision, one word from the fixed list of reasons."""
    time: Timestamp
    """When the decision was made."""


EPOCH_DECREASED = "assignment.epoch must not decrease"
"""Begin of the API server's answer to a leader that was deposed."""

_EPOCH_NEVER_GOES_BACK = (
    "!has(self.assignment) || !has(oldSelf.assignment) || self.assignment.epoch >= oldSelf.assignment.epoch"
)


class BundleSpec(Resource):
    """Desired state of a bundle. The range never changes, the owner may."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.topicNamespace == oldSelf.topicNamespace", "topicNamespace is immutable: create another Bundle"),
            ("self.range == oldSelf.range", "range is immutable: split the bundle instead"),
            (
                _EPOCH_NEVER_GOES_BACK,
                f"{EPOCH_DECREASED}: a newer leader has already decided where this bundle goes",
            ),
        ),
    )

    topic_namespace: Name
    """Name of the TopicNamespace that the bundle belongs to. Immutable."""
    range: BundleRange
    """Range of hashes on the ring. Immutable."""
    owner: NameOrEmpty = ""
    """Desired owner: name of the Broker that should own the bundle. Change it to move the bundle, for example with
    `kubectl patch` or Git. Empty means that no owner is desired. If no Broker has that name, the bundle stays where it
    is. After the policy's limits.lostAfter the operator sets this field back to the broker that serves the bundle, with
    the reason UnknownBroker."""
    pinned: bool = False
    """Keep the bundle on its desired owner. Balancing does not move it. If its owner changes for another reason, the
    operator moves it back."""
    assignment: Assignment | None = None
    """Who chose the desired owner, and why."""


class BundleStatus(Status):
    """Observed state of a bundle. Written by the broker that takes or releases the bundle. With `spec.pulsar` in the
    policy, Trimtab's operator writes it."""

    owner: Annotated[str, Field(max_length=253)] = ""
    """Actual owner: name of the Broker that serves the bundle. Empty if no broker does."""
    state: BundleState = BundleState.FREE
    """Ownership state: Free, Assigning, Owned, Releasing or Splitting."""
    split: Annotated[str, Field(max_length=253)] = ""
    """Name of the BundleSplit in progress; empty for none. The owner serves the bundle until its children replace
    it."""
    since: Timestamp | None = None
    """When `owner` or `state` last changed."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec that was last applied. While it is below metadata.generation, the desired owner is
    pending."""
