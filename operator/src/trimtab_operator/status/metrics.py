"""`PolicyMetrics`: metrics of one policy's cycles, of the load and trust of its brokers, and of its proposal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from prometheus_client import Gauge

from trimtab_operator.budget.prices import UNRESTRAINED
from trimtab_operator.observe.snapshot import trusted_only
from trimtab_operator.resources.budget import BudgetStatus
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.ownership_changes import ChangeKind
from trimtab_operator.state.target_weights import BrokerWeight
from trimtab_operator.status.conditions import cpu_range
from trimtab_strategies.model import RATE_IN, RATE_OUT, RESOURCES, ClusterLoad, Memory, Plan, Reason
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.protocols import Predictions

ACTING = "Acting"
"""Value of the label `state` for a policy that carries out its plans."""


TRUSTED = "Trusted"
"""Value of the label `data` for a broker whose metrics are trusted."""


PROPOSAL_ENDS = ("Offered", "Approved", "Expired", "Superseded", "Refreshed", "Stopped")
"""What can happen to a proposal before it is carried out: values of the label `event`."""

_ENDINGS = (Reason.LANDED, Reason.TIMED_OUT, Reason.SUPERSEDED)

_USUAL = (Reason.OVERLOADED, Reason.UNDERLOADED, Reason.DRAINED, Reason.ROLLING_OUT)

_BY_OTHERS = (ChangeKind.EXTERNAL, ChangeKind.REVERTED, ChangeKind.OVERWRITTEN)


@dataclass(slots=True)
class PolicyMetrics:
    """Sets the metrics of `policy`. Removes a value that is no longer known, because an alert on it would never end."""

    cluster: ClusterState
    policy: str
    _shown: dict[Gauge, frozenset[tuple[str, ...]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Remove values of an earlier policy of that name. Start counters at 0, or `increase` misses the first step."""
        metrics = self.cluster.metrics
        metrics.forget_policy(self.policy)
        for ending in _ENDINGS:
            metrics.moves.labels(self.policy, "", str(ending))
        for reason in _USUAL:
            metrics.moves.labels(self.policy, str(reason), "Written")
        for reason in UNRESTRAINED:
            metrics.budget_overrides.labels(self.policy, str(reason))
        for kind in _BY_OTHERS:
            metrics.external_moves.labels(self.policy, kind.value)
        for word in PROPOSAL_ENDS:
            metrics.proposals.labels(self.policy, word)
        metrics.prediction_error.labels(self.policy)

    def cycle(self, result: CycleResult) -> None:
        """Record one cycle."""
        metrics, policy = self.cluster.metrics, self.policy
        metrics.cycles.labels(policy, str(result.outcome)).inc()
        for phase, value in result.seconds.items():
            metrics.cycle_seconds.labels(phase).observe(value)
        for move in result.moved:
            metrics.moves.labels(policy, str(move.reason), "Written").inc()
        for reason, count in result.held_back.items():
            metrics.held_back.labels(policy, reason).inc(count)
        metrics.in_flight.labels(policy).set(self.cluster.in_flight(policy))
        metrics.last_cycle.labels(policy).set(result.started)
        if result.interval is not None:
            metrics.interval.labels(policy).set(result.interval)
        if result.unwritten is not None:
            metrics.history_writable.labels(policy).set(float(not result.unwritten))
        self._state(result)
        self._plan(result.plan, result.load)
        self._load(result.load)
        wanted = 0 if result.sizing is None else result.sizing.wanted
        self._show(metrics.brokers_wanted, {(): float(wanted)} if wanted else {})
        if result.refusal is None:
            self._weights(result.weights)
            self._show(metrics.hits, {(kind,): float(most) for kind, most in result.hits.items()})
            self._predictions(result.predictions)
            self._budget(result.budget)

    def _budget(self, budget: BudgetStatus | None) -> None:
        uses = () if budget is None else budget.limits
        self._show(self.cluster.metrics.budget_spent, {(use.limit,): use.spent / use.bound for use in uses})

    def usage(self, names: Sequence[str], usage: FloatArray, load: ClusterLoad | None) -> None:
        """Record the usage of the trusted brokers among `names`. The figures of the others may be anything, even 0.

        usage: (n, 5) percent, NaN if unknown. load: the snapshot of the usage, with the same rows.
        """
        usage = trusted_only(usage, load)
        of_resources = (
            ((name, resource), usage[row, column] / 100)
            for row, name in enumerate(names)
            for column, resource in enumerate(RESOURCES)
        )
        self._show(self.cluster.metrics.broker_usage, known(of_resources))
        if load is not None:
            traffic = trusted_only(load.brokers.traffic, load)
            of_directions = (
                ((name, direction), traffic[row, column])
                for row, name in enumerate(load.brokers.names)
                for direction, column in (("in", RATE_IN), ("out", RATE_OUT))
            )
            self._show(self.cluster.metrics.message_rate, known(of_directions))

    def predicted(self, errors: Iterable[float]) -> None:
        """Record prediction errors: points of CPU between the expected and the measured usage of brokers."""
        for error in errors:
            self.cluster.metrics.prediction_error.labels(self.policy).observe(abs(error) / 100)

    def proposal(self, state: ProposalState | None, expires: float | None) -> None:
        """Record the state of the policy's proposal; None: its mode is not Approve. expires: epoch seconds."""
        metrics = self.cluster.metrics
        self._show(metrics.proposal_state, {} if state is None else {(str(state),): 1.0})
        self._show(metrics.proposal_expires, {} if expires is None else {(): expires})

    def became(self, what: str) -> None:
        """Count what happened to a proposal: one of `PROPOSAL_ENDS`."""
        self.cluster.metrics.proposals.labels(self.policy, what).inc()

    def _predictions(self, found: Predictions | None) -> None:
        metrics = self.cluster.metrics
        gauges = (metrics.predictions_right, metrics.predictions_off, metrics.plan_step)
        values = (np.nan,) * 3 if found is None else (found.right, found.off / 100, found.step)
        for gauge, value in zip(gauges, values, strict=True):
            self._show(gauge, known([((), value)]))

    def _state(self, result: CycleResult) -> None:
        metrics, held = self.cluster.metrics, result.refusal or result.restraint
        self._show(metrics.policy_state, {(ACTING if held is None else str(held.reason),): 1.0})
        judged = result.refusal is None and result.plan is not None
        self._show(metrics.balanced, {(): float(result.outcome is Reason.BALANCED)} if judged else {})

    def _plan(self, plan: Plan | None, load: ClusterLoad | None) -> None:
        ends = None if plan is None else cpu_range(plan, load)
        self._show(self.cluster.metrics.cpu_range, {} if ends is None else {(): (ends[1] - ends[0]) / 100})
        if plan is None:
            for gauge in (self.cluster.metrics.broker_usage, self.cluster.metrics.message_rate):
                self._show(gauge, {})

    def _load(self, load: ClusterLoad | None) -> None:
        metrics = self.cluster.metrics
        self._show(metrics.brokers, {} if load is None else _by_trust(load))
        ages = np.zeros(0) if load is None else load.brokers.age[np.isfinite(load.brokers.age)]
        self._show(metrics.sample_age, {(): float(ages.max())} if ages.size else {})
        unknown = None if load is None else np.isnan(load.bundles.short).all(axis=1).sum()
        self._show(metrics.unmeasured, {} if unknown is None else {(): float(unknown)})
        if load is not None:
            for reason, count in load.quality.dropped.items():
                metrics.dropped_samples.labels(reason).inc(count)

    def _weights(self, weights: Mapping[str, BrokerWeight]) -> None:
        metrics = self.cluster.metrics
        self._show(metrics.target_weight, {(name,): weight.target for name, weight in weights.items()})
        self._show(metrics.score, {(name,): weight.score for name, weight in weights.items()})
        self._show(metrics.weight_error, {(name,): weight.error for name, weight in weights.items()})

    def _show(self, gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """Set these values of the policy, and remove the others. values: labels after the policy's name -> value."""
        for gone in self._shown.get(gauge, frozenset()) - values.keys():
            gauge.remove(self.policy, *gone)
        for labels, value in values.items():
            gauge.labels(self.policy, *labels).set(value)
        self._shown[gauge] = frozenset(values)


def hit_counts(memory: Memory) -> dict[str, float]:
    """The highest hit count by kind, from the memory of strategies that keep hit counts: see `Metrics.hits`."""
    of_brokers, shedding = memory.shedder.get("brokers", {}), memory.shedder.get("hits")
    found = {
        "low": of_brokers.get("hitLow"),
        "high": of_brokers.get("hitHigh"),
        "cause": {"": shedding} if isinstance(shedding, int | float) else None,
        "split": memory.splitter.get("hits"),
    }
    return {kind: max(hits.values(), default=0.0) for kind, hits in found.items() if hits is not None}


def known(values: Iterable[tuple[tuple[str, ...], float]]) -> dict[tuple[str, ...], float]:
    """The finite ones of the `values`."""
    return {labels: float(value) for labels, value in values if np.isfinite(value)}


def _by_trust(load: ClusterLoad) -> dict[tuple[str, ...], float]:
    counts: dict[tuple[str, ...], float] = {(TRUSTED,): 0.0}
    for name, trusted in zip(load.brokers.names, load.brokers.trusted.tolist(), strict=True):
        doubt = load.quality.doubts.get(name)
        word = TRUSTED if trusted else str(doubt.reason if doubt else Reason.UNTRUSTED)
        counts[word,] = counts.get((word,), 0.0) + 1
    return counts
