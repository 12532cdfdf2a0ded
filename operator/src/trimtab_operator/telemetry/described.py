"""How the reference describes a metric, and the metrics that every client library of Prometheus has."""

from __future__ import annotations

from typing import NamedTuple


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
