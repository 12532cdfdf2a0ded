"""`Metrics`: all that is measured of the operator. One object per process, passed along; there is no global registry.

No metric carries a label per bundle: at 60,000 bundles that would cost more than the operator itself.
"""

from __future__ import annotations

import platform
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from trimtab_operator import __version__

CONTENT_TYPE = CONTENT_TYPE_LATEST
"""Media type of `Metrics.text`."""

_CYCLE_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_MOVE_BUCKETS = (0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5, 3, 6, 12, 30)
_REQUEST_BUCKETS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Described(NamedTuple):
    """What the reference says of one metric: its name as Prometheus shows it, its type, its labels, and the text."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


class Metrics:
    """The metrics, registered in `registry` (a new one if left out). described: all of them, in order."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry = CollectorRegistry() if registry is None else registry
        self.described: list[Described] = []
        self._by_policy: list[tuple[Gauge, tuple[str, ...]]] = []

        def counter(name: str, text: str, *labels: str) -> Counter:
            self.described.append(Described(f"trimtab_{name}", "counter", labels, text))
            return Counter(f"trimtab_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            self.described.append(Described(f"trimtab_{name}", "gauge", labels, text))
            made = Gauge(f"trimtab_{name}", text, labels, registry=registry)
            if "policy" in labels:
                self._by_policy.append((made, labels))
            return made

        def histogram(name: str, text: str, label: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
            self.described.append(Described(f"trimtab_{name}", "histogram", label, text))
            return Histogram(f"trimtab_{name}", text, label, registry=registry, buckets=buckets)

        self.cycle_seconds = histogram("cycle_seconds", "Duration of a cycle's phases.", ("phase",), _CYCLE_BUCKETS)
        self.cycles = counter("cycles_total", "Cycles run, by policy and outcome (a Reason).", "policy", "outcome")
        self.moves = counter(
            "moves_total",
            "Moves, by policy, Reason and result: Written when asked for, then Landed, TimedOut, Superseded.",
            *("policy", "reason", "result"),
        )
        self.held_back = counter(
            "held_back_total", "Moves considered and not made, by policy and Reason.", "policy", "reason"
        )
        self.splits = counter("splits_total", "BundleSplits that ended, by phase and Reason.", "phase", "reason")
        self.broker_usage = gauge(
            "broker_usage_ratio", "Usage of a broker's limit, 0-1, by broker and resource.", "broker", "resource"
        )
        self.target_weight = gauge(
            "broker_target_weight",
            "What a broker is to carry, 1: as much as an average one without a fixed weight, by policy and broker.",
            *("policy", "broker"),
        )
        self.score = gauge(
            "broker_score",
            "Part of the load, 0-1, that a broker was found good for, by policy and broker.",
            *("policy", "broker"),
        )
        self.weight_error = gauge(
            "broker_weight_error_ratio",
            "What a broker carries above its target (below: negative), of that target, by policy and broker.",
            *("policy", "broker"),
        )
        self.cpu_range = gauge(
            "cpu_range_ratio", "CPU of the most used broker less that of the least used, 0-1, by policy.", "policy"
        )
        self.foreign_moves = counter(
            "foreign_moves_total",
            "Changes that the policy did not make: Foreign (nobody wished it), Undone, Overwritten (its wish).",
            *("policy", "kind"),
        )
        self.quarantined = gauge("quarantined_bundles", "Bundles left alone as they flapped, by policy.", "policy")
        self.in_flight = gauge("moves_in_flight", "Moves written that have not landed, by policy.", "policy")
        self.own_balancing_off = gauge(
            "pulsar_own_balancing_off", "1 while Trimtab has switched off Pulsar's own shedding or automatic split."
        )
        self.own_balancing_undone = counter(
            "pulsar_own_balancing_undone_total", "Times that somebody switched on again what Trimtab had switched off."
        )
        self.store_objects = gauge("store_objects", "Objects in the operator's picture, by kind.", "kind")
        self.store_age = gauge("store_age_seconds", "Time since that picture was last known to be current.", "kind")
        self.dropped_samples = counter("dropped_samples_total", "Samples not used, by reason.", "reason")
        self.api_request_seconds = histogram(
            "api_request_seconds", "Kubernetes API requests, by verb and status.", ("verb", "code"), _REQUEST_BUCKETS
        )
        self.mirror_seconds = gauge(
            "pulsar_mirror_seconds",
            "What one look at a Pulsar cluster takes: owners (all brokers once), namespaces (all of them once).",
            "part",
        )
        self.mirror_writes = counter(
            "pulsar_mirror_writes_total",
            "Writes to objects so that they say what Pulsar says, by kind and verb.",
            *("kind", "verb"),
        )
        self.pulsar_requests = counter(
            "pulsar_requests_total",
            "Requests to Pulsar's admin REST, by call and status (error: no answer).",
            *("call", "code"),
        )
        self.pulsar_request_seconds = histogram(
            "pulsar_request_seconds",
            "Duration of those requests, each hop of a redirect by itself.",
            ("call",),
            _REQUEST_BUCKETS,
        )
        self.pulsar_budget_wait = counter(
            "pulsar_budget_wait_seconds_total", "Time that looks at Pulsar waited for spec.pulsar.requestsPerSecond."
        )
        self.pulsar_unloads = counter(
            "pulsar_unloads_total",
            "How wishes carried out by unloads ended: Landed, Elsewhere, Nobody, Stale, Inactive, Failed.",
            "result",
        )
        self.pulsar_landing_seconds = histogram(
            "pulsar_landing_seconds", "From an unload's request to the new owner's being seen.", (), _REQUEST_BUCKETS
        )
        self.linked = gauge("pulsar_linked", "1 while the linked Pulsar cluster answers, 0 while it does not.")
        self.move_interruption = histogram(
            "move_interruption_seconds", "Until a moved bundle's publishers were back; a sample.", (), _MOVE_BUCKETS
        )
        self.crosscheck = gauge(
            "pulsar_crosscheck_ratio",
            "Largest factor between a broker's messages by Prometheus and by itself, 1 or more.",
        )
        self.leader = gauge("leader", "1 in the process that leads, 0 in a standby.")
        build = gauge("build_info", "Always 1; version of Trimtab and of Python.", "version", "python")
        build.labels(__version__, platform.python_version()).set(1)

    def observe_request(self, verb: str, code: str, seconds: float) -> None:
        """Record one Kubernetes API request: what `Api.connect(observe=...)` wants."""
        self.api_request_seconds.labels(verb, code).observe(seconds)

    def observe_pulsar(self, call: str, code: str, seconds: float) -> None:
        """Record one request to Pulsar: what `pulsar.transport.Guards` wants."""
        self.pulsar_requests.labels(call, code).inc()
        self.pulsar_request_seconds.labels(call).observe(seconds)

    def forget_policy(self, policy: str) -> None:
        """Show no gauge of a policy that is gone: an alert on it would never end."""
        for gauge, labels in self._by_policy:
            shown = [sample.labels for metric in gauge.collect() for sample in metric.samples]
            for found in [found for found in shown if found["policy"] == policy]:
                gauge.remove(*(found[label] for label in labels))

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
