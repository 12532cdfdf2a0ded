"""The preset `kubernetes` on a real Prometheus, compared with numpy's reading of the pages that were scraped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from exposition_reader import history, increase, rate
from observed_load import observed
from page_server import PageServer, scraped
from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.prometheus.client import PrometheusClient
from trimtab_pipeline.transform.snapshot import shown
from trimtab_strategies.model import CPU, MEMORY, NETWORK_IN, NETWORK_OUT, LimitOrigin
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

pytestmark = pytest.mark.prometheus

PODS = ("pulsar-broker-0", "pulsar-broker-1", "pulsar-broker-2")
WORLD = topology({pod: pod for pod in PODS}, {})
GIB, INTERVAL, WINDOW = 2.0**30, 0.25, 5.0
_CPU = "container_cpu_usage_seconds_total"
OLD, NEW = "/kubepods/old", "/kubepods/new"
MEMORY_OF = {PODS[0]: 3 * GIB, PODS[1]: 2 * GIB, PODS[2]: GIB}


def _wants(kind: str, pod: str, resource: str, value: float, container: str = "broker") -> str:
    labels = f'namespace="ns",pod="{pod}",container="{container}",resource="{resource}",uid="u-{pod}"'
    return f"kube_pod_container_resource_{kind}{{{labels}}} {value}\n"


STATE = f"""\
{_wants("limits", PODS[0], "cpu", 4)}\
{_wants("limits", PODS[0], "memory", 8 * GIB)}\
{_wants("limits", PODS[0], "cpu", 64, container="sidecar")}\
{_wants("requests", PODS[0], "cpu", 1)}\
{_wants("requests", PODS[1], "cpu", 2)}\
{_wants("requests", PODS[1], "memory", 4 * GIB)}\
kube_pod_info{{namespace="ns",pod="{PODS[0]}",node="node-a",uid="u0"}} 1
kube_pod_info{{namespace="ns",pod="{PODS[1]}",node="node-b",uid="u1"}} 1
kube_pod_info{{namespace="ns",pod="{PODS[2]}",node="node-b",uid="u2"}} 1
kube_pod_info{{namespace="ns",pod="{PODS[2]}",node="",uid="u2"}} 1
kube_node_status_allocatable{{node="node-a",resource="cpu",unit="core"}} 32
kube_node_status_allocatable{{node="node-b",resource="cpu",unit="core"}} 16
kube_node_status_allocatable{{node="node-b",resource="memory",unit="byte"}} {64 * GIB}
node_network_speed_bytes{{instance="10.0.0.1:9100",node="node-a",device="eth0"}} 2.5e+09
node_network_speed_bytes{{instance="10.0.0.1:9100",node="node-a",device="veth7"}} 1e+11
node_network_speed_bytes{{instance="node-b:9100",device="eth0"}} 1.25e+10
node_network_speed_bytes{{instance="node-b:9100",device="eth1"}} -125000
"""


class Kubelets:
    """cAdvisor's page: uneven counters with times of their own, two rows per pod, and one pod that has restarted."""

    def __init__(self) -> None:
        self._chance = np.random.default_rng(5)
        self._counters: dict[tuple[str, str], float] = {}
        self.restarted = False

    def page(self) -> str:
        """What is scraped now."""
        now = f"{time.time() * 1000:.0f}"
        rows = [row for k, pod in enumerate(PODS) for row in self._pod(pod, 1.0 + k, now)]
        return STATE + "\n".join(rows) + "\n"

    def _pod(self, pod: str, load: float, now: str) -> Iterator[str]:
        container = OLD if pod == PODS[2] and not self.restarted else NEW
        memory = 9 * GIB if container == OLD else MEMORY_OF[pod]
        where = f'namespace="ns",pod="{pod}",id="{container}"'
        for name, mean in self._means(load * (20 if container == OLD else 1)).items():
            labels = f'{where},interface="eth0"' if "network" in name else f'{where},container="broker"'
            yield f"{name}{{{labels}}} {self._count(name, pod + container, mean)} {now}"
        yield f'container_memory_working_set_bytes{{{where},container="broker"}} {memory} {now}'
        yield f'container_memory_working_set_bytes{{namespace="ns",pod="{pod}",id="/",container=""}} {20 * GIB} {now}'
        yield f'container_network_receive_bytes_total{{{where},interface="lo"}} {9e15} {now}'
        yield f'pulsar_broker_rate_in{{namespace="ns",pod="{pod}"}} 5'

    @staticmethod
    def _means(load: float) -> dict[str, float]:
        return {
            "container_cpu_usage_seconds_total": 0.3 * load,
            "container_network_receive_bytes_total": 1e6 * load,
            "container_network_transmit_bytes_total": 2e6 * load,
            "container_cpu_cfs_periods_total": 10.0,
            "container_cpu_cfs_throttled_periods_total": load,  # less than half of them: these pods have room
        }

    def start_over(self, pod: str) -> None:
        """Set a pod's counters to nothing, in the series that they have."""
        self._counters |= {key: 0.0 for key in self._counters if key[1].startswith(pod)}

    def _count(self, name: str, who: str, mean: float) -> float:
        key = name, who
        self._counters[key] = self._counters.get(key, 1e6) + mean * self._chance.uniform(0.5, 1.5) * INTERVAL
        return self._counters[key]


def test_every_figure_equals_what_numpy_reads_from_the_pages(prometheus_binary: Path, tmp_path: Path) -> None:
    kubelets = Kubelets()
    with (
        PageServer(kubelets.page) as pages,
        PrometheusServer(prometheus_binary, tmp_path, scrape_interval=INTERVAL) as server,
    ):
        server.set_targets([Target(pages.address)])
        scraped(pages, 12)
        kubelets.restarted = True
        scraped(pages, 12)
        kubelets.start_over(PODS[1])
        scraped(pages, 12)
        at = round(time.time() - 2 * INTERVAL, 3)
        with PrometheusClient(server.url, 5) as client:
            naive = client.query(
                f'max by (pod) (container_memory_working_set_bytes{{pod="{PODS[2]}",container="broker"}})', at
            )
        seen = observed(PrometheusSettings(server.url, "ns", window=WINDOW, nic_speed=1e9), WORLD, at)
        load, extra = seen.load, shown(seen.brokers, WORLD)

    assert naive.values.to_pylist() == [9 * GIB]  # a container that is gone is still shown
    resets = [np.diff(history(pages.served, _CPU, {"pod": pod, "id": NEW})[:, 1]).min() < 0 for pod in PODS]
    assert resets == [False, True, False]
    usage, limit = load.brokers.usage, load.brokers.limit
    assert usage[:, MEMORY].tolist() == list(MEMORY_OF.values())
    for row, pod in enumerate(PODS):
        labels = {"pod": pod, "id": NEW}

        def per_second(name: str, labels: dict[str, str] = labels) -> float:
            only = labels | ({"interface": "eth0"} if "network" in name else {})
            return rate(history(pages.served, name, only), at, WINDOW)

        assert usage[row, CPU] == pytest.approx(per_second(_CPU), rel=1e-6)
        assert usage[row, NETWORK_IN] == pytest.approx(per_second("container_network_receive_bytes_total"), rel=1e-6)
        assert usage[row, NETWORK_OUT] == pytest.approx(per_second("container_network_transmit_bytes_total"), rel=1e-6)
        throttled, periods = (
            increase(history(pages.served, f"container_cpu_cfs_{name}periods_total", labels), at, WINDOW)
            for name in ("throttled_", "")
        )
        assert extra["throttled"][row] == pytest.approx(throttled / periods, rel=1e-6)
    assert limit[:, CPU].tolist() == [4.0, 16.0, 16.0]  # its limit, their nodes: a request is no limit
    assert limit[:, MEMORY].tolist() == [8 * GIB, 64 * GIB, 64 * GIB]
    origins = [load.quality.limits[pod]["cpu"] for pod in PODS]
    assert origins == [LimitOrigin.METRICS, LimitOrigin.NODE, LimitOrigin.NODE]
    assert limit[:, NETWORK_IN].tolist() == limit[:, NETWORK_OUT].tolist() == [2.5e9, 1.25e10, 1.25e10]
    assert load.brokers.trusted.all()
    assert load.brokers.age.max() < 3 * INTERVAL
    assert not load.quality.dropped
