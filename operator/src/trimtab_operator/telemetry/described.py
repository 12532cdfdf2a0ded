"""Metrics that the reference describes, and those that every client library of Prometheus has."""

from __future__ import annotations

from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class DescribedMetric(NamedTuple):
    """A metric in the reference: its name in Prometheus, its type, its labels, and its help text."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


PROCESS = (
    DescribedMetric(
        "process_cpu_seconds_total", "counter", (), "Processor time of the operator's process, without Spark's."
    ),
    DescribedMetric("process_max_fds", "gauge", (), "File descriptors that the process may have open."),
    DescribedMetric("process_open_fds", "gauge", (), "File descriptors that the process has open."),
    DescribedMetric("process_resident_memory_bytes", "gauge", (), "Memory of the operator's process, without Spark's."),
    DescribedMetric("process_start_time_seconds", "gauge", (), "When the process started (epoch seconds)."),
    DescribedMetric("process_virtual_memory_bytes", "gauge", (), "Size of the process's virtual memory."),
)
"""Metrics that every client library of Prometheus has."""


class DescribedMetrics:
    """Metrics ``trimtab_NAME`` in a registry of their own. described: all of them, in order."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.described: list[DescribedMetric] = []
        self._by_policy: list[tuple[Gauge, tuple[str, ...]]] = []

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        self.described.append(DescribedMetric(f"trimtab_{name}", "counter", labels, text))
        return Counter(f"trimtab_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        self.described.append(DescribedMetric(f"trimtab_{name}", "gauge", labels, text))
        made = Gauge(f"trimtab_{name}", text, labels, registry=self.registry)
        if "policy" in labels:
            self._by_policy.append((made, labels))
        return made

    def _histogram(self, name: str, text: str, label: tuple[str, ...], buckets: tuple[float, ...]) -> Histogram:
        self.described.append(DescribedMetric(f"trimtab_{name}", "histogram", label, text))
        return Histogram(f"trimtab_{name}", text, label, registry=self.registry, buckets=buckets)

    def forget_policy(self, policy: str) -> None:
        """Remove the gauges of a deleted policy. Otherwise an alert on them would never resolve."""
        for gauge, labels in self._by_policy:
            shown = [sample.labels for metric in gauge.collect() for sample in metric.samples]
            for found in [found for found in shown if found["policy"] == policy]:
                gauge.remove(*(found[label] for label in labels))
