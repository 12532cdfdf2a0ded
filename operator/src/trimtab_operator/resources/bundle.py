"""`Bundle`: one hash range of a topic namespace, and which broker owns it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.common import GROUP, Name, NameOrEmpty, Resource, Status, Timestamp, cel

Hash32 = Annotated[str, Field(pattern=r"^0x[0-9a-f]{8}$", max_length=10)]
"""A position on the 32-bit hash ring, as Pulsar writes it: ``0x`` and eight lower-case digits."""


RELEASE = f"{GROUP}/release"
"""Annotation by which a person ends a bundle's quarantine: ``"true"``."""

PARENT = "trimtab.dev/parent"
"""Annotation of a bundle that is being cut out of another: that bundle's name. While a Bundle of that name exists, it
serves the topics of both."""


class BundleState(StrEnum):
    """Where a bundle stands between owners (Pulsar's `ServiceUnitState` words)."""

    FREE = "Free"
    ASSIGNING = "Assigning"
    OWNED = "Owned"
    RELEASING = "Releasing"
    SPLITTING = "Splitting"


class BundleRange(Resource):
    """Half-open range of hashes; the last range of a namespace includes its upper end."""

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
    """First hash after the bundle; 0xffffffff ends the ring."""

    @model_validator(mode="after")
    def _right_way_up(self) -> Self:
        if self.lower >= self.upper:
            raise ValueError(f"range.lower {self.lower} must be below range.upper {self.upper}")
        return self


class Assignment(Resource):
    """Who gave the bundle to its owner, and why. Written together with `owner`. When a person wrote another `owner`,
    the operator notes that once the bundle has landed: the reason is `Admin` then, and no policy is named."""

    owner: Annotated[str, Field(max_length=253)]
    """The Broker it chose. Differs from `spec.owner` while a wish that somebody else wrote has not landed."""
    policy: Annotated[str, Field(max_length=253)] = ""
    """The BalancingPolicy that decided; empty when a person did."""
    epoch: Annotated[int, Field(ge=0, le=2147483647)] = 0
    """Counts the leaders of the operator, one after the other. It never goes back for a bundle, so that one who does
    not lead any more can't overrule the one who does."""
    reason: Annotated[str, Field(max_length=64)]
    """One word from the closed vocabulary of reasons."""
    time: Timestamp
    """When it was decided."""


_EPOCH_NEVER_GOES_BACK = (
    "!has(self.assignment) || !has(oldSelf.assignment) || self.assignment.epoch >= oldSelf.assignment.epoch"
)


class BundleSpec(Resource):
    """What is wished: the range never changes, the owner does."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.topicNamespace == oldSelf.topicNamespace", "topicNamespace is immutable: create another Bundle"),
            ("self.range == oldSelf.range", "range is immutable: split the bundle instead"),
            (
                _EPOCH_NEVER_GOES_BACK,
                "assignment.epoch never goes back: a newer leader has decided on this bundle",
            ),
        ),
    )

    topic_namespace: Name
    """Name of the TopicNamespace the bundle belongs to."""
    range: BundleRange
    """Its part of the hash ring. Immutable."""
    owner: NameOrEmpty = ""
    """Name of the Broker that should own it. Change it to move the bundle (`kubectl patch`, Git or the operator
    itself); empty means nobody was asked yet. While no Broker has that name the bundle stays where it is; after the
    policy's limits.lostAfter the name is set back, reason UnknownBroker."""
    pinned: bool = False
    """Keep the bundle on its owner: balancing leaves it alone, and an owner that changes by itself is driven back."""
    assignment: Assignment | None = None
    """Who decided on the owner, and why."""


class BundleStatus(Status):
    """What is observed: written by the broker that takes or releases the bundle."""

    owner: Annotated[str, Field(max_length=253)] = ""
    """Name of the Broker that serves it now; empty when nobody does."""
    state: BundleState = BundleState.FREE
    """Free, Assigning, Owned, Releasing or Splitting."""
    split: Annotated[str, Field(max_length=253)] = ""
    """Name of the BundleSplit that divides it now; empty when none does. Its owner serves it until it is gone."""
    since: Timestamp | None = None
    """When `owner` or `state` last changed."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the wish that was last carried out. While it is below metadata.generation the wish is open."""
