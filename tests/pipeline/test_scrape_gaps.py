"""A broker whose kubelet is not scraped for a while, and one that restarts, on a real Prometheus.

Samples of cAdvisor bear times of their own, so Prometheus does not mark the end of their series: it goes on to show the
last ones, and `rate()` over them falls towards nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from observed_load import observed
from page_server import PageServer, scraped
from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_strategies.model import CPU, NETWORK_IN, ClusterLoad
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

pytestmark = pytest.mark.prometheus

PODS = STEADY, GONE, RESTARTED = ("pulsar-broker-0", "pulsar-broker-1", "pulsar-broker-2")
WORLD = topology({pod: pod for pod in PODS}, {})
INTERVAL, WINDOW = 0.5, 6.0
LOAD, LIMIT, NIC = 0.95, 4, 1e8
_COUNTERS = {"container_cpu_usage_seconds_total": LIMIT, "container_network_receive_bytes_total": NIC}


class Kubelets:
    """Pages of brokers at `LOAD` of everything. silent: pods that nobody tells of. begun: when each process began."""

    def __init__(self) -> None:
        self.silent: set[str] = set()
        self.begun = dict.fromkeys(PODS, time.time() - 1000)

    def page(self) -> str:
        """What is scraped now."""
        now = time.time()
        own = [row for pod in PODS for row in self._broker(pod)]
        return "\n".join([*own, *(row for pod in PODS if pod not in self.silent for row in self._pod(pod, now))]) + "\n"

    def _pod(self, pod: str, now: float) -> Iterator[str]:
        labels = f'namespace="ns",pod="{pod}",id="{self.begun[pod]}",container="broker",interface="eth0"'
        for name, limit in _COUNTERS.items():
            yield f"{name}{{{labels}}} {LOAD * limit * (now - self.begun[pod])} {now * 1000:.0f}"
        yield f"container_memory_working_set_bytes{{{labels}}} {LOAD} {now * 1000:.0f}"

    @staticmethod
    def _broker(pod: str) -> Iterator[str]:
        labels = f'namespace="ns",pod="{pod}",container="broker"'
        yield f'kube_pod_container_resource_limits{{{labels},resource="cpu"}} {LIMIT}'
        yield f'kube_pod_container_resource_limits{{{labels},resource="memory"}} 1'
        yield f"pulsar_broker_rate_in{{{labels}}} 1"


def look(url: str) -> ClusterLoad:
    """The brokers as of now."""
    at = round(time.time(), 3)
    settings = PrometheusSettings(url, "ns", window=WINDOW, nic_speed=NIC)
    return observed(settings, WORLD, at).load


def watched(url: str, seconds: float) -> set[tuple[str, bool]]:
    """Look for so long: whether each broker was ever, and was ever not, believed. Those that are must be right."""
    found, end = set[tuple[str, bool]](), time.monotonic() + seconds
    while time.monotonic() < end:
        brokers = look(url).brokers
        for row, pod in enumerate(PODS):
            found.add((pod, bool(brokers.trusted[row])))
            if brokers.trusted[row]:
                assert brokers.usage[row, CPU] / LIMIT == pytest.approx(LOAD, abs=0.10)
                assert brokers.usage[row, NETWORK_IN] / NIC == pytest.approx(LOAD, abs=0.10)
    return found


def all_believed(url: str) -> None:
    """Wait until all are."""
    end = time.monotonic() + 60
    while not (load := look(url)).brokers.trusted.all():
        assert time.monotonic() < end, load.quality.doubts
        time.sleep(INTERVAL / 2)


def test_a_broker_is_right_or_not_trusted_while_no_one_scrapes_it_and_after_its_restart(
    prometheus_binary: Path, tmp_path: Path
) -> None:
    kubelets = Kubelets()
    with (
        PageServer(kubelets.page) as pages,
        PrometheusServer(prometheus_binary, tmp_path, scrape_interval=INTERVAL) as server,
    ):
        server.set_targets([Target(pages.address)])
        scraped(pages, round(1.5 * WINDOW / INTERVAL))
        all_believed(server.url)
        kubelets.silent.add(GONE)
        kubelets.begun[RESTARTED] = time.time()
        scraped(pages, 1)
        first = watched(server.url, 1.5 * WINDOW)
        kubelets.silent.clear()
        second = watched(server.url, WINDOW)
        all_believed(server.url)
    assert {pod for pod, trusted in first if not trusted} >= {GONE, RESTARTED}
    assert (GONE, False) in second
    assert {(STEADY, True)} <= first & second
