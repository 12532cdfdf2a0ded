"""The cycle against a real Prometheus that scrapes pages with the names and the traps of real brokers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from metrics_exporter import Exporter
from pipeline_clusters import FIRST, SECOND, topology
from trimtab_pipeline.api import LoadSource, Trust
from trimtab_strategies.model import CPU, MEMORY, NETWORK_IN, NETWORK_OUT, RATE_IN, RATE_OUT, ClusterLoad
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

pytestmark = [pytest.mark.spark, pytest.mark.prometheus]

WORLD = topology(
    {"broker-a": "pulsar-broker-0", "broker-b": "pulsar-broker-1"}, {FIRST: "broker-a", SECOND: "broker-b"}
)


def until(source: LoadSource, holds: Callable[[ClusterLoad], bool], seconds: float = 40) -> ClusterLoad:
    """The first picture of which `holds` is true."""
    end = time.monotonic() + seconds
    while True:
        load = source.observe(WORLD, time.time()).result(timeout=60).load
        if holds(load):
            return load
        assert time.monotonic() < end, (load.quality, load.brokers)
        time.sleep(0.25)


def target(exporter: Exporter) -> Target:
    return Target(exporter.address, {"namespace": "pulsar", "pod": exporter.pod})


def test_a_scraped_cluster_is_measured_and_a_broker_that_stops_loses_trust(
    prometheus_binary: Path, tmp_path: Path, observing: Callable[..., LoadSource]
) -> None:
    busy, idle = Exporter("pulsar-broker-0", 3.0, {FIRST: 10.0}), Exporter("pulsar-broker-1", 0.5, {SECOND: 20.0})
    with busy, PrometheusServer(prometheus_binary, tmp_path, scrape_interval=0.5) as server:
        source = observing(server.url, window=4.0, max_age=3.0, trust=Trust(min_samples=7))
        with idle:
            server.set_targets([target(busy), target(idle)])
            load = until(source, lambda seen: bool(seen.brokers.trusted.all()))
            assert load.brokers.usage[:, CPU] == pytest.approx([3.0, 0.5], rel=0.2)
            assert load.brokers.limit[:, CPU].tolist() == [4.0, 4.0]
            assert load.brokers.usage[:, MEMORY].tolist() == [2**30] * 2
            assert load.brokers.usage[:, NETWORK_IN] == pytest.approx([1e6] * 2, rel=0.2)
            assert load.brokers.usage[:, NETWORK_OUT] == pytest.approx([2e6] * 2, rel=0.2)
            assert load.brokers.traffic[:, RATE_OUT].tolist() == [200.0] * 2
            assert load.bundles.short[:, RATE_IN].tolist() == [10.0, 20.0]
            assert load.bundles.sessions.tolist() == [9.0, 9.0]
            assert not load.quality.dropped
        stopped = until(source, lambda seen: bool(seen.brokers.age[1] > 3.0))
        assert stopped.brokers.trusted.tolist() == [True, False]
        assert stopped.quality.missing_brokers == 1
        assert stopped.quality.doubts["broker-b"].text.startswith("not measured any more; newest sample ")
        forgotten = until(source, lambda seen: bool(np.isnan(seen.bundles.short[1]).all()))
        assert forgotten.bundles.short[0, RATE_IN] == pytest.approx(10.0)
