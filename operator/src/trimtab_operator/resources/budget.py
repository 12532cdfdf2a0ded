"""Disruption budgets: limits in specs, and spent amounts in statuses."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.common import Resource, Status, Timestamp, cel
from trimtab_strategies.budget import MOST_OF_A_BUNDLE, DisruptionBudget


class Priority(StrEnum):
    """Whether bundles of a topic namespace are moved as the shedder chooses, or last."""

    NORMAL = "Normal"
    LAST = "Last"


ConnectionsPercent = Annotated[float, Field(gt=0, le=1000)]
"""Percent of the clients. Above 100, each client may be disconnected more than once."""

GapSeconds = Annotated[float, Field(gt=0, le=86400)]
"""Seconds without publishers, summed over moves."""

BundleMoves = Annotated[int, Field(ge=1, le=MOST_OF_A_BUNDLE)]
"""Moves of one bundle."""

PendingMoves = Annotated[int, Field(ge=1, le=10000)]
"""Moves that are started and have not landed."""


class PolicyBudget(Resource):
    """How much disruption the policy's moves may cause. Where a topic namespace has a budget too, a move must fit
    both. Moves for drains, lost brokers and desired owners that users write are never held back, but their cost is
    charged to the budget."""

    connections_percent_per_hour: ConnectionsPercent | None = None
    """Percent of all producers and consumers of the policy's bundles that moves may disconnect in any hour. Bundles
    whose connections were not measured do not move."""
    publish_gap_seconds_per_hour: GapSeconds | None = None
    """Maximum number of seconds without publishers in any hour, summed over the moves of one topic namespace. A move
    costs the mean gap of the namespace's latest measured moves (status.moveCost), or 0.8 s before the first one. Needs
    `spec.pulsar`."""
    moves_per_bundle_per_day: BundleMoves | None = None
    """Maximum number of moves of one bundle in any 24 hours."""
    moves_in_flight: PendingMoves | None = None
    """Maximum number of pending moves in one topic namespace."""
    adaptive_pace: bool = True
    """Start fewer moves to a broker while clients need longer to reconnect there. A publish gap at least twice as long
    as usual halves the number of moves that may be pending to the broker. Each other gap raises this number by one, up
    to limits.maxMovesInFlight. A gap less than 0.1 s longer than usual does not halve the number."""

    @property
    def bounds(self) -> DisruptionBudget:
        """The bounds of the budget."""
        return _bounds(self)


_NO_LIMIT = "budget sets no limit: set one, or leave budget out"
_SET = (
    "connectionsPercentPerHour",
    "publishGapSecondsPerHour",
    "movesPerBundlePerDay",
    "movesInFlight",
)


class NamespaceBudget(Resource):
    """How much disruption the moves of the namespace's bundles may cause. Where the policy has a budget too, a move
    must fit both."""

    model_config = ConfigDict(json_schema_extra=cel((" || ".join(f"has(self.{name})" for name in _SET), _NO_LIMIT)))

    connections_percent_per_hour: ConnectionsPercent | None = None
    """Percent of all producers and consumers of the namespace that moves may disconnect in any hour. Bundles whose
    connections were not measured do not move."""
    publish_gap_seconds_per_hour: GapSeconds | None = None
    """Maximum number of seconds without publishers in any hour, summed over the moves of the namespace. A move costs
    the mean gap of the latest measured moves (status.moveCost), or 0.8 s before the first one. Without a Pulsar cluster
    nothing measures moves, and the bundles do not move."""
    moves_per_bundle_per_day: BundleMoves | None = None
    """Maximum number of moves of one bundle in any 24 hours."""
    moves_in_flight: PendingMoves | None = None
    """Maximum number of pending moves in the namespace."""

    @property
    def bounds(self) -> DisruptionBudget:
        """The bounds of the budget."""
        return _bounds(self)

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.bounds == DisruptionBudget():
            raise ValueError(_NO_LIMIT)
        return self


def _bounds(given: PolicyBudget | NamespaceBudget) -> DisruptionBudget:
    return DisruptionBudget(
        given.connections_percent_per_hour,
        given.publish_gap_seconds_per_hour,
        given.moves_per_bundle_per_day,
        given.moves_in_flight,
    )


class BudgetUse(Status):
    """One limit of a budget: how much of it is spent, and when the oldest part of that no longer counts."""

    limit: str
    """Field of `spec.budget` that sets the limit."""
    bound: float
    """Value of that field."""
    spent: float
    """What is spent now: in the last hour (`movesPerBundlePerDay`: in the last 24 hours; `movesInFlight`: pending
    moves). May exceed the bound after moves that no budget holds back."""
    left: float
    """What is left of the bound."""
    subject: Annotated[str, Field(max_length=512)] = ""
    """For a limit per topic namespace or per bundle: the one that has the least left. Empty for
    `connectionsPercentPerHour`."""
    frees_at: Timestamp | None = None
    """When the oldest part of `spent` no longer counts. Absent for `movesInFlight`, and if nothing is spent."""


class BudgetStatus(Status):
    """What was spent of a disruption budget."""

    limits: Annotated[list[BudgetUse], Field(max_length=8)] = Field(default_factory=list)
    """The limits that are set."""
    overridden: Annotated[int, Field(ge=0)] = 0
    """Number of moves in the last hour that exceeded a budget, because of a drain, a lost broker or a user."""
    pace: Annotated[int, Field(ge=0)] | None = None
    """Smallest number of moves to one broker that `adaptivePace` allows to be pending now. Absent while it reduces the
    number for no broker. A TopicNamespace's status never has this field."""
