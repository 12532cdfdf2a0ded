"""`Settings`: a validated policy as its loop needs it, with durations in seconds and its strategies created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from pydantic import ValidationError

from trimtab_operator.actuators import Actuator
from trimtab_operator.resources.budget import PolicyBudget
from trimtab_operator.resources.common import Window, problems_of
from trimtab_operator.resources.policy import BalancingPolicySpec, BrokerSelector, Mode
from trimtab_operator.resources.policy_status import PAUSE_ANNOTATION, AutoApproval
from trimtab_operator.resources.prometheus import Auth, TrustSpec
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.policies import Claim
from trimtab_operator.state.strategy_state import PolicyState, StrategyNames
from trimtab_pipeline.api import NOBODY_IN_PARTICULAR, LoadSource, PrometheusSettings, StatisticsSettings, Trust
from trimtab_strategies import registry
from trimtab_strategies.filters import BrokerSelection
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import Memory
from trimtab_strategies.params import quantity, seconds
from trimtab_strategies.planner.decide import Pair
from trimtab_strategies.protocols import Splitter
from trimtab_strategies.sizing import SizingTarget

OVERLOAD_LINE = 85.0
"""Overload threshold in percent for shedders without an `overloadThreshold`: Pulsar's default."""
BROKER_INTERVAL = 10.0
"""Default of `brokerInterval` in seconds. A policy whose `interval` is shorter uses that instead."""

FORGET_AFTER = 3600.0
"""Default of `forgetAfter` in seconds. It also applies to a broker without a policy."""


class InvalidPolicyError(ValueError):
    """The policy can't be run as written; the text names each field, its value and what is allowed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one policy. Durations in seconds, limits as ratios.

    born: when the policy was created, as the API server writes it.
    broker_interval: time from one broker refresh to the next; if it equals `interval`, there is no refresh between two
    cycles.
    overload_line: usage (ratio, by the shedder's weights); a broker whose usage reaches it starts a cycle.
    forget_after: how long a discovered broker without a pod is kept. aim: target of the sizing advice; None: no advice.
    max_undone_moves: number of undone moves within an hour at which the policy stands down. approval_expires_after: how
    long a proposal waits. auto_approval: which proposals need no person. max_moves_in_flight: maximum number of pending
    moves of an approved proposal. budget: how much disruption moves may cause; None: no limit.

    prometheus: its settings, without credentials; `auth` names the Secrets that hold them.
    pulsar: the Pulsar cluster that moves bundles; None: brokers that watch the objects move them.
    spec: the spec of the policy as it was read, for the history.
    """

    name: str
    born: str
    generation: int
    mode: Mode
    paused: bool
    interval: float
    broker_interval: float
    overload_line: float
    move_timeout: float
    lost_after: float
    pod_labels: Mapping[str, str] | None
    broker_names: tuple[str, ...] | None
    prometheus: PrometheusSettings
    auth: Auth | None
    pair: Pair
    strategies: StrategyNames
    limits: MoveLimits
    approval_expires_after: float = 900.0
    auto_approval: AutoApproval | None = None
    max_moves_in_flight: int = 10
    budget: PolicyBudget | None = None
    forget_after: float = FORGET_AFTER
    aim: SizingTarget | None = None
    max_undone_moves: int = 5
    windows: tuple[Window, ...] = ()
    pulsar: PulsarSpec | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, policy: Mapping[str, Any]) -> Self:
        """Read a BalancingPolicy object (as JSON); raises `InvalidPolicyError`."""
        meta = policy["metadata"]
        spec = _validated(policy.get("spec") or {})
        shedder, shedder_params = spec.shedder.chosen()
        placement, placement_params = spec.placement.chosen()
        annotations = meta.get("annotations") or {}
        return cls(
            name=meta["name"],
            born=meta.get("creationTimestamp", ""),
            generation=meta.get("generation", 0),
            mode=spec.mode,
            paused=spec.paused or annotations.get(PAUSE_ANNOTATION) == "true",
            interval=seconds(spec.interval),
            broker_interval=_broker_interval(spec),
            overload_line=getattr(shedder_params, "overload_threshold", OVERLOAD_LINE) / 100,
            move_timeout=seconds(spec.limits.move_timeout),
            lost_after=seconds(spec.limits.lost_after),
            pod_labels=spec.brokers.pod_labels,
            broker_names=tuple(spec.brokers.names) if spec.brokers.names is not None else None,
            prometheus=_prometheus(spec, meta["namespace"]),
            auth=spec.source.prometheus.auth,
            pair=replace(
                registry.pair(shedder, shedder_params.model_dump(), placement, placement_params.model_dump()),
                selection=_selection(spec),
                splitter=_splitter(spec),
            ),
            strategies=StrategyNames(shedder, placement, spec.split.chosen()[0] if spec.split is not None else ""),
            limits=_limits(spec),
            approval_expires_after=seconds(spec.approval.expires_after),
            auto_approval=spec.approval.auto,
            max_moves_in_flight=spec.limits.max_moves_in_flight,
            budget=spec.budget,
            forget_after=seconds(spec.limits.forget_after),
            aim=_aim(spec),
            max_undone_moves=spec.limits.max_undone_moves,
            windows=spec.windows,
            pulsar=spec.pulsar,
            spec=policy.get("spec") or {},
        )

    @property
    def asks_brokers(self) -> bool:
        """Whether the load of bundles comes from the brokers' own statistics."""
        return self.prometheus.bundle_metrics == "statistics"

    @property
    def claim(self) -> Claim:
        """Which brokers the policy selects."""
        return Claim(self.name, self.born, self.broker_names, self.pod_labels)


def claim_of(policy: Mapping[str, Any]) -> Claim | None:
    """Claim of a BalancingPolicy object (as JSON) that can't be run; None when `spec.brokers` is invalid, too."""
    meta, spec = policy["metadata"], policy.get("spec") or {}
    try:
        brokers = BrokerSelector.model_validate(spec.get("brokers") or {})
    except ValidationError:
        return None
    born = meta.get("creationTimestamp", "")
    return Claim(meta["name"], born, brokers.names, brokers.pod_labels, idle=True)


def _validated(spec: Mapping[str, Any]) -> BalancingPolicySpec:
    try:
        return BalancingPolicySpec.model_validate(spec)
    except ValidationError as error:
        raise InvalidPolicyError(problems_of(error)) from error


def _broker_interval(spec: BalancingPolicySpec) -> float:
    wanted = BROKER_INTERVAL if spec.broker_interval is None else seconds(spec.broker_interval)
    return min(wanted, seconds(spec.interval))


def _aim(spec: BalancingPolicySpec) -> SizingTarget | None:
    return SizingTarget(spec.advice.target_usage_percent / 100, spec.advice.patience) if spec.advice.enabled else None


def _selection(spec: BalancingPolicySpec) -> BrokerSelection | None:
    return None if spec.selection is None else registry.selection(*spec.selection.chosen())


def _splitter(spec: BalancingPolicySpec) -> Splitter | None:
    return None if spec.split is None else registry.splitter(*spec.split.chosen())


def _prometheus(spec: BalancingPolicySpec, namespace: str) -> PrometheusSettings:
    source = spec.source.prometheus
    return PrometheusSettings(
        url=source.url,
        namespace=namespace,
        resources=source.resources.value.lower(),
        window=seconds(source.window),
        timeout=seconds(source.timeout),
        max_age=seconds(source.max_age),
        trust=_trust(source.trust),
        nic_speed=quantity(source.nic_speed) / 8,
        network_device=source.network_device,
        container=source.container,
        namespace_label=source.namespace_label,
        bundle_metrics=source.bundle_metrics.value.lower(),
        queries=source.queries.given() if source.queries else (),
        averages=source.averages.value.lower(),
        hot_bundles=source.hot_bundles,
        method=source.method.value,
        matchers=tuple(source.matchers.items()),
        parameters=tuple(source.parameters.items()),
        partial_response=source.partial_response,
        statistics=StatisticsSettings(timeout=seconds(spec.pulsar.timeout)) if spec.pulsar else NOBODY_IN_PARTICULAR,
    )


def _trust(spec: TrustSpec) -> Trust:
    return Trust(
        above_limit=spec.above_limit,
        max_resets=spec.max_resets,
        max_clock_skew=seconds(spec.max_clock_skew),
        min_samples=spec.min_samples,
    )


def _limits(spec: BalancingPolicySpec) -> MoveLimits:
    limits = spec.limits
    return MoveLimits(
        cool_down=seconds(limits.cool_down),
        max_moves_per_cycle=limits.max_moves_per_cycle,
        max_moves_per_broker=limits.max_moves_per_broker,
        max_moves_per_hour=limits.max_moves_per_hour,
        max_splits_per_cycle=limits.max_splits_per_cycle,
        min_trusted_brokers=limits.min_trusted_brokers_percent / 100,
        max_lost_brokers=limits.max_lost_brokers_percent / 100,
        ramp_up=seconds(limits.ramp_up),
    )


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One reconcile of a policy: its settings, its actuator, its load source, and its stored state."""

    settings: Settings
    actuator: Actuator
    source: LoadSource
    state: PolicyState

    @property
    def memory(self) -> Memory:
        """The memory of the strategies that the policy names."""
        return self.state.memory_for(self.settings.strategies)
