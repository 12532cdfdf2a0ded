"""Two real Prometheus replicas behind one server that holds the series of both, as Thanos, Mimir and Cortex do.

Each scrapes the same brokers at its own moments, and sends all it has to a third by remote write, marked with the
external label ``prometheus_replica``. One of them dies: its last samples are shown for a while beside the living ones.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from exposition_reader import history, rate
from observed_load import observed
from page_server import PageServer
from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.prometheus.client import PrometheusClient
from trimtab_strategies.model import CPU, MEMORY, NETWORK_IN, RATE_IN, ClusterLoad
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

pytestmark = pytest.mark.prometheus

PODS = ("pulsar-broker-0", "pulsar-broker-1")
INTERVAL, WINDOW, GIB = 0.25, 2.5, 2.0**30
STAYS, MOVES = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"
WORLD = topology({pod: pod for pod in PODS}, {STAYS: PODS[0], MOVES: PODS[0]})
TOPIC = {STAYS: "persistent://t/n/topic-0", MOVES: "persistent://t/n/topic-2"}
_CPU = "container_cpu_usage_seconds_total"
_COUNTERS = {
    _CPU: 0.5,
    "container_network_receive_bytes_total": 1e6,
    "container_network_transmit_bytes_total": 2e6,
}


class Brokers:
    """Two broker pods and their kubelets. `load` is what everything they carry is multiplied by.

    Counters are those of the process, so both replicas see the same; samples of cAdvisor have times of their own.
    """

    def __init__(self) -> None:
        self._chance = np.random.default_rng(11)
        self._counters = {(name, pod): 1e6 for name in _COUNTERS for pod in PODS}
        self._counted = time.time()
        self.load = 1.0
        self.home = {STAYS: PODS[0], MOVES: PODS[0]}

    def page(self) -> str:
        """What is scraped now."""
        now = time.time()
        for (name, pod), value in self._counters.items():
            uneven = self._chance.uniform(0.5, 1.5) * (1 + PODS.index(pod))
            self._counters[name, pod] = value + _COUNTERS[name] * self.load * uneven * (now - self._counted)
        self._counted = now
        return "\n".join(row for pod in PODS for row in self._rows(pod, f"{now * 1000:.0f}")) + "\n"

    def start_over(self, pod: str) -> None:
        """Set a pod's counters to nothing, as a restarted process does."""
        self._counters |= {key: 0.0 for key in self._counters if key[1] == pod}

    def _rows(self, pod: str, now: str) -> Iterator[str]:
        kubelet, own = f'namespace="ns",pod="{pod}",id="/kubepods/x"', f'namespace="ns",pod="{pod}"'
        for name in _COUNTERS:
            only = 'interface="eth0"' if "network" in name else 'container="broker"'
            yield f"{name}{{{kubelet},{only}}} {self._counters[name, pod]} {now}"
        yield f'container_memory_working_set_bytes{{{kubelet},container="broker"}} {self.load * GIB} {now}'
        for resource, limit in {"cpu": 8, "memory": 16 * GIB}.items():
            where = f'{own},container="broker",resource="{resource}"'
            yield f"kube_pod_container_resource_limits{{{where}}} {limit}"
        for name in ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out"):
            yield f"pulsar_lb_{name}_usage{{{own}}} {10 * self.load}"
        for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
            yield f"pulsar_broker_{name}{{{own}}} {100 * self.load}"
            for bundle in (bundle for bundle, home in self.home.items() if home == pod):
                yield f'pulsar_bundle_msg_{name}{{{own},bundle="{bundle}"}} {40 * self.load}'
                topic = f'namespace="t/n",pod="{pod}",topic="{TOPIC[bundle]}"'
                yield f"pulsar_{name}{{{topic}}} {30 * self.load}"


@dataclass(frozen=True)
class Replicas:
    """The brokers, the pages that each replica scraped, the replicas, and the URL of the server that holds both's."""

    brokers: Brokers
    pages: tuple[PageServer, PageServer]
    servers: tuple[PrometheusServer, PrometheusServer]
    url: str

    def scraped(self, times: int, *replicas: int) -> None:
        """Wait until these replicas have scraped so often from now on."""
        ends, deadline = {k: len(self.pages[k].served) + times for k in replicas}, time.monotonic() + 40
        while not all(len(self.pages[k].served) >= end for k, end in ends.items()):
            assert time.monotonic() < deadline, f"no {times} scrapes"
            time.sleep(0.05)


@pytest.fixture
def replicas(prometheus_binary: Path, tmp_path: Path) -> Iterator[Replicas]:
    """Both are running, and have been for a window."""
    brokers = Brokers()
    with ExitStack() as running:
        pages = PageServer(brokers.page), PageServer(brokers.page)
        for page in pages:
            running.enter_context(page)
        one = running.enter_context(PrometheusServer(prometheus_binary, tmp_path / "both", receives=True))
        first, second = (
            running.enter_context(
                PrometheusServer(
                    prometheus_binary,
                    tmp_path / name,
                    [Target(page.address, {"instance": "the-same"})],
                    scrape_interval=INTERVAL,
                    replica=name,
                    forward=one.url,
                )
            )
            for name, page in zip("ab", pages, strict=True)
        )
        made = Replicas(brokers, pages, (first, second), one.url)
        made.scraped(round(1.2 * WINDOW / INTERVAL), 0, 1)
        yield made


def figures(
    url: str, at: float, resources: str = "kubernetes", bundle_metrics: str = "bundle"
) -> tuple[ClusterLoad, Mapping[tuple[str, str], float]]:
    """The brokers as of `at`, and msg/s in of each bundle on each pod that reports it."""
    settings = PrometheusSettings(url, "ns", resources, window=WINDOW, bundle_metrics=bundle_metrics)
    seen = observed(settings, WORLD, at)
    return seen.load, seen.bundle_rates()


def check_rates(load: ClusterLoad, pages: Sequence[PageServer], at: float) -> None:
    """Rates of `load` are those that numpy works out from the pages of the replica that knows the newest sample."""
    for row, pod in enumerate(PODS):
        for name, column in {_CPU: CPU, "container_network_receive_bytes_total": NETWORK_IN}.items():
            seen = [history(page.served, name, {"pod": pod}) for page in pages]
            past = [series[series[:, 0] <= at] for series in seen]
            newest = max(past, key=lambda series: float(series[-1, 0]))
            assert load.brokers.usage[row, column] == pytest.approx(rate(newest, at, WINDOW), rel=1e-6)


def test_with_two_replicas_figures_are_those_of_numpy_and_nothing_counts_twice(replicas: Replicas) -> None:
    replicas.brokers.start_over(PODS[1])
    replicas.scraped(6, 0, 1)
    at = round(time.time() - 2 * INTERVAL, 3)
    load, bundles = figures(replicas.url, at)
    check_rates(load, replicas.pages, at)
    assert load.brokers.usage[:, MEMORY].tolist() == [GIB, GIB]
    assert load.brokers.limit[:, CPU].tolist() == [8.0, 8.0]
    assert load.brokers.traffic[:, RATE_IN].tolist() == [100.0, 100.0]
    assert bundles == {(STAYS, PODS[0]): 40.0, (MOVES, PODS[0]): 40.0}
    assert figures(replicas.url, at, "pulsar")[0].brokers.usage.tolist() == [[10.0] * 5] * 2
    assert load.brokers.trusted.all()
    assert load.quality.dropped == {"Duplicate": 2}
    assert "the same series exists more than once" in "\n".join(load.quality.notes)
    assert "counters were reset" in "\n".join(load.quality.notes)


@pytest.fixture
def lagging(replicas: Replicas) -> Replicas:
    """One replica died under ten times the load, from which the brokers have come down since; a bundle has moved."""
    replicas.brokers.load = 10.0
    replicas.scraped(4, 0, 1)
    replicas.servers[1].server.kill()
    replicas.brokers.load = 1.0
    replicas.brokers.home[MOVES] = PODS[1]
    replicas.scraped(round(1.2 * WINDOW / INTERVAL), 0)
    return replicas


def test_a_replica_that_died_is_not_asked_what_the_living_one_knows_better(lagging: Replicas) -> None:
    at = round(time.time() - 2 * INTERVAL, 3)
    with PrometheusClient(lagging.url, 5) as client:
        shown = client.query('max by (prometheus_replica) (pulsar_lb_cpu_usage{namespace="ns"})', at)
    replica = shown.label("prometheus_replica").to_pylist()
    assert dict(zip(replica, shown.values.to_pylist(), strict=True)) == {"a": 10.0, "b": 100.0}  # still beside it

    load, bundles = figures(lagging.url, at)
    check_rates(load, lagging.pages, at)
    assert load.brokers.usage[:, MEMORY].tolist() == [GIB, GIB]
    assert load.brokers.traffic[:, RATE_IN].tolist() == [100.0, 100.0]
    assert bundles == {(STAYS, PODS[0]): 40.0, (MOVES, PODS[1]): 40.0}
    assert figures(lagging.url, at, "pulsar")[0].brokers.usage.tolist() == [[10.0] * 5] * 2
    assert figures(lagging.url, at, "pulsar", "topic")[1] == {(STAYS, PODS[0]): 30.0, (MOVES, PODS[1]): 30.0}
    assert load.brokers.age.max() < 4 * INTERVAL
    assert load.brokers.trusted.all()
