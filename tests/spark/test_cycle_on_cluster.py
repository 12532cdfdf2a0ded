"""Cycles on a standalone cluster: the figures of this process's own threads, without any file of the driver."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cluster_driver import FIRST, SECOND, cycles, cycles_on_cluster
from fake_prometheus import FakePrometheus, add_broker, add_bundle
from spark_servers import SparkCluster
from trimtab_pipeline.factory import direct_sources

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def prometheus() -> FakePrometheus:
    """Brokers a and b, with a bundle on each; its rates differ."""
    server = FakePrometheus()
    for number, (pod, bundle) in enumerate({"a": FIRST, "b": SECOND}.items()):
        add_broker(server, pod)
        add_bundle(server, bundle, pod, 10.0 + number)
    return server


def test_cycles_on_a_cluster_that_sees_no_file_of_the_driver_give_the_same_load(
    prometheus: FakePrometheus, tmp_path: Path
) -> None:
    hidden = tmp_path / "driver"
    hidden.mkdir()
    direct = direct_sources(tmp_path / "direct")
    with prometheus, SparkCluster(tmp_path / "servers", hidden=[hidden]) as cluster:
        expected = cycles(direct, prometheus.url)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            found = process.submit(cycles_on_cluster, cluster.url, prometheus.url, hidden).result(500)
    direct.close()
    assert list((hidden / "history").iterdir()), "the driver keeps the state in a folder that the workers do not see"
    for one, other in zip(found, expected, strict=True):
        assert one.brokers.trusted.all()
        np.testing.assert_array_equal(one.brokers.usage, other.brokers.usage)
        for name in ("short", "long", "topics", "sessions"):
            np.testing.assert_array_equal(getattr(one.bundles, name), getattr(other.bundles, name))
