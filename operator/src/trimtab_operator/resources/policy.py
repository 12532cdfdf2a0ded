"""`BalancingPolicy`: how to balance a cluster, and the result of the last cycle."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from trimtab_operator.resources.budget import BudgetStatus, PolicyBudget
from trimtab_operator.resources.common import Conditions, Name, Resource, Status, Timestamp, Window, cel
from trimtab_operator.resources.policy_status import Approval, PredictionScore, Progress, ProposalStatus, UsageRange
from trimtab_operator.resources.prometheus import BundleMetrics, PrometheusSpec
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.resources.strategy_unions import PlacementSpec, SelectionSpec, ShedderSpec, SplitterSpec
from trimtab_strategies.params import Duration, DurationOrZero, seconds


class Mode(StrEnum):
    """Whether a policy carries out its plans."""

    DRY_RUN = "DryRun"
    APPROVE = "Approve"
    AUTO = "Auto"


class BrokerSelector(Resource):
    """The brokers to balance: pods by label, or Broker objects by name. If both are absent, all Broker objects."""

    pod_labels: (
        Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(min_length=1, max_length=16)] | None
    ) = None
    """Labels of the broker pods, at least one. The operator creates a Broker object for each such pod in the policy's
    namespace."""
    names: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = None
    """Names of the Broker objects to balance. While one of them does not exist, nothing moves."""


class Source(Resource):
    """The source of load data."""

    prometheus: PrometheusSpec
    """The Prometheus server and the metrics to read."""


class Limits(Resource):
    """Limits of every plan, whichever strategy made it."""

    cool_down: Duration = "30m"
    """Time for which a bundle stays on its broker after a move (Pulsar: loadBalancerSheddingGracePeriodMinutes)."""
    max_moves_per_cycle: Annotated[int, Field(ge=1, le=10000)] | None = None
    """Maximum number of moves per cycle. If absent: twice the number of brokers, at least 20."""
    max_moves_per_broker: Annotated[int, Field(ge=1, le=10000)] = 10
    """Maximum number of moves from one broker, and to one broker, per cycle."""
    ramp_up: DurationOrZero = "0s"
    """Time after the start of a broker, or of one of its containers, in which it receives fewer moves per cycle: from 1
    at first to maxMovesPerBroker at the end. The ramp limits neither moves from a drained broker nor new owners of
    unassigned bundles. There is no ramp if this is 0s, while all brokers are younger than this, and for a broker
    without a pod."""
    max_moves_per_hour: Annotated[int, Field(ge=1, le=100000)] | None = None
    """Maximum number of moves in any hour. If absent: 20 times the number of brokers, at least 200."""
    max_moves_in_flight: Annotated[int, Field(ge=1, le=10000)] = 10
    """Maximum number of pending moves of an approved proposal. The next move starts when one has landed."""
    max_splits_per_cycle: Annotated[int, Field(ge=0, le=1000)] = 10
    """Maximum number of splits per cycle. With 0 the split rule is not evaluated."""
    min_trusted_brokers_percent: Annotated[int, Field(ge=0, le=100)] = 75
    """Percent of brokers whose data must be trusted. If fewer are trusted, nothing moves."""
    max_lost_brokers_percent: Annotated[int, Field(ge=0, le=100)] = 40
    """Percent of brokers that may be missing or not ready. If more are, nothing moves, because moves would make things
    worse. One missing broker is always tolerated."""
    move_timeout: Duration = "60s"
    """Time after which a move has failed if its destination has not confirmed it. It is then withdrawn. If the source
    has already released the bundle, it goes to another broker."""
    lost_after: Duration = "30s"
    """Time after which a broker that is not ready counts as lost. Its bundles then get other owners."""
    forget_after: Duration = "1h"
    """Time after which a discovered Broker is deleted if its pod is gone, it owns no bundles, and users have not
    changed it. So brokers that were removed on purpose stop counting as lost."""
    max_undone_moves: Annotated[int, Field(ge=1, le=1000)] = 5
    """Number of moves within an hour that another client must revert before the policy stops moving bundles and only
    shows its plans. It stops for 30 minutes. If the other client continues, each further stop is twice as long, up to
    8 hours."""


class Advice(Resource):
    """When the condition `RightSized` reports that the cluster is too small or too large for its load."""

    enabled: bool = True
    """Whether the condition is reported."""
    target_usage_percent: Annotated[int, Field(gt=0, le=100)] = 60
    """Percent of the most used resource that all brokers together should use. Above 110 % of this value the cluster is
    too small. It is too large if usage would be below 90 % of this value with one broker fewer."""
    patience: Annotated[int, Field(ge=1, le=10000)] = 10
    """Number of decisions in a row that must agree before the condition changes."""


_TICK = "!has(self.brokerInterval) || duration(self.brokerInterval) <= duration(self.interval)"
_TICK_BOUND = "brokerInterval must not exceed interval"
_STATISTICS = "self.source.prometheus.bundleMetrics != 'Statistics' || has(self.pulsar)"
_NEEDS_PULSAR = "bundleMetrics Statistics reads from Pulsar's brokers: it needs spec.pulsar"
_SHORTEST_TICK = "brokerInterval is at least 5s"


def _tick(text: str) -> str:
    if seconds(text) < 5:  # noqa: PLR2004  (the bound, in seconds)
        raise ValueError(_SHORTEST_TICK)
    return text


BrokerInterval = Annotated[
    Duration, Field(json_schema_extra=cel(("duration(self) >= duration('5s')", _SHORTEST_TICK))), AfterValidator(_tick)
]
"""Time between two broker refreshes. Most brokers are scraped every 15 s, so a much shorter time shows nothing new."""


class BalancingPolicySpec(Resource):
    """How to balance. The default mode `DryRun` balances nothing. In every mode, bundles without an owner and bundles
    of a lost broker get an owner: from Pulsar if `pulsar` is set, else from the placement."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (_TICK, _TICK_BOUND),
            (_STATISTICS, _NEEDS_PULSAR),
        )
    )

    mode: Mode = Mode.DRY_RUN
    """`DryRun`: show the planned moves in status.proposal. `Approve`: show them, and move after the annotation
    trimtab.dev/rebalance is set to `approve`. `Auto`: move within `limits`."""
    approval: Approval = Approval()
    """Mode Approve: how long a proposal waits, and which proposals need no person."""
    paused: bool = False
    """Stop deciding. Desired owners that users write are still carried out."""
    interval: Duration = "60s"
    """Time from one decision to the next."""
    broker_interval: BrokerInterval | None = None
    """Time from one broker refresh to the next, at least 5s. A refresh updates status.load of the brokers. If a broker
    died or exceeded the overload threshold (the shedder's overloadThreshold, or 85 %), a decision follows immediately.
    If absent: 10s, or `interval` if that is shorter."""
    brokers: BrokerSelector = BrokerSelector()
    """The brokers to balance. If absent, all Broker objects of the namespace."""
    source: Source
    """The source of load data. Without data nothing moves."""
    shedder: ShedderSpec = ShedderSpec()
    """Which bundles leave which brokers. By default `Trim`."""
    placement: PlacementSpec = PlacementSpec()
    """Which brokers get the bundles that the shedder chose, and bundles without an owner. By default `Trim`."""
    selection: SelectionSpec | None = None
    """Which brokers a bundle may go to. The placement then chooses the best of them. If absent, isolation and
    antiAffinityGroup of topic namespaces apply as with `Extensible` and its defaults."""
    split: SplitterSpec | None = None
    """Which bundles are split, and where. The same decision may move the children. Each rule limits the bundles per
    namespace. WeightedSplitter also limits the splits within a period. If absent, bundles are not split."""
    windows: Annotated[tuple[Window, ...], Field(max_length=16)] = ()
    """Time windows in which a policy in mode Auto may act, and `approval.auto` may approve. If absent, all times are
    allowed. Outside of the windows a plan is only shown. Desired owners that users write, lost brokers and proposals
    that a person approved are handled at any time."""
    advice: Advice = Advice()
    """When to report too few or too many brokers. Trimtab does not scale the cluster."""
    limits: Limits = Limits()
    """Limits of every plan: cool-down, maximum numbers of moves, and the data that moves require."""
    budget: PolicyBudget | None = None
    """How much disruption the moves may cause. If absent, only `limits` and the budgets of topic namespaces apply."""
    pulsar: PulsarSpec | None = None
    """The Pulsar cluster to balance. The operator moves and splits its bundles through the admin REST API, and keeps
    the objects in sync with it. If absent, the brokers or their sidecars watch the Bundle objects, move the bundles,
    and confirm this in status.owner."""

    @model_validator(mode="after")
    def _statistics_of_pulsar(self) -> Self:
        statistics = self.source.prometheus.bundle_metrics is BundleMetrics.STATISTICS
        if statistics and self.pulsar is None:
            raise ValueError(_NEEDS_PULSAR)
        return self

    @model_validator(mode="after")
    def _ticks_within_interval(self) -> Self:
        if self.broker_interval is not None and seconds(self.broker_interval) > seconds(self.interval):
            raise ValueError(_TICK_BOUND)
        return self


class LastCycle(Status):
    """Result of the last cycle."""

    time: Timestamp
    """When the cycle began."""
    seconds: float
    """Duration in seconds."""
    phases: Annotated[dict[str, float], Field(max_length=32)] = Field(default_factory=dict)
    """Seconds by phase of the cycle."""
    outcome: str
    """One word from the fixed list of reasons: why bundles moved, such as `Overloaded`, or why none did."""
    cpu: UsageRange | None = None
    """Measured CPU of the least and the most used broker. Absent if no broker was measured."""
    moved: Annotated[int, Field(ge=0)] = 0
    """Number of moves started."""
    split: Annotated[int, Field(ge=0)] = 0
    """Number of splits requested."""
    held_back: Annotated[dict[str, int], Field(max_length=64)] = Field(default_factory=dict)
    """Number of moves that were considered and not made, by reason."""


class BalancingPolicyStatus(Status):
    """Observed state of a policy."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec that the last cycle used."""
    conditions: Conditions = Field(default_factory=list)
    """`Ready`: a summary. `Valid`, `DataTrusted` and `Balanced`: details. `Acting`: whether plans are carried out.
    Mode Approve adds `ProposalReady` (a proposal waits for approval), `Rebalancing` (one is carried out) and
    `CommandTaken` (result of the last annotation, for an hour). `CompetingBalancer`: another client reverts the
    policy's moves. `PulsarBalancerDisabled`, with `spec.pulsar`: whether Pulsar's own shedding and automatic split are
    off on every broker. `RightSized`: whether the number of brokers fits the load. `HistoryWritable`: whether the last
    cycle was written to the history."""
    last_cycle: LastCycle | None = None
    """Result of the last cycle."""
    proposal: ProposalStatus | None = None
    """The moves and splits that the last cycle planned."""
    predictions: PredictionScore | None = None
    """How good the last predictions were. Absent if the shedder makes none."""
    progress: Progress | None = None
    """Progress of the proposal that was approved last."""
    in_flight: Annotated[int, Field(ge=0)] = 0
    """Number of pending moves: started and not landed yet."""
    budget: BudgetStatus | None = None
    """What was spent of `spec.budget` when the last cycle ended."""
