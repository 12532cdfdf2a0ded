"""Disruption budgets: limits in specs, and spent amounts in statuses."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from trimtab_operator.resources.common import Resource, Status, Timestamp, cel
from trimtab_strategies.budget import DisruptionBudget


class Priority(StrEnum):
    """Whether bundles of a topic namespace are moved as the shedder chooses, or last."""

    NORMAL = "Normal"
    LAST = "Last"


ConnectionsPercent = Annotated[float, Field(gt=0, le=1000)]
"""Percent of the clients. Above 100, each client may be disconnected more than once."""

PendingMoves = Annotated[int, Field(ge=1, le=10000)]
"""Moves that are started and have not landed."""


_NO_LIMIT = "budget sets no limit: set one, or leave budget out"
_SET = ("connectionsPercentPerHour", "movesInFlight")


class _Budget(Resource):
    """The limits of a budget."""

    model_config = ConfigDict(json_schema_extra=cel((" || ".join(f"has(self.{name})" for name in _SET), _NO_LIMIT)))

    connections_percent_per_hour: ConnectionsPercent | None = None
    """Percent of all its producers and consumers that moves may disconnect in any hour. Bundles whose connections were
    not measured do not move."""
    moves_in_flight: PendingMoves | None = None
    """Maximum number of pending moves in one topic namespace."""

    @property
    def bounds(self) -> DisruptionBudget:
        """The bounds of the budget."""
        return DisruptionBudget(self.connections_percent_per_hour, self.moves_in_flight)

    @model_validator(mode="after")
    def _bounds_something(self) -> Self:
        if self.bounds == DisruptionBudget():
            raise ValueError(_NO_LIMIT)
        return self


class PolicyBudget(_Budget):
    """How much disruption the policy's moves may cause. Where a topic namespace has a budget too, a move must fit
    both. Moves for drains, lost brokers and desired owners that users write are never held back, but their cost is
    charged to the budget."""


class NamespaceBudget(_Budget):
    """How much disruption the moves of the namespace's bundles may cause. Where the policy has a budget too, a move
    must fit both."""


class BudgetUse(Status):
    """One limit of a budget: how much of it is spent, and when the oldest part of that no longer counts."""

    limit: str
    """Field of `spec.budget` that sets the limit."""
    bound: float
    """Value of that field."""
    spent: float
    """What is spent now: in the last hour (`movesInFlight`: pending moves). May exceed the bound after moves that no
    budget holds back."""
    left: float
    """What is left of the bound."""
    subject: Annotated[str, Field(max_length=512)] = ""
    """For `movesInFlight`: the topic namespace that has the least left. Empty for `connectionsPercentPerHour`."""
    frees_at: Timestamp | None = None
    """When the oldest part of `spent` no longer counts. Absent for `movesInFlight`, and if nothing is spent."""


class BudgetStatus(Status):
    """What was spent of a disruption budget."""

    limits: Annotated[list[BudgetUse], Field(max_length=8)] = Field(default_factory=list)
    """The limits that are set."""
    overridden: Annotated[int, Field(ge=0)] = 0
    """Number of moves in the last hour that exceeded a budget, because of a drain, a lost broker or a user."""
