"""`BundleSplit`: a request to split one bundle, by positions or by one of Pulsar's algorithms, and its result."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.bundle import Hash32
from trimtab_operator.resources.common import (
    DISTINCT,
    SET,
    Conditions,
    Name,
    NameOrEmpty,
    Resource,
    Status,
    Timestamp,
    cel,
)

MOST_BOUNDARIES = 255
"""Maximum number of boundaries in one split."""


class Algorithm(StrEnum):
    """Pulsar's four split algorithms, by Pulsar's names."""

    RANGE = "range_equally_divide"
    TOPIC_COUNT = "topic_count_equally_divide"
    POSITIONS = "specified_positions_divide"
    FLOW_OR_QPS = "flow_or_qps_equally_divide"


class Phase(StrEnum):
    """Progress of a split."""

    PENDING = "Pending"
    SPLITTING = "Splitting"
    COMPLETED = "Completed"
    FAILED = "Failed"


class SplitRequest(Resource):
    """The policy that requested the split, and why. Absent if a user did."""

    policy: Name
    """Name of the BalancingPolicy that decided."""
    epoch: Annotated[int, Field(ge=0)] = 0
    """Epoch of the leader that wrote this. The first leader has epoch 1. A former leader has a lower epoch."""
    reason: Annotated[str, Field(max_length=64)]
    """Reason of the decision, one word from the fixed list of reasons."""
    time: Timestamp
    """When the decision was made."""
    source: Annotated[str, Field(max_length=253)] = ""
    """Name of the Broker that owned the bundle at that time. If another Broker owns it now, the split is refused."""


_WHERE = "name either boundaries, or an algorithm that finds them; specified_positions_divide takes boundaries, too"
_POSITIONS = "self.algorithm == 'specified_positions_divide'"
_OPEN = "!has(self.boundaries) || has(self.algorithm)"  # the number of children is not known yet
_ASCENDING = "boundaries must ascend: write the lowest position first"
_OWNERS = "destinations must name one broker for each child: one more than boundaries"


class BundleSplitSpec(Resource):
    """The bundle to split, and where. Immutable: create another BundleSplit instead."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self == oldSelf", "a BundleSplit is immutable: create another one"),
            (f"has(self.algorithm) ? has(self.boundaries) == ({_POSITIONS}) : has(self.boundaries)", _WHERE),
            (f"!has(self.destinations) || {_OPEN} || size(self.destinations) == size(self.boundaries) + 1", _OWNERS),
        )
    )

    bundle: Name
    """Name of the Bundle to split."""
    boundaries: (
        Annotated[
            list[Hash32],
            Field(
                min_length=1,
                max_length=MOST_BOUNDARIES,
                json_schema_extra={**SET, **cel(("self.isSorted()", _ASCENDING))},
            ),
            DISTINCT,
        ]
        | None
    ) = None
    """Hash positions inside the bundle's range, ascending. n positions make n + 1 children, 255 positions at most."""
    algorithm: Algorithm | None = None
    """Algorithm that finds the positions. `range_equally_divide`: the middle of the range.
    `topic_count_equally_divide`: the middle of the topics. `flow_or_qps_equally_divide`: as many children as needed to
    stay below the limits of the policy's split rule. `specified_positions_divide`: the `boundaries` that lie inside the
    range, if the bundle has two topics or more. All but the first one need a policy that has measured the bundle's
    topics. Otherwise the split is refused."""
    destinations: Annotated[list[NameOrEmpty], Field(min_length=2, max_length=MOST_BOUNDARIES + 1)] | None = None
    """Names of the Brokers that the children move to after the split, ascending by range. A child with an empty name
    stays with the bundle's owner. If absent, all children stay."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=31536000)] = 3600
    """Seconds to keep the object after it is Completed or Failed."""
    request: SplitRequest | None = None
    """The policy that requested the split. Absent if a user did."""

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
    """One child bundle of a split."""

    bundle: str
    """Name of the Bundle object."""
    lower: Hash32
    """First hash in the child."""
    upper: Hash32
    """First hash after the child. 0xffffffff is the end of the ring: the last child includes this hash."""
    destination: Annotated[str, Field(max_length=253)] = ""
    """Name of the Broker that the child moves to after the split. Empty if it stays."""


class BundleSplitStatus(Status):
    """Observed state of a split."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec that this status describes."""
    phase: Phase = Phase.PENDING
    """`Pending` until the request is accepted, then `Splitting`, then `Completed` or `Failed`."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """One word: why the bundle is split (`Admin`: a user requested it), or why the split waits or failed."""
    message: Annotated[str, Field(max_length=1024)] = ""
    """What the split waits for, or why it failed."""
    source: Annotated[str, Field(max_length=253)] = ""
    """Name of the Broker that owned the bundle when the split began. It also owns the children at first."""
    topic_namespace: Annotated[str, Field(max_length=253)] = ""
    """Name of the TopicNamespace that the bundle belongs to."""
    children: Annotated[list[SplitChild], Field(max_length=MOST_BOUNDARIES + 1)] = Field(default_factory=list)
    """The child bundles, ascending by range."""
    started_at: Timestamp | None = None
    """When the request was accepted."""
    finished_at: Timestamp | None = None
    """When the split became Completed or Failed."""
    conditions: Conditions = Field(default_factory=list)
    """`Accepted`: whether the split is possible. `Complete`: whether the children have replaced the bundle."""
