"""`TopicNamespace`: a Pulsar namespace (``tenant/name``), divided into bundles when it is created."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.budget import BudgetStatus, NamespaceBudget, Priority
from trimtab_operator.resources.common import Conditions, Resource, Status, Timestamp, cel

DEFAULT_BUNDLES = 4
"""Default number of bundles of a namespace, as in Pulsar."""

MOST_BUNDLES = 16384
"""Maximum number of bundles of a new namespace. Pulsar has no limit, but keeps the boundaries in one node of its
metadata store, 13 bytes each. If they exceed ZooKeeper's 1 MiB, the broker repeats the failing write until it is
restarted."""


class Readiness(StrEnum):
    """Reasons of a TopicNamespace's condition `Ready`."""

    CUT = "Cut"
    """The operator divided the namespace into bundles. No Pulsar cluster is involved."""
    ALREADY_CUT = "AlreadyCut"
    """The bundles belong to another TopicNamespace object."""
    OLD_BUNDLES = "OldBundles"
    """Bundles of a deleted TopicNamespace of the same name still exist. Kubernetes removes them, then the operator
    divides the namespace."""
    FOUND = "Found"
    """The namespace exists in Pulsar."""
    GAP = "Gap"
    """Some hashes are in no bundle, so their topics have no owner. Set only if the operator divided the namespace."""
    OVERLAP = "Overlap"
    """Some bundles overlap. One bundle of each overlapping pair gets no owner."""
    OTHER_BUNDLES = "OtherBundles"
    """The namespace exists in Pulsar, with another number of bundles than `spec.bundles`."""
    CREATED = "Created"
    """The namespace was created in Pulsar for this object."""
    REFUSED = "Refused"
    """Pulsar refuses to create the namespace."""
    GONE = "Gone"
    """The namespace was deleted in Pulsar."""


MIRRORED = frozenset({Readiness.FOUND, Readiness.OTHER_BUNDLES, Readiness.CREATED, Readiness.GONE})
"""Reasons of a namespace that exists, or existed, in Pulsar."""

BROKEN_RING = frozenset({Readiness.GAP, Readiness.OVERLAP})
"""Reasons of a namespace whose bundles no longer cover the hash ring exactly once."""

PulsarName = Annotated[str, Field(pattern=r"^[-=:.A-Za-z0-9_]+$", min_length=1, max_length=120)]
"""A tenant or namespace name that Pulsar allows."""


BrokerPattern = Annotated[str, Field(min_length=1, max_length=253)]
"""A regular expression for names of Broker objects."""

_NO_BROKER = "isolation names no broker: add a pattern to primary or secondary, or leave isolation out"
_BOTH = "a pattern is primary and secondary: leave it in one of the two lists"
_IN_BOTH = "self.primary.filter(p, p in self.secondary)"


class IsolationSpec(Resource):
    """Isolation: the brokers that may own the namespace's bundles. Bundles of namespaces without isolation do not go to
    its primary brokers."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.primary.size() + self.secondary.size() > 0", _NO_BROKER),
            (f"{_IN_BOTH}.size() == 0", _BOTH, f"'pattern ' + {_IN_BOTH}[0] + '{_BOTH.removeprefix('a pattern')}'"),
        )
    )

    primary: Annotated[tuple[BrokerPattern, ...], Field(max_length=64)] = ()
    """Primary brokers, as regular expressions for the whole name of a Broker object, which is the name of its pod
    (Pulsar: the host)."""
    secondary: Annotated[tuple[BrokerPattern, ...], Field(max_length=64)] = ()
    """Secondary brokers, also as regular expressions. They are used while fewer than minAvailable primary brokers are
    available."""
    min_available: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of primary brokers that must be available. If fewer are, secondary brokers are used as well. With 0,
    secondary brokers are never used (Pulsar: min_limit)."""

    @model_validator(mode="after")
    def _names_brokers_once(self) -> Self:
        if not self.primary and not self.secondary:
            raise ValueError(_NO_BROKER)
        if both := [pattern for pattern in self.primary if pattern in self.secondary]:
            raise ValueError(f"pattern {both[0]}{_BOTH.removeprefix('a pattern')}")
        return self


class TopicNamespaceSpec(Resource):
    """Desired state of a topic namespace. Bundles are created once and later only split. `tenant`,
    `name` and `bundles` never change."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.tenant == oldSelf.tenant && self.name == oldSelf.name", "tenant and name are immutable"),
            ("self.bundles == oldSelf.bundles", "bundles is immutable: split bundles instead"),
        )
    )

    tenant: PulsarName
    """Tenant that owns the namespace. Immutable."""
    name: PulsarName
    """Namespace within the tenant. Immutable."""
    bundles: Annotated[int, Field(ge=1, le=MOST_BUNDLES)] = DEFAULT_BUNDLES
    """Number of equal bundles of the new namespace (Pulsar: defaultNumberOfNamespaceBundles). For a namespace that was
    discovered in Pulsar: the number of bundles at that time. Immutable."""
    isolation: IsolationSpec | None = None
    """Brokers that may own the bundles. If absent: all brokers that are primary for no other namespace. After a change,
    bundles on other brokers stay until they are moved."""
    anti_affinity_group: Annotated[str, Field(max_length=253)] = ""
    """Anti-affinity group. Namespaces of one group are kept on different brokers as far as possible. Empty means no
    group."""
    balanced: bool = True
    """Whether bundles may be moved to balance load. If false, only unowned bundles get an owner."""
    spread: bool = False
    """Whether a bundle only goes to brokers with the fewest other bundles of the namespace. Use it for system topics
    and coordinators, whose load is not measured (Pulsar: loadBalancerDistributeBundlesEvenlyEnabled, for one
    namespace)."""
    zone: Annotated[str, Field(max_length=253)] = ""
    """Zone of the clients. Bundles go to brokers whose failure domain has this name, while one of them is below the
    overload threshold (85 %, or overloadThreshold of a Modular selection). If empty, zones do not matter."""
    priority: Priority = Priority.NORMAL
    """`Last`: bundles are moved to balance load only when a plan without them would move nothing. `Normal`: the shedder
    chooses by load."""
    budget: NamespaceBudget | None = None
    """How much disruption moves of the bundles may cause. If absent, only the policy's limits and budget apply."""


class Interrupted(Status):
    """Seconds from the unload request until clients reconnected.

    Measured on a sample: when many bundles land together, most are not measured.
    """

    median: Annotated[float, Field(ge=0)]
    """Median of the sampled moves, in seconds."""
    longest: Annotated[float, Field(ge=0)]
    """Longest of the sampled moves, in seconds. A move outside the sample may have taken longer."""
    moves: Annotated[int, Field(ge=1)]
    """Number of measured moves: the latest 20 at most."""


class MeasuredMove(Status):
    """Interruption by one move, in seconds."""

    publish_gap: Annotated[float, Field(ge=0)] | None = None
    """Seconds until the last publisher reconnected. Absent if there was no publisher."""
    reconnect: Annotated[float, Field(ge=0)]
    """Seconds until the last client reconnected."""


class MoveCost(Status):
    """Interruption of clients by the latest moves, measured on a sample of moves and topics."""

    publish_gap: Interrupted | None = None
    """Time until publishers reconnected."""
    reconnect: Interrupted | None = None
    """Time until all clients reconnected, including consumers."""
    latest: Annotated[list[MeasuredMove], Field(max_length=20)] = Field(default_factory=list)
    """The measured moves, oldest first, 20 at most."""
    measured_at: Timestamp | None = None
    """When the latest move was measured."""


class TopicNamespaceStatus(Status):
    """Observed state of a topic namespace."""

    bundles: Annotated[int, Field(ge=0)] = 0
    """Number of Bundle objects."""
    move_cost: MoveCost | None = None
    """Interruption by moves, with `spec.pulsar`. Absent until a move was measured."""
    budget: BudgetStatus | None = None
    """What was spent of `spec.budget` when the last cycle ended."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec that this status describes."""
    conditions: Conditions = Field(default_factory=list)
    """`Ready`: whether each hash belongs to exactly one bundle; with `spec.pulsar`: whether the namespace exists in
    Pulsar. `Valid`: whether isolation and zone can be applied. `Valid` is absent until the first problem."""
