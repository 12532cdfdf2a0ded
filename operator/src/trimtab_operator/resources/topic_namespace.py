"""`TopicNamespace`: a Pulsar namespace (``tenant/name``), cut into bundles when it is created."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.common import Conditions, Resource, Status, Timestamp, cel

DEFAULT_BUNDLES = 4
"""Bundles of a namespace that says nothing, as Pulsar's default is."""

MOST_BUNDLES = 16384
"""Bundles a namespace may begin with. Pulsar itself has no bound, but keeps the boundaries in one node of its metadata
store, 13 bytes each: when they are more than ZooKeeper takes (1 MiB), the broker that was asked writes in vain until it
is restarted."""


class Readiness(StrEnum):
    """Why a TopicNamespace is `Ready`, or is not."""

    CUT = "Cut"
    """It was cut into bundles; no Pulsar cluster was involved."""
    ALREADY_CUT = "AlreadyCut"
    """Its bundles belong to another object."""
    FOUND = "Found"
    """Pulsar had it."""
    GAP = "Gap"
    """No bundle has some of its hashes: topics there have no owner. Told of one that was cut by the operator."""
    OVERLAP = "Overlap"
    """Bundles overlap. Those without a place on the ring get no owner."""
    OTHER_BUNDLES = "OtherBundles"
    """Pulsar had it, cut into another number of bundles."""
    CREATED = "Created"
    """It was created in Pulsar for this object."""
    REFUSED = "Refused"
    """Pulsar does not create it."""
    GONE = "Gone"
    """Pulsar had it, and it was deleted there."""


MIRRORED = frozenset({Readiness.FOUND, Readiness.OTHER_BUNDLES, Readiness.CREATED, Readiness.GONE})
"""Of a namespace that Pulsar has, or had."""

BROKEN_RING = frozenset({Readiness.GAP, Readiness.OVERLAP})
"""Of a namespace that was cut, and whose bundles do not make up its hash ring any more."""

PulsarName = Annotated[str, Field(pattern=r"^[-=:.A-Za-z0-9_]+$", min_length=1, max_length=120)]
"""A tenant or namespace as Pulsar allows it."""


BrokerPattern = Annotated[str, Field(min_length=1, max_length=253)]
"""A regular expression."""

_NOBODY = "isolation names no broker: add a pattern to primary or secondary, or leave isolation out"
_BOTH = "a pattern is primary and secondary: leave it in one of the two lists"
_IN_BOTH = "self.primary.filter(p, p in self.secondary)"


class IsolationSpec(Resource):
    """Which brokers may have the namespace's bundles. Namespaces without isolation don't get its primary brokers."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.primary.size() + self.secondary.size() > 0", _NOBODY),
            (f"{_IN_BOTH}.size() == 0", _BOTH, f"'pattern ' + {_IN_BOTH}[0] + '{_BOTH.removeprefix('a pattern')}'"),
        ),
    )

    primary: Annotated[tuple[BrokerPattern, ...], Field(max_length=64)] = ()
    """The brokers that may have its bundles: regular expressions, each for the whole name of a Broker object, which is
    the name of its pod (Pulsar: the host)."""
    secondary: Annotated[tuple[BrokerPattern, ...], Field(max_length=64)] = ()
    """The brokers that may have them as well, while fewer than minAvailable primary ones can: such expressions, too."""
    min_available: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many primary brokers must be able to have them, or the secondary ones may as well; 0: those never may
    (Pulsar: min_limit)."""

    @model_validator(mode="after")
    def _names_brokers_once(self) -> Self:
        if not self.primary and not self.secondary:
            raise ValueError(_NOBODY)
        if both := [pattern for pattern in self.primary if pattern in self.secondary]:
            raise ValueError(f"pattern {both[0]}{_BOTH.removeprefix('a pattern')}")
        return self


class TopicNamespaceSpec(Resource):
    """What is wished of a topic namespace. Its bundles are cut once, and later only split; the rest may change."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            ("self.tenant == oldSelf.tenant && self.name == oldSelf.name", "tenant and name are immutable"),
            ("self.bundles == oldSelf.bundles", "bundles is immutable: split bundles instead"),
        ),
    )

    tenant: PulsarName
    """Tenant that owns the namespace. Immutable."""
    name: PulsarName
    """Namespace within the tenant. Immutable."""
    bundles: Annotated[int, Field(ge=1, le=MOST_BUNDLES)] = DEFAULT_BUNDLES
    """How many equal bundles to begin with (Pulsar: defaultNumberOfNamespaceBundles). Immutable. Of a namespace that
    was found in Pulsar: how many it had then."""
    isolation: IsolationSpec | None = None
    """Which brokers may have its bundles; without it, all that are primary for no other namespace. Bundles that are
    elsewhere when it changes stay until they are moved."""
    anti_affinity_group: Annotated[str, Field(max_length=253)] = ""
    """Namespaces of one group are kept on different brokers as far as possible; empty: it is in no group."""
    balanced: bool = True
    """Whether its bundles may be moved to balance load; if not, they get an owner only when they have none."""


class Interrupted(Status):
    """For how long moves interrupted clients, in seconds from when the old owner was asked to let go.

    Of a sample: when many bundles land together most are not measured.
    """

    median: Annotated[float, Field(ge=0)]
    """Of the sampled moves."""
    longest: Annotated[float, Field(ge=0)]
    """The longest of the sampled moves; one that was not sampled may have taken longer."""
    moves: Annotated[int, Field(ge=1)]
    """How many of the latest 20 it is known of."""


class MeasuredMove(Status):
    """What one move cost, in seconds."""

    publish_gap: Annotated[float, Field(ge=0)] | None = None
    """Until the last publisher was back; absent where there was none."""
    reconnect: Annotated[float, Field(ge=0)]
    """Until the last client was back."""


class MoveCost(Status):
    """What the latest moves of the namespace's bundles cost its clients; a sample of moves and topics."""

    publish_gap: Interrupted | None = None
    """How long publishers waited."""
    reconnect: Interrupted | None = None
    """How long it took until all clients, consumers as well, were back."""
    latest: Annotated[list[MeasuredMove], Field(max_length=20)] = Field(default_factory=list)
    """The moves themselves, oldest first."""
    measured_at: Timestamp | None = None
    """When the last of them was measured."""


class TopicNamespaceStatus(Status):
    """What is observed of a topic namespace."""

    bundles: Annotated[int, Field(ge=0)] = 0
    """How many Bundle objects it has now."""
    move_cost: MoveCost | None = None
    """What moves cost, with the actuator `Pulsar`; absent until one was measured."""
    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation this status speaks of."""
    conditions: Conditions = Field(default_factory=list)
    """`Ready`: each hash belongs to one of its bundles; with the actuator `Pulsar`: Pulsar has the namespace.
    `Valid`, once there was a problem: its isolation can be kept to."""
