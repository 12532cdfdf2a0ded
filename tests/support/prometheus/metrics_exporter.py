"""A ``/metrics`` page with the names and peculiarities of a real broker pod, for a real Prometheus to scrape."""

from __future__ import annotations

import time
from collections.abc import Mapping

from page_server import PageServer

_TOTALS = {"rate_in": 100, "rate_out": 200, "throughput_in": 1e5, "throughput_out": 2e5}
"""Load of the whole broker by default: msg/s and bytes/s."""


class Exporter(PageServer):
    """One pod: rows of its kubelet and of its broker, on a free port of 127.0.0.1 while entered.

    cores: CPU in use, of a limit of 4. bundles: msg/s in by bundle name, served as long as they are listed.
    totals: load of the whole broker.
    """

    def __init__(
        self, pod: str, cores: float, bundles: dict[str, float], totals: Mapping[str, float] = _TOTALS
    ) -> None:
        super().__init__(self.text)
        self.pod, self.cores, self.bundles, self.totals = pod, cores, bundles, totals
        self._begin = time.time()

    def restart(self) -> None:
        """Reset all counters to zero, as a restarted process does."""
        self._begin = time.time()

    def text(self) -> str:
        """The page; counters run from the creation of the exporter."""
        seconds = time.time() - self._begin
        where = f'namespace="pulsar",pod="{self.pod}"'
        rows = [
            f'container_cpu_usage_seconds_total{{{where},container="broker"}} {self.cores * seconds}',
            f'container_cpu_usage_seconds_total{{{where},container=""}} {2 * self.cores * seconds}',
            f'container_cpu_usage_seconds_total{{{where},container="POD"}} {0.01 * seconds}',
            f'container_memory_working_set_bytes{{{where},container="broker"}} {2**30}',
            f'container_memory_working_set_bytes{{{where},container=""}} {2**31}',
            f'kube_pod_container_resource_limits{{{where},container="broker",resource="cpu",unit="core"}} 4',
            f'kube_pod_container_resource_limits{{{where},container="broker",resource="memory",unit="byte"}} {2**32}',
            f'kube_pod_container_resource_limits{{{where},container="sidecar",resource="cpu",unit="core"}} 9',
            f'container_network_receive_bytes_total{{{where},interface="eth0"}} {1e6 * seconds}',
            f'container_network_receive_bytes_total{{{where},interface="lo"}} {9e6 * seconds}',
            f'container_network_transmit_bytes_total{{{where},interface="eth0"}} {2e6 * seconds}',
            f'pulsar_lb_cpu_usage{{cluster="c",broker="{self.pod}.host",metric="loadBalancing"}} {25 * self.cores}',
            'pulsar_rate_in{cluster="c",namespace="t/n",topic="persistent://t/n/x"} 7',
            *(f'pulsar_broker_{name}{{cluster="c"}} {value}' for name, value in self.totals.items()),
        ]
        for bundle, rate in self.bundles.items():
            labels = f'cluster="c",broker="{self.pod}.host",bundle="{bundle}",metric="bundle"'
            rows += [f"pulsar_bundle_{name}{{{labels}}} {value}" for name, value in _bundle(rate).items()]
        return "\n".join(rows) + "\n"


def _bundle(rate: float) -> dict[str, float]:
    traffic = {
        "msg_rate_in": rate,
        "msg_rate_out": 2 * rate,
        "msg_throughput_in": 1e3 * rate,
        "msg_throughput_out": 2e3 * rate,
    }
    return traffic | {"topics_count": 3, "producer_count": 4, "consumer_count": 5}
