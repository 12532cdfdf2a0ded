"""`BundleSplit`: a request to divide one bundle, by positions or by one of Pulsar's algorithms, and how it went."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.bundle import Hash32
from trimtab_operator.resources.common import Conditions, Name, NameOrEmpty, Resource, Status, Timestamp, cel

MOST_BOUNDARIES = 255
"""Positions that one split may name."""


class Algorithm(StrEnum):
    """Pulsar's four algorithms, in its spelling."""

    RANGE = "range_equally_divide"
    TOPIC_COUNT = "topic_count_equally_divide"
    POSITIONS = "specified_positions_divide"
    FLOW_OR_QPS = "flow_or_qps_equally_divide"


class Phase(StrEnum):
    """How far a split has come."""

    PENDING = "Pending"
    SPLITTING = "Splitting"
    COMPLETED = "Completed"
    FAILED = "Failed"


class SplitRequest(Resource):
    """Which policy asked for the split, and why. Absent when a person did."""

    policy: Name
    """The BalancingPolicy that decided."""
    epoch: Annotated[int, Field(ge=0)] = 0
    """Counts the operator's starts, so that a late writer can be told apart."""
    reason: Annotated[str, Field(max_length=64)]
    """One word from the closed vocabulary of reasons."""
    time: Timestamp
    """When it was decided."""
    source: Annotated[str, Field(max_length=253)] = ""
    """The broker that owned the bundle then. If another one does by now, the split is refused."""


_WHERE = "name either boundaries, or an algorithm that finds them; specified_positions_divide takes boundaries, too"
_POSITIONS = "self.algorithm == 'specified_positions_divide'"
_OPEN = "!has(self.boundaries) || has(self.algorithm)"  # how many children there will be is not written down
_ASCENDING = "boundaries must ascend: write the lowest position first"
_OWNERS = "destinations must name one broker for each child: one more than boundaries"


class BundleSplitSpec(Resource):
    """Which bundle, and where. Immutable as a whole: create another BundleSplit instead."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self == oldSelf", "a BundleSplit is immutable: create another one"),
            (f"has(self.algorithm) ? has(self.boundaries) == ({_POSITIONS}) : has(self.boundaries)", _WHERE),
            (
                f"!has(self.destinations) || {_OPEN} || size(self.destinations) == size(self.boundaries) + 1",
                _OWNERS,
            ),
        ),
    )

    bundle: Name
    """Name of the Bundle to divide."""
    boundaries: (
        Annotated[
            list[Hash32],
            Field(
                min_length=1,
                max_length=MOST_BOUNDARIES,
                json_schema_extra={
                    "x-kubernetes-list-type": "set",
                    **cel(("self.isSorted()", _ASCENDING)),
                },
            ),
        ]
        | None
    ) = None
    """Positions strictly inside the bundle's range, ascending; n positions make n + 1 children."""
    algorithm: Algorithm | None = None
    """What finds the positions. `range_equally_divide`: the middle of the range. `topic_count_equally_divide`: the
    middle of its topics. `flow_or_qps_equally_divide`: as many children as keep below the limits of the policy's split
    rule. `specified_positions_divide`: those of `boundaries` that lie inside, if there are two topics or more. All but
    the first need a policy that has seen the bundle's topics, and are refused otherwise."""
    destinations: Annotated[list[NameOrEmpty], Field(min_length=2, max_length=MOST_BOUNDARIES + 1)] | None = None
    """The broker that each child is moved to once the bundle is divided, ascending by range; an empty name, or leaving
    all out: it stays with the bundle's owner."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31536000)] = 3600
    """Seconds for which the object is kept once it is Completed or Failed."""
    request: SplitRequest | None = None
    """Which policy asked for it. A person leaves it out."""

    @model_validator(mode="after")
    def _says_where(self) -> Self:
        given = self.boundaries is not None
        if given != (self.algorithm in {None, Algorithm.POSITIONS}):
            raise ValueError(_WHERE)
        return self

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.boundaries is not None and self.boundaries != sorted(self.boundaries):
            raise ValueError(_ASCENDING)
        return self

    @model_validator(mode="after")
    def _an_owner_for_each(self) -> Self:
        children = None if self.boundaries is None or self.algorithm else len(self.boundaries) + 1
        if self.destinations is not None and children not in {None, len(self.destinations)}:
            raise ValueError(_OWNERS)
        return self


class SplitChild(Status):
    """One bundle that comes of a split."""

    bundle: str
    """Name of its Bundle object."""
    lower: Hash32
    """First hash in it."""
    upper: Hash32
    """First hash after it."""
    destination: Annotated[str, Field(max_length=253)] = ""
    """The broker it is moved to in the end; empty: it stays."""


class BundleSplitStatus(Status):
    """What became of the request."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation this status speaks of."""
    phase: Phase = Phase.PENDING
    """`Pending` until it is accepted, `Splitting`, then `Completed` or `Failed`."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """One word: why the bundle is divided (`Admin`: a person asked), or why the split waits or failed."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """What it waits for, or why it failed."""
    source: Annotated[str, Field(max_length=253)] = ""
    """The broker that owned the bundle when the split began, and with it the children at first."""
    topic_namespace: Annotated[str, Field(max_length=253)] = ""
    """Name of the TopicNamespace object the bundle belongs to."""
    children: Annotated[list[SplitChild], Field(max_length=MOST_BOUNDARIES + 1)] = Field(default_factory=list)
    """The bundles that come of it, ascending by range."""
    started_at: Timestamp | None = None
    """When it was accepted."""
    finished_at: Timestamp | None = None
    """When it was Completed or Failed."""
    conditions: Conditions = Field(default_factory=list)
    """`Accepted`: whether it can be done at all. `Complete`: whether the children have taken the bundle's place."""
