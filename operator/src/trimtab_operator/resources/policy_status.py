"""What a policy's status shows of a proposal, and of how far an approved one has come."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trimtab_operator.resources.bundle_split import MOST_BOUNDARIES
from trimtab_operator.resources.common import Duration, Resource, Status, Timestamp

REBALANCE_ANNOTATION = "trimtab.dev/rebalance"
"""On a BalancingPolicy: ``approve``, ``refresh`` or ``stop``. The operator removes it once it was taken."""

PROPOSAL_ANNOTATION = "trimtab.dev/proposal"
"""Beside it: the id of the proposal that is meant. If another one waits, the approval is refused."""

PAUSE_ANNOTATION = "trimtab.dev/paused"
"""On a BalancingPolicy: ``"true"`` lets it decide nothing, beside spec.paused."""

SHOWN = 50
"""Moves, splits and brokers that the status shows; the rest is in the ConfigMap ``trimtab-proposal-<policy>``."""


class ProposalState(StrEnum):
    """Where a policy of mode Approve stands (the words of Strimzi's KafkaRebalance)."""

    PENDING_PROPOSAL = "PendingProposal"
    PROPOSAL_READY = "ProposalReady"
    REBALANCING = "Rebalancing"
    READY = "Ready"
    NOT_READY = "NotReady"
    STOPPED = "Stopped"


class Approval(Resource):
    """How long a person has to approve a proposal."""

    expires_after: Duration = "15m"
    """A proposal that nobody approved for this long is withdrawn: the load it rests on is too old by then."""


class UsageRange(Status):
    """Percent of the least and the most used broker."""

    lowest: float
    """Percent of the least used broker."""
    highest: float
    """Percent of the most used broker."""


class ResourceRange(Status):
    """The range of one resource over the brokers, before and after."""

    resource: str
    """cpu, memory, directMemory, networkIn or networkOut."""
    before: UsageRange
    """As measured."""
    after: UsageRange
    """As predicted once all moves have landed."""


class BrokerChange(Status):
    """CPU of one broker, before and after."""

    broker: str
    """Name of the Broker object."""
    before: float
    """Percent, as measured."""
    after: float
    """Percent, as predicted."""


class ProposedMove(Status):
    """One move that was planned."""

    bundle: str
    """Name of the Bundle object."""
    source: str
    """Broker it leaves; empty when nobody owns it."""
    destination: str
    """Broker it goes to."""
    reason: str
    """Why."""


class ProposedSplit(Status):
    """One split that was planned."""

    bundle: str
    """Name of the Bundle object."""
    boundaries: Annotated[list[str], Field(max_length=MOST_BOUNDARIES)] = Field(default_factory=list)
    """Where it would be divided."""
    reason: str
    """Why."""
    destinations: Annotated[list[str], Field(max_length=MOST_BOUNDARIES + 1)] = Field(default_factory=list)
    """An owner for each child, ascending by range; empty when all stay."""


class ProposalCost(Status):
    """What the moves interrupt: clients of a moved bundle's topics connect again."""

    connections: Annotated[int, Field(ge=0)]
    """Producers and consumers that must connect again."""
    topics: Annotated[int, Field(ge=0)]
    """Topics that are closed and opened again."""
    unknown: Annotated[int, Field(ge=0)] = 0
    """Moved bundles of which that is not known; they are not in the other two figures."""
    seconds: Annotated[float, Field(ge=0)] | None = None
    """For how long publishers are cut off, by the latest moves of the same namespaces (their medians, of which again
    the median); absent while none was measured."""
    worst: Annotated[float, Field(ge=0)] | None = None
    """The longest that any of those took. They are a sample: one that was not measured may have taken longer."""
    unmeasured: Annotated[int, Field(ge=0)] | None = None
    """Moved bundles of namespaces none of whose moves was measured yet; absent where nobody measures it."""


class ProposalStatus(Status):
    """What the last cycle would do (DryRun), proposes (Approve) or did (Auto)."""

    state: ProposalState | None = None
    """Where it stands; in mode Approve only."""
    id: Annotated[str, Field(max_length=64)] | None = None
    """What the annotation trimtab.dev/proposal pins an approval to; in mode Approve only."""
    made_at: Timestamp | None = None
    """When the load it rests on was measured."""
    expires_at: Timestamp | None = None
    """After this it can't be approved any more; in mode Approve only."""
    message: Annotated[str, Field(max_length=1024)] | None = None
    """What a person should know of its state, and can do."""
    moves: Annotated[list[ProposedMove], Field(max_length=SHOWN)] = Field(default_factory=list)
    """The first 50 moves; in mode Auto without those that have landed."""
    total: Annotated[int, Field(ge=0)] = 0
    """How many there are in all; in mode Auto without those that have landed."""
    splits: Annotated[list[ProposedSplit], Field(max_length=SHOWN)] = Field(default_factory=list)
    """The first 50 splits."""
    total_splits: Annotated[int, Field(ge=0)] = 0
    """How many there are in all."""
    cpu_before: UsageRange | None = None
    """CPU of the least and the most used broker, as measured."""
    cpu_after: UsageRange | None = None
    """The same, as predicted once all moves have landed."""
    ranges: Annotated[list[ResourceRange], Field(max_length=16)] = Field(default_factory=list)
    """The same for each resource that is known."""
    brokers: Annotated[list[BrokerChange], Field(max_length=SHOWN)] = Field(default_factory=list)
    """The 50 brokers whose CPU changes most, those first."""
    cost: ProposalCost | None = None
    """What the moves interrupt."""


class FailedMove(Status):
    """A move of an approved proposal that was not made, or did not land."""

    bundle: str
    """Name of the Bundle object."""
    destination: str
    """Broker it was to go to."""
    reason: str
    """One word from the closed vocabulary of reasons."""
    detail: Annotated[str, Field(max_length=512)] = ""
    """What exactly stood in the way."""


class Progress(Status):
    """How far the proposal that was approved last has come."""

    proposal: Annotated[str, Field(max_length=64)]
    """Its id."""
    started_at: Timestamp
    """When it was approved."""
    finished_at: Timestamp | None = None
    """When its last move ended, or it was stopped and the last open one ended."""
    total: Annotated[int, Field(ge=0)]
    """Moves and splits in all; a split counts as landed once its BundleSplit object is made."""
    done: Annotated[int, Field(ge=0)] = 0
    """Moves that have ended, well or not."""
    landed: Annotated[int, Field(ge=0)] = 0
    """Bundles that are where they were to go."""
    failed: Annotated[int, Field(ge=0)] = 0
    """Moves that were refused when they were to be written, or did not land."""
    in_flight: Annotated[int, Field(ge=0)] = 0
    """Moves that are written and have not ended yet."""
    percent: Annotated[int, Field(ge=0, le=100)] = 0
    """How many of 100 have ended."""
    time_left: Annotated[str, Field(max_length=16)] | None = None
    """How long the rest will take at the pace so far; absent while nothing can be said."""
    failures: Annotated[list[FailedMove], Field(max_length=20)] = Field(default_factory=list)
    """The first 20 that failed."""
