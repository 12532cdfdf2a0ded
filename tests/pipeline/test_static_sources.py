"""The source without Prometheus behaves like a real one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from observed_load import observed
from pipeline_clusters import FIRST, SECOND, topology
from static_sources import StaticSource, StaticSources
from trimtab_pipeline.api import LoadSource, LoadSources, PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.prometheus.shard_reader import DRY_URL
from trimtab_strategies.model import CPU, ClusterLoad

SETTINGS = PrometheusSettings("http://x", "pulsar")


def fixed() -> ClusterLoad:
    """Brokers a and b with 1 and 2 cores in use, of which a has the first bundle with 7 msg/s in."""
    load = observed(PrometheusSettings(DRY_URL, "pulsar"), topology({"a": "a", "b": "b"}, {FIRST: "a"}), 0.0).load
    usage, short = np.full((2, 5), 1.0), np.full((1, 4), 7.0)
    usage[1] = 2.0
    brokers = dataclasses.replace(load.brokers, usage=usage, trusted=np.ones(2, bool))
    bundles = dataclasses.replace(load.bundles, short=short, newest=short + 1)
    return dataclasses.replace(load, brokers=brokers, bundles=bundles)


def test_a_bundle_that_moved_keeps_its_load_and_strangers_have_none() -> None:
    source: LoadSource = StaticSource(fixed())
    world = topology({"c": "c", "b": "b", "a": "a"}, {SECOND: "", FIRST: "b"})
    load = source.observe(world, 5.0).result().load
    assert load.now == 5.0
    assert load.brokers.trusted.tolist() == [False, True, True]
    assert load.brokers.usage[1:, CPU].tolist() == [2.0, 1.0]
    assert load.brokers.age[0] == np.inf
    assert load.bundles.short[:, 0].tolist() == pytest.approx([np.nan, 7.0], nan_ok=True)
    assert load.bundles.newest[:, 0].tolist() == pytest.approx([np.nan, 8.0], nan_ok=True)
    assert load.bundles.owner.tolist() == [-1, 1]
    assert (load.quality.missing_brokers, load.quality.missing_bundles) == (1, 1)


def test_it_fails_on_request() -> None:
    source = StaticSource(fixed())
    source.error = SourceUnavailableError("down")
    with pytest.raises(SourceUnavailableError, match="down"):
        source.observe(topology({"a": "a"}, {}), 5.0).result()


def test_every_policy_gets_it() -> None:
    source = StaticSource(fixed())
    sources: LoadSources = StaticSources(source)
    assert sources.open("ns/policy", SETTINGS) is source
    assert sources.warm_up().done()
