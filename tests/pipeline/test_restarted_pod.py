"""A broker's pod that restarts under another address, seen by the preset `pulsar` on a real Prometheus.

What brokers say of themselves are gauges: there is no counter that could be reset, but the old pod's page has series of
its own, which a receiver of remote write shows until they are too old, as nobody told it that they ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exposition_reader import samples_of
from observed_load import observed
from page_server import PageServer, scraped
from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.prometheus.client import PrometheusClient
from trimtab_strategies.model import CPU, RATE_IN, RESOURCES
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

pytestmark = pytest.mark.prometheus

POD, BUNDLE = "pulsar-broker-0", "t/n/0x00000000_0xffffffff"
WORLD = topology({POD: POD}, {BUNDLE: POD})
_OF = dict(zip(RESOURCES, ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out"), strict=True))


def page(load: float) -> PageServer:
    """The page of a process under this load; it has no times, as brokers write none."""
    own = f'namespace="ns",pod="{POD}"'
    rows = [f"pulsar_lb_{name}_usage{{{own}}} {load + k}" for k, name in enumerate(_OF.values())]
    for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
        rows += [f"pulsar_broker_{name}{{{own}}} {10 * load}"]
        rows += [f'pulsar_bundle_msg_{name}{{{own},bundle="{BUNDLE}"}} {9 * load}']
    return PageServer(lambda: "\n".join(rows) + "\n")


@pytest.fixture
def receiver(prometheus_binary: Path, tmp_path: Path) -> Iterator[PrometheusServer]:
    with PrometheusServer(prometheus_binary, tmp_path / "receiver", receives=True) as server:
        yield server


def test_the_new_process_speaks_for_the_pod_while_the_old_one_is_still_shown(
    prometheus_binary: Path, tmp_path: Path, receiver: PrometheusServer
) -> None:
    folder = tmp_path / "scraper"
    with page(90.0) as old, page(10.0) as new:
        scraper = PrometheusServer(prometheus_binary, folder, scrape_interval=0.25, forward=receiver.url)
        with scraper:
            scraper.set_targets([Target(old.address, {"instance": "10.0.0.1:8080"})])
            scraped(old, 6)
            scraper.server.kill()  # it writes no end of the series, as when the pod and its scraper die with a node
        with PrometheusServer(
            prometheus_binary, tmp_path / "next", scrape_interval=0.25, forward=receiver.url
        ) as following:
            following.set_targets([Target(new.address, {"instance": "10.0.0.2:8080"})])
            scraped(new, 6)
            at = round(time.time() - 0.5, 3)
            with PrometheusClient(receiver.url, 5) as client:
                shown = client.query(f'max by (instance) (pulsar_lb_cpu_usage{{pod="{POD}"}})', at)
            seen = observed(PrometheusSettings(receiver.url, "ns", "pulsar", window=5), WORLD, at)
        load, (bundle,) = seen.load, seen.bundle_rates().values()
        truth = {name: value for name, _, value, _ in samples_of(new.served[-1])}

    assert sorted(shown.values.to_pylist()) == [10.0, 90.0]
    assert load.brokers.usage[0].tolist() == [truth[f"pulsar_lb_{name}_usage"] for name in _OF.values()]
    assert load.brokers.traffic[0, RATE_IN] == truth["pulsar_broker_rate_in"] == 100.0
    assert bundle == truth["pulsar_bundle_msg_rate_in"] == 90.0
    assert load.brokers.limit[0, CPU] == 100.0
    assert load.brokers.trusted.all()
    assert not load.quality.dropped, "series that ended before others began are no copies"
