"""Past samples for a real Prometheus: series of brokers and bundles, which promtool writes as blocks."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from trimtab_testbed.programs import find
from trimtab_testbed.servers.prometheus import PrometheusServer

BUNDLE_FACTORS = {"rate_in": 1.0, "rate_out": 2.0, "throughput_in": 1000.0, "throughput_out": 3000.0}
"""Traffic of a bundle, or a broker, with one message/s in."""
_NETWORK = {"container_network_receive_bytes_total": 1000.0, "container_network_transmit_bytes_total": 3000.0}


@dataclass
class RecordedPast:
    """Series of pods in a Kubernetes namespace, in OpenMetrics' text format."""

    namespace: str = "messaging"
    lines: list[str] = field(default_factory=list)

    def show(self, metric: str, labels: Mapping[str, str], time: float, value: float) -> None:
        """A sample at `time` (epoch seconds)."""
        named = {"namespace": self.namespace, **labels}
        text = ",".join(f'{name}="{told}"' for name, told in named.items())
        self.lines.append(f"{metric}{{{text}}} {value:.17g} {time:.3f}")

    def broker(self, pod: str, time: float, cpu_seconds: float, received: float, rate: float) -> None:
        """A scrape of a broker with 4 cores. received: messages that its counters count. rate: messages/s in."""
        container = {"pod": pod, "container": "broker"}
        self.show("container_cpu_usage_seconds_total", container, time, cpu_seconds)
        self.show("container_memory_working_set_bytes", container, time, 2**30)
        for metric, factor in _NETWORK.items():
            self.show(metric, {"pod": pod, "interface": "eth0"}, time, factor * received)
        for resource, size in {"cpu": 4.0, "memory": 2.0**33}.items():
            self.show("kube_pod_container_resource_limits", {**container, "resource": resource}, time, size)
        for name, factor in BUNDLE_FACTORS.items():
            self.show(f"pulsar_broker_{name}", {"pod": pod}, time, factor * rate)

    def bundle(self, name: str, pod: str, time: float, rate: float) -> None:
        """A scrape of a bundle. rate: messages/s in."""
        for metric, factor in BUNDLE_FACTORS.items():
            self.show(f"pulsar_bundle_msg_{metric}", {"bundle": name, "pod": pod}, time, factor * rate)

    def topic(self, name: str, pod: str, time: float, rate: float) -> None:
        """A scrape of a topic. rate: messages/s in."""
        for metric, factor in BUNDLE_FACTORS.items():
            self.show(f"pulsar_{metric}", {"topic": name, "pod": pod}, time, factor * rate)

    @contextmanager
    def served(self, program: Path, folder: Path) -> Iterator[PrometheusServer]:
        """A server that has these samples, and scrapes nothing."""
        folder.mkdir(parents=True, exist_ok=True)
        lines = folder / "lines"
        lines.write_text("".join(f"{line}\n" for line in _by_metric(self.lines)) + "# EOF\n")
        made = [find.find_prometheus(find.TOOL), "tsdb", "create-blocks-from", "openmetrics", lines, folder / "data"]
        subprocess.run(made, check=True, capture_output=True)
        with PrometheusServer(program, folder) as server:
            yield server


def _by_metric(lines: Sequence[str]) -> list[str]:
    """The lines in the order that the format requires: grouped by metric, then by series."""
    return sorted(lines, key=lambda line: line.partition("} ")[0])
