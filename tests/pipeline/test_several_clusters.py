"""A real Prometheus that has the metrics of two Kubernetes clusters, and of brokers in the networks of their hosts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from page_server import PageServer, scraped
from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.sources.direct import DirectLoadSources
from trimtab_strategies.model import CPU, NETWORK_IN, ClusterLoad
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

pytestmark = pytest.mark.prometheus

CORES = {"b-0": 1.5, "b-1": 0.6}
WORLD = topology({pod: pod for pod in CORES}, {})
INTERVAL, WINDOW, GIB = 0.25, 5.0, 2.0**30
HOST = {"ens5": 1.0, "eni4af1c3b2e10": 0.7, "azv1b2c3": 0.7, "ens5.7": 0.5, "docker0": 0.2}
"""Devices of hosts, and their traffic in that of the NIC."""
BOTH = ("east", "west")


class Clusters:
    """A namespace for each case. Brokers of west have a fifth of the load of those of east, and twice their limits."""

    def __init__(self) -> None:
        self._begun = time.time() - 5000

    def page(self) -> str:
        """What is scraped now."""
        cases = (
            self._brokers("mixed", BOTH, BOTH),
            self._brokers("limits", ("east",), BOTH),
            self._brokers("alone", ("east",), ("east",)),
            self._brokers("hosts", ("east",), ("east",), HOST),
        )
        return "\n".join(row for rows in cases for row in rows) + "\n"

    def _brokers(
        self,
        namespace: str,
        metered: tuple[str, ...],
        listed: tuple[str, ...],
        devices: Mapping[str, float] = {"eth0": 1},
    ) -> Iterator[str]:
        for pod, cores in CORES.items():
            for cluster in dict.fromkeys((*metered, *listed)):
                own = f'namespace="{namespace}",pod="{pod}",k8s_cluster="{cluster}"'
                if cluster in metered:
                    yield from self._metrics(own, cores * (1 if cluster == "east" else 0.2), devices)
                if cluster in listed:
                    yield from self._state(own, f"{namespace}-{pod}", cluster)

    def _metrics(self, own: str, cores: float, devices: Mapping[str, float]) -> Iterator[str]:
        used = cores * (time.time() - self._begun)
        yield f'container_cpu_usage_seconds_total{{{own},container="broker",id="/x",cpu="total"}} {used}'
        yield f'container_memory_working_set_bytes{{{own},container="broker",id="/x"}} {GIB}'
        for device, share in devices.items():
            for kind in ("receive", "transmit"):
                yield f'container_network_{kind}_bytes_total{{{own},id="/x",interface="{device}"}} {5e7 * share * used}'
        for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
            yield f"pulsar_broker_{name}{{{own}}} {1000 * cores}"

    def _state(self, own: str, node: str, cluster: str) -> Iterator[str]:
        for resource, limit in {"cpu": 2, "memory": 4 * GIB}.items():
            value = limit * (1 if cluster == "east" else 2)
            yield f'kube_pod_container_resource_limits{{{own},container="broker",resource="{resource}"}} {value}'
        yield f'kube_pod_info{{{own},node="{node}",uid="{cluster}"}} 1'
        for device, speed in {"ens5": 1.25e8, "eni4af1c3b2e10": 1.25e9, "azv1b2c3": 1.25e9, "cali1": 1.25e9}.items():
            yield f'node_network_speed_bytes{{node="{node}",k8s_cluster="{cluster}",device="{device}"}} {speed}'


@pytest.fixture(scope="module")
def server(prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        PageServer(Clusters().page) as pages,
        PrometheusServer(prometheus_binary, folder, scrape_interval=INTERVAL) as found,
    ):
        found.set_targets([Target(pages.address)])
        scraped(pages, int(1.5 * WINDOW / INTERVAL))
        yield found.url


def seen(url: str, folder: Path, namespace: str, **settings: object) -> ClusterLoad:
    made = DirectLoadSources(folder, deadline=30)
    asked = PrometheusSettings(url, namespace, window=WINDOW, **settings)  # type: ignore[arg-type]
    found = made.open("tests/clusters", asked).observe_brokers(WORLD, time.time()).result(timeout=30).load
    made.close()
    return found


@pytest.mark.parametrize(
    ("namespace", "claimed"), [("mixed", ("cpu", "traffic", "limit of cpu")), ("limits", ("limit of cpu",))]
)
def test_mixed_clusters_are_not_trusted_and_a_matcher_is_named(
    server: str, tmp_path: Path, namespace: str, claimed: tuple[str, ...]
) -> None:
    load = seen(server, tmp_path, namespace)
    assert not load.brokers.trusted.any()
    for doubt in load.quality.doubts.values():
        assert all(name in doubt.text for name in claimed)
        assert "they differ in the label k8s_cluster (east, west)" in doubt.text
        assert "source.prometheus.matchers, such as k8s_cluster: east" in doubt.text


@pytest.mark.parametrize(("cluster", "used"), [("east", [0.75, 0.3]), ("west", [0.075, 0.03])])
def test_a_matcher_chooses_a_cluster(server: str, tmp_path: Path, cluster: str, used: list[float]) -> None:
    load = seen(server, tmp_path, "mixed", matchers=(("k8s_cluster", cluster),))
    assert load.brokers.trusted.all(), load.quality
    np.testing.assert_allclose(load.brokers.usage[:, CPU] / load.brokers.limit[:, CPU], used, rtol=0.1)


def test_one_cluster_is_trusted_without_a_matcher(server: str, tmp_path: Path) -> None:
    load = seen(server, tmp_path, "alone")
    assert load.brokers.trusted.all(), load.quality
    assert not load.quality.notes


def test_of_a_host_only_its_nic_counts_by_its_speed(server: str, tmp_path: Path) -> None:
    load = seen(server, tmp_path, "hosts")
    assert load.brokers.trusted.all(), load.quality
    assert load.brokers.limit[:, NETWORK_IN].tolist() == [1.25e8] * 2
    np.testing.assert_allclose(load.brokers.usage[:, NETWORK_IN] / 1.25e8, [0.6, 0.24], rtol=0.1)
