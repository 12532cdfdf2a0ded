"""Cycles of several policies that are due at the same time: Spark measures them together."""

from __future__ import annotations

import time

import pytest

from fake_prometheus import FakePrometheus, Faults
from pipeline_clusters import AT, FIRST, SECOND, TWO_BROKERS, on_both, topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_strategies.hash_ring import topic_hash
from trimtab_strategies.model import RATE_IN

NO_BUNDLES = topology({"broker-a": "a", "broker-b": "b"}, {})
TOPICS = {FIRST: "persistent://t/n/0", SECOND: "persistent://t/n/2"}
_BUSY = 1.0
"""Seconds that Spark is busy while the policies are submitted."""


def put_topics(server: FakePrometheus, rate: float) -> None:
    """A topic in each bundle, on the bundle's pod, with this rate of messages."""
    for pod, (bundle, topic) in zip("ab", TOPICS.items(), strict=True):
        assert (topic_hash(topic) < 0x80000000) == (bundle == FIRST)
        for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
            server.put(f"pulsar_{name}", rate, namespace="t/n", pod=pod, topic=topic)


@on_both
def test_a_policy_without_bundles_takes_none_from_the_policies_after_it(
    fake: FakePrometheus, sources: PolicySources
) -> None:
    """Three policies in one batch, the second without bundles: the averages of the third go on."""
    for bundle in (FIRST, SECOND):
        fake.drop(bundle=bundle)
    settings = PrometheusSettings(fake.url, "pulsar", averages="samples", bundle_metrics="topic")
    due = {"one": TWO_BROKERS, "two": NO_BUNDLES, "three": TWO_BROKERS}
    policies = {name: sources.open(f"batches/{name}", settings) for name in ("busy", *due)}
    for cycle, rate in enumerate((10.0, 40.0)):
        put_topics(fake, rate)
        fake.faults = Faults(delay=_BUSY)
        busy = policies["busy"].observe(TWO_BROKERS, AT + 60 * cycle)
        while not fake.queries:  # its job runs
            time.sleep(0.01)
        fake.faults = Faults()
        waiting = {name: policies[name].observe(world, AT + 60 * cycle) for name, world in due.items()}
        loads = {name: job.result(timeout=120).load for name, job in waiting.items()}
        busy.result(timeout=120)
        fake.queries.clear()
        for name in ("one", "three"):
            assert not loads[name].quality.missing_bundles, name
            expected = [(50 + 10) / 2, (50 + 10 + 40) / 3][cycle]
            assert loads[name].bundles.short[:, RATE_IN].tolist() == pytest.approx([expected] * 2), name
        assert loads["two"].brokers.trusted.all()
