"""All metrics of the operator. Each process has one `Metrics` object and passes it along: no registry is global.

If a process manages messaging clusters outside its own namespace, each cluster has its own part
(`Metrics.of_namespace`), and its metrics get the label `namespace`. Otherwise they have no such label, because
Prometheus adds the pod's namespace.

No metric has the bundle as a label: at 60,000 bundles that would cost more than the operator itself.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from math import nan
from typing import cast

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric

from trimtab_operator import __version__
from trimtab_operator.telemetry.described import PROCESS, DescribedMetrics

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""Media type of `Metrics.text`."""

_CYCLE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_MOVE_BUCKETS = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 12, 30)
_ERROR_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)
_DELAY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_REQUEST_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics(DescribedMetrics):
    """The metrics, in a registry of their own.

    process: the metrics of the process, if this object holds those of one namespace.
    """

    def __init__(self, process: Metrics | None = None) -> None:
        super().__init__()
        self._of_namespaces: dict[str, Metrics] = {}
        self._of_brokers()
        self._of_policies()
        self._of_moves()
        self._of_proposals()
        self._of_pulsar()
        self._of_stores()
        if process is None:
            self._of_the_process()
        else:
            self._share(process)

    def _of_brokers(self) -> None:
        self.broker_usage = self._gauge(
            "broker_usage_ratio",
            "Usage of a broker relative to its limit, 0-1, by policy, broker and resource.",
            *("policy", "broker", "resource"),
        )
        self.message_rate = self._gauge(
            "broker_message_rate",
            "Messages per second of a broker, by policy, broker and direction (in, out).",
            *("policy", "broker", "direction"),
        )
        self.target_weight = self._gauge(
            "broker_target_weight",
            "Target weight by policy and broker; 1 is an average broker without a fixed weight.",
            *("policy", "broker"),
        )
        self.score = self._gauge(
            "broker_score",
            "Learned share of the load, 0-1, that a broker can carry, by policy and broker.",
            *("policy", "broker"),
        )
        self.weight_error = self._gauge(
            "broker_weight_error_ratio",
            "Load of a broker minus its target, relative to the target, by policy and broker.",
            *("policy", "broker"),
        )
        self.cpu_range = self._gauge(
            "cpu_range_ratio", "CPU of the most used broker minus that of the least used one, 0-1, by policy.", "policy"
        )
        self.brokers = self._gauge(
            "brokers", "Number of brokers, by policy; data: Trusted, or the Reason of distrust.", "policy", "data"
        )
        self.brokers_wanted = self._gauge(
            "brokers_wanted",
            "Number of brokers at which usage would be near the target of spec.advice; absent: unknown.",
            "policy",
        )
        self.sample_age = self._gauge(
            "sample_age_seconds", "Age of the oldest of the brokers' newest samples, by policy.", "policy"
        )
        self.unmeasured = self._gauge(
            "bundles_unmeasured", "Bundles without a measured load, which stay where they are.", "policy"
        )
        self.dropped_samples = self._counter(
            "dropped_samples_total", "Samples not used, by reason. Those of AboveLimit are used.", "reason"
        )

    def _of_policies(self) -> None:
        self.policy_state = self._gauge(
            "policy_state",
            "Always 1; state: Acting, or the Reason why the policy does not act. One state per policy.",
            *("policy", "state"),
        )
        self.balanced = self._gauge(
            "balanced",
            "1 when the last cycle found nothing to move, 0 when bundles should move, even if they may not.",
            "policy",
        )
        self.last_cycle = self._gauge(
            "last_cycle_timestamp_seconds", "When the last cycle started, or was refused (epoch seconds).", "policy"
        )
        self.interval = self._gauge("cycle_interval_seconds", "The policy's interval.", "policy")
        self.history_writable = self._gauge(
            "history_writable",
            "1 when the last cycle was written to the policy's history, 0 when it was not.",
            "policy",
        )
        self.hits = self._gauge(
            "hit_count",
            "Highest hit count (cycles in a row with a reason to act), by kind. low and high: a broker was far from "
            "the others. cause: the shedder had a reason. split: a bundle was too large.",
            *("policy", "kind"),
        )
        self.predictions_right = self._gauge(
            "predictions_right_ratio",
            "Ratio, 0-1, of the shedder's last predictions (20 at most) within 3 points of the measured CPU; absent: "
            "none was judged.",
            "policy",
        )
        self.predictions_off = self._gauge(
            "predictions_off_ratio",
            "Median distance of the shedder's last predictions from the measured CPU, 0-1; absent: none was judged.",
            "policy",
        )
        self.plan_step = self._gauge(
            "plan_step_ratio",
            "Share, 0-1, of the usual moves that the next plan may make: below 1 after wrong predictions.",
            "policy",
        )
        self.cycle_seconds = self._histogram(
            "cycle_seconds", "Duration of a cycle's phases.", ("phase",), _CYCLE_BUCKETS
        )
        self.cycles = self._counter(
            "cycles_total", "Cycles run, by policy and outcome (a Reason).", "policy", "outcome"
        )
        self.prediction_error = self._histogram(
            "prediction_error_ratio",
            "Error of the predicted CPU of a broker after moves, 0-1; brokers that changed since are left out.",
            *(("policy",), _ERROR_BUCKETS),
        )

    def _of_moves(self) -> None:
        self.moves = self._counter(
            "moves_total",
            "Moves, by policy, Reason and result: Written when requested, then Landed, TimedOut or Superseded.",
            *("policy", "reason", "result"),
        )
        self.held_back = self._counter(
            "held_back_total", "Moves considered and not made, by policy and Reason.", "policy", "reason"
        )
        self.splits = self._counter("splits_total", "BundleSplits that ended, by phase and Reason.", "phase", "reason")
        self.external_moves = self._counter(
            "external_moves_total",
            "Owners changed by others: External (without a request), Reverted, Overwritten (spec.owner, repeatedly).",
            *("policy", "kind"),
        )
        self.ring_faults = self._gauge(
            "hash_ring_faults",
            "By kind: TopicNamespaces with a Gap; Bundles that Overlap, or whose TopicNamespace is Unknown.",
            "kind",
        )
        self.budget_spent = self._gauge(
            "budget_spent_ratio",
            "Spent part of a policy's disruption budget by limit; above 1 after moves that no budget holds back.",
            *("policy", "limit"),
        )
        self.namespace_budget_spent = self._gauge(
            "namespace_budget_spent_ratio",
            "Spent part of the disruption budget of a TopicNamespace (tenant/name), by limit.",
            *("topic_namespace", "limit"),
        )
        self.budget_overrides = self._counter(
            "budget_overrides_total",
            "Moves beyond a disruption budget, by policy and Reason. Moves for drains and people are never held back.",
            *("policy", "reason"),
        )
        self.in_flight = self._gauge("moves_in_flight", "Moves that are written and not finished, by policy.", "policy")
        self.move_interruption = self._histogram(
            "move_interruption_seconds",
            "Time until the publishers of a moved bundle reconnect, for a sample of moves.",
            (),
            _MOVE_BUCKETS,
        )

    def _of_proposals(self) -> None:
        self.proposal_state = self._gauge(
            "proposal_state",
            "Always 1; state: state of the proposal of a policy in mode Approve.",
            "policy",
            "state",
        )
        self.proposal_expires = self._gauge(
            "proposal_expires_timestamp_seconds",
            "When the waiting proposal expires (epoch seconds); absent: none waits.",
            "policy",
        )
        self.proposals = self._counter(
            "proposals_total",
            "Proposals by policy and event: Offered, Approved, Expired, Superseded, Refreshed, Stopped.",
            *("policy", "event"),
        )

    def _of_pulsar(self) -> None:
        self.own_balancing_off = self._gauge(
            "pulsar_own_balancing_off", "1 while Trimtab has switched off Pulsar's own shedding or automatic split."
        )
        self.own_balancing_undone = self._counter(
            "pulsar_own_balancing_undone_total", "Times that Pulsar's own balancer was switched on again."
        )
        self.mirror_seconds = self._gauge(
            "pulsar_mirror_seconds",
            "Duration of one sync with a Pulsar cluster. part: owners (of all brokers), namespaces (all).",
            "part",
        )
        self.mirror_writes = self._counter(
            "pulsar_mirror_writes_total",
            "Writes to objects to bring them in line with Pulsar, by kind and verb.",
            *("kind", "verb"),
        )
        self.pulsar_requests = self._counter(
            "pulsar_requests_total",
            "Requests to Pulsar's admin REST API, by call and status (error: no answer).",
            *("call", "code"),
        )
        self.pulsar_request_seconds = self._histogram(
            "pulsar_request_seconds",
            "Duration of requests to Pulsar's admin REST API, each hop of a redirect separately.",
            ("call",),
            _REQUEST_BUCKETS,
        )
        self.pulsar_budget_wait = self._counter(
            "pulsar_budget_wait_seconds_total", "Time that requests waited because of spec.pulsar.requestsPerSecond."
        )
        self.pulsar_unloads = self._counter(
            "pulsar_unloads_total",
            "Unloads to the desired owner by result: Landed, Elsewhere, Unassigned, Returned, Stale, Inactive, Failed.",
            "result",
        )
        self.pulsar_landing_seconds = self._histogram(
            "pulsar_landing_seconds", "From the request of an unload until the new owner is seen.", (), _REQUEST_BUCKETS
        )
        self.linked = self._gauge(
            "pulsar_linked", "1 while the linked Pulsar cluster answers, 0 while it does not; NaN: none is linked."
        )
        self.cross_check = self._gauge(
            "pulsar_crosscheck_ratio",
            "Largest factor between a broker's messages/s in Prometheus and in its own statistics; NaN: not compared.",
        )
        self.unlink()

    def _of_stores(self) -> None:
        self.store_objects = self._gauge("store_objects", "Objects in the operator's stores, by kind.", "kind")
        self.store_age = self._gauge(
            "store_age_seconds", "Time since a store was last known to be current, by kind.", "kind"
        )

    def _of_the_process(self) -> None:
        self.leader = self._gauge("leader", "1 in the process that leads, 0 in a standby.")
        self.epoch = self._gauge("leader_epoch", "Epoch of this process as leader; 0 if it never led.")
        self.api_request_seconds = self._histogram(
            "api_request_seconds", "Kubernetes API requests, by verb and status.", ("verb", "code"), _REQUEST_BUCKETS
        )
        self.loop_delay = self._histogram(
            "event_loop_delay_seconds",
            "How late the event loop resumes a task.",
            (),
            _DELAY_BUCKETS,
        )
        build = self._gauge("build_info", "Always 1; version of Trimtab and of Python.", "version", "python")
        build.labels(__version__, platform.python_version()).set(1)
        self.described += PROCESS
        ProcessCollector(registry=self.registry)

    def _share(self, process: Metrics) -> None:
        """Take the metrics that exist only once from those of the process."""
        self.leader, self.epoch = process.leader, process.epoch
        self.api_request_seconds, self.loop_delay = process.api_request_seconds, process.loop_delay

    def observe_request(self, verb: str, code: str, seconds: float) -> None:
        """Record one Kubernetes API request. Pass this method to `Api.connect(observe=...)`."""
        self.api_request_seconds.labels(verb, code).observe(seconds)

    def observe_pulsar(self, call: str, code: str, seconds: float) -> None:
        """Record one request to Pulsar. Pass this method to `pulsar.client.transport.Guards`."""
        self.pulsar_requests.labels(call, code).inc()
        self.pulsar_request_seconds.labels(call).observe(seconds)

    def unlink(self) -> None:
        """Set the metrics of a Pulsar cluster to NaN, because none is linked. A 0 would mean an outage."""
        self.linked.set(nan)
        self.cross_check.set(nan)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(cast("CollectorRegistry", self))  # the function calls nothing but `collect`

    def of_namespace(self, namespace: str) -> Metrics:
        """The metrics of one of several clusters."""
        return self._of_namespaces.setdefault(namespace, Metrics(self))

    def forget_namespace(self, namespace: str) -> None:
        """Remove the metrics of a cluster that is no longer managed."""
        self._of_namespaces.pop(namespace, None)

    def collect(self) -> Iterator[Metric]:
        """All metric families. Those of the namespaces are merged, and have the label `namespace`."""
        families: dict[str, Metric] = {}
        for namespace, metrics in sorted(self._of_namespaces.items()):
            for part in (*metrics.collect(), *self.leader.collect(), *self.epoch.collect()):
                family = families.setdefault(part.name, Metric(part.name, part.documentation, part.type))
                family.samples += [s._replace(labels={**s.labels, "namespace": namespace}) for s in part.samples]
        yield from families.values()
        yield from (family for family in self.registry.collect() if family.name not in families)
