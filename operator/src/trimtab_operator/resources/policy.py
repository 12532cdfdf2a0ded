"""`BalancingPolicy`: how a cluster is balanced, and what the last cycle saw, did and left undone."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from trimtab_operator.resources.common import (
    Conditions,
    Duration,
    Name,
    Resource,
    Status,
    Timestamp,
    Window,
    cel,
    seconds,
)
from trimtab_operator.resources.policy_status import Approval, Progress, ProposalStatus
from trimtab_operator.resources.prometheus import BundleMetrics, PrometheusSpec
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.resources.unions import PlacementSpec, SelectionSpec, ShedderSpec, SplitterSpec


class Mode(StrEnum):
    """What a policy may do with its plan."""

    DRY_RUN = "DryRun"
    APPROVE = "Approve"
    AUTO = "Auto"


class ActuatorType(StrEnum):
    """Who makes the wished owner real."""

    DECLARATIVE = "Declarative"
    PULSAR = "Pulsar"


class BrokerSelector(Resource):
    """Which brokers to balance: pods found by label, or Broker objects by name; all Broker objects if neither."""

    pod_labels: (
        Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(min_length=1, max_length=16)] | None
    ) = None
    """Labels of the pods to discover, at least one. A Broker object is kept for each such pod of the policy's
    namespace."""
    names: Annotated[list[Name], Field(min_length=1, max_length=1000)] | None = None
    """Balance only these Broker objects. While one of them does not exist, nothing moves."""


class Source(Resource):
    """Where load comes from."""

    prometheus: PrometheusSpec
    """A Prometheus server, and which of its metrics to read."""


class Limits(Resource):
    """What no strategy may exceed. The guard applies these to every plan, whichever strategy made it."""

    cool_down: Duration = "30m"
    """A bundle that moved stays where it is for this long (Pulsar: loadBalancerSheddingGracePeriodMinutes)."""
    max_moves_per_cycle: Annotated[int, Field(ge=1, le=10000)] = 20
    """At most so many moves in one cycle."""
    max_moves_per_broker: Annotated[int, Field(ge=1, le=10000)] = 10
    """At most so many moves from, and so many to, one broker in one cycle."""
    max_moves_per_hour: Annotated[int, Field(ge=1, le=100000)] = 200
    """At most so many moves in any hour."""
    max_moves_in_flight: Annotated[int, Field(ge=1, le=10000)] = 10
    """Of an approved proposal, at most so many moves are open at once: the next is written when one has landed."""
    max_splits_per_cycle: Annotated[int, Field(ge=0, le=1000)] = 10
    """At most so many bundles are divided in one cycle; with 0 the split rule is not even asked."""
    min_trusted_brokers: Annotated[float, Field(ge=0, le=100)] = 75
    """Percent of the brokers whose data must be trusted; below it nothing moves."""
    max_lost_brokers: Annotated[float, Field(ge=0, le=100)] = 40
    """Percent of the brokers that may be missing or not ready. Above it nothing moves: it would make things worse. A
    single broker may always be."""
    move_timeout: Duration = "60s"
    """A move that its destination has not confirmed after this time has failed: it is withdrawn, or the bundle goes
    to another broker when its source has let go already."""
    lost_after: Duration = "30s"
    """A broker that was not ready for this long is lost: its bundles get other owners."""
    forget_after: Duration = "1h"
    """A Broker that was made for a pod, and that no person has set anything in, is deleted when its pod has been gone
    for this long and it owns nothing: a cluster that was scaled down has lost no brokers."""
    quarantine: Duration = "6h"
    """A bundle that came back to a broker within coolDown after it had left, or changed its owner three times within
    it, is left alone for this long, or until somebody annotates the Bundle with trimtab.dev/release: "true"."""
    max_undone_moves: Annotated[int, Field(ge=1, le=1000)] = 5
    """When somebody else undid so many of the policy's moves within an hour, it only advises: for 30 minutes, and
    twice as long each time that the other is still there, 8 hours at most."""


class Advice(Resource):
    """When the condition `RightSized` says that the cluster is too small or too large for its load."""

    enabled: bool = True
    """Whether it is said at all."""
    target_usage: Annotated[float, Field(gt=0, le=100)] = 60
    """Percent to which the most used resource of all brokers together should be used. With a tenth of it more the
    cluster is too small; too large when even with one broker less it would be a tenth of it less."""
    patience: Annotated[int, Field(ge=1, le=10000)] = 10
    """So many decisions in a row must find so before it is said."""


_TICK = "!has(self.brokerInterval) || duration(self.brokerInterval) <= duration(self.interval)"
_TICK_BOUND = "brokerInterval must not exceed interval"
_ITS_CLUSTER = "actuator Pulsar and the block pulsar belong together: give both, or neither"
_TOLD = "self.source.prometheus.bundleMetrics != 'Statistics' || self.actuator == 'Pulsar'"
_WHO_TELLS = "bundleMetrics Statistics are asked of Pulsar's brokers: it needs actuator Pulsar"
_SHORTEST_TICK = "brokerInterval is at least 5s"


def _tick(text: str) -> str:
    if seconds(text) < 5:  # noqa: PLR2004  (the bound, in seconds)
        raise ValueError(_SHORTEST_TICK)
    return text


BrokerInterval = Annotated[
    Duration, Field(json_schema_extra=cel(("duration(self) >= duration('5s')", _SHORTEST_TICK))), AfterValidator(_tick)
]
"""Time between two looks at the brokers: most are scraped every 15 s, so more often shows nothing new."""


class BalancingPolicySpec(Resource):
    """How to balance. By default it balances nothing: `mode` is `DryRun`. Bundles without an owner, and those of a lost
    broker, get one in every mode."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (_TICK, _TICK_BOUND), ("(self.actuator == 'Pulsar') == has(self.pulsar)", _ITS_CLUSTER), (_TOLD, _WHO_TELLS)
        )
    )

    mode: Mode = Mode.DRY_RUN
    """`DryRun` shows what would move in status.proposal. `Approve` offers it there, and moves once the annotation
    trimtab.dev/rebalance says `approve`. `Auto` moves, within `limits`."""
    approval: Approval = Approval()
    """How long a proposal waits in mode Approve."""
    paused: bool = False
    """Stop deciding. Wishes that people write are still carried out."""
    interval: Duration = "60s"
    """Time from one decision to the next."""
    broker_interval: BrokerInterval | None = None
    """Time from one look at the brokers alone to the next, 5s or more: their status.load is kept fresh, and when one
    died or crossed the overload line (the shedder's overloadThreshold, or 85 %) a decision follows at once. If left
    out, 10s, or `interval` if that is shorter."""
    brokers: BrokerSelector = BrokerSelector()
    """Which brokers are balanced among each other; all Broker objects of the namespace if left out."""
    source: Source
    """Where load comes from. Without data nothing moves."""
    shedder: ShedderSpec
    """Which bundles leave which brokers."""
    placement: PlacementSpec
    """Where they go, and where bundles that nobody owns go."""
    selection: SelectionSpec | None = None
    """Which brokers a bundle may go to at all, before the placement says which of them is best. If left out, what
    topic namespaces ask for (isolation, antiAffinityGroup) is kept to as `Extensible` does by default."""
    split: SplitterSpec | None = None
    """Which bundles are divided, and where; their children may be moved in the same decision. Each rule has a limit of
    bundles per namespace, and WeightedSplitter a budget of splits. If left out, none is."""
    windows: Annotated[tuple[Window, ...], Field(max_length=16)] = ()
    """When a policy in mode Auto may act by itself; always if left out. Outside, its plan is only shown. Wishes, lost
    brokers, and proposals that a person approves are seen to at any time."""
    advice: Advice = Advice()
    """When it is said that there are too few or too many brokers. Trimtab does not scale the cluster."""
    limits: Limits = Limits()
    """What no strategy may exceed: cool-down, caps, and how much must be known before anything moves."""
    actuator: ActuatorType = ActuatorType.DECLARATIVE
    """`Declarative`: brokers (or a sidecar) watch Bundle objects and confirm in status.owner. `Pulsar`: bundles are
    unloaded and split over Pulsar's admin REST, and the objects are kept in step with the cluster."""
    pulsar: PulsarSpec | None = None
    """The Pulsar cluster, with the actuator `Pulsar`."""

    @model_validator(mode="after")
    def _pulsar_for_pulsar(self) -> Self:
        if (self.actuator is ActuatorType.PULSAR) != (self.pulsar is not None):
            raise ValueError(_ITS_CLUSTER)
        return self

    @model_validator(mode="after")
    def _statistics_of_pulsar(self) -> Self:
        told = self.source.prometheus.bundle_metrics is BundleMetrics.STATISTICS
        if told and self.actuator is not ActuatorType.PULSAR:
            raise ValueError(_WHO_TELLS)
        return self

    @model_validator(mode="after")
    def _ticks_within_interval(self) -> Self:
        if self.broker_interval is not None and seconds(self.broker_interval) > seconds(self.interval):
            raise ValueError(_TICK_BOUND)
        return self


class LastCycle(Status):
    """What the last cycle did."""

    time: Timestamp
    """When it began."""
    seconds: float
    """How long it took."""
    phases: Annotated[dict[str, float], Field(max_length=32)] = Field(default_factory=dict)
    """Seconds by phase."""
    outcome: str
    """One word from the closed vocabulary of reasons: `Overloaded` when something moved, else why nothing did."""
    moved: Annotated[int, Field(ge=0)] = 0
    """Moves written."""
    split: Annotated[int, Field(ge=0)] = 0
    """Splits asked for."""
    held_back: Annotated[dict[str, int], Field(max_length=64)] = Field(default_factory=dict)
    """Moves considered and not made, counted by reason."""


class QuarantinedBundle(Status):
    """One bundle that is left alone."""

    bundle: str
    """Name of the Bundle object."""
    until: Timestamp
    """Until when."""


class Quarantine(Status):
    """The bundles that came back again and again, and are left alone."""

    total: Annotated[int, Field(ge=0)] = 0
    """How many there are."""
    bundles: Annotated[list[QuarantinedBundle], Field(max_length=20)] = Field(default_factory=list)
    """The 20 that are left alone longest."""


class BalancingPolicyStatus(Status):
    """What is observed of a policy."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """Generation of the spec that the last cycle ran."""
    conditions: Conditions = Field(default_factory=list)
    """`Ready` sums up; `Valid`, `DataTrusted`, `Balanced` say more, and `Acting` whether plans are carried out. In mode
    Approve also `ProposalReady` (one waits for approval), `Rebalancing` (one is carried out) and `CommandTaken` (what
    became of the last annotation, for an hour); where others move bundles `Flapping` and `CompetingBalancer`. With the
    actuator Pulsar `PulsarBalancerDisabled`: whether Pulsar's own shedding and automatic split are off on every broker.
    `RightSized`: whether there are about as many brokers as the load needs. `HistoryWritable`: whether the last cycle
    was written to the history."""
    last_cycle: LastCycle | None = None
    """The last cycle."""
    proposal: ProposalStatus | None = None
    """What it proposed."""
    progress: Progress | None = None
    """How far the proposal that was approved last has come."""
    in_flight: Annotated[int, Field(ge=0)] = 0
    """Moves written that have not landed yet."""
    quarantined: Quarantine | None = None
    """Bundles that balancing leaves alone for a while, as they came back again and again."""
