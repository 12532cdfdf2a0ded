"""Parts of a policy's status: the proposal, and the progress of an approved one."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from trimtab_operator.resources.bundle_split import MOST_BOUNDARIES
from trimtab_operator.resources.common import Resource, Status, Timestamp
from trimtab_strategies.params import Duration, as_percent
from trimtab_strategies.protocols import Predictions

REBALANCE_ANNOTATION = "trimtab.dev/rebalance"
"""On a BalancingPolicy: ``approve``, ``refresh`` or ``stop``. The operator removes the annotation once it is read."""

PROPOSAL_ANNOTATION = "trimtab.dev/proposal"
"""Optional: the id of the proposal to approve. If another one waits, the approval is refused."""

APPROVER_ANNOTATION = "trimtab.dev/approved-by"
"""Optional: the name of the user who approves, as the API server knows it. The chart's ValidatingAdmissionPolicy
requires this annotation, and accepts only the name of the user who writes it."""

PLAN_ANNOTATION = "trimtab.dev/plan"
"""Optional: a saved plan to approve instead of the proposal that waits. JSON, compressed with gzip, in base64."""

PAUSE_ANNOTATION = "trimtab.dev/paused"
"""On a BalancingPolicy: ``"true"`` pauses it, like spec.paused."""

RELEASE_ANNOTATION = "trimtab.dev/release"
"""On a BalancingPolicy that has stood down because of a competing balancer: ``"true"`` makes it act again."""

SHOWN = 50
"""Maximum number of moves, splits and brokers in the status. The ConfigMap ``trimtab-proposal-<policy>`` has all."""


class ProposalState(StrEnum):
    """State of a proposal in mode Approve, in the words of Strimzi's KafkaRebalance."""

    PENDING_PROPOSAL = "PendingProposal"
    PROPOSAL_READY = "ProposalReady"
    REBALANCING = "Rebalancing"
    READY = "Ready"
    NOT_READY = "NotReady"
    STOPPED = "Stopped"


class AutoApproval(Resource):
    """Criteria by which the operator approves a proposal without a person. A new proposal must meet all of them."""

    max_moves: Annotated[int, Field(ge=1, le=10000)] = 5
    """Maximum number of moves and splits of the proposal."""
    min_gain: Annotated[float, Field(ge=0, le=100)] = 5
    """Percentage points by which the moves must shrink the largest range of usage, as predicted. The range of a
    resource is the difference in usage between the most and the least used broker."""
    trusted_predictions: bool = True
    """Require at least five judged predictions of the shedder, of which at least 70 % were right. Only `Trim`
    predicts."""


class Approval(Resource):
    """Who approves a proposal, and how long it waits."""

    expires_after: Duration = "15m"
    """Time after which a proposal that was not approved is withdrawn, because its load data is too old."""
    auto: AutoApproval | None = None
    """When the operator approves a proposal by itself, within `spec.windows`. Other proposals wait for a person. If
    absent, all do."""


class UsageRange(Status):
    """Usage of the least used and of the most used broker, in percent."""

    lowest: float
    """Percent of the least used broker's limit."""
    highest: float
    """Percent of the most used broker's limit."""


class ResourceRange(Status):
    """Range of one resource over the brokers, before and after the moves."""

    resource: str
    """Name of the resource: cpu, memory, directMemory, networkIn or networkOut."""
    before: UsageRange
    """Measured range."""
    after: UsageRange
    """Predicted range after all moves have landed."""


class BrokerChange(Status):
    """CPU of one broker, before and after the moves."""

    broker: str
    """Name of the Broker object."""
    before: float
    """Percent of the CPU limit, measured."""
    after: float
    """Percent of the CPU limit, predicted."""


class ProposedMove(Status):
    """One planned move."""

    bundle: str
    """Name of the Bundle object."""
    source: str
    """Name of the Broker that the bundle leaves. Empty for an unowned bundle."""
    destination: str
    """Name of the Broker that the bundle goes to."""
    reason: str
    """Reason of the plan, one word from the fixed list of reasons."""


class ProposedSplit(Status):
    """One planned split."""

    bundle: str
    """Name of the Bundle object."""
    boundaries: Annotated[list[str], Field(max_length=MOST_BOUNDARIES)] = Field(default_factory=list)
    """Hash positions of the split."""
    reason: str
    """Reason of the plan, one word from the fixed list of reasons."""
    destinations: Annotated[list[str], Field(max_length=MOST_BOUNDARIES + 1)] = Field(default_factory=list)
    """Names of the Brokers that the children move to, ascending by range. Empty if all stay."""


class ProposalCost(Status):
    """Interruption by the moves: clients of a moved bundle's topics must reconnect."""

    connections: Annotated[int, Field(ge=0)]
    """Number of producers and consumers that must reconnect."""
    topics: Annotated[int, Field(ge=0)]
    """Number of topics that are closed and opened again."""
    unknown: Annotated[int, Field(ge=0)] = 0
    """Number of moved bundles whose topics and connections are unknown. `topics` and `connections` leave them out."""
    seconds: Annotated[float, Field(ge=0)] | None = None
    """Expected interruption of publishers in seconds, the median over the bundles. For each bundle, the median of the
    latest measured moves in its namespace is used. Absent if no move was measured."""
    worst: Annotated[float, Field(ge=0)] | None = None
    """Longest interruption by a measured move, in seconds. A move that was not measured may have taken longer."""
    unmeasured: Annotated[int, Field(ge=0)] | None = None
    """Number of moved bundles in namespaces without a measured move. Absent if moves are not measured."""


class ProposalStatus(Status):
    """What the last cycle would do (DryRun), proposes (Approve) or did (Auto)."""

    state: ProposalState | None = None
    """State of the proposal. In mode Approve only."""
    id: Annotated[str, Field(max_length=64)] | None = None
    """Id of the proposal, for the annotation trimtab.dev/proposal. In mode Approve only."""
    made_at: Timestamp | None = None
    """When the load data of the proposal was measured."""
    expires_at: Timestamp | None = None
    """When the proposal expires. It can't be approved after that. In mode Approve only."""
    message: Annotated[str, Field(max_length=1024)] | None = None
    """Details of the state, and what users can do."""
    moves: Annotated[list[ProposedMove], Field(max_length=SHOWN)] = Field(default_factory=list)
    """The first 50 moves. In mode Auto, moves that have landed are left out."""
    total: Annotated[int, Field(ge=0)] = 0
    """Number of all moves. In mode Auto, moves that have landed are not counted."""
    splits: Annotated[list[ProposedSplit], Field(max_length=SHOWN)] = Field(default_factory=list)
    """The first 50 splits."""
    total_splits: Annotated[int, Field(ge=0)] = 0
    """Number of all splits."""
    cpu_before: UsageRange | None = None
    """Measured CPU of the least and the most used broker."""
    cpu_after: UsageRange | None = None
    """Predicted CPU of the least and the most used broker after all moves have landed."""
    ranges: Annotated[list[ResourceRange], Field(max_length=16)] = Field(default_factory=list)
    """The ranges of each known resource."""
    brokers: Annotated[list[BrokerChange], Field(max_length=SHOWN)] = Field(default_factory=list)
    """The 50 brokers whose CPU changes most, largest change first."""
    cost: ProposalCost | None = None
    """Interruption of clients by the moves."""


class FailedMove(Status):
    """A move of an approved proposal that was not started, or did not land."""

    bundle: str
    """Name of the Bundle object."""
    destination: str
    """Name of the Broker that the bundle should have gone to."""
    reason: str
    """Reason of the failure, one word from the fixed list of reasons."""
    detail: Annotated[str, Field(max_length=512)] = ""
    """Details of the failure."""


class Progress(Status):
    """Progress of the proposal that was approved last."""

    proposal: Annotated[str, Field(max_length=64)]
    """Id of the proposal."""
    started_at: Timestamp
    """When the proposal was approved."""
    approved_by: Annotated[str, Field(max_length=256)] | None = None
    """Name of the user who approved it, from the annotation trimtab.dev/approved-by. `spec.approval.auto` if
    the operator approved it by those criteria. Absent if the approval named no user."""
    finished_at: Timestamp | None = None
    """When the last move ended; after a stop, when the last pending move ended."""
    total: Annotated[int, Field(ge=0)]
    """Number of all moves and splits. A split counts as landed when its BundleSplit object exists."""
    done: Annotated[int, Field(ge=0)] = 0
    """Number of moves that have ended, whether they landed or failed."""
    landed: Annotated[int, Field(ge=0)] = 0
    """Number of bundles that arrived at their destination."""
    failed: Annotated[int, Field(ge=0)] = 0
    """Number of moves that were refused or did not land."""
    in_flight: Annotated[int, Field(ge=0)] = 0
    """Number of pending moves: started and not ended yet."""
    percent: Annotated[int, Field(ge=0, le=100)] = 0
    """Percent of moves that have ended."""
    time_left: Annotated[str, Field(max_length=16)] | None = None
    """Estimated time for the rest, at the pace so far. Absent if unknown, and while moves wait."""
    waits: Annotated[str, Field(max_length=1024)] | None = None
    """Number of moves that a disruption budget holds back, and why the first one waits; or that the policy is paused.
    Absent if no move waits."""
    failures: Annotated[list[FailedMove], Field(max_length=20)] = Field(default_factory=list)
    """The first 20 failed moves."""


_WHOLE = 100.0
"""Value of `step` with which a plan makes all of its moves."""


class PredictionScore(Status):
    """How good the shedder's last predictions of the brokers' CPU were. They are judged three minutes after the
    moves."""

    judged: Annotated[int, Field(ge=0)] = 0
    """Number of predictions that were compared with the measured CPU: the last 20 at most."""
    right: Annotated[float, Field(ge=0, le=100)] | None = None
    """Percent of the judged predictions that were off by at most `within` points. Absent if none was judged."""
    within: Annotated[float, Field(ge=0)]
    """Percentage points of CPU up to which a prediction counts as right."""
    off: Annotated[float, Field(ge=0)] | None = None
    """Percentage points between the predicted and the measured CPU, median. Absent if none was judged."""
    step: Annotated[float, Field(ge=0, le=100)] = 100.0
    """Percent of the usual number of moves that the next plan may make. Below 100 after wrong predictions."""

    @classmethod
    def of(cls, found: Predictions) -> Self:
        """Convert `found` to the form of the status."""
        right, off = (None if math.isnan(value) else round(value, 2) for value in (as_percent(found.right), found.off))
        return cls(judged=found.judged, right=right, within=found.within, off=off, step=as_percent(found.step))

    @property
    def text(self) -> str:
        """The score in words: ``18 of the last 20 within 3 points of the measured CPU, the median 0.8 points off``."""
        if self.right is None or self.off is None:
            return "none judged yet: that takes three minutes after the moves of a plan have landed"
        text = f"{round(self.right / 100 * self.judged)} of the last {self.judged} within {self.within:g} points"
        text += f" of the measured CPU, the median {self.off:.1f} points off"
        smaller = f"; until more predictions are within that, a plan makes {self.step:.0f} % of the usual moves"
        return text + smaller if self.step < _WHOLE else text
